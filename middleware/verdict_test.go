package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

func TestPeekTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(recorder)
		f := newFake()
		f.hook = func(op string) error {
			if op != "allow_all" {
				t.Error(op)
			}
			return nil
		}
		g := newGuard(t, config{Limiter: peeked{f, t}, Observer: o, Policies: byIP(
			policy{Name: "a", Limit: limiter.PerMinute(3)}, policy{Name: "s", Limit: limiter.PerMinute(2), Shadow: true, Cost: costOf(9)},
			policy{Name: "b", InFlight: 1}, policy{Name: "q", Limit: queueOf(3)})})
		for range 10 {
			v, err := g.Peek(request("GET", "/"), middleware.Entry{})
			require.NoError(t, err)
			require.True(t, v.Allowed)
			require.Zero(t, v.Status)
			require.Len(t, v.Policies, 4)
			require.Equal(t, 3, v.Policies[0].Decision.Remaining)
			require.True(t, v.Policies[1].Violated)
			require.True(t, v.Policies[1].Shadow)
		}
		require.Empty(t, o.take())
	})
}

// peeked fails the test when anything is taken.
type peeked struct {
	*fake
	t *testing.T
}

func (p peeked) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	for _, t := range takes {
		if t.N != 0 {
			p.t.Errorf("%v takes %d", t.Key, t.N)
		}
	}
	return p.fake.AllowAll(ctx, at, takes)
}

func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(recorder)
		g := newGuard(t, config{Observer: o, Policies: byIP(
			policy{Name: "a", Limit: limiter.PerMinute(3)}, policy{Name: "q", Limit: queueOf(3)}, policy{Name: "b", InFlight: 1})})
		begin := time.Now()
		for k := range 3 {
			v, err := g.Check(request("GET", "/"), middleware.Entry{})
			require.NoError(t, err)
			require.True(t, v.Allowed)
			require.Equal(t, time.Duration(k)*time.Second, v.Delay)
			require.Equal(t, 2-k, v.Policies[0].Decision.Remaining)
			require.True(t, v.Policies[0].Decided)
			require.Equal(t, []string{"a allowed", "q allowed", "b allowed"}, o.take())
		}
		v, err := g.Check(request("GET", "/"), middleware.Entry{})
		require.NoError(t, err)
		require.False(t, v.Allowed)
		require.Equal(t, 429, v.Status)
		require.Zero(t, v.Delay)
		require.Equal(t, []string{"a", "q"}, v.Refusal.Policies)
		require.Equal(t, 20*time.Second, v.Refusal.RetryAfter)
		require.Equal(t, begin, time.Now(), "never sleeps")
		require.Equal(t, []string{"a blocked", "q blocked", "b allowed", "a rejected quota", "q rejected quota"}, o.take())

		require.NoError(t, g.Update(byIP(policy{Name: "a", Limit: perMinute, Key: keyfunc.Header("X-None")})))
		v, err = g.Check(request("GET", "/"), middleware.Entry{})
		require.NoError(t, err)
		require.Equal(t, 403, v.Status)
		require.Equal(t, []string{"a error no_key", "a rejected no_key"}, o.take())
	})
}

// Nothing applies: that is a yes without policies.
func TestVerdictOfNothing(t *testing.T) {
	g := newGuard(t, config{Exempt: match{Methods: []string{"HEAD"}}, Policies: byIP(policy{Name: "a", Limit: limiter.DenyAll, Match: match{Methods: []string{"GET", "OPTIONS"}}})})
	for _, r := range []*http.Request{request("POST", "/"), request("HEAD", "/"), preflight()} {
		for _, ask := range []func(*http.Request, ...middleware.Entry) (middleware.Verdict, error){g.Peek, g.Check, g.Stage("x").Check} {
			v, err := ask(r, middleware.Entry{})
			require.NoError(t, err)
			require.Equal(t, middleware.Verdict{Allowed: true}, v)
		}
	}
}

