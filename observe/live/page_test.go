package live_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe"
	"github.com/spillway-go/spillway/observe/live"
)

func policy(name, limit string) middleware.Policy {
	l, err := limiter.ParseLimit(limit)
	if err != nil {
		panic(err)
	}
	return middleware.Policy{Name: name, Limit: l}
}

func TestNewNamesEverythingWrong(t *testing.T) {
	_, err := live.New(live.Config{Title: strings.Repeat("x", 81), MaxViewers: -1})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.ErrorContains(t, err, "Title")
	require.ErrorContains(t, err, "MaxViewers -1")
	_, err = live.New(live.Config{MaxViewers: 1001})
	require.ErrorIs(t, err, limiter.ErrInvalid)
}

// What is told is what was sent.
func TestNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, err := observe.NewTop(observe.TopConfig{})
		require.NoError(t, err)
		p := newPage(t, live.Config{Top: top})
		all := policy("all", "1000/s")
		search := policy("search", "3/h burst 3")
		search.Match = middleware.Match{Routes: []string{"/search"}}
		trial := policy("trial", "1/h fixed_window")
		trial.Shadow = true
		trial.Stage = middleware.StageEdge
		g := newGuard(t, observe.Tee(p, top), nil, all, search, trial)
		p.Watch(g, nil)
		w, leave, _ := view(p, nil)
		send(g, "/", 10)
		send(g, "/search", 5)
		after(1100 * time.Millisecond)
		s := follow(t, w.events(t))
		require.Equal(t, []uint64{15, 0, 0, 0, 0}, s.rows["all"].S, "what another refused it has allowed")
		require.Equal(t, []uint64{3, 2, 0, 0, 0}, s.rows["search"].S)
		require.Equal(t, []uint64{1, 0, 0, 14, 0}, s.rows["trial"].S)
		require.Equal(t, []float64{3, 2, 0, 0, 0}, s.rows["search"].R)
		require.Equal(t, []float64{1, 0, 0, 0, 14}, s.rows["trial"].R)
		require.Equal(t, []float64{19, 2, 0, 0}, s.last.Total)
		require.Equal(t, []int{60, 0, 0, 0, 20, 0, 0, 20, 0, 0, 0}, s.rows["search"].L, "two refusals and one take left nothing")
		require.Equal(t, 0, s.rows["search"].M)
		require.Equal(t, "memory", s.about["search"].Limiter)
		require.Equal(t, "3/h burst 3", s.about["search"].Limit)
		require.Equal(t, []string{"quota"}, s.about["search"].Reasons)
		require.Equal(t, []string{"memory"}, s.about["search"].Via)
		require.Equal(t, "ok", s.state)
		require.Len(t, *s.last.Top, 2)
		require.Equal(t, top.Hash("ip=192.0.2.1"), (*s.last.Top)[0].Key)
		require.NotContains(t, w.text(), "192.0.2.1")
		for name, keys := range map[string]int{"all": 1, "search": 1, "trial": 1} {
			require.Equal(t, keys, s.rows[name].K, name)
			require.Zero(t, s.rows[name].O, name)
			require.Zero(t, s.rows[name].B, name)
		}
		after(time.Second)
		s = follow(t, w.events(t))
		require.Equal(t, []float64{0, 0, 0, 0, 0}, s.rows["search"].R, "a second later nothing comes")
		require.Equal(t, []uint64{3, 2, 0, 0, 0}, s.rows["search"].S)
		n := len(w.events(t))
		after(3 * time.Second)
		for _, e := range w.events(t)[n:] {
			require.Empty(t, e.told(t).Rows, "and what does not change is not sent")
			require.Empty(t, e.told(t).About)
		}
		late, leaveLate, _ := view(p, nil)
		x := late.events(t)[0].told(t)
		require.Equal(t, "search", x.Policies[1].About.Name, "in the order of the configuration")
		sum := 0.0
		for _, v := range x.Policies[1].History[0] {
			sum += v
		}
		require.Equal(t, 3.0, sum, "who comes later gets the history")
		leaveLate()
		leave()
		synctest.Wait()
	})
}

