package middleware_test

import (
	"fmt"
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
	"github.com/spillway-go/spillway/response"
)

// says writes a body of its own.
func says(status int, body string) degrade.Handler {
	return degrade.Func(func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return degrade.Done
	})
}

func proceeds(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome {
	return degrade.Proceed
}

// leaves is a handler that leaves rubbish in the header and then panics.
func leaves(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
	w.Header().Set("Content-Encoding", "br")
	w.Header().Del("Retry-After")
	panic("boom")
}

func cutsOff(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
	_, _ = w.Write([]byte("half"))
	panic("boom")
}

type moded struct {
	degrade.Handler
	mode string
}

func (m moded) Mode() string { return m.mode }

func TestDegrade(t *testing.T) {
	f := func(h degrade.Func) degrade.Handler { return h }
	for name, c := range map[string]struct {
		h      degrade.Handler
		status int
		body   string // "" for the plain refusal
		events []string
		panics any
		retry  string
	}{
		"skip":                                   {f(skips), 429, "", []string{"a blocked", "a rejected quota"}, nil, "60"},
		"done":                                   {says(200, "stale"), 200, "stale", []string{"a blocked", "a rejected quota", "a degraded func"}, nil, ""},
		"done with 503":                          {says(503, "later"), 503, "later", []string{"a blocked", "a rejected quota", "a degraded func"}, nil, "60"},
		"done with 429":                          {says(429, "later"), 429, "later", []string{"a blocked", "a rejected quota", "a degraded func"}, nil, "60"},
		"redirect":                               {says(307, "there"), 307, "there", []string{"a blocked", "a rejected quota", "a degraded func"}, nil, "60"},
		"mode":                                   {moded{says(200, "stale"), "cache"}, 200, "stale", []string{"a blocked", "a rejected quota", "a degraded cache"}, nil, ""},
		"proceed":                                {f(proceeds), 200, "next", []string{"a blocked", "a rejected quota", "a degraded func"}, nil, ""},
		"first":                                  {degrade.First(f(skips), moded{says(200, "two"), "static"}, says(200, "three")), 200, "two", []string{"a blocked", "a rejected quota", "a degraded static"}, nil, ""},
		"first of nothing":                       {degrade.First(), 429, "", []string{"a blocked", "a rejected quota"}, nil, "60"},
		"nested":                                 {degrade.First(degrade.First(f(skips), f(skips)), degrade.First(f(skips), moded{f(proceeds), "flag"})), 200, "next", []string{"a blocked", "a rejected quota", "a degraded flag"}, nil, ""},
		"panic":                                  {f(leaves), 429, "", []string{"a panic Degrade", "a blocked", "a rejected quota"}, nil, "60"},
		"panic in a chain":                       {degrade.First(f(skips), f(leaves), moded{says(200, "two"), "static"}), 200, "two", []string{"a panic Degrade", "a blocked", "a rejected quota", "a degraded static"}, nil, ""},
		"nothing but panics":                     {degrade.First(f(leaves), f(leaves)), 429, "", []string{"a panic Degrade", "a panic Degrade", "a blocked", "a rejected quota"}, nil, "60"},
		"panic behind the first byte":            {f(cutsOff), 200, "half", []string{"a panic Degrade", "a blocked", "a rejected quota", "a degraded func"}, http.ErrAbortHandler, ""},
		"panic behind the first byte of a chain": {degrade.First(f(cutsOff), says(200, "two")), 200, "half", []string{"a panic Degrade", "a blocked", "a rejected quota", "a degraded func"}, http.ErrAbortHandler, ""},
		"writes and skips": {f(func(w http.ResponseWriter, r *http.Request, d *degrade.Denial) degrade.Outcome {
			says(203, "said").Degrade(w, r, d)
			return degrade.Skip
		}), 203, "said", []string{"a blocked", "a rejected quota", "a degraded func"}, nil, ""},
		"writes and proceeds": {f(func(w http.ResponseWriter, r *http.Request, d *degrade.Denial) degrade.Outcome {
			says(203, "said").Degrade(w, r, d)
			return degrade.Proceed
		}), 203, "said", []string{"a blocked", "a rejected quota", "a degraded func"}, nil, ""},
		"done without a word": {
			f(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Done }),
			200, "",
			[]string{"a blocked", "a rejected quota", "a degraded func"},
			nil, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := new(recorder)
				g := newGuard(t, config{Observer: o, Policies: byIP(policy{Name: "a", Limit: limiter.PerMinute(1), Degrade: c.h})})
				get(g, "192.0.2.7")
				o.take()
				r := request("GET", "/")
				w := httptest.NewRecorder()
				func() {
					defer func() { require.Equal(t, c.panics, recover()) }()
					g.Serve(w, r, http.HandlerFunc(func(w http.ResponseWriter, got *http.Request) {
						info, _ := degrade.FromContext(got.Context())
						info.Mode = ""
						if info == (degrade.Info{Policy: "a", Cause: degrade.Quota, RetryAfter: time.Minute}) {
							_, _ = w.Write([]byte("next"))
						}
					}))
				}()
				require.Equal(t, c.status, w.Code)
				if c.body != "" || c.status == 200 {
					require.Equal(t, c.body, w.Body.String())
				} else {
					require.Contains(t, w.Body.String(), "quota-exceeded")
				}
				require.Equal(t, c.retry, w.Header().Get("Retry-After"))
				require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
				require.Empty(t, w.Header().Get("Content-Encoding"))
				require.Equal(t, c.events, o.take())
				require.Zero(t, left(t, g, r, "a"), "degrading takes nothing")
			})
		})
	}
}

