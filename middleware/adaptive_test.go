package middleware_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

type adjust = limiter.AdjusterFunc

// to is an adjuster that makes any limit l.
func to(l limiter.Limit) []limiter.Adjuster {
	return []limiter.Adjuster{adjust(func(time.Time, limiter.Limit) limiter.Limit { return l })}
}

// A refusal is the service's as long as the nominal limit would have let the request pass, and the caller's behind that.
func TestAdaptiveRefusals(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		if algorithm == limiter.LeakyBucket {
			continue
		}
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(17 * time.Second)
				l := limiter.PerHour(6).With(algorithm)
				low := l
				low.Rate, low.Burst = 2, min(l.Burst, 2)
				o := new(recorder)
				g := newGuard(t, config{Observer: o, Policies: byIP(policy{Name: "a", Limit: l, Adjust: to(low)})})
				var codes []int
				for range 8 {
					w := get(g, "192.0.2.7")
					codes = append(codes, w.Code)
					require.Equal(t, "6", w.Header().Get("X-RateLimit-Limit"), "nominal")
				}
				require.Equal(t, []int{200, 200, 503, 503, 503, 503, 429, 429}, codes)
				events := o.take()
				require.Contains(t, events, "a rejected adaptive")
				require.Equal(t, "a rejected quota", events[len(events)-1])
			})
		})
	}
}

// The rate alone may be lowered too: who keeps to the nominal rate is refused by the service only.
func TestAdaptiveRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(60).WithBurst(5), Adjust: to(limiter.PerMinute(6).WithBurst(5))})
		codes := map[int]int{}
		for range 60 { // 1/s
			codes[get(g, "192.0.2.7").Code]++
			time.Sleep(time.Second)
		}
		require.Equal(t, map[int]int{200: 10, 503: 50}, codes)
		for range 100 {
			codes[get(g, "192.0.2.7").Code]++
		}
		require.Greater(t, codes[429], 90)
	})
}

func TestAdaptiveExtremes(t *testing.T) {
	for name, c := range map[string]struct {
		nominal, applied limiter.Limit
		cost, status     int
		retryAfter       string
	}{
		"closed by the service":  {perMinute, limiter.DenyAll, 1, 503, "1"},
		"closed by the operator": {limiter.DenyAll, limiter.DenyAll, 1, 429, ""},
		"never under the lower":  {perMinute, limiter.PerMinute(2), 5, 503, "1"},
		"never at all":           {perMinute, limiter.PerMinute(2), 50, 429, ""},
		"unlimited, but for now": {limiter.Unlimited, limiter.PerMinute(1), 2, 503, "1"},
		"opened":                 {limiter.DenyAll, limiter.Unlimited, 1, 200, ""},
		"raised":                 {limiter.PerMinute(1), perMinute, 5, 200, ""},
		"raised, not enough":     {limiter.PerMinute(1), perMinute, 11, 429, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: c.nominal, Adjust: to(c.applied), Cost: costOf(c.cost)})
			v, err := g.Peek(request("GET", "/"), middleware.Entry{})
			require.NoError(t, err)
			require.Equal(t, c.status, max(v.Status, 200*b2i(v.Allowed)), "foreseen")
			w := get(g, "192.0.2.7")
			require.Equal(t, c.status, w.Code)
			require.Equal(t, c.retryAfter, w.Header().Get("Retry-After"))
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// What is given back is given back to both counters.
func TestAdaptiveRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOf(t, policy{
			Name: "a", Limit: limiter.PerHour(3), Adjust: to(limiter.PerHour(1)), Refund: func(status int) bool { return status == 404 },
		})
		for range 10 {
			require.Equal(t, 404, serve(g, request("GET", "/"), answer(404)).Code)
		}
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
		require.Equal(t, 503, get(g, "192.0.2.7").Code)
		require.Equal(t, 503, get(g, "192.0.2.7").Code)
		require.Equal(t, 429, get(g, "192.0.2.7").Code)
	})
}

// Adjusters compose in order and see the instant of the request.
func TestAdjustersCompose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		half := adjust(func(_ time.Time, l limiter.Limit) limiter.Limit { l.Rate /= 2; l.Burst = 0; return l })
		later := adjust(func(now time.Time, l limiter.Limit) limiter.Limit {
			if now.Sub(begin) < time.Hour {
				return l
			}
			l.Rate--
			return l
		})
		g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(8), Adjust: []limiter.Adjuster{half, later}})
		require.Equal(t, 4, left(t, g, request("GET", "/"), "a"))
		time.Sleep(time.Hour)
		require.Equal(t, 3, left(t, g, request("GET", "/"), "a"))
	})
}

func TestPlans(t *testing.T) {
	plans := map[string]limiter.Limit{
		"free": limiter.PerHour(1), "gold": limiter.PerHour(3), "all": limiter.Unlimited, "none": limiter.DenyAll, "broken": {Rate: -1},
	}
	g := guardOf(t, policy{
		Name: "a", Key: keyfunc.Header("X-User"), Limit: limiter.PerHour(2),
		Plan: func(r *keyfunc.Request) (limiter.Limit, bool) {
			l, ok := plans[r.Header.Get("X-Plan")]
			return l, ok
		},
	})
	ask := func(user, plan string) *http.Response {
		r := request("GET", "/")
		r.Header.Set("X-User", user)
		r.Header.Set("X-Plan", plan)
		return serve(g, r, ok).Result()
	}
	for plan, want := range map[string][]int{
		"free": {200, 429}, "gold": {200, 200, 200, 429}, "unknown": {200, 200, 429},
		"all": {200, 200, 200, 200, 200}, "none": {429, 429}, "broken": {503, 503},
	} {
		for k, code := range want {
			require.Equal(t, code, ask("u-"+plan, plan).StatusCode, "%s %d", plan, k)
		}
	}
	require.Equal(t, "3", ask("x", "gold").Header.Get("X-RateLimit-Limit"))
	require.Empty(t, ask("x", "all").Header.Get("X-RateLimit-Limit"))
	require.Empty(t, ask("x", "none").Header.Get("Retry-After"))
	require.Equal(t, "0", ask("x", "none").Header.Get("X-RateLimit-Remaining"))
}

// There may be as many plans as callers.
func TestManyPlans(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerHour(1), Plan: func(r *keyfunc.Request) (limiter.Limit, bool) {
		var n int
		_, _ = fmt.Sscan(r.Header.Get("X-Quota"), &n)
		return limiter.PerHour(n), true
	}})
	for range 2 {
		for n := 1; n < 600; n++ {
			r := request("GET", "/")
			r.Header.Set("X-Quota", fmt.Sprint(n))
			r.RemoteAddr = fmt.Sprintf("192.0.%d.%d:1", n/256, n%256)
			require.Equal(t, fmt.Sprint(n), serve(g, r, ok).Header().Get("X-RateLimit-Limit"))
		}
	}
}