// Policies come and go while somebody looks, and what one has counted goes with it.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		g := newGuard(t, p, nil, policy("stays", "9/s"), policy("goes", "9/s"))
		var mu sync.Mutex
		status := live.Status{Source: "file", Hash: "one"}
		p.Watch(g, func() live.Status {
			mu.Lock()
			defer mu.Unlock()
			return status
		})
		w, leave, _ := view(p, nil)
		send(g, "/", 4)
		after(1100 * time.Millisecond)
		require.Contains(t, follow(t, w.events(t)).rows, "goes")
		stays, comes := policy("stays", "7/s"), policy("comes", "5/s")
		stays.Key, comes.Key = keyfunc.IP(), keyfunc.IP()
		require.NoError(t, g.Update([]middleware.Policy{stays, comes}))
		mu.Lock()
		status = live.Status{Source: "file", Hash: "two", Changes: []string{"policies.stays.limit: 9/s → 7/s"}}
		mu.Unlock()
		after(time.Second)
		s := follow(t, w.events(t))
		require.NotContains(t, s.rows, "goes")
		require.Contains(t, s.rows, "comes")
		require.Equal(t, "7/s", s.about["stays"].Limit)
		require.Equal(t, uint64(4), s.rows["stays"].S[0])
		require.Equal(t, status.Changes, s.last.Document.Changes)
		goes := policy("goes", "9/s")
		goes.Key = keyfunc.IP()
		require.NoError(t, g.Update([]middleware.Policy{goes}))
		after(time.Second)
		s = follow(t, w.events(t))
		require.Equal(t, uint64(0), s.rows["goes"].S[0], "it has begun anew")
		leave()
		synctest.Wait()
	})
}

// store is a shared store of a test, with a delay and an end.
type store struct {
	limiter.Limiter
	mu    sync.Mutex
	delay time.Duration
	away  error
	via   limiter.Via
}

func (s *store) Allow(ctx context.Context, key limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	s.mu.Lock()
	delay, away, via := s.delay, s.away, s.via
	s.mu.Unlock()
	if away != nil {
		return limiter.Decision{}, errors.Join(limiter.ErrUnavailable, away)
	}
	d, err := s.Limiter.Allow(ctx, key, l, n)
	time.Sleep(delay)
	d.Via = via
	return d, err
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// What is measured is beside the bound of the store's kind.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := memory.New(memory.Config{})
		require.NoError(t, err)
		defer m.Close()
		shared := &store{Limiter: m, via: limiter.ViaStore}
		p := newPage(t, live.Config{})
		g := newGuard(t, p, shared, policy("far", "100/s burst 40"))
		p.Watch(g, nil)
		w, leave, _ := view(p, nil)
		// Replies that are late and then quick: what the rate brings in the slowest one passes too early after it.
		shared.set(func() { shared.delay = 300 * time.Millisecond })
		for range 40 {
			go send(g, "/", 1)
		}
		after(299 * time.Millisecond)
		shared.set(func() { shared.delay = 0 })
		after(2 * time.Millisecond)
		send(g, "/", 40)
		after(3 * time.Second)
		r := follow(t, w.events(t)).rows["far"]
		require.Greater(t, r.O, 27.0, "30 were there again when 40 came late")
		require.LessOrEqual(t, r.O, r.B)
		require.InDelta(t, 30, r.B, 0.5, "100 a second in 300 ms")

		shared.set(func() { shared.away = errors.New("dial 10.0.0.7: refused") })
		send(g, "/", 3)
		after(time.Second)
		s := follow(t, w.events(t))
		require.Equal(t, -1.0, s.rows["far"].B, "fail open has no bound")
		require.Equal(t, uint64(3), s.rows["far"].S[4])
		require.Equal(t, []float64{0, 0, 0, 3, 0}, s.rows["far"].R, "what passes undecided has a rate")
		require.Equal(t, []float64{0, 0, 0, 3}, s.last.Total)
		require.True(t, s.about["far"].Undecided)
		require.Equal(t, "away", s.state)
		require.NotContains(t, w.text(), "10.0.0.7")
		shared.set(func() { shared.away = nil })
		send(g, "/", 1)
		after(time.Second)
		s = follow(t, w.events(t))
		require.Equal(t, "ok", s.state)
		require.Equal(t, -1.0, s.rows["far"].B, "an outage is told of for as long as charts show it")
		after(15 * time.Minute)
		require.InDelta(t, 30, follow(t, w.events(t)).rows["far"].B, 0.5)

		shared.set(func() { shared.via = limiter.ViaFallback })
		send(g, "/", 1)
		after(time.Second)
		require.Equal(t, -2.0, follow(t, w.events(t)).rows["far"].B)
		leave()
		synctest.Wait()
	})
}

