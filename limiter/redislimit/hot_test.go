package redislimit_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// Equal takes of one hot key that share a trip are asked for once, and each is answered as if it had come by itself: what is
// left after those that pass is each number once, and those that are refused all see what is left in the end.
func TestOneHotKey(t *testing.T) {
	const quota = 100
	proxy := redistest.StartProxy(t, redistest.Shared(t).Addr())
	proxy.Delay(10 * time.Millisecond)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer func() { _ = rdb.Close() }()
	for _, a := range limiter.Algorithms() {
		for _, n := range []int{1, 3} {
			l := open(t, redislimit.Config{Client: rdb, DenyCache: -1, Timeout: busy})
			limit := limiter.Limit{Algorithm: a, Rate: quota, Period: limiter.MaxPeriod, Burst: quota}
			delay := time.Duration(0)
			if a == limiter.LeakyBucket {
				delay = 2 * limiter.MaxPeriod
			}
			before := proxy.Requests()
			var wg sync.WaitGroup
			var mu sync.Mutex
			var passed, refused []limiter.Decision
			for range crowd {
				wg.Go(func() {
					for range 2 {
						takes := []limiter.Take{{Key: alice, Limit: limit, N: n, MaxDelay: delay}}
						ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
						mu.Lock()
						if err != nil {
							t.Error(err)
						} else if ok {
							passed = append(passed, takes[0].Decision)
						} else {
							refused = append(refused, takes[0].Decision)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Len(t, passed, quota/n, a)
			require.Len(t, refused, 2*crowd-quota/n, a)
			require.Less(t, proxy.Requests()-before, crowd, "%v: they share trips", a)
			// In whatever order they were told.
			slices.SortFunc(passed, func(a, b limiter.Decision) int { return b.Remaining - a.Remaining })
			for i, d := range passed {
				require.Equal(t, quota-n*(i+1), d.Remaining, a)
				if a == limiter.LeakyBucket {
					due := time.Duration(i*n) * limiter.MaxPeriod / quota
					require.InDelta(t, due, d.Delay, float64(time.Minute), "each has a place of its own")
				}
			}
			for _, d := range refused {
				require.Equal(t, quota%n, d.Remaining, a)
				require.Positive(t, d.RetryAfter, a)
			}
		}
	}
}
