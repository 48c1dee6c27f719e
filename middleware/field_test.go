package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// codes counts the statuses of n requests.
func codes(g *middleware.Guard, n int, r func(k int) *http.Request) map[int]int {
	out := map[int]int{}
	for k := range n {
		out[serve(g, r(k), ok).Code]++
	}
	return out
}

func always(r *http.Request) func(int) *http.Request { return func(int) *http.Request { return r } }

func user(r *keyfunc.Request) string { return r.Header.Get("X-Verified-User") }

func as(name string) *http.Request {
	r := request("GET", "/")
	r.Header.Set("X-Verified-User", name)
	return r
}

// Faults reported in the field, by their ids. Each must be impossible.
func TestFieldFaults(t *testing.T) {
	for id, f := range map[string]func(t *testing.T){
		"HDR-03 a refusal tells of the limit that refused": func(t *testing.T) {
			g := guardOf(t, policy{Name: "minute", Limit: limiter.PerMinute(60)}, policy{Name: "hour", Limit: limiter.PerHour(2)})
			codes(g, 2, always(request("GET", "/")))
			w := get(g, "192.0.2.7")
			require.Equal(t, 429, w.Code)
			require.Equal(t, "Limit=2 Remaining=0 Reset=946688400 Retry-After=1800 Cache-Control=no-store", fields(w.Header()))
		},
		"HDR-04 always the tightest limit": func(t *testing.T) {
			g := guardOf(t, policy{Name: "app", Limit: limiter.PerMinute(20)}, policy{Name: "default", Limit: limiter.PerMinute(2)})
			for _, want := range []string{"1", "0", "0"} {
				h := get(g, "192.0.2.7").Header()
				require.Equal(t, []string{"2", want}, []string{h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining")})
			}
		},
		"HDR-06 a refusal's fields are never overwritten": func(t *testing.T) {
			inner, outer := guardOf(t, policy{Name: "a", Limit: limiter.DenyAll}), guardOf(t, policy{Name: "b", Limit: limiter.PerMinute(100)})
			w := httptest.NewRecorder()
			inner.Serve(w, request("GET", "/"), ok)
			p := outer.Enter(w, request("GET", "/"), middleware.Entry{})
			require.True(t, p.Proceed())
			require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
		},
		"HDR-07 all families tell of the same policy": func(t *testing.T) {
			g := guardOf(t, policy{Name: "global", Limit: limiter.PerMinute(3000), Headers: response.X}, policy{Name: "route", Limit: limiter.Per(5, 15*time.Minute), Headers: response.Draft11Set})
			h := get(g, "192.0.2.7").Header()
			require.Equal(t, "5", h.Get("X-RateLimit-Limit"))
			require.Contains(t, h.Get("RateLimit"), `"global"`)
			require.Contains(t, h.Get("RateLimit"), `"route"`)
		},
		"HDR-08 limit and remaining on both, Retry-After on the 429": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(1)})
			require.Equal(t, "Limit=1 Remaining=0 Reset=946684860", fields(get(g, "192.0.2.7").Header()))
			require.Contains(t, fields(get(g, "192.0.2.7").Header()), "Limit=1 Remaining=0 Reset=946684860 Retry-After=60")
		},
		"HDR-09 every response has them": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(100)})
			for k := range 100 {
				require.Equal(t, fmt.Sprint(99-k), get(g, "192.0.2.7").Header().Get("X-RateLimit-Remaining"))
			}
		},
		"ZERO-02 ZERO-06 ZERO-07 ZERO-09 ZERO-10 ZERO-11 zero is an error and nothing else": func(t *testing.T) {
			for _, l := range []limiter.Limit{{}, limiter.PerMinute(0), limiter.Per(1, 0), limiter.PerSecond(1).WithBurst(-1), limiter.PerMinute(-1)} {
				_, err := middleware.New(config{Limiter: newFake(), Policies: with(func(p *policy) { p.Limit = l })})
				require.ErrorIs(t, err, limiter.ErrInvalid)
			}
		},
		"ZERO-04 ZERO-08 unlimited means the same everywhere": func(t *testing.T) {
			f := newFake()
			f.fail(errAway)
			for _, l := range []limiter.Limiter{f, single{f}} {
				g := newGuard(t, config{Limiter: l, Policies: byIP(policy{Name: "a", Limit: limiter.Unlimited, OnStoreError: middleware.FailClosed})})
				require.Equal(t, map[int]int{200: 100}, codes(g, 100, always(request("GET", "/"))))
			}
		},
		"COST-01 COST-03 a cost above the quota is refused for good": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(1).WithBurst(5), Cost: costOf(10), Headers: response.Both})
			w := get(g, "192.0.2.7")
			require.Equal(t, 429, w.Code)
			require.Empty(t, w.Header().Get("Retry-After"))
			require.Equal(t, `"a";r=5`, w.Header().Get("RateLimit"))
		},
		"COST-04 a cost of the whole quota has a wait": func(t *testing.T) {
			cost := 1
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(10), Cost: func(*keyfunc.Request) int { return cost }})
			get(g, "192.0.2.7")
			cost = 10
			require.Equal(t, "6", get(g, "192.0.2.7").Header().Get("Retry-After"))
		},
		"COST-05 COST-07 what is refused costs nothing": func(t *testing.T) {
			cost := 301
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(300), Cost: func(*keyfunc.Request) int { return cost }})
			for _, step := range []struct{ cost, code, left int }{{301, 429, 300}, {1, 200, 299}, {200, 200, 99}, {100, 429, 99}} {
				cost = step.cost
				require.Equal(t, step.code, get(g, "192.0.2.7").Code)
				require.Equal(t, step.left, left(t, g, request("GET", "/"), "a"))
			}
		},
		"COST-08 one caller's refusals do not burn the shared quota": func(t *testing.T) {
			g := guardOf(t, policy{Name: "site", Limit: limiter.PerDay(10), Key: keyfunc.Global()}, policy{Name: "user", Limit: limiter.PerDay(1)})
			codes(g, 50, always(request("GET", "/")))
			require.Equal(t, 9, left(t, g, request("GET", "/"), "site"))
		},
		"KEY-03 a key that nobody implements is found at start": func(t *testing.T) {
			for _, k := range []keyfunc.Func{nil, keyfunc.User(nil), keyfunc.First(), keyfunc.Header("")} {
				_, err := middleware.New(config{Limiter: newFake(), Policies: with(func(p *policy) { p.Key = k })})
				require.Error(t, err)
			}
		},
		"KEY-05 callers without a name are counted by address": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(5), Key: keyfunc.First(keyfunc.User(user), keyfunc.IP())})
			require.Equal(t, map[int]int{200: 5, 429: 95}, codes(g, 100, always(request("GET", "/"))))
			require.Equal(t, 200, get(g, "192.0.2.8").Code)
			require.Equal(t, 200, serve(g, as("alice"), ok).Code)
		},
		"KEY-06 the address before authentication, the identity behind it": func(t *testing.T) {
			g := guardOf(t, policy{Name: "ip", Limit: limiter.PerDay(20)}, policy{Name: "tier", Stage: "identity", Limit: limiter.PerDay(1000), Key: keyfunc.User(user)})
			identity := g.Stage("identity")
			r := request("GET", "/")
			serve(g, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("X-Verified-User", "alice") // authentication
				identity.Serve(w, r, ok)
			}))
			require.Equal(t, 999, left(t, identity, as("alice"), "tier"))
		},
		"KEY-07 a name that nobody verified is no key": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(3), Key: keyfunc.First(keyfunc.User(user), keyfunc.IP())})
			require.Equal(t, map[int]int{200: 3, 429: 27}, codes(g, 30, func(k int) *http.Request {
				r := request("GET", "/")
				r.Header.Set("X-Api-Key", fmt.Sprint(k))
				return r
			}))
		},
		"KEY-08 KEY-11 all spellings and parameters of a route are one key": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(3), Key: keyfunc.Route(), Match: match{Routes: []string{"/recovery/verify/{code}"}}})
			mux := http.NewServeMux()
			mux.Handle("/recovery/verify/{code}", ok)
			out := map[int]int{}
			for _, path := range []string{"/recovery/verify/1", "/recovery/verify/2", "/recovery//verify/3", "/recovery/./verify/4", "/recovery/verify/5"} {
				w := httptest.NewRecorder()
				if p := g.Enter(w, request("GET", path), middleware.Entry{Mux: mux}); p.Proceed() {
					out[200]++
				}
			}
			require.Equal(t, 3, out[200])
		},
		"KEY-09 a path is compared as the router does": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.DenyAll, Match: match{Routes: []string{"/lang"}}})
			// A router that knows no case tells its own pattern, whatever the path was.
			for _, path := range []string{"/lang", "/LANG", "/lang/"} {
				w := httptest.NewRecorder()
				p := g.Enter(w, request("GET", path), middleware.Entry{Framework: framework{route: "/lang"}})
				require.False(t, p.Proceed(), path)
			}
		},
		"KEY-12 one guard in two places is one policy": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(10)})
			a, b := http.NewServeMux(), http.NewServeMux()
			n := 0
			count := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				g.Serve(w, r, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n++ }))
			})
			a.Handle("/", count)
			b.Handle("/", count)
			for range 10 {
				a.ServeHTTP(httptest.NewRecorder(), request("GET", "/"))
				b.ServeHTTP(httptest.NewRecorder(), request("GET", "/"))
			}
			require.Equal(t, 10, n)
		},
		"KEY-14 a key is of bounded length": func(t *testing.T) {
			length := 0
			g := newGuard(t, config{Limiter: spy{newFake(), func(k limiter.Key) { length = len(k.ID) }}, Policies: []policy{{Name: "a", Limit: perMinute, Key: keyfunc.Query("mail")}}})
			require.Equal(t, 200, serve(g, request("GET", "/?mail="+strings.Repeat("x", 1<<20)), ok).Code)
			require.Less(t, length, 256)
			require.Positive(t, length)
		},
		"CORS-02 CORS-03 the preflight passes and the refusal can be read": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(1)})
			get(g, "192.0.2.7")
			require.Equal(t, 200, serve(g, preflight(), ok).Code)
			r := request("POST", "/")
			r.Header.Set("Origin", "https://app.example")
			w := serve(g, r, ok)
			require.Equal(t, 429, w.Code)
			require.Contains(t, w.Header().Get("Access-Control-Expose-Headers"), "Retry-After")
		},
		"CORS-05 CORS-06 fields set further out stay": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.DenyAll})
			w := httptest.NewRecorder()
			for k, v := range map[string]string{"Access-Control-Allow-Origin": "https://app.example", "Access-Control-Expose-Headers": "X-Total", "Vary": "Origin"} {
				w.Header().Set(k, v)
			}
			r := request("GET", "/")
			r.Header.Set("Origin", "https://app.example")
			g.Serve(w, r, ok)
			require.Equal(t, "https://app.example", w.Header().Get("Access-Control-Allow-Origin"))
			require.Contains(t, w.Header().Get("Access-Control-Expose-Headers"), "X-Total")
			require.Equal(t, "Origin", w.Header().Get("Vary"))
		},
		"STR-01 a wrapped writer can be unwrapped and flushed": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: perMinute, Refund: failed})
			w := httptest.NewRecorder()
			g.Serve(w, request("GET", "/"), inline(func(got http.ResponseWriter) {
				require.NoError(t, http.NewResponseController(got).Flush())
				require.Same(t, w, got.(interface{ Unwrap() http.ResponseWriter }).Unwrap())
			}))
			require.True(t, w.Flushed)
		},
		"STR-07 connections of one user count together": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(240), Key: keyfunc.User(user)})
			out := map[int]int{}
			for tab := range 5 {
				r := as("alice")
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", tab)
				for code, n := range codes(g, 240, always(r)) {
					out[code] += n
				}
			}
			require.Equal(t, map[int]int{200: 240, 429: 960}, out)
		},
		"FW-02 the decision comes before the handler": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(5)})
			n := 0
			for range 6 {
				serve(g, request("POST", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n++ }))
			}
			require.Equal(t, 5, n)
		},
		"DBL-01 DBL-04 DBL-05 each policy counts a request once": func(t *testing.T) {
			g := guardOf(t,
				policy{Name: "global", Limit: limiter.PerMinute(300)},
				policy{Name: "test", Limit: limiter.PerMinute(20), Match: match{Routes: []string{"/test"}}},
				policy{Name: "ten", Limit: limiter.Per(200, 10*time.Minute), Match: match{Routes: []string{"/test"}}},
				policy{Name: "day", Limit: limiter.PerDay(5000), Match: match{Routes: []string{"/test", "/test/", "GET /test"}}})
			serve(g, request("GET", "/test"), ok)
			codes(g, 5, always(request("GET", "/")))
			require.Equal(t, "18", serve(g, request("GET", "/test"), ok).Header().Get("X-RateLimit-Remaining"))
			require.Equal(t, 293, left(t, g, request("GET", "/test"), "global"))
			require.Equal(t, 4998, left(t, g, request("GET", "/test"), "day"))
			require.Equal(t, map[int]int{200: 18, 429: 10}, codes(g, 28, always(request("GET", "/test"))))
		},
		"DBL-02 two policies on one store have counters of their own": func(t *testing.T) {
			g := guardOf(t, policy{Name: "group", Limit: limiter.PerDay(10)}, policy{Name: "route", Limit: limiter.PerDay(5)})
			require.Equal(t, map[int]int{200: 5, 429: 5}, codes(g, 10, always(request("GET", "/"))))
		},
		"MTH-01 MTH-02 unknown paths are counted": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(2)})
			mux := http.NewServeMux()
			out := map[int]int{}
			for k := range 100 {
				out[serve(g, request("GET", fmt.Sprintf("/none/%d", k)), mux).Code]++
			}
			require.Equal(t, map[int]int{404: 2, 429: 98}, out)
		},
		"MTH-03 MTH-05 HEAD goes with GET": func(t *testing.T) {
			g := guardOf(t, policy{Name: "write", Limit: limiter.PerSecond(1), Match: match{Methods: []string{"POST", "PUT", "DELETE"}}}, policy{Name: "read", Limit: limiter.PerSecond(20), Match: match{Routes: []string{"GET /"}}})
			serve(g, request("HEAD", "/x"), ok)
			require.Equal(t, 19, left(t, g, request("GET", "/x"), "read"))
			require.Equal(t, 1, left(t, g, request("POST", "/x"), "write"))
		},
		"MTH-07 a probe can be exempt": func(t *testing.T) {
			g := newGuard(t, config{Exempt: match{CIDRs: []string{"127.0.0.0/8", "::1"}}, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1)})})
			require.Equal(t, map[int]int{200: 50}, codes(g, 50, func(int) *http.Request { return from("127.0.0.1:5")() }))
			require.Equal(t, map[int]int{200: 50}, codes(g, 50, func(int) *http.Request { return from("[::1]:5")() }))
		},
		"REF-04 a refund takes nobody's hit": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(10), Refund: failed})
			serve(g, request("GET", "/"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				get(g, "192.0.2.7")
				w.WriteHeader(500)
			}))
			require.Equal(t, 9, left(t, g, request("GET", "/"), "a"))
		},
		"REF-08 REF-09 a request that is over takes nothing and is no failure": func(t *testing.T) {
			o := new(recorder)
			f := newFake()
			g := newGuard(t, config{Limiter: f, Observer: o, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(10)})})
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			codes(g, 100, always(request("GET", "/").WithContext(ctx)))
			require.Equal(t, 10, left(t, g, request("GET", "/"), "a"))
			require.NotContains(t, o.take(), "a error unavailable")
		},
		"REF-10 a refund never lifts the balance over the limit": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(2), Refund: failed})
			serve(g, request("GET", "/"), answer(500))
			require.Equal(t, map[int]int{200: 2, 429: 1}, codes(g, 3, always(request("GET", "/"))))
		},
		"WAIT-02 WAIT-03 each waiter has its own instant, in order": func(t *testing.T) {
			g := guardOf(t, policy{Name: "q", Limit: queueOf(20)})
			begin := time.Now()
			var mu sync.Mutex
			var order []int
			var at []time.Duration
			var wg sync.WaitGroup
			for k := range 20 {
				synctest.Wait()
				wg.Go(func() {
					serve(g, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						mu.Lock()
						defer mu.Unlock()
						order = append(order, k)
						at = append(at, time.Since(begin))
					}))
				})
			}
			wg.Wait()
			require.Len(t, order, 20)
			for k := range order {
				require.Equal(t, k, order[k])
				require.Equal(t, time.Duration(k)*time.Second, at[k])
			}
		},
		"STOP-01 STOP-02 STOP-05 nothing has to be stopped": func(t *testing.T) {
			before := runtime.NumGoroutine()
			for range 100 {
				g := guardOf(t, policy{Name: "a", Limit: perMinute, InFlight: 3})
				get(g, "192.0.2.7")
			}
			require.LessOrEqual(t, runtime.NumGoroutine(), before)
		},
	} {
		t.Run(id, func(t *testing.T) { synctest.Test(t, f) })
	}
}