// Where no decision can be made Peek and Check say so, unless the policy fails open.
func TestVerdictErrors(t *testing.T) {
	f, o := newFake(), new(recorder)
	near := newFake()
	near.local = true
	set := func(rule middleware.OnError, cost int) []policy {
		return byIP(policy{Name: "near", Limit: perMinute, Limiter: near}, policy{Name: "a", Limit: perMinute, OnStoreError: rule, Cost: costOf(cost)})
	}
	g := newGuard(t, config{Limiter: f, Observer: o, Policies: set(middleware.FailClosed, 1)})
	ask := func(r *http.Request) []error {
		_, peek := g.Peek(r, middleware.Entry{})
		_, check := g.Check(r, middleware.Entry{})
		return []error{peek, check}
	}
	f.fail(errAway)
	for _, err := range ask(request("GET", "/")) {
		require.ErrorIs(t, err, limiter.ErrUnavailable)
	}
	f.fail(limiter.ErrInvalid)
	for _, err := range ask(request("GET", "/")) {
		require.ErrorIs(t, err, limiter.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range ask(request("GET", "/").WithContext(ctx)) {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NotContains(t, o.take(), "a rejected unavailable", "what becomes of it is the caller's to say")
	f.fail(nil)
	require.Equal(t, 10, left(t, g, request("GET", "/"), "near"), "given back")

	require.NoError(t, g.Update(set(middleware.FailOpen, 1)))
	f.fail(errAway)
	v, err := g.Check(request("GET", "/"), middleware.Entry{})
	require.NoError(t, err)
	require.True(t, v.Allowed)
	require.True(t, v.Policies[0].Decided)
	require.False(t, v.Policies[1].Decided)
	f.fail(nil)

	require.NoError(t, g.Update(set(middleware.FailOpen, -1)))
	for _, err := range ask(request("GET", "/")) {
		require.ErrorIs(t, err, limiter.ErrInvalid)
	}
}

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o, log := newFake(), new(recorder), new(logged)
		ctx := t.Context()
		g := newGuard(t, config{Limiter: f, Observer: o, Logger: log.logger(), Policies: []policy{
			{Name: "sms", Stage: middleware.StageManual, Limit: limiter.PerHour(2)},
			{Name: "trial", Stage: middleware.StageManual, Limit: limiter.PerHour(1), Shadow: true},
			{Name: "none", Stage: middleware.StageManual, Limit: limiter.DenyAll},
			{Name: "all", Stage: middleware.StageManual, Limit: limiter.Unlimited},
			{Name: "low", Stage: middleware.StageManual, Limit: limiter.PerHour(9), Adjust: to(limiter.PerHour(1))},
			{Name: "bound", InFlight: 1, Key: keyfunc.IP()},
			{Name: "edge", Limit: limiter.PerHour(1), Key: keyfunc.IP()},
			{Name: "queue", Stage: middleware.StageManual, Limit: queueOf(5)},
		}})
		for k, want := range []bool{true, true, false} {
			d, err := g.Take(ctx, "sms", "+49 170 {1}", 1)
			require.NoError(t, err)
			require.Equal(t, want, d.Allowed, k)
			require.Equal(t, max(0, 1-k), d.Remaining)
			require.Equal(t, map[bool]time.Duration{false: 30 * time.Minute}[want], d.RetryAfter)
		}
		require.Equal(t, []string{"sms allowed", "sms allowed", "sms blocked"}, o.take())
		d, err := g.Take(ctx, "sms", "another", 0)
		require.NoError(t, err)
		require.Equal(t, 2, d.Remaining)
		d, err = g.Take(ctx, "sms", "another", 3)
		require.NoError(t, err)
		require.Equal(t, limiter.Never, d.RetryAfter)
		o.take()

		for range 2 {
			d, err = g.Take(ctx, "trial", "k", 1)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		require.Equal(t, []string{"trial allowed", "trial shadow_blocked"}, o.take())
		calls := f.calls.Load()
		d, err = g.Take(ctx, "none", "k", 1)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		d, err = g.Take(ctx, "all", "k", 1000)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, calls, f.calls.Load(), "no store is asked for these")
		d, err = g.Take(ctx, "low", "k", 1)
		require.NoError(t, err)
		require.Zero(t, d.Remaining)
		_, err = g.Take(ctx, "edge", "k", 1)
		require.NoError(t, err)
		require.Equal(t, 200, get(g, "192.0.2.7").Code, "another key")
		begin := time.Now()
		d, err = g.Take(ctx, "queue", "k", 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		d, err = g.Take(ctx, "queue", "k", 1)
		require.NoError(t, err)
		require.False(t, d.Allowed, "allows nothing later")
		require.Equal(t, begin, time.Now())
		o.take()

		for name, c := range map[string]struct {
			policy, key string
			n           int
			want        error
		}{
			"unknown policy": {"?", "k", 1, limiter.ErrInvalid},
			"no limit":       {"bound", "k", 1, limiter.ErrInvalid},
			"empty key":      {"sms", "", 1, limiter.ErrInvalid},
			"negative":       {"sms", "k", -1, limiter.ErrInvalid},
		} {
			_, err := g.Take(ctx, c.policy, c.key, c.n)
			require.ErrorIs(t, err, c.want, name)
		}
		require.Empty(t, o.take())
		log.take()

		f.fail(errAway)
		for range 3 {
			_, err = g.Take(ctx, "sms", "k", 1)
			require.ErrorIs(t, err, limiter.ErrUnavailable)
		}
		require.Equal(t, []string{"sms error unavailable", "sms state 1", "sms error unavailable", "sms error unavailable"}, o.take())
		f.fail(nil)
		time.Sleep(time.Second)
		_, err = g.Take(ctx, "sms", "k", 1)
		require.NoError(t, err)
		require.Equal(t, []string{"sms state 0", "sms allowed"}, o.take())
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err = g.Take(ended, "sms", "k", 1)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, o.take())

		f.hook = func(string) error { panic("boom") }
		_, err = g.Take(ctx, "sms", "k", 1)
		require.Error(t, err)
		require.NotErrorIs(t, err, limiter.ErrUnavailable)
		require.Equal(t, []string{"sms panic Take", "sms error panic"}, o.take())
	})
}
