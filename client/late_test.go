package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
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

// held is a store whose calls are held up, on their way there or on their way back.
type held struct {
	*memory.Limiter
	there, back func() time.Duration
}

func (h *held) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	time.Sleep(h.there())
	ok, err := h.Limiter.AllowAll(ctx, at, takes)
	time.Sleep(h.back())
	return ok, err
}

func none() time.Duration { return 0 }

// fullest returns how many arrivals are in the fullest window of that length, wherever it begins. They are in order.
func fullest(all []arrival, window time.Duration) (most int) {
	first := 0
	for i, a := range all {
		for a.at.Sub(all[first].at) >= window {
			first++
		}
		most = max(most, i+1-first)
	}
	return most
}

// fleet lets processes send all they can for a while.
func fleet(t *testing.T, c client.Config, processes, each int, lasts time.Duration) []arrival {
	p := &partner{latency: 20 * ms}
	c.Base = p
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	var wg sync.WaitGroup
	for range processes {
		tr := newTransport(t, c)
		for range each {
			wg.Go(func() {
				for ctx.Err() == nil {
					if _, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "x", nil); err != nil {
						time.Sleep(100 * ms)
					}
				}
			})
		}
	}
	wg.Wait()
	return p.arrivals("")
}

// However late calls of the store arrive or are answered, a fleet never exceeds the partner's number in any period.
func TestLateAnswersOfTheStore(t *testing.T) {
	stalled := 0
	rapid.Check(t, func(rt *rapid.T) {
		processes := rapid.SampledFrom([]int{1, 3, 12}).Draw(rt, "processes")
		period := rapid.SampledFrom([]time.Duration{100 * ms, 200 * ms, time.Second}).Draw(rt, "period")
		rate := rapid.SampledFrom([]int{1, 2, 3, 7, 10, 20, 50}).Draw(rt, "rate")
		headroom := rapid.SampledFrom([]float64{0, 0.5, 0.75, 0.95, 0.99}).Draw(rt, "headroom")
		strict := rapid.Bool().Draw(rt, "strict")
		stalls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) [2]time.Duration {
			from := rapid.IntRange(0, 3000).Draw(rt, "from")
			return [2]time.Duration{time.Duration(from) * ms, time.Duration(from+rapid.IntRange(1, 3000).Draw(rt, "for")) * ms}
		}), 0, 2).Draw(rt, "stalls")
		jitter := rapid.IntRange(0, 60).Draw(rt, "jitter")
		seed := rapid.Uint64().Draw(rt, "seed")
		var all []arrival
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			r := rand.New(rand.NewPCG(seed, 1))
			began := time.Now()
			way := func(which int) func() time.Duration {
				return func() time.Duration {
					mu.Lock()
					defer mu.Unlock()
					wait := time.Duration(r.IntN(jitter*500+1)) * time.Microsecond
					for _, s := range stalls {
						if now := time.Since(began); int(s[1]/ms)%2 == which && now >= s[0] && now < s[1] {
							wait = max(wait, s[1]-now) // all at once at its end
							stalled++
						}
					}
					return wait
				}
			}
			all = fleet(t, client.Config{
				Limiter: &held{Limiter: newMemory(t), there: way(0), back: way(1)}, Limit: limiter.Per(rate, period), Headroom: headroom,
				Strict: strict || jitter > 0, MaxWait: 4 * time.Second, Replicas: processes,
			}, processes, 3, 8*time.Second)
		})
		require.LessOrEqual(rt, fullest(all, period), rate)
		if jitter == 0 { // two seconds are left after the last stall
			require.GreaterOrEqual(rt, len(all), int(time.Second/period)*rate/3)
		}
	})
	require.Positive(t, stalled)
}

