package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

func failed(status int) bool { return status >= 500 }

func TestRefundByStatus(t *testing.T) {
	boom := new(int)
	for name, c := range map[string]struct {
		refund  func(int) bool
		handler http.HandlerFunc
		left    int // of 10
		panics  any
	}{
		"success":               {failed, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, 9, nil},
		"failure":               {failed, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, 10, nil},
		"not found":             {func(s int) bool { return s == 404 }, http.NotFound, 10, nil},
		"nothing written":       {func(s int) bool { return s == 200 }, func(http.ResponseWriter, *http.Request) {}, 10, nil},
		"only a body":           {func(s int) bool { return s == 200 }, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }, 10, nil},
		"the first status wins": {failed, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) }, 9, nil},
		"flushed is 200": {failed, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		}, 9, nil},
		"informational first": {failed, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(500) }, 10, nil},
		"panic is 500":        {failed, func(http.ResponseWriter, *http.Request) { panic(boom) }, 10, boom},
		"abort too":           {failed, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 10, http.ErrAbortHandler},
		"panic behind 200":    {func(s int) bool { return s == 200 }, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(boom) }, 10, boom},
		// Whoever breaks off a download makes a proxy panic, and has had it.
		"abort behind 200":   {failed, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, 9, http.ErrAbortHandler},
		"switched protocols": {func(int) bool { return true }, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, 9, nil},
		"refund panics":      {func(int) bool { panic("no") }, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 9, nil},
		"both panic":         {func(int) bool { panic("no") }, func(http.ResponseWriter, *http.Request) { panic(boom) }, 9, boom},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(10), Refund: c.refund})
			defer func() {
				require.Equal(t, c.panics, recover(), "passes on")
				require.Equal(t, c.left, left(t, g, request("GET", "/"), "a"))
			}()
			serve(g, request("GET", "/"), c.handler)
		})
	}
}

func TestHijackedStaysCharged(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(10), Refund: func(int) bool { return true }})
	g.Serve(hijackable{httptest.NewRecorder()}, request("GET", "/"), inline(func(w http.ResponseWriter) {
		_, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
	}))
	require.Equal(t, 9, left(t, g, request("GET", "/"), "a"))
}

// However often and by whichever copy a Pass is left, only the first call counts.
func TestLeaveOnce(t *testing.T) {
	all := func(int) bool { return true }
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(10), Refund: all, InFlight: 1})
	enter := func() middleware.Pass {
		p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
		require.True(t, p.Proceed())
		require.True(t, p.Settles())
		require.True(t, p.NeedsStatus())
		return p
	}
	p := enter()
	copied := p
	p.Leave(0) // unknown: stays charged
	require.False(t, p.Settles())
	p.Leave(200)
	copied.Leave(200)
	require.Equal(t, 9, left(t, g, request("GET", "/"), "a"))

	q := enter()
	copied.Leave(200)
	copied.LeaveLater(0)(200)
	require.Equal(t, 8, left(t, g, request("GET", "/"), "a"), "the old Pass means nothing to the new request")
	again := q
	q.Leave(200)
	again.Leave(200)
	require.Equal(t, 9, left(t, g, request("GET", "/"), "a"))

	// Later: the place is free at once, the units when the status is known, once.
	p = enter()
	copied = p
	later := p.LeaveLater(0)
	r := enter()
	r.Leave(0)
	copied.Leave(200)
	copied.LeaveLater(0)(200)
	require.Equal(t, 7, left(t, g, request("GET", "/"), "a"))
	later(200)
	later(200)
	require.Equal(t, 8, left(t, g, request("GET", "/"), "a"))
	p = enter()
	_ = p.LeaveLater(0) // nobody ever says: it stays charged
	require.Equal(t, 7, left(t, g, request("GET", "/"), "a"))
}

// A request settles on the policies it began with.
func TestRefundAcrossUpdate(t *testing.T) {
	before, after := newFake(), newFake()
	g := newGuard(t, config{Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(10), Limiter: before, Refund: failed})})
	serve(g, request("GET", "/"), inline(func(w http.ResponseWriter) {
		require.NoError(t, g.Update(byIP(policy{Name: "b", Limit: limiter.PerDay(10), Limiter: after})))
		w.WriteHeader(500)
	}))
	require.Equal(t, 10, left(t, g, request("GET", "/"), "b"))
	require.NoError(t, g.Update(byIP(policy{Name: "a", Limit: limiter.PerDay(10), Limiter: before})))
	require.Equal(t, 10, left(t, g, request("GET", "/"), "a"))
}

// A refund never lifts the balance over the quota, and the units of others stay theirs.
func TestRefundIsBounded(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(2), Refund: failed})
	for range 20 {
		serve(g, request("GET", "/"), answer(500))
	}
	require.Equal(t, 2, left(t, g, request("GET", "/"), "a"))
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	serve(g, request("GET", "/"), answer(500))
	require.Equal(t, 1, left(t, g, request("GET", "/"), "a"))
}

// The request's own context may have ended by the time units are given back.
func TestRefundAfterTheContext(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(10), Refund: failed})
	ctx, cancel := contextOf(t)
	serve(g, request("GET", "/").WithContext(ctx), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(500)
	}))
	require.Equal(t, 10, left(t, g, request("GET", "/"), "a"))
}

// Nothing is given back that was never taken: by a policy that failed open, by a shadow that would have refused.
func TestRefundOnlyWhatWasTaken(t *testing.T) {
	f := newFake()
	refunds := 0
	f.hook = func(op string) error {
		if op == "refund" {
			refunds++
			return nil
		}
		return errAway
	}
	all := func(int) bool { return true }
	g := newGuard(t, config{Policies: byIP(
		policy{Name: "a", Limit: limiter.PerDay(10), Limiter: f, Refund: all},
		policy{Name: "b", Limit: limiter.DenyAll, Shadow: true, Refund: all},
		policy{Name: "c", Limit: limiter.Unlimited, Refund: all})})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Zero(t, refunds)
}