// What limiters tell is there: stores, breakers, tables, leases and adaptive limits, all of it bounded.
func TestWhatLimitersTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		g := newGuard(t, p, nil, policy("a", "9/s"))
		p.Watch(g, nil)
		w, leave, _ := view(p, nil)
		for k := range 99 {
			p.Observe(limiter.Event{Kind: limiter.EventStore, Name: "redis", Duration: time.Duration(k+1) * time.Millisecond})
		}
		p.Observe(limiter.Event{Kind: limiter.EventStore, Name: "redis", Duration: 2 * time.Second, Err: errors.New("of alice"), Reason: "timeout"})
		p.Observe(limiter.Event{Kind: limiter.EventBreaker, Name: "redis", State: limiter.BreakerOpen, Err: errors.New("of alice")})
		p.Observe(limiter.Event{Kind: limiter.EventMemory, Name: "own", Keys: 7, Overflow: 1})
		p.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a", Keys: 3, Leases: &limiter.Leases{Units: 5, Late: 0.25, LateBound: 0.5}})
		p.Observe(limiter.Event{Kind: limiter.EventAdapt, Policy: "a", Decision: limiter.Decision{Limit: limiter.Limit{Burst: 7}}, Reason: "fallback_cpu"})
		p.Observe(limiter.Event{Kind: limiter.EventReload, Reason: limiter.ReasonInvalid, Err: errors.New("of alice")})
		after(1100 * time.Millisecond)
		s := follow(t, w.events(t))
		require.Len(t, s.last.Stores, 2)
		redis, own := s.last.Stores[0], s.last.Stores[1]
		require.Equal(t, "redis", redis["name"])
		require.Equal(t, "open", redis["breaker"])
		require.Equal(t, 100.0, redis["calls"])
		require.Equal(t, 1.0, redis["failed"])
		require.Equal(t, "timeout", redis["cause"])
		require.InDelta(t, 50, redis["p50"], 25, "within a factor of 1.5")
		require.GreaterOrEqual(t, redis["p99"], 99.0)
		require.Equal(t, 7.0, own["keys"])
		require.Contains(t, s.about["a"].Leases, "3 held, 5 units")
		require.Equal(t, "7 in flight: the fixed limit is in force (cpu)", s.about["a"].Adaptive)
		require.Equal(t, "away", s.state)
		require.NotContains(t, w.text(), "alice")
		for k := range 5000 {
			p.Observe(limiter.Event{Kind: limiter.EventStore, Name: fmt.Sprint("s", k), Duration: 1})
			p.Observe(limiter.Event{Kind: limiter.EventBreaker, Name: fmt.Sprint("b", k)})
			p.Observe(limiter.Event{Kind: limiter.EventMemory, Name: strings.Repeat("x", 10000) + fmt.Sprint(k)})
			p.Observe(limiter.Event{Kind: limiter.EventDecision, Policy: fmt.Sprint("p", k)})
		}
		p.Observe(limiter.Event{Kind: limiter.EventBreaker, Name: "redis", State: limiter.BreakerClosed})
		after(time.Second)
		s = follow(t, w.events(t))
		require.LessOrEqual(t, len(s.last.Stores), 33+32+32)
		require.Len(t, s.rows, 1)
		leave()
		synctest.Wait()
	})
}

// Names and errors can be anything, and are data.
func TestHostileTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const evil = "<img src=x onerror=alert(1)>\n\ndata: x\r\n\u2028"
		p := newPage(t, live.Config{Title: evil})
		p.Watch(newGuard(t, p, nil, policy("a", "9/s")), func() live.Status {
			return live.Status{Source: evil, Hash: evil, Error: evil + strings.Repeat("é", 5000), Changes: []string{evil}, Warnings: make([]string, 1000)}
		})
		p.Observe(limiter.Event{Kind: limiter.EventStore, Name: evil, Reason: evil, Err: errors.New(evil)})
		after(1100 * time.Millisecond)
		w, leave, _ := view(p, nil)
		require.NotContains(t, w.text(), "<img")
		x := w.events(t)[0].told(t)
		require.Equal(t, evil, x.Document.Source)
		require.Less(t, len(x.Document.Error), 5000)
		require.Len(t, x.Document.Warnings, 101)
		leave()
		synctest.Wait()
	})
}

