package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// RACE-03, RACE-04: the bound is never passed, with refusals by other policies, panics, cancelled requests and updates in between, and
// nothing is left of it afterwards.
func TestInFlightIsNeverPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 5
		policies := byIP(
			policy{Name: "b", InFlight: bound},
			policy{Name: "other", Limit: limiter.PerSecond(400), Key: keyfunc.Global()})
		g := guardOf(t, policies...)
		var now, most, served atomic.Int64
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
			if served.Add(1)%3 == 0 {
				panic(http.ErrAbortHandler)
			}
		})
		var wg sync.WaitGroup
		for k := range 64 {
			wg.Go(func() {
				for i := range 30 {
					r := request("GET", "/")
					if (k+i)%5 == 0 {
						ctx, cancel := context.WithCancel(r.Context())
						cancel()
						r = r.WithContext(ctx)
					}
					func() {
						defer func() { _ = recover() }()
						serve(g, r, handler)
					}()
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				require.NoError(t, g.Update(policies))
				time.Sleep(time.Millisecond)
			}
		})
		wg.Wait()
		require.LessOrEqual(t, most.Load(), int64(bound))
		require.Equal(t, int64(bound), most.Load())
		free(t, g, bound)
	})
}

// free requires that exactly bound requests fit.
func free(t *testing.T, g *middleware.Guard, bound int) {
	t.Helper()
	var passes []middleware.Pass
	for range bound {
		p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
		require.True(t, p.Proceed())
		passes = append(passes, p)
	}
	w := httptest.NewRecorder()
	p := g.Enter(w, request("GET", "/"), middleware.Entry{})
	require.False(t, p.Proceed())
	require.Equal(t, 503, w.Code)
	for _, p := range passes {
		p.Leave(200)
	}
}

func TestInFlightByKey(t *testing.T) {
	g := guardOf(t, policy{Name: "b", InFlight: 1})
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	require.Equal(t, 200, get(g, "192.0.2.8").Code, "another client")
	require.Equal(t, 503, get(g, "192.0.2.7").Code)
	p.Leave(200)
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
}

// A place is free again once another policy has refused.
func TestInFlightAfterRefusal(t *testing.T) {
	g := guardOf(t, policy{Name: "b", InFlight: 1}, policy{Name: "q", Limit: limiter.PerDay(1)})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, 429, get(g, "192.0.2.7").Code)
	require.NoError(t, g.Update(byIP(policy{Name: "b", InFlight: 1})))
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
}

// A request in service counts on through an update, and its place is given back to the same count.
func TestInFlightAcrossUpdate(t *testing.T) {
	g := guardOf(t, policy{Name: "b", InFlight: 2})
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	require.NoError(t, g.Update(byIP(policy{Name: "b", InFlight: 1})))
	require.Equal(t, 503, get(g, "192.0.2.7").Code)
	p.Leave(200)
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	free(t, g, 1)
}

func TestInFlightShadow(t *testing.T) {
	o := new(recorder)
	g := newGuard(t, config{Observer: o, Policies: byIP(policy{Name: "b", InFlight: 1, Shadow: true})})
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	q := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	require.True(t, q.Proceed())
	require.Equal(t, []string{"b allowed", "b shadow_blocked"}, o.take())
	p.Leave(200)
	get(g, "192.0.2.7")
	require.Equal(t, []string{"b shadow_blocked"}, o.take(), "the second one is still there")
	q.Leave(200)
	get(g, "192.0.2.7")
	require.Equal(t, []string{"b allowed"}, o.take())
}

type hijackable struct{ http.ResponseWriter }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// The handler of a hijacked connection holds its place until it returns.
func TestInFlightHijacked(t *testing.T) {
	g := guardOf(t, policy{Name: "b", InFlight: 1})
	g.Serve(hijackable{httptest.NewRecorder()}, request("GET", "/"), inline(func(w http.ResponseWriter) {
		_, _, err := w.(http.Hijacker).Hijack()
		require.NoError(t, err)
		require.Equal(t, 503, get(g, "192.0.2.7").Code)
	}))
	free(t, g, 1)
}

// Looking does not take a place even for an instant: nobody is refused for a Peek or a Check.
func TestInFlightLooks(t *testing.T) {
	g := guardOf(t, policy{Name: "b", InFlight: 1})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				_, err := g.Peek(request("GET", "/"), middleware.Entry{})
				require.NoError(t, err)
				_, err = g.Check(request("GET", "/"), middleware.Entry{})
				require.NoError(t, err)
			}
		})
	}
	for range 2000 {
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
	}
	wg.Wait()
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	v, err := g.Check(request("GET", "/"), middleware.Entry{})
	require.NoError(t, err)
	require.Equal(t, 503, v.Status)
	require.True(t, v.Policies[0].InFlight)
	p.Leave(200)
}

// Whoever is refused for too many requests in flight can be told from others.
func TestRefusedInFlightHasItsKey(t *testing.T) {
	o := new(recorder)
	g := newGuard(t, config{Observer: o, Policies: byIP(policy{Name: "a", InFlight: 1})})
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	defer p.Leave(200)
	require.Equal(t, 503, serve(g, request("GET", "/"), ok).Code)
	for _, e := range o.events {
		require.Equal(t, limiter.Key{Space: "a", ID: "ip=192.0.2.7"}, e.Key, e.Kind)
		if e.Kind == limiter.EventDecision {
			require.Equal(t, 1, e.Decision.Limit.Quota())
		}
	}
	require.Len(t, o.events, 3)
}

// Policies that come and go leave nothing, but for the places of requests that are still being served.
func TestStatesOfPoliciesThatComeAndGo(t *testing.T) {
	named := func(name string) []policy { return byIP(policy{Name: name, InFlight: 1}) }
	g := newGuard(t, config{Policies: named("stays")})
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	for k := range 1000 {
		require.NoError(t, g.Update(named(fmt.Sprint("p", k))))
		require.Equal(t, 200, serve(g, request("GET", "/"), ok).Code)
	}
	require.LessOrEqual(t, g.States(), 100)
	require.NoError(t, g.Update(named("stays")))
	require.Equal(t, 503, serve(g, request("GET", "/"), ok).Code)
	p.Leave(200)
	require.Equal(t, 200, serve(g, request("GET", "/"), ok).Code)
}