// What one policy serves instead does not get around another's refusal.
func TestDegradeOfAll(t *testing.T) {
	one := limiter.PerDay(1)
	for name, c := range map[string]struct {
		policies []policy
		want     string
	}{
		"both have a chain":     {[]policy{{Name: "a", Limit: one, Degrade: degrade.Func(skips)}, {Name: "b", Limit: one, Degrade: says(200, "b")}}, "b"},
		"one has none":          {[]policy{{Name: "a", Limit: one, Degrade: says(200, "a")}, {Name: "b", Limit: one}}, ""},
		"only one refuses":      {[]policy{{Name: "a", Limit: limiter.PerDay(9)}, {Name: "b", Limit: one, Degrade: says(200, "b")}}, "b"},
		"the other is a shadow": {[]policy{{Name: "a", Limit: one, Shadow: true}, {Name: "b", Limit: one, Degrade: says(200, "b")}}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardOf(t, c.policies...)
			get(g, "192.0.2.7")
			w := get(g, "192.0.2.7")
			if c.want == "" {
				require.Equal(t, 429, w.Code)
			} else {
				require.Equal(t, c.want, w.Body.String())
			}
		})
	}
}

// A denial says everything about the refusal it stands for.
func TestDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *degrade.Denial
		look := degrade.Func(func(_ http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
			got = d
			return degrade.Skip
		})
		g := guardOf(t,
			policy{Name: "a", Limit: limiter.PerMinute(1), Degrade: degrade.Func(skips)},
			policy{Name: "b", Limit: limiter.PerMinute(2).WithBurst(1), Degrade: look})
		get(g, "192.0.2.7")
		get(g, "192.0.2.7")
		require.Equal(t, "b", got.Policy)
		require.Equal(t, []string{"a", "b"}, got.Violated)
		require.Equal(t, limiter.Key{Space: "b", ID: "ip=192.0.2.7"}, got.Key)
		require.Equal(t, 429, got.Status)
		require.Equal(t, time.Minute, got.RetryAfter)
		require.Equal(t, 30*time.Second, got.Decision.RetryAfter)

		g = guardOf(t, policy{Name: "c", InFlight: 1, Degrade: look})
		p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
		require.Equal(t, 503, get(g, "192.0.2.7").Code)
		require.Equal(t, degrade.Capacity, got.Cause)
		require.Equal(t, 503, got.Status)
		p.Leave(200)
	})
}