func TestWhoMayLook(t *testing.T) {
	p := newPage(t, live.Config{})
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"this machine":        {func(*http.Request) {}, 200},
		"by its address":      {func(r *http.Request) { r.Host = "127.0.0.1:80" }, 200},
		"version 6":           {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:9", "[::1]:80" }, 200},
		"mapped":              {func(r *http.Request) { r.RemoteAddr = "[::ffff:127.0.0.1]:9" }, 200},
		"below localhost":     {func(r *http.Request) { r.Host = "a.localhost" }, 200},
		"another machine":     {func(r *http.Request) { r.RemoteAddr = "192.0.2.1:9" }, 403},
		"another name":        {func(r *http.Request) { r.Host = "evil.example" }, 403},
		"another address":     {func(r *http.Request) { r.Host = "10.0.0.1" }, 403},
		"no name":             {func(r *http.Request) { r.Host = "" }, 403},
		"no address":          {func(r *http.Request) { r.RemoteAddr = "@" }, 403},
		"through a proxy":     {func(r *http.Request) { r.Header.Set("X-Forwarded-For", "") }, 403},
		"Forwarded":           {func(r *http.Request) { r.Header.Set("Forwarded", "for=x") }, 403},
		"Via":                 {func(r *http.Request) { r.Header.Set("Via", "1.1 x") }, 403},
		"X-Real-IP":           {func(r *http.Request) { r.Header.Set("X-Real-IP", "::1") }, 403},
		"a page of another":   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"in a frame of it":    {func(r *http.Request) { setFetch(r, "cross-site", "navigate", "iframe") }, 403},
		"a link from another": {func(r *http.Request) { setFetch(r, "cross-site", "navigate", "document") }, 200},
		"itself":              {func(r *http.Request) { setFetch(r, "same-origin", "cors", "empty") }, 200},
	} {
		for _, path := range []string{"/live/", "/live/app.js", "/live/uplot.css"} {
			r, w := local(http.MethodGet, path), httptest.NewRecorder()
			c.change(r)
			p.ServeHTTP(w, r)
			require.Equal(t, c.want, w.Code, "%s %s", name, path)
		}
	}
	asked := 0
	p = newPage(t, live.Config{Authorize: func(r *http.Request) bool {
		asked++
		return r.Header.Get("Cookie") == "yes"
	}})
	for _, path := range []string{"/", "/app.js", "/events", "/nothing"} {
		r, w := local(http.MethodGet, path), httptest.NewRecorder()
		p.ServeHTTP(w, r)
		require.Equal(t, 403, w.Code, path)
	}
	require.Equal(t, 4, asked)
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	r.Header.Set("Cookie", "yes")
	p.ServeHTTP(w, r)
	require.Equal(t, 200, w.Code, "from wherever")
}

func setFetch(r *http.Request, site, mode, dest string) {
	r.Header.Set("Sec-Fetch-Site", site)
	r.Header.Set("Sec-Fetch-Mode", mode)
	r.Header.Set("Sec-Fetch-Dest", dest)
}

func TestFiles(t *testing.T) {
	p := newPage(t, live.Config{})
	get := func(r *http.Request) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "+
			"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'", w.Header().Get("Content-Security-Policy"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		return w
	}
	for path, contentType := range map[string]string{
		"/live/": "text/html", "/a/b/live/app.js": "text/javascript", "/charts.js": "text/javascript", "/table.js": "text/javascript", "/uplot.js": "text/javascript",
		"/app.css": "text/css", "/uplot.css": "text/css", "/icon.svg": "image/svg+xml", "/uplot.LICENSE": "text/plain",
	} {
		w := get(local(http.MethodGet, path))
		require.Equal(t, 200, w.Code, path)
		require.True(t, strings.HasPrefix(w.Header().Get("Content-Type"), contentType), path)
		require.NotEmpty(t, w.Body.String())
		require.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
		r := local(http.MethodGet, path)
		r.Header.Set("If-None-Match", w.Header().Get("Etag"))
		again := get(r)
		require.Equal(t, http.StatusNotModified, again.Code, path)
		require.Empty(t, again.Body.String())
		head := get(local(http.MethodHead, path))
		require.Equal(t, 200, head.Code)
		require.Empty(t, head.Body.String())
		for _, method := range []string{http.MethodPost, http.MethodOptions, http.MethodDelete, "FOO"} {
			w := get(local(method, path))
			require.Equal(t, http.StatusMethodNotAllowed, w.Code)
			require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
	}
	for _, path := range []string{"/live/nothing", "/live", "/live/index.html", "/live/assets", "/live/app.jsx"} {
		require.Equal(t, http.StatusNotFound, get(local(http.MethodGet, path)).Code, path)
	}
	require.Equal(t, 200, get(local(http.MethodHead, "/events")).Code)
	html := get(local(http.MethodGet, "/")).Body.String()
	for _, bad := range []string{"style=", "<style", "onclick", "onload", "http://", "https://", `href="/`, `src="/`} {
		require.NotContains(t, html, bad, "what the policy of contents forbids, or another host")
	}

	// Stripped or not, what the page names is beside it.
	stripped := http.StripPrefix("/ops/live", p)
	w := httptest.NewRecorder()
	stripped.ServeHTTP(w, local(http.MethodGet, "/ops/live/app.js"))
	require.Equal(t, 200, w.Code)
	for uri, want := range map[string]string{"/ops/live": "./live/", "/ops/live?x=//evil": "./live/"} {
		w = httptest.NewRecorder()
		r := local(http.MethodGet, uri)
		stripped.ServeHTTP(w, r)
		require.Equal(t, http.StatusPermanentRedirect, w.Code)
		require.Equal(t, want, w.Header().Get("Location"))
	}
}
