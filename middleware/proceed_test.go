package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

func outcome(o degrade.Outcome) degrade.Handler {
	return degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return o })
}

// marked answers with the mode of the degraded request, "plain" if it is not one.
var marked = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	mode := "plain"
	if info, ok := degrade.FromContext(r.Context()); ok {
		mode = info.Policy + " " + info.Mode
	}
	_, _ = w.Write([]byte(mode))
})

// What proceeds is passed over by the policy that refused it, and by no other.
func TestProceedIsChargedToOthers(t *testing.T) {
	flag := moded{outcome(degrade.Proceed), "flag"}
	for name, c := range map[string]struct {
		policies []policy
		want     []string // of requests in turn
		left     int      // of other
	}{
		"charged":           {[]policy{{Name: "a", Limit: limiter.PerDay(1), Degrade: flag}, {Name: "other", Limit: limiter.PerDay(9)}}, []string{"plain", "a flag", "a flag"}, 6},
		"others come first": {[]policy{{Name: "other", Limit: limiter.PerDay(9)}, {Name: "a", Limit: limiter.PerDay(1), Degrade: flag}}, []string{"plain", "a flag"}, 7},
		"another refuses":   {[]policy{{Name: "a", Limit: limiter.PerDay(1), Degrade: flag}, {Name: "other", Limit: limiter.PerDay(2)}}, []string{"plain", "a flag", "429", "429"}, 0},
		"both proceed":      {[]policy{{Name: "a", Limit: limiter.PerDay(1), Degrade: flag}, {Name: "b", Limit: limiter.PerDay(1), Degrade: flag}, {Name: "other", Limit: limiter.PerDay(9)}}, []string{"plain", "a flag"}, 7},
		"one insists":       {[]policy{{Name: "a", Limit: limiter.PerDay(1), Degrade: flag}, {Name: "b", Limit: limiter.PerDay(1), Degrade: outcome(degrade.Skip)}, {Name: "other", Limit: limiter.PerDay(9)}}, []string{"plain", "429"}, 8},
		"one serves":        {[]policy{{Name: "a", Limit: limiter.PerDay(1), Degrade: flag}, {Name: "b", Limit: limiter.PerDay(1), Degrade: says(200, "stale")}, {Name: "other", Limit: limiter.PerDay(9)}}, []string{"plain", "stale"}, 8},
		"a bound":           {[]policy{{Name: "a", Limit: limiter.PerDay(1), Degrade: flag}, {Name: "other", Limit: limiter.PerDay(9), InFlight: 1}}, []string{"plain", "a flag", "a flag"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardOf(t, c.policies...)
			for _, want := range c.want {
				w := serve(g, request("GET", "/"), marked)
				if want == "429" {
					require.Equal(t, 429, w.Code)
					require.NotEmpty(t, w.Header().Get("Retry-After"))
					continue
				}
				require.Equal(t, want, w.Body.String())
				require.Empty(t, w.Header().Get("Retry-After"))
			}
			require.Equal(t, c.left, left(t, g, request("GET", "/"), "other"))
		})
	}
}

// Units of other policies are given back by the status of a request that has proceeded.
func TestProceedSettles(t *testing.T) {
	g := guardOf(t,
		policy{Name: "a", Limit: limiter.PerDay(1), Degrade: outcome(degrade.Proceed)},
		policy{Name: "other", Limit: limiter.PerDay(9), Refund: failed, InFlight: 1})
	get(g, "192.0.2.7")
	for range 5 {
		require.Equal(t, 500, serve(g, request("GET", "/"), answer(500)).Code)
	}
	require.Equal(t, 8, left(t, g, request("GET", "/"), "other"))
	free(t, g, 1)
}

// The fields say how the policies stand, the one that refused included, and what became of the request.
func TestProceedTells(t *testing.T) {
	g := guardOf(t,
		policy{Name: "a", Limit: limiter.PerDay(1), Degrade: moded{outcome(degrade.Proceed), "flag"}, Headers: response.Both},
		policy{Name: "b", Limit: limiter.PerDay(9), Headers: response.Both})
	get(g, "192.0.2.7")
	w := get(g, "192.0.2.7")
	require.Equal(t, 200, w.Code)
	require.Equal(t, "flag", w.Header().Get("X-RateLimit-Degraded"))
	require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, `"a";r=0;t=86400, "b";r=7;t=67200`, w.Header().Get("RateLimit"))
}