// A store that always answers too late lets nobody leave with Strict, who is told why; without, it counts as away.
func TestAlwaysTooLate(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for name, limit := range map[string]limiter.Limit{
			"even": limiter.Per(20, 100*ms), "log": {Rate: 20, Period: 100 * ms, Algorithm: limiter.SlidingLog},
		} {
			t.Run(fmt.Sprint(name, strict), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &partner{}
					calls := 0
					store := &held{Limiter: newMemory(t), there: none, back: func() time.Duration {
						calls++
						return 11 * ms
					}}
					tr := newTransport(t, client.Config{Base: p, Limiter: store, Limit: limit, Strict: strict, MaxWait: 10 * time.Second})
					_, err := get(tr, "x")
					if !strict {
						require.NoError(t, err)
						require.Len(t, p.arrivals(""), 1)
						return
					}
					require.ErrorIs(t, err, limiter.ErrUnavailable)
					require.Equal(t, client.ReasonUnavailable, limited(t, err).Reason)
					require.ErrorContains(t, err, "too late")
					require.Less(t, calls, 40, "each costs all of them a place")
					require.Empty(t, p.arrivals(""))
				})
			})
		}
	}
}

// What a window has counted for a place that came too late is given back.
func TestTooLateIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		first := true
		store := &held{Limiter: newMemory(t), there: none, back: func() time.Duration {
			if first {
				first = false
				return 200 * ms
			}
			return 0
		}}
		limit := limiter.Limit{Rate: 1, Period: time.Second, Algorithm: limiter.SlidingLog}
		tr := newTransport(t, client.Config{Base: p, Limiter: store, Limit: limit, Strict: true})
		began := time.Now()
		_, err := get(tr, "x")
		require.NoError(t, err)
		require.Equal(t, 200*ms, time.Since(began))
	})
}

// Without headroom no place would ever be in time: so much is allowed then.
func TestNoHeadroomForWhatIsLate(t *testing.T) {
	for lag, sent := range map[time.Duration]int{49 * ms: 1, 51 * ms: 0} {
		synctest.Test(t, func(t *testing.T) {
			p := &partner{}
			store := &held{Limiter: newMemory(t), there: none, back: func() time.Duration { return lag }}
			tr := newTransport(t, client.Config{Base: p, Limiter: store, Limit: limiter.Per(20, 100*ms), Headroom: 1, Strict: true, MaxWait: time.Second})
			_, _ = get(tr, "x")
			require.Len(t, p.arrivals(""), sent)
		})
	}
}

// The shares of processes whom work finds at one moment, with the store away, do not begin at that moment. Each keeps its gap, and a
// limit that is none has no gap.
func TestSharesBeginApart(t *testing.T) {
	most := 0
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Limiter: newMemory(t), err: limiter.ErrUnavailable}
			all := fleet(t, client.Config{Limiter: store, Limit: limiter.PerSecond(10), Replicas: 50}, 50, 2, 30*time.Second)
			gap := 50 * time.Second * 10 / 9 / 10
			require.InDelta(t, 9*30, len(all), 50, "the number is used")
			require.LessOrEqual(t, fullest(all, gap-ms), 50)
			most = max(most, fullest(all, time.Second))
		})
	}
	t.Log("most in a second", most)
	require.Less(t, most, 30)
}

// One process alone has nobody to keep apart from, and what is not limited, or never passes, has no share.
func TestShareOfOne(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int
		limit    limiter.Limit
		sent     int
	}{"alone": {1, limiter.PerHour(1), 1}, "unlimited": {9, limiter.Unlimited, 1}, "closed": {9, limiter.DenyAll, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{}
				store := &faulty{Limiter: newMemory(t), err: limiter.ErrUnavailable}
				tr := newTransport(t, client.Config{Base: p, Limiter: store, Limit: c.limit, Replicas: c.replicas})
				began := time.Now()
				_, _ = get(tr, "x")
				require.Equal(t, began, time.Now())
				require.Len(t, p.arrivals(""), c.sent)
			})
		})
	}
}

// asks notes when it was last asked, and lets everybody go at once.
type asks struct {
	eager
	mu   *sync.Mutex
	last *time.Time
}

func (a asks) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	a.mu.Lock()
	*a.last = time.Now()
	a.mu.Unlock()
	return a.eager.AllowAll(ctx, at, takes)
}

// A process that is held up itself, after the answer, uses no place that is over either: it asks for another one.
func TestLateDepartures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		var last time.Time
		var mu sync.Mutex
		b := base(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			require.LessOrEqual(t, time.Since(last), 100*ms)
			return p.RoundTrip(r)
		})
		tr := newTransport(t, client.Config{Base: b, Limiter: asks{mu: &mu, last: &last}, Limit: limiter.PerSecond(10), Strict: true})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := get(tr, "x")
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Len(t, p.arrivals(""), 10)
	})
}
