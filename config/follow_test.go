package config_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/limiter"
)

// fake is a source in memory.
type fake struct {
	mu      sync.Mutex
	data    []byte
	err     error
	hang    bool
	panics  bool
	loads   int
	watches int
	lost    error // Watch returns at once
	notify  func()
}

func (f *fake) String() string { return "fake" }

func (f *fake) Load(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	f.loads++
	data, err, hang, panics := f.data, f.err, f.hang, f.panics
	f.mu.Unlock()
	switch {
	case panics:
		panic("in Load")
	case hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case len(data) == 0:
		return nil, config.ErrIncomplete
	}
	return bytes.Clone(data), nil
}

func (f *fake) Watch(ctx context.Context, changed func()) error {
	f.mu.Lock()
	f.watches++
	lost, panics := f.lost, f.panics
	if !panics && lost == nil {
		f.notify = changed
	}
	f.mu.Unlock()
	switch {
	case panics:
		panic("in Watch")
	case lost != nil:
		return lost
	}
	changed()
	<-ctx.Done()
	return ctx.Err()
}

// set changes what the source has, and tells of it.
func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	change(f)
	notify := f.notify
	f.mu.Unlock()
	if notify != nil {
		notify()
	}
}

func (f *fake) write(doc string) { f.set(func(f *fake) { f.data = []byte(doc) }) }

// seen are the reloads that were told.
type seen struct {
	mu      sync.Mutex
	reasons []string
	log     bytes.Buffer
}

func (s *seen) Observe(e limiter.Event) {
	if e.Kind == limiter.EventReload {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reasons = append(s.reasons, e.Reason)
	}
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

// take returns the reloads told since it was called last, and the lines of the log.
func (s *seen) take() (reasons string, log string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reasons, log = strings.Join(s.reasons, " "), s.log.String()
	s.reasons = nil
	s.log.Reset()
	return reasons, log
}

func watched(t testing.TB) (config.Deps, *seen) {
	d, s := deps(t), new(seen)
	d.Observer, d.Logger = s, slog.New(slog.NewTextHandler(s, nil))
	return d, s
}

const (
	docA = "version: 1\npolicies:\n- {name: a, key: ip, limit: 2/d fixed_window}\n"
	docB = "version: 1\npolicies:\n- {name: a, key: ip, limit: 3/d fixed_window}\n- {name: b, key: ip, limit: 9/d}\n"
)

func code(f *config.Follower) int {
	w := httptest.NewRecorder()
	f.Guard().Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return w.Code
}

// following opens source and follows it for as long as the test's bubble.
func following(t *testing.T, source config.Source, d config.Deps) *config.Follower {
	t.Helper()
	f, err := config.Open(t.Context(), source, d)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	synctest.Wait()
	return f
}

// later lets time pass in a bubble.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestOpenWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{}
		d, s := watched(t)
		opened := make(chan *config.Follower)
		go func() {
			f, _ := config.Open(t.Context(), src, d)
			opened <- f
		}()
		later(3 * time.Second)
		reasons, log := s.take()
		require.Empty(t, reasons+log) // a file that is not there yet is no news
		later(10 * time.Second)
		reasons, log = s.take()
		require.Equal(t, "unavailable", reasons)
		require.Equal(t, 1, strings.Count(log, "\n"), log)
		require.Less(t, src.loads, 30)
		src.write("version: 1\npol")
		later(500 * time.Millisecond)
		src.write(docA)
		f := <-opened
		require.NotNil(t, f)
		require.Equal(t, []string{"a"}, f.Guard().Policies())
		reasons, _ = s.take()
		require.Equal(t, "ok", reasons)
		require.Equal(t, "fake", f.Status().Source)
		require.NoError(t, f.Status().Err)
	})
}

func TestOpenEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		away := errors.New("away")
		for _, src := range []*fake{{}, {err: away}, {hang: true}, {panics: true}} {
			d, s := watched(t)
			_, err := config.Open(ctx, src, d)
			require.Error(t, err)
			reasons, _ := s.take()
			if src.err != nil {
				require.ErrorIs(t, err, away)
			}
			if ctx.Err() == nil {
				require.Equal(t, "unavailable", reasons)
			}
		}
	})
}

func TestOpenRefusesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, text := range []string{"version: 1\npolicies: [{name: a, key: nobody, limit: 1/s}]", "version: 2", "a: [", docA + "- {name: a, key: ip, limit: 1/s}\n"} {
			d, s := watched(t)
			began := time.Now()
			_, err := config.Open(t.Context(), &fake{data: []byte(text)}, d)
			var found config.Findings
			require.ErrorAs(t, err, &found)
			require.LessOrEqual(t, time.Since(began), time.Second)
			reasons, _ := s.take()
			require.Equal(t, "invalid", reasons)
		}
	})
}