// The field that names the mode is on every degraded answer, unless it is switched off or the policy is silent.
func TestDegradedField(t *testing.T) {
	for name, c := range map[string]struct {
		h      degrade.Handler
		opts   response.Options
		set    response.Set
		field  string
		want   string
		status int
	}{
		"served":   {moded{says(200, "x"), "cache"}, response.Options{}, response.Set{}, "X-RateLimit-Degraded", "cache", 200},
		"proceeds": {moded{outcome(degrade.Proceed), "flag"}, response.Options{}, response.Set{}, "X-RateLimit-Degraded", "flag", 200},
		"in chain": {degrade.First(outcome(degrade.Skip), moded{says(200, "x"), "static"}), response.Options{}, response.Set{}, "X-RateLimit-Degraded", "static", 200},
		"named":    {moded{says(200, "x"), "cache"}, response.Options{DegradedField: "X-Mode"}, response.Set{}, "X-Mode", "cache", 200},
		"off":      {moded{says(200, "x"), "cache"}, response.Options{DegradedField: "off"}, response.Set{}, "X-RateLimit-Degraded", "", 200},
		"silent":   {moded{says(200, "x"), "cache"}, response.Options{}, response.Off, "X-RateLimit-Degraded", "", 200},
		"refused":  {outcome(degrade.Skip), response.Options{}, response.Set{}, "X-RateLimit-Degraded", "", 429},
		"a write": {degrade.Func(func(_ http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
			d.ReadOnly = true
			return degrade.Refuse
		}), response.Options{}, response.Set{}, "X-RateLimit-Degraded", "read_only", 429},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, config{Response: c.opts, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1), Degrade: c.h, Headers: c.set})})
			require.Empty(t, get(g, "192.0.2.7").Header().Get(c.field))
			w := get(g, "192.0.2.7")
			require.Equal(t, c.status, w.Code)
			require.Equal(t, c.want, w.Header().Get(c.field))
		})
	}
	for _, name := range []string{"no field", "Retry-After", "ratelimit", "age", "x:y"} {
		_, err := middleware.New(config{Response: response.Options{DegradedField: name}})
		require.ErrorContains(t, err, "DegradedField")
	}
}

// Refuse ends the chain, and says whose fault it is and for how long.
func TestRefuse(t *testing.T) {
	refuse := func(cause degrade.Cause, readOnly bool, wait time.Duration) degrade.Handler {
		return degrade.First(degrade.Func(func(_ http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
			d.Cause, d.ReadOnly, d.Wait = cause, readOnly, wait
			return degrade.Refuse
		}), says(200, "never"))
	}
	for name, c := range map[string]struct {
		h      degrade.Handler
		status int
		retry  string
		body   string
	}{
		"quota":          {refuse(degrade.Quota, false, 0), 429, "60", "quota-exceeded"},
		"longer":         {refuse(degrade.Quota, false, 90*time.Second), 429, "90", `"retry_after":90`},
		"shorter":        {refuse(degrade.Quota, false, time.Second), 429, "60", "quota-exceeded"},
		"capacity":       {refuse(degrade.Capacity, false, 0), 503, "60", "temporary-reduced-capacity"},
		"read only":      {refuse(degrade.Quota, true, 0), 429, "60", `"code":"read_only"`},
		"read only, 503": {refuse(degrade.Capacity, true, 0), 503, "60", "temporary-reduced-capacity"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(1), Degrade: c.h})
				get(g, "192.0.2.7")
				w := get(g, "192.0.2.7")
				require.Equal(t, c.status, w.Code)
				require.Equal(t, c.retry, w.Header().Get("Retry-After"))
				require.Contains(t, w.Body.String(), c.body)
			})
		})
	}
}

// waits holds a request and has it decided again.
func waits(d time.Duration) degrade.Handler {
	return moded{degrade.Func(func(_ http.ResponseWriter, r *http.Request, x *degrade.Denial) degrade.Outcome {
		leave, ok := x.Place()
		if x.Asked > 1 || !ok {
			x.Wait = time.Hour
			return degrade.Skip
		}
		defer leave()
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
		return degrade.Again
	}), "queue"}
}

