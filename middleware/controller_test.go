package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// controller writes down what it is told.
type controller struct {
	mu          sync.Mutex
	bound, most int // bound: math.MaxInt for a rate
	share       float64
	in          int
	told        []string
	ended       []limiter.Result
	took        []time.Duration
	lastReserve float64
	placesFreed int
	placesTaken int
}

func (c *controller) say(format string, args ...any) {
	c.told = append(c.told, fmt.Sprintf(format, args...))
}

func (c *controller) Adjust(_ time.Time, l limiter.Limit) limiter.Limit {
	if c.share > 0 && l.Rate > 0 {
		l.Rate = max(1, int(float64(l.Rate)*c.share))
	}
	return l
}

func (c *controller) Acquire(_ time.Time, reserve float64) (int, int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastReserve = reserve
	if c.in >= c.bound-int(math.Ceil(reserve*float64(c.bound))) {
		c.say("refuse")
		return c.in, c.bound, false
	}
	c.in++
	c.placesTaken++
	c.say("acquire")
	return c.in, c.bound, true
}

func (c *controller) Admit(time.Time) (int, int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in++
	c.placesTaken++
	c.say("admit")
	return c.in, c.bound, c.in <= c.bound
}

func (c *controller) Reject(time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say("reject")
}

func (c *controller) Release(now, began time.Time, r limiter.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in--
	c.placesFreed++
	c.ended, c.took = append(c.ended, r), append(c.took, now.Sub(began))
	c.say("release %d", r)
}

func (c *controller) Suspend(time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say("suspend")
}

func (c *controller) Resume(time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say("resume")
}

func (c *controller) Detach(time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say("detach")
}

func (c *controller) InFlight() int { return c.in }
func (c *controller) Bound() int    { return c.bound }
func (c *controller) Max() int      { return c.most }

func (c *controller) take() []string {
	told := c.told
	c.told = nil
	return told
}

// More than the bound are refused with 503, and told the nominal bound.
func TestControllerBound(t *testing.T) {
	o := new(recorder)
	c := &controller{bound: 2, most: 100}
	g := newGuard(t, config{Observer: o, Policies: byIP(policy{Name: "a", Adaptive: c, Headers: response.Both})})
	var in []middleware.Pass
	for range 2 {
		p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
		require.True(t, p.Proceed())
		require.True(t, p.NeedsStatus())
		in = append(in, p)
	}
	o.take()
	w := get(g, "192.0.2.8") // whatever the key
	require.Equal(t, 503, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, `"a.inflight";q=100;qu="concurrent-requests"`, w.Header().Get("RateLimit-Policy"))
	require.Equal(t, `"a.inflight";r=0`, w.Header().Get("RateLimit"))
	require.Contains(t, w.Body.String(), "temporary-reduced-capacity")
	require.Equal(t, []string{"a blocked", "a rejected adaptive"}, o.take())
	v, err := g.Check(request("GET", "/"))
	require.NoError(t, err)
	require.Equal(t, 503, v.Status)
	in[0].Leave(200)
	in[0].Leave(200)
	require.Equal(t, 200, get(g, "192.0.2.8").Code)
	v, err = g.Check(request("GET", "/"))
	require.NoError(t, err)
	require.True(t, v.Allowed, "a look")
	in[1].Leave(200)
	require.Zero(t, c.in)
	require.Equal(t, c.placesTaken, c.placesFreed)
}

// A place is given back once, with what became of the request.
func TestControllerResults(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancelLate := context.WithDeadline(context.Background(), time.Now().Add(time.Hour))
	defer cancelLate()
	for name, c := range map[string]struct {
		next http.HandlerFunc
		want []string
	}{
		"fine":      {answer(200).ServeHTTP, []string{"acquire", "release 0"}},
		"not found": {answer(404).ServeHTTP, []string{"acquire", "release 0"}},
		"failed":    {answer(503).ServeHTTP, []string{"acquire", "release 1"}},
		"panic":     {func(http.ResponseWriter, *http.Request) { panic("boom") }, []string{"acquire", "release 1"}},
		"broken": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic("boom")
		}, []string{"acquire", "release 1"}},
		"upgraded": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, []string{"acquire", "detach", "release 3"}},
		"hijacked": {func(w http.ResponseWriter, _ *http.Request) {
			_, _, err := http.NewResponseController(w).Hijack()
			require.NoError(t, err)
		}, []string{"acquire", "detach", "release 3"}},
		"events": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			w.WriteHeader(200)
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}, []string{"acquire", "detach", "release 3"}},
		"early hints": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(200)
		}, []string{"acquire", "release 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := &controller{bound: 1, most: 1}
			g := guardOf(t, policy{Name: "a", Adaptive: x})
			func() {
				defer func() { _ = recover() }()
				g.Serve(&pipe{ResponseRecorder: httptest.NewRecorder()}, request("GET", "/"), c.next)
			}()
			require.Equal(t, c.want, x.take())
			require.Zero(t, x.in)
		})
	}
	for name, ctx := range map[string]context.Context{"2": gone, "0": late} {
		x := &controller{bound: 1, most: 1}
		g := guardOf(t, policy{Name: "a", Adaptive: x})
		p := g.Enter(httptest.NewRecorder(), request("GET", "/").WithContext(ctx), middleware.Entry{})
		p.Leave(200)
		require.Equal(t, []string{"acquire", "release " + name}, x.take())
	}
	x := &controller{bound: 1, most: 1}
	g := guardOf(t, policy{Name: "a", Adaptive: x})
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	later := p.LeaveLater(500)
	require.Equal(t, []string{"acquire", "release 1"}, x.take())
	later(200)
	require.Empty(t, x.take())
}

