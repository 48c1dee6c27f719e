package etcdsource_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/config"
	etcdsource "github.com/spillway-go/spillway/config/source/etcd"
)

// patience is for what comes in milliseconds on a machine that is not busy, in seconds after an election.
const patience = 30 * time.Second

const key = "/shop/policies"

func newSource(t *testing.T, c etcdsource.Config) *etcdsource.Source {
	t.Helper()
	src, err := etcdsource.New(c)
	require.NoError(t, err)
	return src
}

// put sets the document; nil: removes it. It tries again while a leader is elected.
func put(t *testing.T, c *clientv3.Client, key string, doc []byte) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		var err error
		if doc == nil {
			_, err = c.Delete(t.Context(), key)
		} else {
			_, err = c.Put(t.Context(), key, string(doc))
		}
		if err == nil {
			return
		}
		require.True(t, time.Now().Before(end), "%v", err)
	}
}

// watcher is a Watch that runs.
type watcher struct {
	t      *testing.T
	src    config.Source
	told   chan struct{}
	result chan error
	cancel context.CancelFunc
}

func watch(t *testing.T, src config.Source) *watcher {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{t: t, src: src, told: make(chan struct{}, 1), result: make(chan error, 1), cancel: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.result <- src.Watch(ctx, func() {
			select {
			case w.told <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// called waits for a call of changed.
func (w *watcher) called() {
	w.t.Helper()
	select {
	case <-w.told:
	case err := <-w.result:
		require.FailNow(w.t, "Watch has ended", "%v", err)
	case <-time.After(patience):
		require.FailNow(w.t, "changed is not called")
	}
}

func (w *watcher) ended() error {
	w.t.Helper()
	select {
	case err := <-w.result:
		return err
	case <-time.After(patience):
		require.FailNow(w.t, "Watch goes on")
		return nil
	}
}

// becomes loads when told, as a follower does, until that gives want.
func (w *watcher) becomes(want string) {
	w.t.Helper()
	late := time.After(patience)
	for {
		select {
		case <-w.told:
		case err := <-w.result:
			require.FailNow(w.t, "Watch has ended", "%v", err)
		case <-late:
			require.FailNow(w.t, "a change went unnoticed", "%s", want)
		}
		if doc, err := w.src.Load(w.t.Context()); err == nil && string(doc) == want {
			return
		}
	}
}

// noLeaks fails the test if it leaves a goroutine, once its clean-ups are done.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}
