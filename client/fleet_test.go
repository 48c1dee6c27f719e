package client_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// slow is a store some way off. lose makes it forget, as a fail-over may.
type slow struct {
	*memory.Limiter
	trip func() time.Duration
}

func (s *slow) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	time.Sleep(s.trip())
	ok, err := s.Limiter.AllowAll(ctx, at, takes)
	return ok, err
}

// Many processes share one store: all together leave at least Period/(Rate·Headroom) apart, and nobody gets left behind.
func TestFleetIsEven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{latency: 30 * ms}
		store := newMemory(t)
		limit := limiter.PerSecond(45)
		const processes, each = 12, 40
		var wg sync.WaitGroup
		for n := range processes {
			tr := newTransport(t, client.Config{Base: p, Limiter: store, Limit: limit})
			for range each {
				wg.Go(func() {
					_, err := get(tr, strconv.Itoa(n))
					require.NoError(t, err)
				})
			}
		}
		start := time.Now()
		wg.Wait()
		all := p.arrivals("")
		require.Len(t, all, processes*each)
		gap := time.Second * 10 / 9 / 45
		for i := range all[1:] {
			require.GreaterOrEqual(t, all[i+1].at.Sub(all[i].at), gap)
		}
		require.Less(t, all[len(all)-1].at.Sub(start), time.Duration(len(all))*gap+time.Second, "the rate is used")
		last := map[string]int{}
		for i, a := range all {
			last[a.name] = i
		}
		for n := range processes { // they take turns, so they end together
			require.Greater(t, last[strconv.Itoa(n)], len(all)-6*processes, "%v", last)
		}
	})
}

// In a fleet the wait of a newcomer is judged by how long turns have taken, not as if he were alone.
func TestFleetFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		store := newMemory(t)
		var fleet []*client.Transport
		var wg sync.WaitGroup
		for range 10 {
			tr := newTransport(t, client.Config{Base: p, Limiter: store, Limit: limiter.PerSecond(10), Headroom: 1, MaxWait: -1})
			fleet = append(fleet, tr)
			for range 50 {
				wg.Go(func() { _, _ = get(tr, "crowd") })
			}
		}
		time.Sleep(20 * time.Second)
		// Some thirty are before it here, three hundred in all.
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		start := time.Now()
		_, _, err := call(ctx, fleet[0], http.MethodGet, "https://a.example/", "late", nil)
		require.Equal(t, client.ReasonQuota, limited(t, err).Reason)
		require.Equal(t, start, time.Now())
		require.InDelta(t, 30*time.Second, limited(t, err).RetryAfter, float64(5*time.Second))
		wg.Wait()
	})
}

// excess is how many more than one, and one each gap, arrived in the worst interval.
func excess(all []arrival, gap time.Duration) (worst float64) {
	level, last := 0.0, time.Time{}
	for _, a := range all {
		if !last.IsZero() {
			level = max(0, level-float64(a.at.Sub(last))/float64(gap))
		}
		level++
		last = a.at
		worst = max(worst, level)
	}
	return worst - 1
}

// A store that forgets what it has counted, as in a fail-over, costs what was booked and had not left: for each process
// one request, and those that leave within 50 ms.
func TestWhatALostStoreCosts(t *testing.T) {
	most := 0.0
	rapid.Check(t, func(rt *rapid.T) {
		processes := rapid.IntRange(1, 12).Draw(rt, "processes")
		rate := rapid.IntRange(1, 200).Draw(rt, "rate")
		at := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "at")) * ms
		trips := rapid.SliceOfN(rapid.IntRange(0, 3), 5, 5).Draw(rt, "trips")
		gap := time.Second / time.Duration(rate)
		var all []arrival
		synctest.Test(t, func(t *testing.T) {
			p := &partner{}
			inner := newMemory(t)
			turn := 0
			var mu sync.Mutex
			store := &slow{Limiter: inner, trip: func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				turn++
				return time.Duration(trips[turn%len(trips)]) * ms / 4
			}}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for range processes {
				tr := newTransport(t, client.Config{Base: p, Limiter: store, Limit: limiter.PerSecond(rate), Headroom: 1})
				for range 5 {
					wg.Go(func() {
						for ctx.Err() == nil {
							if _, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "x", nil); err != nil {
								return
							}
						}
					})
				}
			}
			time.Sleep(at)
			require.NoError(t, inner.Reset(ctx, limiter.Key{Space: "client", ID: "host=a.example"}))
			wg.Wait()
			all = p.arrivals("")
		})
		slices.SortFunc(all, func(a, b arrival) int { return a.at.Compare(b.at) })
		bound := float64(processes) * (1 + float64((50*ms+gap-1)/gap))
		// A trip that is slower than the one before lets two arrive closer by the difference.
		got := excess(all, gap)
		require.LessOrEqual(rt, got, bound+float64(ms)/float64(gap))
		most = max(most, got)
	})
	require.Greater(t, most, 0.9, "it was never lost at a bad moment")
	t.Logf("at most %.1f too many", most)
}

// eager is a limiter that lets everybody go at once: all that is late, and then wakes together.
type eager struct{ limiter.Limiter }

func (eager) AllowAll(_ context.Context, _ time.Time, takes []limiter.Take) (bool, error) {
	takes[0].Decision.Allowed = true
	return true, nil
}

// Late timers, or a store that has lost its mind, bring requests of a process no closer than the partner's own number.
func TestLateOnesKeepTheirDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, Limiter: eager{}, Limit: limiter.PerSecond(10)})
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				_, err := get(tr, fmt.Sprint(i))
				require.NoError(t, err)
			})
		}
		wg.Wait()
		all := p.arrivals("")
		for i := range all[1:] {
			require.Equal(t, 100*ms, all[i+1].at.Sub(all[i].at))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "late", nil)
		require.Error(t, err)
		require.Len(t, p.arrivals(""), 30)
	})
}

// A limit that is raised lets newcomers go at once, whatever was booked in vain under the one before.
func TestRaisedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limit limiter.Limit
		p := &partner{}
		limit = limiter.PerHour(1)
		tr := newTransport(t, client.Config{Base: p, Limit: sourceFunc(func() limiter.Limit { return limit }), MaxWait: -1})
		_, err := get(tr, "a")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		time.AfterFunc(time.Minute, cancel)
		_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "b", nil)
		require.ErrorIs(t, err, context.Canceled)
		limit = limiter.PerSecond(10)
		start := time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "c", nil)
		require.NoError(t, err)
		require.Less(t, time.Since(start), time.Second)
	})
}

// Round trips to a store that are longer than the gap now and then do not lower the rate.
func TestSlowStoreKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		trips, n := []time.Duration{ms, ms, ms, 45 * ms}, 0
		store := &slow{Limiter: newMemory(t), trip: func() time.Duration {
			n++ // who has the turn asks alone
			return trips[n%len(trips)]
		}}
		tr := newTransport(t, client.Config{Base: p, Limiter: store, Limit: limiter.PerSecond(50), Headroom: 1})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				_, err := get(tr, "x")
				require.NoError(t, err)
			})
		}
		start := time.Now()
		wg.Wait()
		require.Less(t, time.Since(start), 2*time.Second+100*ms)
	})
}
