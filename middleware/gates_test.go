package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// gate is a handler with a say before its policy.
type gate struct {
	degrade.Handler
	mu    sync.Mutex
	hint  func(*degrade.Subject) degrade.Hint
	heard []degrade.Verdict
	keys  []limiter.Key
}

func newGate(hint func(*degrade.Subject) degrade.Hint) *gate {
	return &gate{Handler: degrade.Func(skips), hint: hint}
}

func (g *gate) Mode() string { return "read_only" }

func (g *gate) Before(s *degrade.Subject) degrade.Hint { return g.hint(s) }

func (g *gate) After(s *degrade.Subject, x degrade.Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard, g.keys = append(g.heard, x), append(g.keys, s.Key)
}

func (g *gate) take() []degrade.Verdict {
	heard := g.heard
	g.heard = nil
	for k := range heard {
		heard[k].Decision = limiter.Decision{}
	}
	return heard
}

// A gate that is shut refuses before anybody takes; what the chain serves instead is as with any refusal.
func TestShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(recorder)
		closed := degrade.Hint{}
		x := newGate(func(s *degrade.Subject) degrade.Hint {
			require.Equal(t, limiter.Key{Space: "a", ID: "ip=192.0.2.7"}, s.Key)
			require.Equal(t, 2, s.Cost)
			require.Equal(t, "/", s.Request.URL.Path)
			require.True(t, time.Now().Equal(s.Now))
			return closed
		})
		two := func(*keyfunc.Request) int { return 2 }
		g := newGuard(t, config{Observer: o, Policies: byIP(
			policy{Name: "a", Limit: limiter.PerDay(4), Cost: two, Degrade: degrade.First(x, degrade.Within(limiter.PerDay(9), degrade.Func(skips)))},
			policy{Name: "b", Limit: limiter.PerDay(9)})})
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
		require.Equal(t, []degrade.Verdict{{Passed: true}}, x.take())
		o.take()
		for _, c := range []struct {
			cause  degrade.Cause
			status int
			wait   time.Duration
			retry  string
		}{{degrade.Capacity, 503, 7 * time.Second, "7"}, {degrade.Quota, 429, 0, "1"}, {degrade.Capacity, 503, 0, "1"}} {
			closed = degrade.Hint{Shut: true, Cause: c.cause, Wait: c.wait}
			w := get(g, "192.0.2.7")
			require.Equal(t, c.status, w.Code)
			require.Equal(t, c.retry, w.Header().Get("Retry-After"))
			require.Contains(t, w.Body.String(), `"violated-policies":["a"]`)
			require.Equal(t, []degrade.Verdict{{}}, x.take())
			require.Equal(t, []string{"a blocked", "a rejected read_only"}, o.take())
		}
		require.Equal(t, 2, left(t, g, request("GET", "/"), "a"), "nothing was taken")
		require.Equal(t, 8, left(t, g, request("GET", "/"), "b"))
		require.Empty(t, x.take(), "a look is not heard of")

		closed = degrade.Hint{}
		get(g, "192.0.2.7")
		require.Equal(t, 429, get(g, "192.0.2.7").Code)
		require.Equal(t, []degrade.Verdict{{Passed: true}, {Refused: true}}, x.take())
	})
}

// Of several gates that are shut the service's cause counts, and what cannot be decided is heard of too.
func TestSeveralGates(t *testing.T) {
	shutBy := func(c degrade.Cause) *gate {
		return newGate(func(*degrade.Subject) degrade.Hint { return degrade.Hint{Shut: true, Cause: c} })
	}
	for _, chain := range []degrade.Handler{
		degrade.First(shutBy(degrade.Quota), shutBy(degrade.Capacity)), degrade.First(shutBy(degrade.Capacity), shutBy(degrade.Quota)),
	} {
		require.Equal(t, 503, get(guardOf(t, policy{Name: "a", Limit: limiter.PerDay(4), Degrade: chain}), "192.0.2.7").Code)
	}
	f := newFake()
	f.hook = func(string) error { return errAway }
	x := newGate(func(*degrade.Subject) degrade.Hint { return degrade.Hint{} })
	g := newGuard(t, config{Limiter: f, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1), Degrade: x})})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []degrade.Verdict{{Passed: true}}, x.take())
}

// Check asks gates as a request does.
func TestShutCheck(t *testing.T) {
	x := newGate(func(*degrade.Subject) degrade.Hint { return degrade.Hint{Shut: true, Cause: degrade.Capacity} })
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(4), Degrade: x})
	v, err := g.Check(request("GET", "/"))
	require.NoError(t, err)
	require.False(t, v.Allowed)
	require.Equal(t, 503, v.Status)
	require.True(t, v.Policies[0].Violated)
	v, err = g.Peek(request("GET", "/"))
	require.NoError(t, err)
	require.True(t, v.Allowed)
}

// A gate that panics refuses, as any callback of a decision; hearing is nobody's fault.
func TestGatePanics(t *testing.T) {
	x := newGate(func(*degrade.Subject) degrade.Hint { panic("boom") })
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(4), Degrade: x})
	require.Equal(t, 503, get(g, "192.0.2.7").Code)
	require.Equal(t, 4, left(t, g, request("GET", "/"), "a"))
	g = guardOf(t, policy{Name: "a", Limit: limiter.PerDay(4), Degrade: deaf{degrade.Func(skips)}})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
}