// Counters of what stays are kept, while others change, go and come back.
func TestReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(docA)}
		d, s := watched(t)
		f := following(t, src, d)
		s.take()
		require.Equal(t, 200, code(f))
		require.Equal(t, 200, code(f))
		require.Equal(t, 429, code(f))
		loads := src.loads
		src.write(docA)
		later(time.Second)
		require.Equal(t, loads+1, src.loads)
		reasons, log := s.take()
		require.Empty(t, reasons+log) // the same bytes do nothing

		src.write(docB)
		synctest.Wait() // and no time at all
		require.Equal(t, []string{"a", "b"}, f.Guard().Policies())
		reasons, log = s.take()
		require.Equal(t, "ok", reasons)
		require.Contains(t, log, "2/d fixed_window → 3/d fixed_window")
		require.Contains(t, log, "policies.b")
		require.Equal(t, 200, code(f)) // one more of a: two are counted
		require.Equal(t, 429, code(f))

		src.write("version: 1\npolicies: []\n")
		synctest.Wait()
		require.Equal(t, 200, code(f)) // a removed policy is no limit
		src.write(docB)
		synctest.Wait()
		require.Equal(t, 429, code(f)) // and continues its count when it comes back
		src.write(strings.Replace(docB, "3/d", "1/d", 1))
		synctest.Wait()
		require.Equal(t, 429, code(f))
		require.NotZero(t, f.Status().Loaded)
		require.NotEmpty(t, f.Status().Hash)
	})
}

func TestBadVersion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(docA)}
		d, s := watched(t)
		f := following(t, src, d)
		good := f.Status().Hash
		s.take()
		for _, bad := range []string{
			strings.Replace(docB, "3/d", "0/d", 1), "version: 1\npolicies: [", "", strings.Replace(docB, "key: ip, limit: 9/d", "key: nobody, limit: 9/d", 1),
		} {
			src.write(bad)
			later(10 * time.Second)
			src.write(bad)
			later(10 * time.Second)
			reasons, log := s.take()
			want := "invalid"
			if bad == "" {
				want = "unavailable"
			}
			require.Equal(t, want, reasons, bad)
			require.Equal(t, 1, strings.Count(log, "\n"), log)
			require.Equal(t, []string{"a"}, f.Guard().Policies())
			require.Error(t, f.Status().Err)
			require.Equal(t, good, f.Status().Hash)
			var found config.Findings
			require.Equal(t, bad != "", errors.As(f.Status().Err, &found))

			src.write(docA)
			later(2 * time.Second)
			reasons, log = s.take()
			require.Equal(t, "ok", reasons)
			require.Equal(t, 1, strings.Count(log, "again"), log)
			require.NoError(t, f.Status().Err)
		}
	})
}

func TestOutage(t *testing.T) {
	for name, fault := range map[string]func(f *fake){
		"error": func(f *fake) { f.err = errors.New("away") }, "hang": func(f *fake) { f.hang = true }, "panic": func(f *fake) { f.panics = true },
		"gone": func(f *fake) { f.data = nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				src := &fake{data: []byte(docA)}
				d, s := watched(t)
				f := following(t, src, d)
				s.take()
				src.set(fault)
				later(2 * time.Minute)
				reasons, log := s.take()
				require.Equal(t, "unavailable", reasons)
				require.Equal(t, 1, strings.Count(log, "\n"), log)
				require.Error(t, f.Status().Err)
				require.Equal(t, 200, code(f))
				src.set(func(f *fake) { f.err, f.hang, f.panics, f.data = nil, false, false, []byte(docA) })
				later(time.Minute)
				reasons, _ = s.take()
				require.Equal(t, "ok", reasons)
				require.NoError(t, f.Status().Err)
			})
		})
	}
}

// A refused version is still refused after an outage, and that it was is told once.
func TestRefusedAndAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(docA)}
		d, s := watched(t)
		f := following(t, src, d)
		s.take()
		src.write("version: 3\n")
		later(5 * time.Second)
		src.set(func(f *fake) { f.err = errors.New("away") })
		later(5 * time.Second)
		require.ErrorContains(t, f.Status().Err, "away")
		src.set(func(f *fake) { f.err = nil })
		later(5 * time.Second)
		require.ErrorContains(t, f.Status().Err, "version")
		reasons, _ := s.take()
		require.Equal(t, "invalid unavailable", reasons)
		src.write(docA)
		later(time.Second)
		reasons, _ = s.take()
		require.Equal(t, "ok", reasons)
		require.NoError(t, f.Status().Err)
	})
}