// Faults of published designs that concern a guard, see docs/decisions.md.
func TestPublishedFaults(t *testing.T) {
	for name, f := range map[string]func(t *testing.T){
		"a refusal that is counted locks nobody out": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(1).With(limiter.SlidingLog)})
			for range 60 {
				get(g, "192.0.2.7")
				time.Sleep(time.Second)
			}
			require.Equal(t, 200, get(g, "192.0.2.7").Code)
		},
		"a guard made inside a handler limits by its store": func(t *testing.T) {
			store := newFake()
			out := map[int]int{}
			for range 10 {
				g := newGuard(t, config{Limiter: store, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(3)})})
				out[get(g, "192.0.2.7").Code]++
			}
			require.Equal(t, map[int]int{200: 3, 429: 7}, out)
		},
		"an error is not a 429 for everybody": func(t *testing.T) {
			f := newFake()
			f.fail(errAway)
			for _, rule := range []middleware.OnError{middleware.FailOpen, middleware.FailClosed} {
				g := newGuard(t, config{Limiter: f, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(3), OnStoreError: rule})})
				require.NotContains(t, codes(g, 10, always(request("GET", "/"))), 429)
			}
		},
		"Retry-After is the wait, and after it the request passes": func(t *testing.T) {
			for _, algorithm := range limiter.Algorithms() {
				for _, l := range []limiter.Limit{limiter.PerMinute(1), limiter.PerHour(7), limiter.Per(3, 2500*time.Millisecond)} {
					g := guardOf(t, policy{Name: "a", Limit: l.With(algorithm).WithBurst(1), MaxDelay: -1})
					var w *httptest.ResponseRecorder
					for w = get(g, "192.0.2.7"); w.Code == 200; w = get(g, "192.0.2.7") {
					}
					wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
					require.NoError(t, err)
					time.Sleep(wait)
					require.Equal(t, 200, get(g, "192.0.2.7").Code, "%v after %v", l, wait)
				}
			}
		},
		"no client picks its own bucket": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(3)})
			require.Equal(t, map[int]int{200: 3, 429: 17}, codes(g, 20, func(k int) *http.Request {
				r := request("GET", "/")
				for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Cf-Connecting-Ip", "True-Client-Ip"} {
					r.Header.Set(name, fmt.Sprintf("203.0.113.%d", k))
				}
				return r
			}))
		},
		"no goroutine per client": func(t *testing.T) {
			before := runtime.NumGoroutine()
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(3)})
			for k := range 1000 {
				get(g, fmt.Sprintf("192.0.%d.%d", k/250, k%250))
			}
			require.LessOrEqual(t, runtime.NumGoroutine(), before)
		},
		"a refusal is written once": func(t *testing.T) {
			f := newFake()
			f.fail(limiter.ErrInvalid)
			g := newGuard(t, config{Limiter: f, Policies: byIP(policy{Name: "a", Limit: perMinute}, policy{Name: "b", Limit: perMinute})})
			w := &once{ResponseWriter: httptest.NewRecorder()}
			g.Serve(w, request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") }))
			require.Equal(t, 1, w.n)
		},
		"an unknown peer is no bucket of all strangers": func(t *testing.T) {
			g := guardOf(t, policy{Name: "a", Limit: perMinute})
			for _, remote := range []string{"", "@", "/run/x.sock", "pipe", "nonsense:1"} {
				require.Equal(t, 403, serve(g, from(remote)(), ok).Code, remote)
			}
		},
		"the order of policies never makes another key": func(t *testing.T) {
			seen := map[limiter.Key]bool{}
			g := newGuard(t, config{Limiter: spy{newFake(), func(k limiter.Key) { seen[k] = true }}, Policies: []policy{
				{Name: "a", Limit: limiter.PerDay(100), Key: keyfunc.Join(keyfunc.Header("X-A"), keyfunc.Header("X-B"), keyfunc.Header("X-C"))},
			}})
			r := request("GET", "/")
			for _, name := range []string{"X-A", "X-B", "X-C"} {
				r.Header.Set(name, name)
			}
			codes(g, 50, always(r))
			require.Len(t, seen, 1)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
}

// once counts the statuses written.
type once struct {
	http.ResponseWriter
	n int
}

func (w *once) WriteHeader(code int) {
	w.n++
	w.ResponseWriter.WriteHeader(code)
}

// A slow store holds up nobody but the request that waits for it: the guard holds no lock over a call.
func TestNoLockOverTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.hook = func(string) error { time.Sleep(time.Second); return nil }
		g := newGuard(t, config{Limiter: f, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1000)})})
		begin := time.Now()
		var wg sync.WaitGroup
		for k := range 100 {
			wg.Go(func() { get(g, fmt.Sprintf("192.0.2.%d", k)) })
		}
		wg.Wait()
		require.Equal(t, time.Second, time.Since(begin))
	})
}
