package middleware_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

func costOf(n int) func(*keyfunc.Request) int { return func(*keyfunc.Request) int { return n } }

// A refused request consumes nothing from any policy, whatever limiters they are on; an allowed one exactly its costs.
func TestAllOrNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		stores := []*fake{newFake(), newFake(), newFake()}
		stores[1].local = rapid.Bool().Draw(rt, "local")
		var policies []policy
		hasQueue := false
		for k := range rapid.IntRange(1, 6).Draw(rt, "policies") {
			l := limiter.PerDay(rapid.IntRange(1, 6).Draw(rt, "rate"))
			algorithm := rapid.SampledFrom([]limiter.Algorithm{
				limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingWindow, limiter.LeakyBucket,
			}).Draw(rt, "algorithm")
			p := policy{
				Name: fmt.Sprintf("p%d", k), Key: keyfunc.IP(), Limit: l.With(algorithm), MaxDelay: -1,
				Limiter: stores[rapid.IntRange(0, 2).Draw(rt, "store")],
				Cost:    costOf(rapid.IntRange(0, 3).Draw(rt, "cost")), Shadow: rapid.IntRange(0, 3).Draw(rt, "shadow") == 0,
			}
			if algorithm == limiter.LeakyBucket && !p.Shadow {
				if hasQueue {
					p.Limit = l
				}
				hasQueue = true
			}
			policies = append(policies, p)
		}
		synctest.Test(t, func(t *testing.T) {
			g, err := middleware.New(config{Policies: policies})
			require.NoError(t, err)
			look := func() (out []middleware.Standing) {
				v, err := g.Peek(request("GET", "/"), middleware.Entry{})
				require.NoError(t, err)
				return v.Policies
			}
			for range 8 {
				time.Sleep(time.Second)
				before := look()
				w := serve(g, request("GET", "/"), ok)
				after := look()
				for k, p := range policies {
					took := before[k].Decision.Remaining - after[k].Decision.Remaining
					switch {
					case w.Code != 200, p.Shadow && before[k].Violated:
						require.Zero(t, took, "%s of %d", p.Name, w.Code)
					default:
						require.Equal(t, p.Cost(nil), took, p.Name)
					}
					if !p.Shadow && before[k].Violated {
						require.Equal(t, 429, w.Code, p.Name)
					}
				}
			}
		})
	})
}

// What Peek foretells is what the request then gets.
func TestPeekForetells(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		for _, cost := range []int{0, 1, 3, 9} {
			for _, delay := range []time.Duration{-1, 0, 30 * time.Second} {
				if delay > 0 && algorithm != limiter.LeakyBucket {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					g := guardOf(t, policy{
						Name: "p", Limit: limiter.PerMinute(6).WithBurst(6).With(algorithm), Cost: costOf(cost), MaxDelay: delay,
					})
					for range 8 {
						v, err := g.Peek(request("GET", "/"), middleware.Entry{})
						require.NoError(t, err)
						c, err := g.Check(request("GET", "/"), middleware.Entry{})
						require.NoError(t, err)
						require.Equal(t, c.Allowed, v.Allowed)
						require.Equal(t, c.Status, v.Status)
						require.Equal(t, c.Delay, v.Delay)
						if cost <= 1 || cost > 6 {
							require.Equal(t, c.Refusal.RetryAfter, v.Refusal.RetryAfter)
						}
						time.Sleep(3 * time.Second)
					}
				})
			}
		}
	}
}

// Local limiters are asked first, and what they refuse costs no trip.
func TestLocalFirst(t *testing.T) {
	far, near := newFake(), newFake()
	near.local = true
	g := guardOf(t,
		policy{Name: "far", Limit: perMinute, Limiter: far},
		policy{Name: "near", Limit: limiter.PerDay(1), Limiter: near})
	require.Equal(t, 200, get(g, "192.0.2.1").Code)
	require.EqualValues(t, 1, far.calls.Load())
	require.Equal(t, 429, get(g, "192.0.2.1").Code)
	require.EqualValues(t, 1, far.calls.Load())
}

// The group with a queue is decided last, since a place in it cannot be given back.
func TestQueueLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(), newFake()
		a.local = true
		queue := limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(10)
		g := guardOf(t,
			policy{Name: "queue", Limit: queue, Limiter: a},
			policy{Name: "quota", Limit: limiter.PerDay(2), Limiter: b})
		require.Equal(t, 200, get(g, "192.0.2.1").Code)
		require.Equal(t, 200, get(g, "192.0.2.1").Code)
		asked := a.calls.Load()
		require.Equal(t, 429, get(g, "192.0.2.1").Code)
		require.Equal(t, asked, a.calls.Load())
	})
}

// A shadow policy on a limiter that cannot give back is asked only when nothing can be refused any more.
func TestShadowAlonesLast(t *testing.T) {
	trial := newFake()
	trial.local = true
	g := guardOf(t,
		policy{Name: "trial", Limit: limiter.PerDay(10), Limiter: single{trial}, Shadow: true},
		policy{Name: "a", Limit: limiter.PerDay(1), Limiter: newFake()})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, 429, get(g, "192.0.2.7").Code)
	require.Equal(t, 9, left(t, g, request("GET", "/"), "trial"))
}

// What cannot be decided of a shadow policy refuses nobody, though it is in one call with enforced ones.
func TestMalformedShadow(t *testing.T) {
	var invalid limiter.Adjuster = limiter.AdjusterFunc(func(time.Time, limiter.Limit) limiter.Limit { return limiter.Limit{Rate: -1} })
	o := new(recorder)
	f := newFake()
	g := newGuard(t, config{Limiter: f, Observer: o, Policies: byIP(
		policy{Name: "trial", Limit: perMinute, Adjust: []limiter.Adjuster{invalid}, Shadow: true},
		policy{Name: "a", Limit: perMinute})})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"trial error invalid", "a allowed"}, o.take())

	// The limiter itself does not know the algorithm.
	f.hook = nil
	picky := &choosy{fake: newFake()}
	g = newGuard(t, config{Limiter: picky, Observer: o, Policies: byIP(
		policy{Name: "trial", Limit: perMinute.With(limiter.SlidingLog), Shadow: true},
		policy{Name: "a", Limit: perMinute})})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"trial error unsupported", "trial state 1", "a allowed"}, o.take())
	require.Equal(t, 9, left(t, g, request("GET", "/"), "a"))
	o.take()

	g = newGuard(t, config{Limiter: single{newFake()}, Observer: o, Policies: byIP(
		policy{Name: "trial", Limit: perMinute, Shadow: true, Limiter: single{picky.fake}},
		policy{Name: "a", Limit: perMinute})})
	picky.fail(limiter.ErrInvalid)
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"trial error invalid", "trial state 1", "a allowed"}, o.take())
}