// A budget bounds what is served instead, per key, and is apart from the policy's own counter and every other policy's.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stale := moded{says(200, "stale"), "cache"}
		g := guardOf(t,
			policy{Name: "a", Limit: limiter.PerDay(1), Degrade: degrade.First(
				degrade.Within(limiter.PerHour(3), stale), degrade.Within(limiter.PerHour(2), moded{says(203, "static"), "static"}))},
			policy{Name: "a.cache", Limit: limiter.PerHour(100)})
		codes := map[int]int{}
		for range 1000 {
			codes[get(g, "192.0.2.7").Code]++
		}
		require.Equal(t, map[int]int{200: 4, 203: 2, 429: 994}, codes)
		require.Equal(t, 200, get(g, "192.0.2.8").Code)
		require.Equal(t, "stale", get(g, "192.0.2.8").Body.String(), "another key has its own")
		require.Equal(t, 99, left(t, g, request("GET", "/"), "a.cache"))
		time.Sleep(time.Hour)
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
	})
}

// A budget that cannot be asked is spent.
func TestWithinWithoutStore(t *testing.T) {
	f := newFake()
	f.hook = func(op string) error {
		if op == "allow" {
			return errAway
		}
		return nil
	}
	g := newGuard(t, config{Limiter: f, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(1), Degrade: degrade.Within(limiter.PerHour(3), says(200, "stale"))})})
	get(g, "192.0.2.7")
	require.Equal(t, 429, get(g, "192.0.2.7").Code)
	f.hook = func(op string) error {
		if op == "allow" {
			panic("boom")
		}
		return nil
	}
	require.Equal(t, 429, get(g, "192.0.2.7").Code)

	// A bound in flight needs no limiter, so there may be none.
	g, err := middleware.New(config{Policies: byIP(policy{Name: "a", InFlight: 1, Degrade: degrade.Within(limiter.PerHour(3), says(200, "stale"))})})
	require.NoError(t, err)
	p := g.Enter(httptest.NewRecorder(), request("GET", "/"), middleware.Entry{})
	require.Equal(t, 503, get(g, "192.0.2.7").Code)
	p.Leave(200)
}

// A recorder sees what allowed requests were answered, and never a refused or degraded one.
func TestRecorder(t *testing.T) {
	var got []string
	rec := recording{Func: proceeds, record: func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func(bool)) {
		copied := httptest.NewRecorder()
		return tee{w, copied}, func(ok bool) { got = append(got, fmt.Sprint(copied.Body.String(), " ", ok)) }
	}}
	body := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, degraded := degrade.FromContext(r.Context())
		if r.URL.Path == "/panic" {
			panic("handler")
		}
		_, _ = fmt.Fprint(w, r.URL.Path, " ", degraded)
	})
	for name, h := range map[string]degrade.Handler{
		"alone": rec, "in a chain": degrade.First(degrade.Func(skips), rec), "within": degrade.First(degrade.Within(limiter.PerDay(5), rec)),
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(2), Degrade: h})
			require.Equal(t, "/x false", serve(g, request("GET", "/x"), body).Body.String())
			require.Panics(t, func() { serve(g, request("GET", "/panic"), body) })
			require.Equal(t, []string{"/x false true", " false"}, got)
			require.Equal(t, "/y true", serve(g, request("GET", "/y"), body).Body.String())
			require.Len(t, got, 2)
		})
	}
	// With a status to settle by as well.
	got = nil
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(9), Degrade: rec, Refund: failed, InFlight: 1})
	serve(g, request("GET", "/x"), body)
	serve(g, request("GET", "/x"), answer(500))
	require.Equal(t, []string{"/x false true", " false"}, got)
}

type tee struct {
	http.ResponseWriter
	copy *httptest.ResponseRecorder
}

func (t tee) Write(b []byte) (int, error) {
	_, _ = t.copy.Write(b)
	return t.ResponseWriter.Write(b)
}

// A request that is not degraded reaches next as the very same one, with the very same writer where nothing needs another.
func TestSameRequestAndWriter(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: perMinute, InFlight: 5, Degrade: says(200, "x"), Headers: response.Both, Key: keyfunc.IP()})
	w, r := httptest.NewRecorder(), request("GET", "/")
	var gotW http.ResponseWriter
	var gotR *http.Request
	g.Serve(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gotW, gotR = w, r }))
	require.Same(t, r, gotR)
	require.Same(t, w, gotW)
}
