package redissource_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/config"
	redissource "github.com/spillway-go/spillway/config/source/redis"
	"github.com/spillway-go/spillway/internal/redistest"
)

// patience is for what comes in milliseconds on a machine that is not busy, in seconds after a fail-over.
const patience = 30 * time.Second

func newSource(t *testing.T, c redissource.Config) *redissource.Source {
	t.Helper()
	src, err := redissource.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, src.Close()) })
	return src
}

// put sets the document, nil: removes it, and says so where the source listens, as a user's own tool does.
func put(t *testing.T, c redis.UniversalClient, key string, doc []byte) {
	t.Helper()
	if ring, ok := c.(*redis.Ring); ok {
		node, err := ring.GetShardClientForKey(key)
		require.NoError(t, err)
		c = node
	}
	if doc == nil {
		require.NoError(t, c.Del(t.Context(), key).Err())
	} else {
		require.NoError(t, c.Set(t.Context(), key, doc, 0).Err())
	}
	require.NoError(t, c.Publish(t.Context(), key+":changed", "").Err())
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

// quiet forgets calls so far.
func (w *watcher) quiet() {
	select {
	case <-w.told:
	default:
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
	t.Cleanup(func() {
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/spillway-go/spillway/internal/redistest.(*process).start.func1"))
	})
}

// ring is two servers that know nothing of each other.
func ring(t *testing.T) *redis.Ring {
	a, b := redistest.Start(t), redistest.Start(t)
	r := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}})
	t.Cleanup(func() { _ = r.Close() })
	return r
}
