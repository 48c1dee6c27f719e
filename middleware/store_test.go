package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

var errAway = fmt.Errorf("%w: connection refused to redis.internal:6379", limiter.ErrUnavailable)

func TestStoreErrors(t *testing.T) {
	const closed = middleware.FailClosed
	for name, c := range map[string]struct {
		err    error
		rules  []middleware.OnError // of one policy each, all on the failing store
		status int
		events []string
	}{
		"open":               {errAway, []middleware.OnError{0}, 200, []string{"p0 error unavailable", "p0 state 1"}},
		"closed":             {errAway, []middleware.OnError{closed}, 503, []string{"p0 error unavailable", "p0 state 1", "p0 rejected unavailable"}},
		"any closed wins":    {errAway, []middleware.OnError{0, closed}, 503, []string{"p0 error unavailable", "p0 state 1", "p1 error unavailable", "p1 state 1", "p1 rejected unavailable"}},
		"in any order":       {errAway, []middleware.OnError{closed, 0}, 503, []string{"p0 error unavailable", "p0 state 1", "p1 error unavailable", "p1 state 1", "p0 rejected unavailable"}},
		"closed limiter":     {limiter.ErrClosed, []middleware.OnError{0}, 200, []string{"p0 error unavailable", "p0 state 1"}},
		"its own time-out":   {context.DeadlineExceeded, []middleware.OnError{closed}, 503, []string{"p0 error unavailable", "p0 state 1", "p0 rejected unavailable"}},
		"its own cancelling": {context.Canceled, []middleware.OnError{closed}, 503, []string{"p0 error unavailable", "p0 state 1", "p0 rejected unavailable"}},
		"unknown":            {errors.New("what"), []middleware.OnError{0}, 200, []string{"p0 error unavailable", "p0 state 1"}},
		"invalid":            {fmt.Errorf("%w: n", limiter.ErrInvalid), []middleware.OnError{0}, 503, []string{"p0 error invalid", "p0 state 1", "p0 rejected invalid"}},
		"unsupported":        {errors.ErrUnsupported, []middleware.OnError{0}, 503, []string{"p0 error unsupported", "p0 state 1", "p0 rejected unsupported"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, near, o, log := newFake(), newFake(), new(recorder), new(logged)
			near.local = true
			policies := []policy{{Name: "near", Limit: perMinute, Limiter: near}}
			for k, rule := range c.rules {
				policies = append(policies, policy{Name: fmt.Sprintf("p%d", k), Limit: perMinute, OnStoreError: rule})
			}
			g := newGuard(t, config{Limiter: f, Observer: o, Logger: log.logger(), Policies: byIP(policies...)})
			f.fail(c.err)
			w := get(g, "192.0.2.7")
			require.Equal(t, c.status, w.Code)
			got := o.take()
			require.Contains(t, got, "near allowed")
			require.Equal(t, c.events, without(got, "near allowed"))
			require.NotContains(t, w.Body.String()+fmt.Sprint(w.Header()), "redis", "no hint at the store")
			require.NotContains(t, log.take(), "192.0.2.7", "no key in the log")
			if c.status == 200 {
				require.Equal(t, "9", w.Header().Get("X-RateLimit-Remaining"), "of the one that could decide")
				return
			}
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			require.Empty(t, w.Header().Get("X-RateLimit-Limit"))
			f.fail(nil)
			v, err := g.Peek(request("GET", "/"), middleware.Entry{})
			require.NoError(t, err)
			require.Equal(t, 10, v.Policies[0].Decision.Remaining, "given back")
		})
	}
}

func without(list []string, drop string) (out []string) {
	for _, s := range list {
		if s != drop {
			out = append(out, s)
		}
	}
	return out
}

