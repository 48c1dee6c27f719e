package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// queueOf lets one request a second pass, and places − 1 wait.
func queueOf(places int) limiter.Limit {
	return limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(places)
}

// atOnce starts n requests at once and returns when each was served, in order, and how many were refused.
func atOnce(g *middleware.Guard, n int) (at []time.Duration, refused []*httptest.ResponseRecorder) {
	begin := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			w := serve(g, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(begin))
			}))
			if w.Code != 200 {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, w)
			}
		})
	}
	wg.Wait()
	return at, refused
}

func TestQueueSpacing(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		delay   time.Duration
		waiting int
		want    []time.Duration
		retry   string
	}{
		"default":          {0, 0, []time.Duration{0, s, 2 * s, 3 * s, 4 * s}, "1"},
		"longer":           {time.Hour, 0, []time.Duration{0, s, 2 * s, 3 * s, 4 * s}, "1"},
		"explicit":         {2 * s, 0, []time.Duration{0, s, 2 * s}, "1"},
		"between":          {2*s + s/2, 0, []time.Duration{0, s, 2 * s}, "1"},
		"not at all":       {-1, 0, []time.Duration{0}, "1"},
		"two waiting":      {0, 2, []time.Duration{0, s}, "1"}, // the first of them need not wait
		"none may wait":    {0, -1, []time.Duration{0}, "1"},
		"all of them wait": {0, 100, []time.Duration{0, s, 2 * s, 3 * s, 4 * s}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(17 * time.Millisecond)
				g := newGuard(t, config{MaxWaiting: c.waiting, Policies: byIP(policy{Name: "q", Limit: queueOf(5), MaxDelay: c.delay})})
				if c.waiting == 2 {
					// The first leaves at once, one waits, one is refused: as many as may wait and no more.
					get(g, "192.0.2.7")
					begin := time.Now()
					at, refused := atOnce(g, 4)
					require.Equal(t, []time.Duration{s, 2 * s}, at)
					require.Len(t, refused, 2)
					require.Equal(t, 2*s, time.Since(begin))
					return
				}
				at, refused := atOnce(g, 12)
				require.Equal(t, c.want, at)
				require.Len(t, refused, 12-len(c.want))
				for _, w := range refused {
					require.Equal(t, 429, w.Code)
					require.Equal(t, c.retry, w.Header().Get("Retry-After"))
				}
			})
		})
	}
}

// Who waits for a place does so within the deadline of the request, or not at all.
func TestQueueDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOf(t, policy{Name: "q", Limit: queueOf(10)})
		get(g, "192.0.2.7")
		go get(g, "192.0.2.7")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		w := serve(g, request("GET", "/").WithContext(ctx), ok)
		require.Equal(t, 429, w.Code, "its place is after 2 s")
		require.Zero(t, time.Since(begin))
		require.Equal(t, "1", w.Header().Get("Retry-After"))
		long, cancel2 := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel2()
		require.Equal(t, 200, serve(g, request("GET", "/").WithContext(long), ok).Code)
		require.Equal(t, 2*time.Second, time.Since(begin))
	})
}

// A client that leaves while it is held ends there, and what other policies took is given back.
func TestQueueLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(recorder)
		g := newGuard(t, config{MaxWaiting: 1, Observer: o, Policies: byIP(
			policy{Name: "quota", Limit: limiter.PerDay(10)},
			policy{Name: "bound", InFlight: 2},
			policy{Name: "q", Limit: queueOf(10)})})
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
		o.take()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan *httptest.ResponseRecorder)
		go func() {
			done <- serve(g, request("GET", "/").WithContext(ctx), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("served though nobody is there")
			}))
		}()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		cancel()
		w := <-done
		require.Equal(t, 499, w.Code, "no success that never was")
		require.Empty(t, w.Body.String())
		require.Equal(t, []string{"quota error canceled", "bound error canceled", "q error canceled"}, o.take())
		require.Equal(t, 9, left(t, g, request("GET", "/"), "quota"))
		time.Sleep(10 * time.Second)
		free(t, g, 2) // and the place among the waiting, without which the second could not wait
	})
}

// Two queues cannot both be kept; New cannot see all of them.
func TestTwoQueuesAtOnce(t *testing.T) {
	g := guardOf(t,
		policy{Name: "a", Limit: queueOf(2), Match: match{Methods: []string{"GET"}}},
		policy{Name: "b", Limit: queueOf(2), Match: match{Routes: []string{"/x"}}},
		policy{Name: "c", Limit: limiter.PerDay(5)})
	require.Equal(t, 200, serve(g, request("GET", "/"), ok).Code)
	require.Equal(t, 503, serve(g, request("GET", "/x"), ok).Code)
	require.Equal(t, 4, left(t, g, request("GET", "/"), "c"))
}

// A queue on a limiter that decides one take at a time holds nobody, but keeps the spacing. Its author has to say so.
func TestQueueWithoutBatch(t *testing.T) {
	_, err := middleware.New(config{Limiter: single{newFake()}, Policies: byIP(policy{Name: "q", Limit: queueOf(5)})})
	require.ErrorContains(t, err, "MaxDelay −1")
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, config{Limiter: single{newFake()}, Policies: byIP(policy{Name: "q", Limit: queueOf(5), MaxDelay: -1})})
		at, refused := atOnce(g, 3)
		require.Equal(t, []time.Duration{0}, at)
		require.Len(t, refused, 2)
	})
}

// Each identity has a queue of its own.
func TestQueueByKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOf(t, policy{Name: "q", Limit: queueOf(3), Key: keyfunc.Header("X-User")})
		begin := time.Now()
		var wg sync.WaitGroup
		for _, user := range []string{"a", "b", "a", "b"} {
			r := request("GET", "/")
			r.Header.Set("X-User", user)
			wg.Go(func() { require.Equal(t, 200, serve(g, r, ok).Code) })
		}
		wg.Wait()
		require.Equal(t, time.Second, time.Since(begin))
	})
}
