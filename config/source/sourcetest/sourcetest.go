package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
)

// patience is how long a source may take to notice a change, to load, or to end. It is for a busy machine: only a test
// that fails takes as long.
const patience = 10 * time.Second

// NewFunc returns a source and a function that sets its document: to doc, also where that is empty, or to nothing at all
// where doc is nil. There is no document at first. set returns when the document is set; it fails t where it cannot, and
// skips t with the reason where the store cannot hold such a document, as one of [config.MaxDocument] bytes. Both belong to
// t, and are released with t.Cleanup. A source that polls is set to poll often.
type NewFunc func(t *testing.T) (src config.Source, set func(doc []byte))

// Run tests a source against the contract of [config.Source], in one subtest per promise. newSource is called once in each.
func Run(t *testing.T, newSource NewFunc) {
	t.Helper()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			src, set := newSource(t)
			p.check(&run{T: t, src: src, set: set})
		})
	}
}

// promise is one part of the contract and the check of it.
type promise struct {
	name  string
	check func(r *run)
}

var promises = []promise{
	{"none at first", func(r *run) {
		r.loadsNone()
	}},
	{"loads what is set, to the byte", func(r *run) {
		for _, doc := range []string{
			"version: 1\n",
			"version: 1", // no newline at the end
			"\n\n  # 请求频率\r\n\tversion: 1\r\n\n",
			`{"version": 1, "policies": [{"name": "a\u0000b"}]}`,
			string(bytes.Repeat([]byte("# a line of a longer document\n"), 5000)),
		} {
			r.set([]byte(doc))
			r.loads([]byte(doc))
		}
	}},
	{"what Load returns is the caller's", func(r *run) {
		r.set(document(1))
		doc, err := r.src.Load(r.within())
		r.must(err)
		clear(doc)
		r.loads(document(1))
	}},
	{"a document that is removed is none", func(r *run) {
		r.set(document(1))
		r.loads(document(1))
		r.set(nil)
		r.loadsNone()
		r.set(document(1))
		r.loads(document(1))
	}},
	{"an empty document is none", func(r *run) {
		r.set([]byte{})
		r.loadsNone()
		r.set(document(1))
		r.loads(document(1))
		r.set([]byte{})
		r.loadsNone()
	}},
	{"the largest document", func(r *run) {
		doc := large(config.MaxDocument)
		r.set(doc)
		r.loads(doc)
	}},
	{"a document that is too large", func(r *run) {
		r.set(large(config.MaxDocument + 1))
		doc, err := r.src.Load(r.within())
		require.Error(r, err)
		require.NotErrorIs(r, err, config.ErrIncomplete, "it is there, and is no moment that passes")
		require.Empty(r, doc)
		r.set(document(1))
		r.loads(document(1))
	}},
	{"loads at the same time", func(r *run) {
		r.set(document(1))
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				for range 4 {
					doc, err := r.src.Load(r.within())
					if err == nil && !bytes.Equal(doc, document(1)) {
						err = fmt.Errorf("loaded %q", doc)
					}
					errs[i] = errors.Join(errs[i], err)
				}
			})
		}
		wg.Wait()
		r.must(errors.Join(errs...))
	}},
	{"a context that has ended ends Load and Watch", func(r *run) {
		r.set(document(1))
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		_, err := r.src.Load(ctx)
		require.ErrorIs(r, err, context.Canceled)
		require.ErrorIs(r, r.watch(ctx).ended(), context.Canceled)
	}},
	{"Watch calls changed once at once", func(r *run) {
		r.set(document(1))
		r.watch(r.Context()).called()
	}},
	{"Watch calls changed once at once where there is no document", func(r *run) {
		r.watch(r.Context()).called()
	}},
	{"Watch ends with its context", func(r *run) {
		r.set(document(1))
		ctx, cancel := context.WithCancel(r.Context())
		w := r.watch(ctx)
		w.called()
		cancel()
		require.ErrorIs(r, w.ended(), context.Canceled)

		ctx, cancel = context.WithTimeout(r.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(r, r.watch(ctx).ended(), context.DeadlineExceeded)
	}},
	{"changes are noticed", func(r *run) {
		r.set(document(1))
		w := r.watch(r.Context())
		w.becomes(document(1))
		for n := range 4 {
			r.set(document(n + 2))
			w.becomes(document(n + 2))
		}
		r.set(document(1)) // as it once was
		w.becomes(document(1))
	}},
	{"a document that comes, goes and comes back is noticed", func(r *run) {
		w := r.watch(r.Context())
		w.becomes(nil)
		r.set(document(1))
		w.becomes(document(1))
		r.set(nil)
		w.becomes(nil)
		r.set(document(1))
		w.becomes(document(1))
	}},
	{"a document that becomes empty is noticed", func(r *run) {
		r.set(document(1))
		w := r.watch(r.Context())
		w.becomes(document(1))
		r.set([]byte{})
		w.becomes(nil)
		r.set(document(2))
		w.becomes(document(2))
	}},
	{"every Watch is told", func(r *run) {
		a, b := r.watch(r.Context()), r.watch(r.Context())
		r.set(document(1))
		a.becomes(document(1))
		b.becomes(document(1))
		r.set(document(2))
		b.becomes(document(2))
		a.becomes(document(2))
	}},
	{"Watch can begin again", func(r *run) {
		r.set(document(1))
		ctx, cancel := context.WithCancel(r.Context())
		w := r.watch(ctx)
		w.becomes(document(1))
		cancel()
		require.ErrorIs(r, w.ended(), context.Canceled)
		r.set(document(2)) // nobody watches
		w = r.watch(r.Context())
		w.becomes(document(2))
		r.set(document(3))
		w.becomes(document(3))
	}},
	{"the last of many changes is noticed", func(r *run) {
		w := r.watch(r.Context())
		w.called()
		for n := range 200 {
			r.set(document(n))
		}
		w.becomes(document(199))
	}},
}