// An outage is logged once when it begins and once when it has been over for a second, and counted every time.
func TestOutageIsLoggedOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o, log := newFake(), new(recorder), new(logged)
		g := newGuard(t, config{Limiter: f, Observer: o, Logger: log.logger(), Policies: byIP(policy{Name: "a", Limit: perMinute})})
		for range 2 {
			f.fail(errAway)
			for range 5 {
				get(g, "192.0.2.7")
			}
			require.Equal(t, []string{
				"a error unavailable", "a state 1", "a error unavailable", "a error unavailable", "a error unavailable", "a error unavailable",
			}, o.take())
			require.Equal(t, 1, strings.Count(log.take(), "\n"))
			require.NoError(t, g.Update(byIP(policy{Name: "a", Limit: limiter.PerMinute(9)})), "which is no change")
			get(g, "192.0.2.7")
			require.Empty(t, log.take())
			o.take()
			f.fail(nil)
			get(g, "192.0.2.7")
			time.Sleep(time.Second - 1)
			get(g, "192.0.2.7")
			require.Equal(t, []string{"a allowed", "a allowed"}, o.take())
			time.Sleep(1)
			for range 2 {
				get(g, "192.0.2.7")
			}
			require.Equal(t, []string{"a state 0", "a allowed", "a allowed"}, o.take())
			require.Equal(t, 1, strings.Count(log.take(), "decides again"))
		}
	})
}

// Where some keys can be decided and others cannot, as on a Cluster without one of its servers, no request is a change.
func TestHalfAnOutageIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o, log := newFake(), new(recorder), new(logged)
		g := newGuard(t, config{Limiter: f, Observer: o, Logger: log.logger(), Policies: byIP(policy{Name: "a", Limit: limiter.PerSecond(1000)})})
		for k := range 1000 {
			f.fail(nil)
			if k%2 == 0 {
				f.fail(errAway)
			}
			get(g, "192.0.2.7")
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, 1, strings.Count(log.take(), "\n"))
	})
}

// An observer that logs states spares the guard its lines.
func TestStatesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log := newFake(), new(logged)
		g := newGuard(t, config{Limiter: f, Observer: logsStates{new(recorder)}, Logger: log.logger(), Policies: byIP(policy{Name: "a", Limit: perMinute})})
		f.fail(errAway)
		get(g, "192.0.2.7")
		f.fail(nil)
		time.Sleep(time.Second)
		get(g, "192.0.2.7")
		require.Empty(t, log.take())
	})
}

type logsStates struct{ *recorder }

func (logsStates) LogsStates() bool { return true }