// pipe is a recorder whose connection can be taken over.
type pipe struct{ *httptest.ResponseRecorder }

func (p *pipe) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	near, _ := net.Pipe()
	return near, nil, nil
}

// What the policy, another one or a chain makes of the request is no time of the service.
func TestControllerBesideOthers(t *testing.T) {
	x := &controller{bound: 9, most: 9}
	g := guardOf(t, policy{Name: "a", Adaptive: x, Limit: limiter.PerDay(1)}, policy{Name: "b", Limit: limiter.PerDay(9), Degrade: degrade.Func(skips)})
	get(g, "192.0.2.7")
	x.take()
	require.Equal(t, 429, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"acquire", "release 4"}, x.take())

	g = guardOf(t, policy{Name: "a", Adaptive: x}, policy{Name: "b", Limit: limiter.PerDay(1), Degrade: degrade.Func(proceeds)})
	get(g, "192.0.2.7")
	x.take()
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"acquire", "release 4", "acquire", "release 2"}, x.take(), "refused, then degraded")
	require.Zero(t, x.in)

	x.bound = 0
	g = guardOf(t, policy{Name: "a", Adaptive: x, Degrade: degrade.Func(proceeds)})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"refuse"}, x.take(), "what proceeds has no place")

	x.bound = 1
	g = guardOf(t, policy{Name: "a", Adaptive: x, InFlight: 1})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Zero(t, x.in)
	g = newGuard(t, config{Policies: byIP(policy{Name: "a", Adaptive: x, Shadow: true})})
	x.bound = 0
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"acquire", "release 0", "admit", "release 0"}, x.take())
}

// What a gate reserves stays free of the bound, and who is shed is told apart.
func TestControllerReserve(t *testing.T) {
	o := new(recorder)
	x := &controller{bound: 2, most: 9}
	h := newGate(func(*degrade.Subject) degrade.Hint { return degrade.Hint{Reserve: 0.5} })
	g := newGuard(t, config{Observer: o, Policies: byIP(policy{Name: "a", Adaptive: x, Degrade: h})})
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	require.True(t, p.Proceed())
	require.Equal(t, 0.5, x.lastReserve)
	o.take()
	require.Equal(t, 503, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"a blocked", "a rejected shed"}, o.take())
	p.Leave(200)
}

// A request that is held for its turn takes the time of the service from then on.
func TestControllerDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &controller{bound: 9, most: 9}
		g := guardOf(t, policy{Name: "a", Adaptive: x, Limit: queueOf(3)})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				serve(g, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Millisecond) }))
			})
		}
		wg.Wait()
		require.Zero(t, x.in)
		for k, r := range x.ended {
			if r == limiter.ResultSucceeded {
				require.Equal(t, 10*time.Millisecond, x.took[k])
			}
		}
		require.Contains(t, x.told, "suspend")
		require.Contains(t, x.told, "resume")
	})
}

// A rate that has been lowered refuses with 503 what it would not have refused at the nominal one, and learns of both.
func TestControllerRate(t *testing.T) {
	x := &controller{bound: math.MaxInt, most: math.MaxInt, share: 0.5}
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	g := newGuard(t, config{Limiter: store, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(4), Adaptive: x})})
	for range 2 {
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
	}
	require.Equal(t, []string{"admit", "release 0", "admit", "release 0"}, x.take())
	w := get(g, "192.0.2.7")
	require.Equal(t, 503, w.Code)
	require.Equal(t, []string{"reject"}, x.take())
	require.Equal(t, "4", w.Header().Get("X-RateLimit-Limit"), "nominal")
	require.Zero(t, x.in)
	v, err := g.Check(request("GET", "/"))
	require.NoError(t, err)
	require.False(t, v.Allowed)
	require.Equal(t, []string{"reject"}, x.take())
}

func TestControllerSettings(t *testing.T) {
	rate, bound := &controller{bound: math.MaxInt, most: math.MaxInt}, &controller{bound: 5, most: 9}
	for _, c := range []struct {
		policies []policy
		limiter  limiter.Limiter
		want     string
	}{
		{[]policy{{Name: "a", Adaptive: rate}}, nil, "Limit is required"},
		{[]policy{{Name: "a", Adaptive: rate, Limit: limiter.PerDay(1)}}, shared{newFake()}, "rate of one process"},
		{[]policy{{Name: "a", Adaptive: bound}, {Name: "a.inflight", InFlight: 1}}, nil, "is taken"},
		{[]policy{{Name: "a", Adaptive: (*adaptive.Controller)(nil)}}, nil, "Adaptive"},
		{[]policy{{Name: "a", Adaptive: bound}}, nil, ""},
	} {
		_, err := middleware.New(config{Limiter: c.limiter, Policies: byIP(c.policies...)})
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

// shared is a limiter that is not local.
type shared struct{ limiter.Limiter }

// The controller of package adaptive in a guard: floods never pass its bound, and leave nothing behind.
func TestControllerOfPackage(t *testing.T) {
	c, err := adaptive.New(adaptive.Config{Name: "a", Max: 20, Fixed: 20, CPUSource: func() (float64, bool) { return 0.1, true }})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	g := guardOf(t, policy{Name: "a", Adaptive: c})
	var mu sync.Mutex
	in, most, codes := 0, 0, map[int]int{}
	var wg sync.WaitGroup
	for k := range 1000 {
		wg.Go(func() {
			defer func() { _ = recover() }()
			w := serve(g, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				in++
				most = max(most, in)
				mu.Unlock()
				defer func() {
					mu.Lock()
					in--
					mu.Unlock()
				}()
				if k%7 == 0 {
					panic("boom")
				}
			}))
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most, 20)
	require.Zero(t, c.InFlight())
	require.NotZero(t, codes[200])
}