// A request that has waited is decided anew, by all policies, and is a usual one if it passes.
func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		wait   time.Duration
		other  limiter.Limit
		within time.Duration // of the client's patience
		want   string
		events []string
		left   int // of other
	}{
		"passes":      {time.Minute, limiter.PerDay(9), 0, "plain", []string{"a degraded queue", "a allowed", "other allowed"}, 7},
		"again":       {time.Second, limiter.PerDay(9), 0, "429", []string{"a blocked", "other allowed", "a rejected quota"}, 8},
		"never asked": {time.Minute, limiter.PerDay(1), 0, "429", []string{"a blocked", "other blocked", "a rejected quota", "other rejected quota"}, 0},
		"leaves":      {time.Minute, limiter.PerDay(9), time.Second, "504", []string{"a error canceled", "other error canceled"}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := new(recorder)
				g := newGuard(t, config{Observer: o, Policies: byIP(
					policy{Name: "a", Limit: limiter.PerMinute(1), Degrade: waits(c.wait)}, policy{Name: "other", Limit: c.other})})
				get(g, "192.0.2.7")
				o.take()
				r := request("GET", "/")
				if c.within > 0 {
					ctx, cancel := context.WithTimeout(r.Context(), c.within)
					defer cancel()
					r = r.WithContext(ctx)
				}
				begin := time.Now()
				w := serve(g, r, marked)
				if c.want == "plain" {
					require.Equal(t, c.want, w.Body.String())
					require.Empty(t, w.Header().Get("Retry-After"))
					require.Empty(t, w.Header().Get("X-RateLimit-Degraded"))
					require.Equal(t, time.Minute, time.Since(begin))
				} else {
					require.Equal(t, c.want, strconv.Itoa(w.Code))
				}
				require.ElementsMatch(t, c.events, o.take())
				require.Equal(t, c.left, left(t, g, request("GET", "/"), "other"))
			})
		})
	}
}

// Requests held by a handler are among those that MaxWaiting bounds.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, config{MaxWaiting: 2, Policies: byIP(policy{Name: "a", Limit: limiter.PerSecond(1), Degrade: waits(time.Minute)})})
		get(g, "192.0.2.7")
		codes := make(chan int, 5)
		for range 5 {
			go func() { codes <- get(g, "192.0.2.7").Code }()
		}
		synctest.Wait()
		require.Len(t, codes, 3)
		for range 3 {
			require.Equal(t, 429, <-codes)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, codes, 2)
		require.Equal(t, 429+200, <-codes+<-codes, "one unit came back")
	})
}

// Withdraw takes off what the decision has put on, and nothing that was there before.
func TestWithdraw(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(1), Headers: response.Both, Degrade: degrade.Func(func(w http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
		d.Withdraw()
		w.WriteHeader(307)
		d.Withdraw() // too late to change anything
		return degrade.Done
	})})
	get(g, "192.0.2.7")
	w := httptest.NewRecorder()
	w.Header().Set("X-Before", "1")
	w.Header().Set("X-RateLimit-Remaining", "3")
	g.Serve(w, request("GET", "/"), marked)
	require.Equal(t, http.Header{"X-Before": {"1"}, "X-Ratelimit-Remaining": {"3"}, "X-Ratelimit-Degraded": {"func"}}, w.Header())
}

// A handler knows what is known of a request, and what it was asked.
func TestDenialOfRequest(t *testing.T) {
	var route, client string
	g := guardOf(t, policy{
		Name: "a", Limit: limiter.PerDay(4), Cost: func(*keyfunc.Request) int { return 3 },
		Degrade: degrade.Func(func(_ http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
			require.Equal(t, 3, d.Cost)
			require.Equal(t, 1, d.Asked)
			route = d.Request.Route()
			k, err := d.Request.Resolve(keyfunc.IP())
			require.NoError(t, err)
			client = k.String()
			return degrade.Skip
		}),
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /things/{id}", func(http.ResponseWriter, *http.Request) {})
	for range 2 {
		g.Enter(httptest.NewRecorder(), request("GET", "/things/1"), middleware.Entry{Mux: mux})
	}
	require.Equal(t, "/things/{id}", route)
	require.Equal(t, "ip=192.0.2.7", client)
}

// A policy that gives units back has none to give for a request it has not let in, and what other policies have given for it
// comes back in full.
func TestProceedPastRefund(t *testing.T) {
	g := guardOf(t,
		policy{Name: "whole", InFlight: 5, Key: keyfunc.Global()},
		policy{Name: "a", Limit: limiter.PerDay(1), Refund: failed, Degrade: outcome(degrade.Proceed)})
	for k := range 20 {
		status := []int{200, 500}[k%2]
		require.Equal(t, status, serve(g, request("GET", "/"), answer(status)).Code)
	}
	free(t, g, 5)
}

// A place among those held back is given back once.
func TestPlaceOnce(t *testing.T) {
	var most, now int
	g := newGuard(t, config{MaxWaiting: 1, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1), Degrade: degrade.Func(
		func(_ http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
			leave, ok := d.Place()
			if !ok {
				return degrade.Skip
			}
			now++
			most = max(most, now)
			leave()
			now--
			leave()
			return degrade.Skip
		})})})
	for range 5 {
		get(g, "192.0.2.7")
	}
	held := 0
	g2 := newGuard(t, config{MaxWaiting: 1, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1), Degrade: degrade.Func(
		func(_ http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
			first, ok := d.Place()
			require.True(t, ok)
			first()
			first()
			if _, ok := d.Place(); ok {
				held++
			}
			if _, ok := d.Place(); ok {
				held++
			}
			return degrade.Skip
		})})})
	get(g2, "192.0.2.7")
	get(g2, "192.0.2.7")
	require.Equal(t, 1, held)
	require.Equal(t, 1, most)
}

