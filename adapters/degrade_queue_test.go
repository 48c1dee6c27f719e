package adapters_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// inPlaces runs f in a bubble for every place.
func inPlaces(t *testing.T, f func(t *testing.T, p place)) {
	t.Helper()
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, p) }) })
	}
}

// queued is a service with one request a second for each client, and a queue for the rest.
type queued struct {
	http.Handler
	guard *spillway.Guard
	begin time.Time

	mu   sync.Mutex
	came []string // what was served, in order, with when
}

func newQueued(t *testing.T, p place, cfg degrade.QueueConfig) *queued {
	t.Helper()
	q := &queued{begin: time.Now()}
	guard, err := spillway.New(spillway.Config{Policies: []spillway.Policy{
		{Name: "default", Key: keyfunc.IP(), Limit: limiter.PerSecond(1), Degrade: degrade.Queue(cfg)},
	}})
	require.NoError(t, err)
	q.guard = guard
	s := (&degradeRow{routes: map[string]native{"GET /x": alike(func(w http.ResponseWriter, r *http.Request) {
		q.mu.Lock()
		defer q.mu.Unlock()
		_, degraded := degrade.FromContext(r.Context())
		q.came = append(q.came, fmt.Sprint(r.URL.RawQuery, " ", time.Since(q.begin), " ", degraded))
		_, _ = fmt.Fprint(w, r.URL.RawQuery)
	})}}).service(guard, new(atomic.Int64))
	q.Handler = p.build(s)
	return q
}

// send makes a request in the background.
func (q *queued) send(ctx context.Context, id string) (*httptest.ResponseRecorder, *time.Duration) {
	w, took := httptest.NewRecorder(), new(time.Duration)
	r := httptest.NewRequest(http.MethodGet, "/x?"+id, nil).WithContext(ctx)
	go func() {
		at := time.Now()
		q.ServeHTTP(w, r)
		*took = time.Since(at)
	}()
	synctest.Wait()
	return w, took
}

func TestDegradeQueue(t *testing.T) {
	t.Run("order", func(t *testing.T) {
		inPlaces(t, func(t *testing.T, p place) {
			q := newQueued(t, p, degrade.QueueConfig{})
			var all []*httptest.ResponseRecorder
			for _, id := range []string{"a", "b", "c", "d"} {
				w, _ := q.send(t.Context(), id)
				all = append(all, w)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Equal(t, []string{"a 0s false", "b 1s false", "c 2s false", "d 3s false"}, q.came)
			for k, w := range all {
				require.Equal(t, http.StatusOK, w.Code)
				require.Equal(t, string(rune('a'+k)), w.Body.String())
				require.Equal(t, map[string]string{
					"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(946684801 + k),
				}, ours(w.Header()))
				require.Empty(t, w.Header().Values("X-RateLimit-Degraded"))
			}
		})
	})
	t.Run("REF-08 a client that leaves", func(t *testing.T) {
		inPlaces(t, func(t *testing.T, p place) {
			q := newQueued(t, p, degrade.QueueConfig{})
			ctx, cancel := context.WithCancel(t.Context())
			q.send(t.Context(), "a")
			left, took := q.send(ctx, "b")
			q.send(t.Context(), "c")
			time.Sleep(500 * time.Millisecond)
			cancel()
			synctest.Wait()
			require.Equal(t, 499, left.Code)
			require.Empty(t, left.Body.String())
			require.Equal(t, 500*time.Millisecond, *took)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			// The turn went to the next, and nothing had been taken for it.
			require.Equal(t, []string{"a 0s false", "c 1s false"}, q.came)
			r := httptest.NewRequest(http.MethodGet, "/x", nil)
			d, err := q.guard.Peek(r)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		})
	})
	t.Run("refused at once", func(t *testing.T) {
		inPlaces(t, func(t *testing.T, p place) {
			q := newQueued(t, p, degrade.QueueConfig{PerKey: 2, MaxWait: 5 * time.Second})
			q.send(t.Context(), "a")
			ctx, cancel := context.WithTimeout(t.Context(), 1050*time.Millisecond)
			defer cancel()
			late, _ := q.send(ctx, "late") // 50 ms would be left to the handler
			require.Equal(t, http.StatusTooManyRequests, late.Code)
			require.Equal(t, "1", late.Header().Get("Retry-After"))
			q.send(t.Context(), "b")
			q.send(t.Context(), "c")
			full, took := q.send(t.Context(), "full")
			require.Equal(t, http.StatusTooManyRequests, full.Code)
			require.Equal(t, "3", full.Header().Get("Retry-After"), "the wait it would have had")
			require.Equal(t, "application/problem+json", full.Header().Get("Content-Type"))
			require.Zero(t, *took)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Equal(t, []string{"a 0s false", "b 1s false", "c 2s false"}, q.came)
		})
	})
}
