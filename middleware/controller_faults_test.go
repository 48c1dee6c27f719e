package middleware_test

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/middleware"
)

// What a stage further in refuses says nothing of the service: a full bound, a spent quota, a broken policy, a store that is
// away, a client that has left its queue.
func TestControllerAndInnerRefusals(t *testing.T) {
	unavailable := newFake()
	unavailable.hook = func(string) error { return limiter.ErrUnavailable }
	full := &controller{bound: 0, most: 9}
	inner := map[string]struct {
		policy policy
		status int
	}{
		"bound in flight": {policy{Adaptive: full}, 503},
		"quota":           {policy{Limit: limiter.DenyAll}, 429},
		"broken":          {policy{Limit: limiter.PerDay(9), Adjust: to(limiter.Limit{Algorithm: 77})}, 503},
		"unavailable":     {policy{Limit: limiter.PerDay(9), Limiter: unavailable, OnStoreError: middleware.FailClosed}, 503},
		"static page": {policy{Limit: limiter.DenyAll, Degrade: degrade.Func(
			func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
				w.WriteHeader(503)
				return degrade.Done
			})}, 503},
	}
	for name, c := range inner {
		t.Run(name, func(t *testing.T) {
			outer := &controller{bound: 9, most: 9}
			c.policy.Name, c.policy.Stage = "inner", "inner"
			g := guardOf(t, policy{Name: "outer", Adaptive: outer}, c.policy)
			stage := g.Stage("inner")
			w := serve(g, request("GET", "/"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { stage.Serve(w, r, ok) }))
			require.Equal(t, c.status, w.Code)
			require.Len(t, outer.ended, 1)
			require.Contains(t, []limiter.Result{limiter.ResultWithdrawn, limiter.ResultUnmeasured}, outer.ended[0])

			other := guardOf(t, policy{Name: "other", Adaptive: outer})
			serve(other, request("GET", "/"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { stage.Serve(w, r, ok) }))
			require.Contains(t, []limiter.Result{limiter.ResultWithdrawn, limiter.ResultUnmeasured}, outer.ended[1], "of another guard")
			require.Zero(t, outer.in)
		})
	}
	outer := &controller{bound: 9, most: 9}
	g := guardOf(t, policy{Name: "outer", Adaptive: outer})
	serve(g, request("GET", "/"), answer(503))
	require.Equal(t, []limiter.Result{limiter.ResultFailed}, outer.ended, "the service's own")
}

// One caller who is over his quota must not move the limit of the service for everybody.
func TestOwnRefusalsMoveNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := adaptive.New(adaptive.Config{Name: "service", Max: 400, CPUSource: func() (float64, bool) { return 0.05, true }})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		g := guardOf(t, policy{Name: "service", Adaptive: c}, policy{Name: "ip", Limit: limiter.PerHour(100)})
		get(g, "192.0.2.99")
		time.Sleep(500 * time.Millisecond)
		for range 100 {
			get(g, "198.51.100.66")
		}
		for window := range 20 {
			time.Sleep(time.Second)
			for k := range 5 {
				serve(g, request("GET", "/"), answer(map[bool]int{true: 500, false: 200}[k == 0]))
			}
			for range 100 {
				require.Equal(t, 429, get(g, "198.51.100.66").Code)
			}
			if window > 0 {
				require.GreaterOrEqual(t, c.Bound(), 44, "%+v", c.State())
			}
		}
	})
}

