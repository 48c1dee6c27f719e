package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// fickle is a source that panics once it serves.
type fickle struct{ on *bool }

func (f fickle) Current() limiter.Limit {
	if *f.on {
		panic("boom")
	}
	return perMinute
}

// recording is a degrade handler that sees allowed responses.
type recording struct {
	degrade.Func
	record func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func(bool))
}

func (r recording) Record(w http.ResponseWriter, q *keyfunc.Request, _, _ string) (http.ResponseWriter, func(bool)) {
	return r.record(w, q.Request)
}

func skips(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Skip }

// Whatever panics is contained: it refuses with 503 where a decision hangs on it, and with a shadow policy nothing.
func TestPanicsOfCallbacks(t *testing.T) {
	on := false
	boom := func() {
		if on {
			panic("boom")
		}
	}
	broken := newFake()
	broken.hook = func(op string) error { boom(); return nil }
	late := newFake()
	late.hook = func(op string) error {
		if op == "refund" {
			boom()
		}
		return nil
	}
	for name, c := range map[string]struct {
		change  func(p *policy)
		status  int // of an enforced policy
		handler http.Handler
		left    int // of the other policy's 10
		event   string
	}{
		"Match.If":  {func(p *policy) { p.Match.If = func(*keyfunc.Request) bool { boom(); return true } }, 503, ok, 10, "a panic Match"},
		"Exempt.If": {func(p *policy) { p.Exempt.If = func(*keyfunc.Request) bool { boom(); return false } }, 503, ok, 10, "a panic Match"},
		"Key": {func(p *policy) {
			p.Key = func(r *keyfunc.Request) (keyfunc.Key, error) { boom(); return r.Key("k", "v"), nil }
		}, 503, ok, 10, "a panic Key"},
		"Cost": {func(p *policy) { p.Cost = func(*keyfunc.Request) int { boom(); return 1 } }, 503, ok, 10, "a panic Cost"},
		"Plan": {func(p *policy) {
			p.Plan = func(*keyfunc.Request) (limiter.Limit, bool) { boom(); return perMinute, true }
		}, 503, ok, 10, "a panic Plan"},
		"Limit": {func(p *policy) { p.Limit = fickle{&on} }, 503, ok, 10, "a panic Limit"},
		"Adjust": {func(p *policy) {
			p.Adjust = []limiter.Adjuster{adjust(func(_ time.Time, l limiter.Limit) limiter.Limit { boom(); return l })}
		}, 503, ok, 10, "a panic Adjust"},
		"StoreKey":                        {func(p *policy) { p.StoreKey = func(k limiter.Key) string { boom(); return k.ID } }, 503, ok, 10, "a panic StoreKey"},
		"Partition":                       {func(p *policy) { p.Partition = func(keyfunc.Key) []byte { boom(); return nil } }, 503, ok, 10, "a panic Partition"},
		"Limiter":                         {func(p *policy) { p.Limiter = broken }, 503, ok, 10, " panic Limiter"},
		"Limiter that decides one by one": {func(p *policy) { p.Limiter = single{broken} }, 503, ok, 10, " panic Limiter"},
		"Refund":                          {func(p *policy) { p.Refund = func(int) bool { boom(); return true } }, 200, ok, 9, "a panic Refund"},
		"Limiter.Refund":                  {func(p *policy) { p.Refund, p.Limiter = func(int) bool { return true }, late }, 200, ok, 9, "a panic Limiter"},
		"Degrade.Record": {func(p *policy) {
			p.Degrade = recording{skips, func(w http.ResponseWriter, _ *http.Request) (http.ResponseWriter, func(bool)) {
				boom()
				return w, nil
			}}
		}, 200, ok, 9, "a panic Degrade.Record"},
		"Degrade.Record, at the end": {func(p *policy) {
			p.Degrade = recording{skips, func(w http.ResponseWriter, _ *http.Request) (http.ResponseWriter, func(bool)) {
				return w, func(bool) { boom() }
			}}
		}, 200, ok, 9, " panic Degrade.Record"},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				on = false
				o, log := new(recorder), new(logged)
				other := newFake()
				other.local = true
				p := policy{Name: "a", Limit: perMinute, Shadow: shadow}
				if c.change(&p); shadow && (p.Degrade != nil || p.Partition != nil || name == "Limiter that decides one by one") {
					return
				}
				cfg := config{Observer: o, Logger: log.logger(), Policies: byIP(policy{Name: "other", Limit: perMinute, Limiter: other}, p)}
				if name == "Limiter that decides one by one" {
					cfg.Policies[0].Limiter, cfg.Limiter = nil, single{broken}
					cfg.Policies = cfg.Policies[1:]
				}
				g := newGuard(t, cfg)
				on = true
				w := serve(g, request("GET", "/"), c.handler)
				on = false
				require.Contains(t, o.take(), c.event)
				text := log.take()
				require.Contains(t, text, "panic_test.go", "the stack leads there")
				require.NotContains(t, text, "boom", "which might have been a key")
				if shadow {
					require.Equal(t, 200, w.Code)
					return
				}
				require.Equal(t, c.status, w.Code)
				require.NotContains(t, w.Body.String(), "boom")
				if len(cfg.Policies) > 1 {
					require.Equal(t, c.left, left(t, g, request("GET", "/"), "other"))
				}
				require.Equal(t, 200, serve(g, request("GET", "/"), ok).Code, "and it goes on")
			})
		}
	}
}

