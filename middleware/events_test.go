package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// Each request is told once per policy, with its reason where it is refused.
func TestEvents(t *testing.T) {
	low := to(limiter.PerDay(1))
	queue := queueOf(3)
	for name, c := range map[string]struct {
		cfg    config
		before int
		held   int // requests in service meanwhile
		want   []string
	}{
		"allowed":       {cfg: config{Policies: byIP(policy{Name: "a", Limit: perMinute}, policy{Name: "b", Limit: perMinute})}, want: []string{"a allowed", "b allowed"}},
		"blocked":       {cfg: config{Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1)}, policy{Name: "b", Limit: perMinute})}, before: 1, want: []string{"a blocked", "b allowed", "a rejected quota"}},
		"both blocked":  {cfg: config{Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1)}, policy{Name: "b", Limit: limiter.PerDay(1)})}, before: 1, want: []string{"a blocked", "b blocked", "a rejected quota", "b rejected quota"}},
		"shadow":        {cfg: config{Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1), Shadow: true}, policy{Name: "b", Limit: perMinute})}, before: 1, want: []string{"a shadow_blocked", "b allowed"}},
		"never":         {cfg: config{Policies: byIP(policy{Name: "a", Limit: perMinute, Cost: costOf(11)})}, want: []string{"a blocked", "a rejected never"}},
		"deny all":      {cfg: config{Policies: byIP(policy{Name: "a", Limit: limiter.DenyAll})}, want: []string{"a blocked", "a rejected never"}},
		"adaptive":      {cfg: config{Policies: byIP(policy{Name: "a", Limit: perMinute, Adjust: low})}, before: 1, want: []string{"a blocked", "a rejected adaptive"}},
		"in flight":     {cfg: config{Policies: byIP(policy{Name: "a", InFlight: 1}, policy{Name: "b", Limit: perMinute})}, held: 1, want: []string{"a blocked", "a rejected in_flight"}},
		"in flight too": {cfg: config{Policies: byIP(policy{Name: "a", InFlight: 2, Limit: perMinute})}, held: 1, want: []string{"a allowed"}},
		"waiting":       {cfg: config{MaxWaiting: -1, Policies: byIP(policy{Name: "a", Limit: queue})}, before: 1, want: []string{"a blocked", "a rejected waiting"}},
		"no cost":       {cfg: config{Policies: byIP(policy{Name: "a", Limit: perMinute, Cost: costOf(0)})}, want: nil},
		"bad cost":      {cfg: config{Policies: byIP(policy{Name: "a", Limit: perMinute, Cost: costOf(-1)}, policy{Name: "b", Limit: perMinute})}, want: []string{"a error invalid", "a rejected invalid"}},
		"exempt":        {cfg: config{Exempt: match{Methods: []string{"GET"}}, Policies: byIP(policy{Name: "a", Limit: perMinute})}, want: nil},
		"client":        {cfg: config{ClientIP: keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"192.0.2.0/24"}}, Policies: byIP(policy{Name: "a", Limit: perMinute})}, want: []string{" error client_ip", "a allowed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := new(recorder)
				c.cfg.Observer = o
				g := newGuard(t, c.cfg)
				for range c.before {
					get(g, "192.0.2.7")
				}
				for range c.held {
					p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
					defer p.Leave(200)
				}
				o.take()
				r := request("GET", "/")
				if name == "client" {
					r.Header.Set("X-Forwarded-For", "nonsense")
				}
				serve(g, r, ok)
				require.Equal(t, c.want, o.take())
			})
		})
	}
}

// What an event says is what the decision was.
func TestEventFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(recorder)
		g := newGuard(t, config{Observer: o, Policies: byIP(policy{Name: "a", Limit: limiter.PerMinute(3), Cost: costOf(2)})})
		r := request("GET", "/")
		serve(g, r, ok)
		time.Sleep(time.Second)
		serve(g, r, ok)
		key := limiter.Key{Space: "a", ID: "ip=192.0.2.7"}
		first, second, third := o.events[0], o.events[1], o.events[2]
		require.Equal(t, limiter.EventDecision, first.Kind)
		require.Equal(t, r.Context(), first.Context)
		require.Equal(t, key, first.Key)
		require.Equal(t, 2, first.N)
		require.Equal(t, 1, first.Decision.Remaining)
		require.Equal(t, limiter.ViaMemory, first.Decision.Via)
		require.Equal(t, time.Now(), second.Time)
		require.False(t, second.Decision.Allowed)
		require.Equal(t, limiter.EventRejected, third.Kind)
		require.Equal(t, 19*time.Second, third.Decision.RetryAfter)
		require.Equal(t, key, third.Key)
	})
}

// An observer never meets the panic it is told of, nor the handler's that is on its way: recover gives it nothing, and
// takes nothing from whom the panic is meant for.
func TestObserverMeetsNoPanic(t *testing.T) {
	n := 0
	f := newFake()
	f.hook = func(op string) error {
		if op == "refund" {
			return errAway
		}
		return nil
	}
	g := newGuard(t, config{
		Limiter: f, Observer: limiter.ObserverFunc(func(limiter.Event) {
			n++
			require.Nil(t, recover())
			defer func() { require.Nil(t, recover()) }()
		}),
		Policies: byIP(policy{Name: "a", Limit: perMinute, Refund: func(int) bool { panic("no") }}, policy{Name: "b", Limit: perMinute, Refund: failed}),
	})
	require.PanicsWithValue(t, "boom", func() {
		serve(g, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }))
	})
	require.Equal(t, 4, n)
}

// Each policy that refused is told of the substitute, so that refusals without one can be counted.
func TestSubstitutesCountForAllThatRefused(t *testing.T) {
	o := new(recorder)
	page := degrade.Func(func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
		w.WriteHeader(200)
		return degrade.Done
	})
	g := newGuard(t, config{Observer: o, Policies: byIP(
		policy{Name: "a", Limit: limiter.PerDay(1), Degrade: page}, policy{Name: "b", Limit: limiter.PerDay(1), Degrade: page},
		policy{Name: "c", Limit: perMinute}, policy{Name: "d", Limit: limiter.PerDay(1), Shadow: true},
	)})
	get(g, "192.0.2.7")
	o.take()
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{
		"a blocked", "b blocked", "c allowed", "d shadow_blocked", "a rejected quota", "b rejected quota", "a degraded func", "b degraded func",
	}, o.take())
}

// A request that could not be decided is no decision, though there was room in flight for it.
func TestUndecidedIsNoDecision(t *testing.T) {
	f, o := newFake(), new(recorder)
	f.fail(errAway)
	g := newGuard(t, config{Limiter: f, Observer: o, Policies: byIP(policy{Name: "a", Limit: perMinute, InFlight: 5})})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, []string{"a error unavailable", "a state 1"}, o.take())
}