// A request that waits for its turn keeps the one place it has.
func TestControllerHoldKeepsThePlace(t *testing.T) {
	c, err := adaptive.New(adaptive.Config{Name: "service", Min: 2, Max: 2, Fixed: 2, CPUSource: func() (float64, bool) { return 0.05, true }})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	g := guardOf(t, policy{Name: "service", Adaptive: c},
		policy{Name: "q", Match: match{Routes: []string{"/q"}}, Limit: limiter.Limit{Algorithm: limiter.LeakyBucket, Rate: 100_000, Period: time.Second, Burst: 1000}, MaxDelay: time.Second})
	var inside, held atomic.Int64
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if inside.Add(1) > 2 {
			t.Error("more than the bound")
		}
		runtime.Gosched()
		inside.Add(-1)
	})
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() {
			for range 400 {
				target := "/"
				if k%2 == 0 {
					target = "/q"
				}
				if serve(g, request("GET", target), next).Code == 200 && k%2 == 0 {
					held.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.NotZero(t, held.Load())
	require.Zero(t, c.InFlight())
}

// What waits for its turn is no sign that the service is slow, whatever the law.
func TestControllerHoldIsNotTheService(t *testing.T) {
	for name, law := range map[string]adaptive.MakeLaw{"hybrid": adaptive.Hybrid, "aimd": adaptive.AIMD, "bbr": adaptive.BBR} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := adaptive.New(adaptive.Config{Name: "service", Max: 500, Law: law, CPUSource: func() (float64, bool) { return 0.05, true }})
				require.NoError(t, err)
				defer func() { require.NoError(t, c.Close()) }()
				g := guardOf(t, policy{Name: "service", Adaptive: c}, policy{
					Name: "q", Limit: limiter.PerSecond(5).With(limiter.LeakyBucket).WithBurst(100), MaxDelay: 9 * time.Second,
				})
				next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) })
				var wg sync.WaitGroup
				for range 4 { // a batch of 40 each 10 s
					for range 40 {
						wg.Go(func() {
							if w := serve(g, request("GET", "/"), next); w.Code != 200 {
								t.Errorf("%d, %v", w.Code, c.Bound())
							}
						})
					}
					for range 10 {
						time.Sleep(time.Second)
						require.GreaterOrEqual(t, c.Bound(), 50, c.State().Reason)
					}
				}
				wg.Wait()
				require.Zero(t, c.InFlight())
			})
		})
	}
}

// Who leaves while he is held has been served by nobody, and his age has ended once.
func TestControllerLeftWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{bound: 9, most: 9}
		g := guardOf(t, policy{Name: "a", Adaptive: c}, policy{Name: "q", Limit: queueOf(3)})
		serve(g, request("GET", "/"), ok)
		c.take()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		require.Equal(t, 429, serve(g, request("GET", "/").WithContext(ctx), ok).Code, "a deadline that the turn does not keep")
		require.Equal(t, []string{"acquire", "release 4"}, c.take())
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		serve(g, request("GET", "/").WithContext(ctx), ok)
		require.Equal(t, []string{"acquire", "suspend", "resume", "release 4"}, c.take())
		require.Zero(t, c.in)
	})
}

// panics is a controller with one method that panics.
type panics struct {
	controller
	method string
}

func (p *panics) at(method string) {
	if p.method == method {
		panic(method)
	}
}

func (p *panics) Acquire(t time.Time, r float64) (int, int, bool) {
	p.at("Acquire")
	return p.controller.Acquire(t, r)
}
func (p *panics) Admit(t time.Time) (int, int, bool) { p.at("Admit"); return p.controller.Admit(t) }
func (p *panics) Reject(t time.Time)                 { p.at("Reject"); p.controller.Reject(t) }
func (p *panics) Release(a, b time.Time, r limiter.Result) {
	p.controller.Release(a, b, r)
	p.at("Release")
}
func (p *panics) Suspend(t time.Time) { p.at("Suspend"); p.controller.Suspend(t) }
func (p *panics) Resume(t time.Time)  { p.at("Resume"); p.controller.Resume(t) }
func (p *panics) Detach(t time.Time)  { p.at("Detach"); p.controller.Detach(t) }