type deaf struct{ degrade.Handler }

func (deaf) Before(*degrade.Subject) degrade.Hint    { return degrade.Hint{} }
func (deaf) After(*degrade.Subject, degrade.Verdict) { panic("boom") }

// What is reserved is left to others, exactly: what the request has taken is given back.
func TestReserve(t *testing.T) {
	reserve := 0.0
	x := newGate(func(*degrade.Subject) degrade.Hint { return degrade.Hint{Reserve: reserve} })
	for name, l := range map[string]limiter.Limit{
		"token_bucket":   limiter.PerHour(10),
		"fixed_window":   limiter.PerHour(10).With(limiter.FixedWindow),
		"sliding_window": limiter.PerHour(10).With(limiter.SlidingWindow),
		"sliding_log":    limiter.PerHour(10).With(limiter.SlidingLog),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := new(recorder)
				store, err := memory.New(memory.Config{})
				require.NoError(t, err)
				g := newGuard(t, config{Limiter: store, Observer: o, Policies: byIP(
					policy{Name: "a", Limit: l, Degrade: x}, policy{Name: "b", Limit: limiter.PerDay(100)})})
				reserve = 0.35 // 4 of 10
				codes := map[int]int{}
				for range 20 {
					codes[get(g, "192.0.2.7").Code]++
				}
				require.Equal(t, map[int]int{200: 6, 503: 14}, codes)
				require.Equal(t, 4, left(t, g, request("GET", "/"), "a"))
				require.Equal(t, 94, left(t, g, request("GET", "/"), "b"))
				o.take()
				w := get(g, "192.0.2.7")
				require.Equal(t, []string{"a blocked", "b allowed", "a rejected shed"}, o.take())
				require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
				require.Contains(t, w.Body.String(), "temporary-reduced-capacity")
				if l.Algorithm == limiter.TokenBucket {
					require.Equal(t, "360", w.Header().Get("Retry-After"))
					time.Sleep(6 * time.Minute)
					require.Equal(t, 200, get(g, "192.0.2.7").Code, "as told")
					require.Equal(t, 503, get(g, "192.0.2.7").Code)
				} else {
					require.NotEmpty(t, w.Header().Get("Retry-After"))
				}
				reserve = 0
				for range 4 {
					require.Equal(t, 200, get(g, "192.0.2.7").Code)
				}
				require.Equal(t, 429, get(g, "192.0.2.7").Code, "nothing is left for the most important either")
				last := x.heard[len(x.heard)-1]
				require.True(t, last.Refused)
				require.Equal(t, 10, last.Decision.Limit.Quota())
			})
		})
	}
}

// However large the reserve of a small quota, somebody who comes alone is served.
func TestReserveOfSmallQuota(t *testing.T) {
	x := newGate(func(*degrade.Subject) degrade.Hint { return degrade.Hint{Reserve: 0.9} })
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(3), InFlight: 2, Degrade: x})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, 503, get(g, "192.0.2.7").Code)
}

// Of a bound on requests in flight a share is left to others too.
func TestReserveInFlight(t *testing.T) {
	reserve := 0.5
	x := newGate(func(*degrade.Subject) degrade.Hint { return degrade.Hint{Reserve: reserve} })
	o := new(recorder)
	g := newGuard(t, config{Observer: o, Policies: byIP(policy{Name: "a", InFlight: 4, Degrade: x})})
	var in []middleware.Pass
	enter := func(ok bool) {
		t.Helper()
		p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
		require.Equal(t, ok, p.Proceed())
		if ok {
			in = append(in, p)
		}
	}
	enter(true)
	enter(true)
	o.take()
	enter(false)
	require.Equal(t, []string{"a blocked", "a rejected shed"}, o.take())
	reserve = 0
	enter(true)
	enter(true)
	o.take()
	enter(false)
	require.Equal(t, []string{"a blocked", "a rejected in_flight"}, o.take())
	for k := range in {
		in[k].Leave(200)
	}
	free(t, g, 4)
}

// A policy that is replaced hands the states of its handlers on, before the new one serves.
func TestInherit(t *testing.T) {
	h := &heir{setting: "x", state: new(int)}
	policies := func(h degrade.Handler) []policy {
		return byIP(policy{Name: "a", Limit: limiter.PerDay(1), Degrade: h}, policy{Name: "b", Limit: limiter.PerDay(1)})
	}
	g := newGuard(t, config{Policies: policies(degrade.First(degrade.Func(skips), h))})
	next := &heir{setting: "x", state: new(int)}
	require.NoError(t, g.Update(policies(next)))
	require.Same(t, h.state, next.state)
	other := &heir{setting: "y", state: new(int)}
	require.NoError(t, g.Update(policies(other)))
	require.NotSame(t, h.state, other.state)
	require.Error(t, g.Update(append(policies(&heir{setting: "y", boom: true}), policy{})), "nothing is handed on for what is refused")
	require.NoError(t, g.Update(policies(&heir{setting: "y", boom: true})), "a panic costs the state")
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
}

type heir struct {
	setting string
	state   *int
	boom    bool
}

func (h *heir) Degrade(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome {
	return degrade.Skip
}

func (h *heir) Inherit(prev degrade.Handler) bool {
	if h.boom {
		panic("boom")
	}
	p, ok := prev.(*heir)
	if ok = ok && p.setting == h.setting; ok {
		h.state = p.state
	}
	return ok
}