// A predicate of Config.Exempt that panics exempts nobody.
func TestExemptPanics(t *testing.T) {
	g := newGuard(t, config{Exempt: match{If: func(*keyfunc.Request) bool { panic("boom") }}, Policies: byIP(policy{Name: "a", Limit: limiter.DenyAll})})
	require.Equal(t, 429, get(g, "192.0.2.7").Code)
}

// An observer that panics changes nothing, and is told of once.
func TestObserverPanics(t *testing.T) {
	log := new(logged)
	g := newGuard(t, config{
		Logger: log.logger(), Observer: limiter.ObserverFunc(func(limiter.Event) { panic("boom") }),
		Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(2), Refund: failed, InFlight: 1}),
	})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, 500, serve(g, request("GET", "/"), answer(500)).Code)
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, 429, get(g, "192.0.2.7").Code)
	_, err := g.Take(context.Background(), "a", "k", 1)
	require.NoError(t, err)
	require.Contains(t, log.take(), "observer panicked")
	require.PanicsWithValue(t, "handler", func() {
		r := request("GET", "/")
		r.RemoteAddr = "192.0.2.9:1"
		serve(g, r, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("handler") }))
	})
	require.Equal(t, 200, get(g, "192.0.2.9").Code)
}

// Panics are logged once, whatever a flood of crafted requests does, and counted every time.
func TestPanicsAreLoggedOnce(t *testing.T) {
	o, log := new(recorder), new(logged)
	g := newGuard(t, config{Observer: o, Logger: log.logger(), Policies: []policy{{
		Name: "a", Limit: perMinute, Key: func(r *keyfunc.Request) (keyfunc.Key, error) { panic(r.Header.Get("X-Secret")) },
	}}})
	log.take()
	for range 5 {
		require.Equal(t, 503, get(g, "192.0.2.7").Code)
		require.Equal(t, []string{"a panic Key", "a error panic", "a rejected panic"}, o.take())
	}
	lines := log.take()
	require.Contains(t, lines, "callback=Key")
	require.Contains(t, lines, "panic_test.go", "with the stack")
}

// A handler's panic passes through the guard with its value, whatever else happens on the way.
func TestPanicOfTheHandler(t *testing.T) {
	o := new(recorder)
	value := &struct{ x int }{7}
	for name, p := range map[string]policy{
		"plain":    {Limit: perMinute},
		"settling": {Limit: perMinute, InFlight: 1, Refund: failed},
		"record": {Limit: perMinute, Degrade: recording{skips, func(w http.ResponseWriter, _ *http.Request) (http.ResponseWriter, func(bool)) {
			return w, func(ok bool) { require.False(t, ok) }
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			p.Name = "a"
			g := newGuard(t, config{Observer: o, Policies: byIP(p)})
			defer func() { require.Same(t, value, recover()) }()
			serve(g, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))
		})
	}
}

// A key function whose own source is away can make no key: that refuses, as a crafted input might have caused it.
func TestKeyErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		rule   middleware.NoKey
		status int
		events []string
	}{
		"no key":         {keyfunc.ErrNoKey, middleware.DenyRequest, 403, []string{"a error no_key", "a rejected no_key"}},
		"no key, skip":   {keyfunc.ErrNoKey, middleware.SkipPolicy, 200, nil},
		"skip":           {keyfunc.ErrSkip, middleware.DenyRequest, 200, nil},
		"invalid":        {limiter.ErrInvalid, middleware.SkipPolicy, 503, []string{"a error invalid", "a rejected invalid"}},
		"something else": {http.ErrNoCookie, middleware.SkipPolicy, 503, []string{"a error invalid", "a rejected invalid"}},
		"its store":      {limiter.ErrUnavailable, middleware.SkipPolicy, 503, []string{"a error invalid", "a rejected invalid"}},
		"empty key":      {nil, middleware.DenyRequest, 403, []string{"a error no_key", "a rejected no_key"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := new(recorder)
			serving := false
			g := newGuard(t, config{Observer: o, Policies: []policy{{
				Name: "a", Limit: perMinute, OnNoKey: c.rule, Key: func(*keyfunc.Request) (keyfunc.Key, error) {
					if !serving {
						return keyfunc.Key{}, keyfunc.ErrNoKey
					}
					return keyfunc.Key{}, c.err
				},
			}}})
			serving = true
			require.Equal(t, c.status, get(g, "192.0.2.7").Code)
			require.Equal(t, c.events, o.take())
		})
	}
}

// Of several things wrong the first policy in configuration order decides, and nothing is taken.
func TestFirstWrongDecides(t *testing.T) {
	noKey := policy{Name: "k", Limit: perMinute, Key: keyfunc.Header("X-None")}
	panics := policy{Name: "p", Limit: perMinute, Match: match{If: func(*keyfunc.Request) bool { panic("boom") }}}
	fine := policy{Name: "f", Limit: perMinute}
	g := guardOf(t, fine, noKey, panics)
	require.Equal(t, 403, get(g, "192.0.2.7").Code)
	g = guardOf(t, fine, panics, noKey)
	require.Equal(t, 503, get(g, "192.0.2.7").Code)
	require.NoError(t, g.Update(byIP(fine)))
	require.Equal(t, 10, left(t, g, request("GET", "/"), "f"))
}