// A controller of the user's that panics takes no place of another policy with it, opens no gate and ends no request.
func TestControllerPanics(t *testing.T) {
	for method, want := range map[string]int{"Acquire": 503, "Admit": 200, "Reject": 503, "Release": 200, "Suspend": 200, "Resume": 200, "Detach": 200} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				beside := &controller{bound: 9, most: 9}
				p := &panics{controller{bound: 9, most: 9}, method}
				b := policy{Name: "b", Adaptive: p}
				switch method {
				case "Admit", "Reject":
					p.bound, p.most, p.share = math.MaxInt, math.MaxInt, 0.5
					store := newFake()
					store.local = true
					b.Limiter, b.Limit = store, limiter.PerDay(4)
				}
				policies := []policy{{Name: "a", Adaptive: beside, InFlight: 9}, b}
				if method == "Suspend" || method == "Resume" {
					policies = append(policies, policy{Name: "q", Limit: queueOf(3)})
				}
				g := guardOf(t, policies...)
				code, requests := 0, 3
				if method == "Admit" {
					requests = 2 // within the lowered limit
				}
				for range requests {
					code = serve(g, request("GET", "/"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if w.Header().Set("Content-Type", "text/event-stream"); method != "Detach" {
							w.Header().Del("Content-Type")
						}
						w.WriteHeader(200)
					})).Code
				}
				require.Equal(t, want, code)
				require.Zero(t, beside.in)
				require.Zero(t, p.in)
				require.Zero(t, g.Overview()[0].InFlight)
			})
		})
	}
}

// oddWriter panics when its header is asked for the n-th time.
type oddWriter struct {
	http.ResponseWriter
	n, at int
}

func (w *oddWriter) Header() http.Header {
	if w.n++; w.n == w.at {
		panic("header")
	}
	return w.ResponseWriter.Header()
}

// oddContext does so when something of it is asked for the n-th time.
type oddContext struct {
	context.Context
	n, at int
}

func (c *oddContext) count() {
	if c.n++; c.n == c.at {
		panic("context")
	}
}
func (c *oddContext) Done() <-chan struct{} { c.count(); return c.Context.Done() }
func (c *oddContext) Err() error            { c.count(); return c.Context.Err() }
func (c *oddContext) Value(k any) any       { c.count(); return c.Context.Value(k) }

// Whatever panics or ends the goroutine between a place being taken and the handler, no place is lost.
func TestNoPlaceIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{bound: 1000, most: 1000}
		exits := newFake()
		exits.hook = func(string) error { runtime.Goexit(); return nil }
		limits := map[string]policy{
			"plain":   {Name: "q", Limit: limiter.PerDay(1_000_000)},
			"held":    {Name: "q", Limit: queueOf(50)},
			"refused": {Name: "q", Limit: limiter.DenyAll},
			"exits":   {Name: "q", Limit: limiter.PerDay(9), Limiter: exits},
		}
		for name, q := range limits {
			for at := range 8 {
				g := guardOf(t, policy{Name: "a", Adaptive: c, InFlight: 500}, q)
				try := func(w http.ResponseWriter, r *http.Request) {
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						g.Serve(w, r, ok)
					}()
					<-done
				}
				try(httptest.NewRecorder(), request("GET", "/")) // the first of a queue is not held
				try(&oddWriter{httptest.NewRecorder(), 0, at}, request("GET", "/"))
				try(httptest.NewRecorder(), request("GET", "/").WithContext(&oddContext{context.Background(), 0, at}))
				require.Zero(t, c.in, "%s, %d", name, at)
				require.Zero(t, g.Overview()[0].InFlight, "%s, %d", name, at)
			}
		}
	})
}

// A stream whose context panics at its end is a stream all the same.
func TestControllerStreamWithAnOddContext(t *testing.T) {
	c := &controller{bound: 9, most: 9}
	g := guardOf(t, policy{Name: "a", Adaptive: c})
	ctx := &oddContext{Context: context.Background(), at: -1}
	p := g.Enter(httptest.NewRecorder(), request("GET", "/").WithContext(ctx), middleware.Entry{})
	w := p.Writer()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(200)
	ctx.at = ctx.n + 1
	p.Leave(200)
	require.Equal(t, []string{"acquire", "detach", "release 3"}, c.take())
}