// A request whose context has ended is no failure of the store: it is not answered 429 or 503, not counted as an error of
// it, not logged, and has taken nothing.
func TestEndedContext(t *testing.T) {
	for _, rule := range []middleware.OnError{middleware.FailOpen, middleware.FailClosed} {
		f, o, log := newFake(), new(recorder), new(logged)
		f.local = true
		far := newFake()
		g := newGuard(t, config{Limiter: f, Observer: o, Logger: log.logger(), Policies: byIP(
			policy{Name: "a", Limit: perMinute, OnStoreError: rule}, policy{Name: "b", Limit: perMinute, OnStoreError: rule, Limiter: far})})
		ctx, cancel := context.WithCancel(t.Context())
		far.hook = func(op string) error {
			if op == "allow_all" {
				cancel()
			}
			return ctx.Err()
		}
		w := serve(g, request("GET", "/").WithContext(ctx), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") }))
		require.Equal(t, 499, w.Code)
		require.Empty(t, w.Body.String())
		require.Equal(t, []string{"a error canceled", "b error canceled"}, o.take())
		require.Empty(t, log.take())
		far.hook = nil
		require.Equal(t, 10, left(t, g, request("GET", "/"), "a"))
		require.Equal(t, 10, left(t, g, request("GET", "/"), "b"))

		// Ended before it came.
		serve(g, request("GET", "/").WithContext(ctx), ok)
		require.Equal(t, 10, left(t, g, request("GET", "/"), "a"))
		require.Empty(t, log.take())
	}
}

// A deadline of the server's own is told to the client, who is still there.
func TestEndedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.hook = func(string) error { time.Sleep(time.Minute); return nil }
		g := newGuard(t, config{Limiter: slow{f}, Policies: byIP(policy{Name: "a", Limit: perMinute})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		require.Equal(t, 504, serve(g, request("GET", "/").WithContext(ctx), ok).Code)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// slow obeys the context while it sleeps, as a store does.
type slow struct{ *fake }

func (s slow) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if len(takes) == 0 {
		return true, nil
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(time.Minute):
		return s.fake.AllowAll(ctx, at, takes)
	}
}

// A cost of nothing asks nothing, so that no outage refuses it.
func TestCostOfNothing(t *testing.T) {
	f := newFake()
	f.fail(errAway)
	g := newGuard(t, config{Limiter: f, Policies: byIP(policy{Name: "a", Limit: perMinute, Cost: costOf(0), OnStoreError: middleware.FailClosed})})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Zero(t, f.calls.Load())
	// And takes nothing, even where nothing is left.
	g = guardOf(t, policy{Name: "a", Limit: limiter.PerDay(1)})
	get(g, "192.0.2.7")
	require.NoError(t, g.Update(byIP(policy{Name: "a", Limit: limiter.PerDay(1), Cost: costOf(0)})))
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
}

// Unlimited and DenyAll mean the same on every store, and ask none.
func TestStatelessLimitsAskNobody(t *testing.T) {
	f := newFake()
	f.fail(errAway)
	g := newGuard(t, config{Limiter: f, Policies: byIP(policy{Name: "a", Limit: limiter.Unlimited, OnStoreError: middleware.FailClosed})})
	w := get(g, "192.0.2.7")
	require.Equal(t, 200, w.Code)
	require.Empty(t, fields(w.Header()))
	g = newGuard(t, config{Limiter: f, Policies: byIP(policy{Name: "a", Limit: limiter.DenyAll})})
	w = get(g, "192.0.2.7")
	require.Equal(t, 429, w.Code)
	require.Empty(t, w.Header().Get("Retry-After"))
	require.Zero(t, f.calls.Load())
}

// source is a limiter.Source of somebody's own, which may yield anything.
type source struct{ limit limiter.Limit }

func (s *source) Current() limiter.Limit { return s.limit }

// A limit that becomes invalid while serving refuses, never opens the gate, and is told in the log.
func TestInvalidWhileServing(t *testing.T) {
	s, log := &source{perMinute}, new(logged)
	g := newGuard(t, config{Logger: log.logger(), Policies: byIP(policy{Name: "a", Limit: s})})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	s.limit = limiter.Limit{}
	for range 3 {
		w := get(g, "192.0.2.7")
		require.Equal(t, 503, w.Code)
		require.Empty(t, w.Header().Get("Retry-After"))
	}
	require.Equal(t, 1, strings.Count(log.take(), "cause=invalid"))
	s.limit = perMinute
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
}

// A Var refuses what is invalid and keeps what it had.
func TestVarKeepsTheLastGoodLimit(t *testing.T) {
	v := limiter.NewVar(perMinute)
	g := guardOf(t, policy{Name: "a", Limit: v})
	require.ErrorIs(t, v.Set(limiter.PerMinute(0)), limiter.ErrInvalid)
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
}

// Who is refused with 403, or believed to be another, learns nothing; the operator is told once.
func TestTheLogExplains(t *testing.T) {
	log := new(logged)
	g := newGuard(t, config{
		Logger:   log.logger(),
		ClientIP: keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"198.51.100.0/24"}},
		Policies: []policy{
			{Name: "a", Key: keyfunc.IP(), Limit: perMinute},
			{Name: "b", Key: keyfunc.Header("X-Api-Key"), Limit: perMinute, Match: middleware.Match{Routes: []string{"/keyed"}}},
		},
	})
	for range 3 {
		r := request("GET", "/")
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		require.Equal(t, 200, serve(g, r, ok).Code)
		require.Equal(t, 403, serve(g, request("GET", "/keyed"), ok).Code)
	}
	text := log.take()
	require.Equal(t, 1, strings.Count(text, "not in ClientIP.TrustedProxies"), text)
	require.Equal(t, 1, strings.Count(text, "requests without a key are refused"), text)

	g.Stage(middleware.StageManual)
	require.Contains(t, log.take(), "Guard.Take")
}

// A refusal that cannot be given back is still that refusal.
func TestGivingBackFails(t *testing.T) {
	a, b, o := newFake(), newFake(), new(recorder)
	a.local = true
	a.hook = func(op string) error {
		if op == "refund" {
			return errAway
		}
		return nil
	}
	g := newGuard(t, config{Observer: o, Policies: byIP(
		policy{Name: "a", Limit: perMinute, Limiter: a}, policy{Name: "b", Limit: limiter.PerDay(1), Limiter: b})})
	get(g, "192.0.2.7")
	require.Equal(t, 429, get(g, "192.0.2.7").Code)
	require.Contains(t, o.take(), "a error refund")
}
