package middleware_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// fields are the rate limit fields of a response, in short.
func fields(h http.Header) string {
	var out []string
	for _, name := range []string{
		"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "Cache-Control",
	} {
		if v := h.Values(name); len(v) > 0 {
			out = append(out, strings.TrimPrefix(name, "X-RateLimit-")+"="+strings.Join(v, "|"))
		}
	}
	return strings.Join(out, " ")
}

var sets = []response.Set{response.Off, response.X, response.Draft11Set, response.Both}

// The rows of the decision table that concern the guard, in all sets. The bubble begins at 2000-01-01, 946684800.
func TestDecisionTable(t *testing.T) {
	down := newFake()
	down.fail(limiter.ErrUnavailable)
	const (
		quota    = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429`
		capacity = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503`
	)
	noKey := func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, keyfunc.ErrNoKey }
	low := limiter.AdjusterFunc(func(_ time.Time, l limiter.Limit) limiter.Limit { return l.WithBurst(1) })
	for name, c := range map[string]struct {
		policies []policy
		request  *http.Request
		requests int // so many before
		status   int
		want     map[string]string // by set
		body     string
	}{
		"1 allowed": {
			policies: []policy{{Name: "burst", Limit: limiter.PerSecond(10)}, {Name: "daily", Limit: limiter.PerDay(1000)}},
			status:   200,
			want: map[string]string{
				"off": "", "x": "Limit=10 Remaining=9 Reset=946684801",
				"draft-11": `RateLimit-Policy="burst";q=10;w=1, "daily";q=1000;w=86400 RateLimit="burst";r=9;t=1, "daily";r=999;t=86314`,
				"both":     `RateLimit-Policy="burst";q=10;w=1, "daily";q=1000;w=86400 RateLimit="burst";r=9;t=1, "daily";r=999;t=86314 Limit=10 Remaining=9 Reset=946684801`,
			},
		},
		"2 allowed after waiting": {
			policies: []policy{{Name: "queue", Limit: limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(3)}},
			requests: 1, status: 200,
			want: map[string]string{
				"off": "", "x": "Limit=3 Remaining=1 Reset=946684802",
				"draft-11": `RateLimit-Policy="queue";q=3;w=3 RateLimit="queue";r=1;t=1`,
				"both":     `RateLimit-Policy="queue";q=3;w=3 RateLimit="queue";r=1;t=1 Limit=3 Remaining=1 Reset=946684802`,
			},
		},
		"3 no policy applies": {
			policies: []policy{{Name: "a", Limit: limiter.DenyAll, Match: match{Methods: []string{"POST"}}}},
			status:   200, want: map[string]string{},
		},
		"3 exempt": {
			policies: []policy{{Name: "a", Limit: limiter.DenyAll, Exempt: match{Methods: []string{"GET"}}}},
			status:   200, want: map[string]string{},
		},
		"4 quota": {
			policies: []policy{{Name: "a", Limit: limiter.PerMinute(10)}, {Name: "b", Limit: limiter.PerMinute(4).WithBurst(1)}},
			requests: 1, status: 429,
			want: map[string]string{
				"off": "Cache-Control=no-store", "x": "Limit=1 Remaining=0 Reset=946684815 Retry-After=15 Cache-Control=no-store",
				"draft-11": `RateLimit-Policy="a";q=10;w=60, "b";q=1;w=15 RateLimit="b";r=0;t=15 Retry-After=15 Cache-Control=no-store`,
				"both":     `RateLimit-Policy="a";q=10;w=60, "b";q=1;w=15 RateLimit="b";r=0;t=15 Limit=1 Remaining=0 Reset=946684815 Retry-After=15 Cache-Control=no-store`,
			},
			body: quota + `,"violated-policies":["b"],"retry_after":15}`,
		},
		"5 cost can never fit": {
			policies: []policy{{Name: "a", Limit: limiter.PerMinute(4), Cost: costOf(5)}},
			status:   429,
			want: map[string]string{
				"off": "Cache-Control=no-store", "x": "Limit=4 Remaining=4 Reset=946684800 Cache-Control=no-store",
				"draft-11": `RateLimit-Policy="a";q=4;w=60 RateLimit="a";r=4 Cache-Control=no-store`,
				"both":     `RateLimit-Policy="a";q=4;w=60 RateLimit="a";r=4 Limit=4 Remaining=4 Reset=946684800 Cache-Control=no-store`,
			},
			body: quota + `,"violated-policies":["a"]}`,
		},
		"7 adaptive": {
			policies: []policy{{Name: "a", Limit: limiter.PerMinute(10), Adjust: []limiter.Adjuster{low}}},
			requests: 1, status: 503,
			want: map[string]string{
				"off": "Cache-Control=no-store", "x": "Limit=10 Remaining=0 Reset=946684806 Retry-After=6 Cache-Control=no-store",
				"draft-11": `RateLimit-Policy="a";q=10;w=60 RateLimit="a";r=0;t=6 Retry-After=6 Cache-Control=no-store`,
				"both":     `RateLimit-Policy="a";q=10;w=60 RateLimit="a";r=0;t=6 Limit=10 Remaining=0 Reset=946684806 Retry-After=6 Cache-Control=no-store`,
			},
			body: capacity + `,"violated-policies":["a"],"retry_after":6}`,
		},
		"9 store down, closed": {
			policies: []policy{{Name: "a", Limit: perMinute, Limiter: down, OnStoreError: middleware.FailClosed}},
			status:   503,
			want: map[string]string{
				"off": "Retry-After=2 Cache-Control=no-store", "x": "Retry-After=2 Cache-Control=no-store",
				"draft-11": "Retry-After=2 Cache-Control=no-store", "both": "Retry-After=2 Cache-Control=no-store",
			},
			body: `{"type":"about:blank","title":"Service Unavailable","status":503,"retry_after":2}`,
		},
		"10 store down, open": {
			policies: []policy{{Name: "a", Limit: perMinute, Limiter: down}},
			status:   200, want: map[string]string{},
		},
		"11 store down, local limiter": {
			policies: []policy{{Name: "near", Limit: perMinute}, {Name: "far", Limit: perMinute, Limiter: down}},
			status:   200,
			want: map[string]string{
				"off": "", "x": "Limit=10 Remaining=9 Reset=946684806",
				"draft-11": `RateLimit-Policy="near";q=10;w=60 RateLimit="near";r=9;t=54`,
				"both":     `RateLimit-Policy="near";q=10;w=60 RateLimit="near";r=9;t=54 Limit=10 Remaining=9 Reset=946684806`,
			},
		},
		"12 no key": {
			policies: []policy{{Name: "a", Limit: perMinute, Key: noKey}}, status: 403,
			want: map[string]string{
				"off": "Cache-Control=no-store", "x": "Cache-Control=no-store", "draft-11": "Cache-Control=no-store", "both": "Cache-Control=no-store",
			},
			body: `{"type":"about:blank","title":"Forbidden","status":403}`,
		},
		"12 no key, skipped": {
			policies: []policy{{Name: "a", Limit: perMinute, Key: noKey, OnNoKey: middleware.SkipPolicy}}, status: 200, want: map[string]string{},
		},
		"16 preflight": {
			policies: []policy{{Name: "a", Limit: limiter.DenyAll}}, request: preflight(), status: 200, want: map[string]string{},
		},
	} {
		for _, set := range sets {
			t.Run(name+"/"+set.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					policies := append([]policy(nil), c.policies...)
					for k := range policies {
						if policies[k].Limiter != nil {
							f := newFake() // of this bubble
							f.fail(limiter.ErrUnavailable)
							policies[k].Limiter = f
						}
					}
					g := newGuard(t, config{Policies: byIP(policies...), Response: response.Options{Headers: set}})
					for range c.requests {
						get(g, "192.0.2.7")
					}
					r := c.request
					if r == nil {
						r = request("GET", "/")
					}
					w := serve(g, r, ok)
					require.Equal(t, c.status, w.Code)
					require.Equal(t, c.want[set.String()], fields(w.Header()))
					if c.body == "" {
						require.Empty(t, w.Body.String())
						return
					}
					require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
					require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
					if set == response.Off && strings.Contains(c.body, "violated") {
						require.JSONEq(t, c.body[:strings.Index(c.body, `,"violated`)]+"}", w.Body.String())
					} else {
						require.JSONEq(t, c.body, w.Body.String())
					}
				})
			})
		}
	}
}

func TestInFlightResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, config{
			Policies: []policy{{Name: "a", Key: keyfunc.IP(), InFlight: 2, Limit: perMinute}},
			Response: response.Options{Headers: response.Both},
		})
		var refused *httptest.ResponseRecorder
		w := serve(g, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			serve(g, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				refused = serve(g, request("GET", "/"), ok)
			}))
		}))
		require.Equal(t, `"a";q=10;w=60, "a.inflight";q=2;qu="concurrent-requests"`, w.Header().Get("RateLimit-Policy"))
		require.Equal(t, `"a";r=9;t=54, "a.inflight";r=1`, w.Header().Get("RateLimit"))
		require.Equal(t, 503, refused.Code)
		require.Equal(t, `"a.inflight";r=0`, refused.Header().Get("RateLimit"))
		require.Equal(t, "1", refused.Header().Get("Retry-After"))
		require.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
			"title":"Temporary Reduced Capacity","status":503,"violated-policies":["a.inflight"],"retry_after":1}`, refused.Body.String())
		require.Equal(t, 8, left(t, g, request("GET", "/"), "a"), "the refused one took nothing")
	})
}

func TestHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOf(t, policy{Name: "a", Limit: limiter.DenyAll})
		got, head := serve(g, request("GET", "/"), ok), serve(g, request("HEAD", "/"), ok)
		require.Equal(t, got.Header(), head.Header())
		require.NotEmpty(t, got.Body.String())
		require.Empty(t, head.Body.String())
		require.Equal(t, 429, head.Code)
	})
}

// A silent policy is not told, neither among others nor in its refusal.
func TestSilentPolicy(t *testing.T) {
	g := newGuard(t, config{Response: response.Options{Headers: response.Both}, Policies: byIP(
		policy{Name: "login", Limit: limiter.PerDay(1), Headers: response.Off}, policy{Name: "told", Limit: perMinute})})
	require.Equal(t, `"told";q=10;w=60`, get(g, "192.0.2.1").Header().Get("RateLimit-Policy"))
	w := get(g, "192.0.2.1")
	require.Equal(t, 429, w.Code)
	require.NotContains(t, w.Body.String(), "login")
	require.Empty(t, w.Header().Get("Retry-After"))
	for _, v := range w.Header() {
		require.NotContains(t, strings.Join(v, ""), "login")
	}
}

// With and without a shadow policy a response is the same to the byte, whatever the shadow says.
func TestShadowLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := newFake()
		down.fail(errors.New("no store"))
		enforced := policy{Name: "a", Limit: limiter.PerMinute(2)}
		panics := func(*keyfunc.Request) (keyfunc.Key, error) { panic("no key") }
		plain := newGuard(t, config{Policies: byIP(enforced), Response: response.Options{Headers: response.Both}})
		for name, p := range map[string]policy{
			"denies":       {Limit: limiter.DenyAll},
			"in flight":    {Limit: perMinute, InFlight: 1},
			"queue":        {Limit: limiter.PerDay(1).With(limiter.LeakyBucket).WithBurst(9)},
			"store down":   {Limit: perMinute, Limiter: down, OnStoreError: middleware.FailClosed},
			"no key":       {Limit: perMinute, Key: keyfunc.Header("X-None")},
			"key panics":   {Limit: perMinute, Key: panics},
			"never":        {Limit: perMinute, Cost: costOf(100)},
			"bad cost":     {Limit: perMinute, Cost: costOf(-1)},
			"cost panics":  {Limit: perMinute, Cost: func(*keyfunc.Request) int { panic("no cost") }},
			"match panics": {Limit: perMinute, Match: match{If: func(*keyfunc.Request) bool { panic("no") }}},
		} {
			p.Name, p.Shadow = "shadow", true
			with := newGuard(t, config{Policies: byIP(p, enforced), Response: response.Options{Headers: response.Both}})
			for k := range 4 {
				want, got := serve(plain, request("GET", "/"), ok), serve(with, request("GET", "/"), ok)
				require.Equal(t, want.Code, got.Code, "%s %d", name, k)
				require.Equal(t, want.Header(), got.Header(), name)
				require.Equal(t, want.Body.String(), got.Body.String(), name)
			}
			time.Sleep(time.Hour)
		}
	})
}

// A guard inside another adds to what that has told; a refusal of either is never overwritten.
func TestStackedGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := newGuard(t, config{Policies: byIP(policy{Name: "outer", Limit: limiter.PerMinute(100)}), Response: response.Options{Headers: response.Both}})
		inner := newGuard(t, config{Policies: byIP(policy{Name: "inner", Limit: limiter.PerMinute(1)}), Response: response.Options{Headers: response.Both}})
		chain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.Serve(w, r, ok) })
		w := serve(outer, request("GET", "/"), chain)
		require.Equal(t, `"outer";q=100;w=60, "inner";q=1;w=60`, strings.Join(w.Header().Values("RateLimit-Policy"), ", "))
		require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"), "the smaller one")
		require.Empty(t, w.Header().Get("Retry-After"))
		w = serve(outer, request("GET", "/"), chain)
		require.Equal(t, 429, w.Code)
		require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
		require.Equal(t, "1", w.Header().Get("X-RateLimit-Limit"))
		require.Equal(t, "60", w.Header().Get("Retry-After"))
	})
}

// Other fields of the response stay, and scripts of other origins may read ours.
func TestCrossOrigin(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(1)})
	for _, status := range []int{200, 429} {
		r := request("GET", "/")
		r.Header.Set("Origin", "https://app.example")
		w := httptest.NewRecorder()
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "ETag, retry-after")
		g.Serve(w, r, ok)
		require.Equal(t, status, w.Code)
		require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
		exposed := strings.Join(w.Header().Values("Access-Control-Expose-Headers"), ", ")
		for _, name := range []string{"ETag", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			require.Contains(t, exposed, name)
		}
		require.Equal(t, 1, strings.Count(strings.ToLower(exposed), "retry-after"))
	}
}

// Entry.Defer leaves the body to the caller, with everything else done.
func TestDeferredRefusal(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(1)})
	get(g, "192.0.2.7")
	w := httptest.NewRecorder()
	pass := g.Enter(w, request("GET", "/"), middleware.Entry{Defer: true})
	require.False(t, pass.Proceed())
	v := pass.Denied()
	require.NotNil(t, v)
	require.Equal(t, 429, v.Status)
	require.Equal(t, []string{"a"}, v.Refusal.Policies)
	require.Len(t, v.Policies, 1)
	require.True(t, v.Policies[0].Violated)
	require.Equal(t, "60", w.Header().Get("Retry-After"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Empty(t, w.Body.String())
	require.Empty(t, w.Header().Get("Content-Type"))
}

// The detail of the problem is the policy's own.
func TestMessages(t *testing.T) {
	g := newGuard(t, config{
		Response: response.Options{Messages: map[string]string{"en": "too many"}},
		Policies: byIP(policy{Name: "a", Limit: limiter.DenyAll, Messages: map[string]string{"en": "slow down", "zh-CN": "请稍后重试"}}),
	})
	r := request("GET", "/")
	r.Header.Set("Accept-Language", "en")
	require.Contains(t, serve(g, r, ok).Body.String(), `"detail":"slow down"`)
	r.Header.Set("Accept-Language", "zh-CN")
	require.Contains(t, serve(g, r, ok).Body.String(), "请稍后重试")
}