// The default budget goes by the policy's rate where it has one, also where the bound in flight refuses.
func TestDefaultBudgetOfBound(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerHour(3), InFlight: 1, Degrade: affords{}})
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	require.True(t, p.Proceed())
	codes := map[int]int{}
	for range 100 {
		codes[get(g, "192.0.2.7").Code]++
	}
	require.Equal(t, map[int]int{200: 30, 503: 70}, codes)
	p.Leave(200)
}

// affords serves as long as it can afford to.
type affords struct{}

func (affords) Spends()      {}
func (affords) Mode() string { return degrade.ModeStatic }
func (affords) Degrade(_ http.ResponseWriter, r *http.Request, d *degrade.Denial) degrade.Outcome {
	if d.Afford(r.Context()) {
		return degrade.Done
	}
	return degrade.Skip
}

// What a strict gate has shut no handler lets through, and who comes back after a wait is asked about again.
func TestStrictGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shut := false
		x := newGate(func(s *degrade.Subject) degrade.Hint {
			require.Equal(t, shut, s.Again)
			return degrade.Hint{Shut: shut, Cause: degrade.Capacity, Strict: true}
		})
		hold := degrade.Func(func(_ http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
			if d.Asked > 1 {
				return degrade.Proceed
			}
			time.Sleep(time.Hour)
			shut = true
			return degrade.Again
		})
		g := guardOf(t, policy{Name: "a", Limit: limiter.PerMinute(1), Degrade: degrade.First(hold, x)})
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
		w := get(g, "192.0.2.7")
		require.Equal(t, 503, w.Code)
		require.Contains(t, w.Body.String(), "Only reads are served")
		require.Equal(t, 1, left(t, g, request("GET", "/"), "a"))
	})
}

// A write that proceeds degraded is shown to recorders, for what it changes; a read is not.
func TestRecorderOfDegradedWrites(t *testing.T) {
	var got []string
	rec := recording{Func: proceeds, record: func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func(bool)) {
		return w, func(ok bool) { got = append(got, fmt.Sprint(r.Method, " ", ok)) }
	}}
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(1), Degrade: rec})
	for _, method := range []string{"GET", "GET", "PUT", "HEAD", "OPTIONS", "DELETE"} {
		require.Equal(t, 200, serve(g, request(method, "/"), ok).Code)
	}
	require.Equal(t, []string{"GET true", "PUT true", "DELETE true"}, got)
}

// Whose copy a response is goes by all that the policies of the stage know of the caller.
func TestCopiesGoByAllPolicies(t *testing.T) {
	tenant := func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key("tenant", r.Header.Get("X-Of")), nil }
	g := newGuard(t, config{Policies: []policy{
		{Name: "tn", Key: tenant, Limit: limiter.PerDay(9)},
		{Name: "all", Key: keyfunc.Global(), Limit: limiter.PerDay(2), Degrade: degrade.Cached(degrade.NewPages(degrade.PagesConfig{}))},
	}})
	ask := func(tenant string) *httptest.ResponseRecorder {
		r := request("GET", "/")
		r.Header.Set("X-Of", tenant)
		return serve(g, r, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret of "+tenant) }))
	}
	ask("alice")
	ask("alice")
	require.Equal(t, "secret of alice", ask("alice").Body.String())
	require.Equal(t, 429, ask("bob").Code)
}