// document returns one of many documents; they are of equal length, so that nothing but the content tells them apart.
func document(n int) []byte { return fmt.Appendf(nil, "version: 1\n# edition %06d\n", n) }

// large returns a document of n bytes.
func large(n int) []byte {
	line := []byte("# a line of a document that nobody should have written\n")
	doc := slices.Grow([]byte("version: 1\n"), n+len(line))
	for len(doc) < n {
		doc = append(doc, line...)
	}
	doc = doc[:n]
	doc[n-1] = '\n'
	return doc
}

// run is a source under test.
type run struct {
	*testing.T
	src config.Source
	set func(doc []byte)
}

// within returns a context for one call.
func (r *run) within() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	r.Cleanup(cancel)
	return ctx
}

func (r *run) must(err error) {
	r.Helper()
	require.NoError(r, err)
}

func (r *run) loads(want []byte) {
	r.Helper()
	doc, err := r.src.Load(r.within())
	r.must(err)
	require.True(r, bytes.Equal(want, doc), "set %d bytes %.80q, loaded %d bytes %.80q", len(want), want, len(doc), doc)
}

func (r *run) loadsNone() {
	r.Helper()
	doc, err := r.src.Load(r.within())
	require.ErrorIs(r, err, config.ErrIncomplete)
	require.Empty(r, doc)
}

// watcher is a Watch that runs, and who follows it.
type watcher struct {
	*run
	signal chan struct{} // holds one: as a follower does, it forgets how often it was told
	result chan error
	over   atomic.Bool
}

// watch runs Watch until the test ends.
func (r *run) watch(ctx context.Context) *watcher {
	w := &watcher{run: r, signal: make(chan struct{}, 1), result: make(chan error, 1)}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := r.src.Watch(ctx, w.changed)
		w.over.Store(true)
		w.result <- err
	}()
	r.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			r.Errorf("Watch goes on %v after its context ended", patience)
		}
	})
	return w
}

func (w *watcher) changed() {
	if w.over.Load() {
		w.Error("changed is called after Watch has returned")
	}
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// called waits for a call of changed.
func (w *watcher) called() {
	w.Helper()
	select {
	case <-w.signal:
	case err := <-w.result:
		require.FailNow(w, "Watch has ended", "%v", err)
	case <-time.After(patience):
		require.FailNow(w, "changed is not called", "within %v", patience)
	}
}

// ended waits for the end of Watch.
func (w *watcher) ended() error {
	w.Helper()
	select {
	case err := <-w.result:
		return err
	case <-time.After(patience):
		require.FailNow(w, "Watch goes on", "for %v", patience)
		return nil
	}
}

// becomes does as a follower does, and loads whenever changed is called, until that gives want; nil: there is none. So
// a change that is missed, or told before it can be loaded, is one that the follower waits for in vain.
func (w *watcher) becomes(want []byte) {
	w.Helper()
	late := time.After(patience)
	last := "nothing, changed was not called"
	for {
		select {
		case <-w.signal:
		case err := <-w.result:
			require.FailNow(w, "Watch has ended", "%v", err)
		case <-late:
			require.FailNow(w, "a change went unnoticed", "want %q after %v; the last load gave %s", want, patience, last)
		}
		doc, err := w.src.Load(w.within())
		if !errors.Is(err, config.ErrIncomplete) {
			w.must(err)
		}
		if err != nil && want == nil || err == nil && want != nil && bytes.Equal(doc, want) {
			return
		}
		last = fmt.Sprintf("%q, %v", doc, err)
	}
}
