package client_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// An hour in which nobody came is no turn that took an hour.
func TestIdleTimeIsNoPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, client.Config{Base: &partner{}, Limit: limiter.PerSecond(2), Limiter: &slow{newMemory(t), func() time.Duration { return ms }}})
		var wg sync.WaitGroup
		_, err := get(tr, "0")
		require.NoError(t, err)
		wg.Go(func() { _, _ = get(tr, "A") })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 { // the first books with the second behind it, and both leave
			wg.Go(func() { _, _, _ = call(ctx, tr, http.MethodGet, "https://a.example/", "B", nil) })
			synctest.Wait()
		}
		time.Sleep(620 * ms)
		cancel()
		wg.Wait()
		time.Sleep(time.Hour)
		for range 20 {
			wg.Go(func() {
				_, err := get(tr, "x")
				require.NoError(t, err)
			})
			synctest.Wait()
			time.Sleep(ms / 4)
		}
		wg.Wait()
	})
}

// What held up the line and is over, a store that was away or a partner that hung, is no pace: nobody is refused for it.
func TestStallIsNoPace(t *testing.T) {
	for _, kind := range []string{"store", "in flight"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Limiter: newMemory(t)}
				var hangs atomic.Bool
				p := &partner{answer: func(arrival) (int, http.Header, error) {
					for hangs.Load() {
						time.Sleep(100 * ms)
					}
					return http.StatusOK, nil, nil
				}}
				tr := newTransport(t, client.Config{
					Base: p, Limit: limiter.PerSecond(10), Limiter: f, Strict: true, InFlight: 1, Breaker: client.Breaker{Failures: -1},
				})
				var wg sync.WaitGroup
				for second := range 60 { // 5/s, of a limit of 9/s; the stall of 40 s begins within a burst
					for range 5 {
						wg.Go(func() {
							_, err := get(tr, "x")
							require.NoError(t, err)
						})
					}
					time.Sleep(150 * ms)
					switch {
					case second == 10 && kind == "store":
						f.set(limiter.ErrUnavailable)
					case second == 10:
						hangs.Store(true)
					case second == 50:
						f.set(nil)
						hangs.Store(false)
					}
					time.Sleep(850 * ms)
				}
				wg.Wait()
			})
		})
	}
}