// What is half written is looked at again before it is refused.
func TestHalfWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(docA)}
		d, s := watched(t)
		f := following(t, src, d)
		s.take()
		for k := range len(docB) {
			src.write(docB[:k])
			if k%40 == 20 {
				later(900 * time.Millisecond)
			}
		}
		src.write(docB)
		later(2 * time.Second)
		require.Equal(t, []string{"a", "b"}, f.Guard().Policies())
		reasons, log := s.take()
		require.Equal(t, "ok", reasons, log)
		src.write(docB[:20])
		later(500 * time.Millisecond)
		src.write(docB)
		later(2 * time.Second)
		reasons, log = s.take()
		require.Empty(t, reasons+log)
		require.NoError(t, f.Status().Err)
	})
}

// A watch that is lost begins again, with growing pauses, and what happened meanwhile is noticed.
func TestLostWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(docA), lost: errors.New("lost")}
		d, s := watched(t)
		f := following(t, src, d)
		later(10 * time.Minute)
		_, log := s.take()
		require.Equal(t, 1, strings.Count(log, "watch"), log)
		require.Less(t, src.watches, 60)
		require.Less(t, src.loads, 70)
		src.mu.Lock()
		src.data = []byte(docB)
		src.mu.Unlock()
		later(31 * time.Second)
		require.Equal(t, []string{"a", "b"}, f.Guard().Policies())
	})
}

// What panics in functions of the application refuses a document and ends nothing.
func TestPanicsOfDeps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(docA)}
		d, s := watched(t)
		d.Local = func(config.Store) (limiter.Limiter, error) { panic("in Local") }
		f := following(t, src, d)
		s.take()
		src.write(docB + "- {name: c, key: ip, limit: 1/s, mode: local}\n")
		later(time.Second)
		reasons, _ := s.take()
		require.Equal(t, "invalid", reasons)
		require.ErrorContains(t, f.Status().Err, "in Local")
		src.write(docB)
		later(time.Second)
		require.Equal(t, []string{"a", "b"}, f.Guard().Policies())
	})
}

// Everything that a document says changes while serving.
func TestSettingsReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(docA)}
		d, _ := watched(t)
		f := following(t, src, d)
		serve := func(path, client string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("X-Forwarded-For", client)
			w := httptest.NewRecorder()
			f.Guard().Serve(w, r, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			return w
		}
		require.Equal(t, "1", serve("/", "203.0.113.1").Header().Get("X-RateLimit-Remaining"))
		require.Equal(t, "0", serve("/", "203.0.113.2").Header().Get("X-RateLimit-Remaining"))
		require.Equal(t, 429, serve("/healthz", "203.0.113.3").Code)
		src.write(docA + "client_ip: {strategy: xff, trusted_proxies: [192.0.2.0/24]}\nheaders: draft-11\nexempt: {routes: [/healthz]}\nresponse: {messages: {en: Slow down}}\n")
		synctest.Wait()
		require.Equal(t, 200, serve("/healthz", "203.0.113.3").Code)
		w := serve("/", "203.0.113.3")
		require.Equal(t, 200, w.Code)
		require.Empty(t, w.Header().Get("X-RateLimit-Remaining"))
		require.Contains(t, w.Header().Get("RateLimit"), "r=1")
		serve("/", "203.0.113.3")
		require.Contains(t, serve("/", "203.0.113.3").Body.String(), "Slow down")
		require.Equal(t, 429, serve("/", "192.0.2.1").Code) // all of it trusted: the key of before, and its count
	})
}

// A source that goes back and forth between bad versions fills no log, and what is wrong now can be asked.
func TestFlappingSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(docA)}
		d, s := watched(t)
		f := following(t, src, d)
		s.take()
		bad := []string{strings.Replace(docB, "3/d", "0/d", 1), strings.Replace(docB, "key: ip, limit: 9/d", "key: nobody, limit: 9/d", 1)}
		for k := range 1000 {
			src.write(bad[k%2])
			later(time.Millisecond)
		}
		reasons, log := s.take()
		require.Equal(t, 2, strings.Count(log, "\n"), log)
		require.Len(t, strings.Fields(reasons), 1000, "the metrics tell")
		require.ErrorContains(t, f.Status().Err, "nobody")
		src.write(docA)
		later(time.Millisecond)
		reasons, _ = s.take()
		require.Equal(t, "ok", reasons)
	})
}
