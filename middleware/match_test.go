package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// matched reports whether a policy with that Match sees the request. DenyAll makes it visible.
func matched(tb testing.TB, m match, r *http.Request, e middleware.Entry) bool {
	tb.Helper()
	g := guardOf(tb, policy{Name: "m", Limit: limiter.DenyAll, Match: m})
	v, err := g.Peek(r, e)
	require.NoError(tb, err)
	return !v.Allowed
}

func routed(tb testing.TB, pattern string, r *http.Request) bool {
	tb.Helper()
	return matched(tb, match{Routes: []string{pattern}}, r, middleware.Entry{})
}

// served reports whether a mux with that one pattern serves the request, behind the redirects that clean its path.
func served(pattern string, r *http.Request) (yes, redirected bool) {
	hit := false
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) { hit = true })
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return hit, w.Code/100 == 3
}

func TestRoutesAreThoseOfServeMux(t *testing.T) {
	for _, c := range []struct {
		pattern, method, target string
		want                    bool
	}{
		{"/", "GET", "/", true},
		{"/", "POST", "/a/b", true},
		{"/{$}", "GET", "/", true},
		{"/{$}", "GET", "/a", false},
		{"/api/", "GET", "/api/", true},
		{"/api/", "GET", "/api/x/y", true},
		{"/api/", "GET", "/api", false}, // a redirect of the mux
		{"/api/", "GET", "/apis", false},
		{"/api", "GET", "/api", true},
		{"/api", "GET", "/api/", false},
		{"/a/{$}", "GET", "/a/", true},
		{"/a/{$}", "GET", "/a/b", false},
		{"/a/{x}", "GET", "/a/b", true},
		{"/a/{x}", "GET", "/a/", false},
		{"/a/{x}", "GET", "/a/b/c", false},
		{"/a/{x}/c", "GET", "/a/b/c", true},
		{"/a/{x...}", "GET", "/a/", true},
		{"/a/{x...}", "GET", "/a/b/c", true},
		{"/a/{x...}", "GET", "/a", false},
		{"/{x...}", "GET", "/", true},
		{"GET /a", "GET", "/a", true},
		{"GET /a", "HEAD", "/a", true},
		{"GET /a", "POST", "/a", false},
		{"HEAD /a", "GET", "/a", false},
		{"POST /a", "POST", "/a", true},
		{"GET\t/a", "GET", "/a", true},
		{"GET  /a", "GET", "/a", true},
		{"example.com/a", "GET", "http://example.com/a", true},
		{"example.com/a", "GET", "http://example.com:8080/a", true},
		{"example.com/a", "GET", "http://www.example.com/a", false},
		{"GET\texample.com/a", "GET", "http://other.example/a", false},
		{"/a/{x}", "GET", "/a/b%2Fc", true},
		{"/a/b/c", "GET", "/a/b%2Fc", true}, // as Gin reads it
		{"/a/b%2Fc", "GET", "/a/b%2Fc", true},
		{"/a/b%2Fc", "GET", "/a/b/c", false},
		{"/a/{x}", "GET", "/a/%2F", true}, // as Echo reads it; ServeMux takes it for the end
		{"/a/{$}", "GET", "/a/%2F", true},
		{"/a/%2F", "GET", "/a/", true},
		{"/a/{x}/b", "GET", "/a/%2F/b", true},
		{"/a/{x...}", "GET", "/a/%2F/b", true},
		{"/caf%C3%A9", "GET", "/caf%c3%a9", true},
		{"/a b", "GET", "/a%20b", false}, // refused as a pattern
		{"/a%20b", "GET", "/a%20b", true},
		{"/a%25b", "GET", "/a%25b", true},
		{"/LANG", "GET", "/lang", false},
		{"/lang/", "GET", "/lang/", true},
	} {
		r := request(c.method, c.target)
		if strings.HasPrefix(c.pattern, "/a b") {
			_, err := middleware.New(config{Policies: with(func(p *policy) { p.Match.Routes = []string{c.pattern} })})
			require.Error(t, err)
			continue
		}
		require.Equal(t, c.want, routed(t, c.pattern, r), "%s: %s %s", c.pattern, c.method, c.target)
		yes, redirect := served(c.pattern, r)
		if !redirect && isPlain(r) {
			require.Equal(t, c.want, yes, "oracle of %s: %s %s", c.pattern, c.method, c.target)
		}
		require.True(t, c.want || !yes, "oracle of %s: %s %s", c.pattern, c.method, c.target)
	}
	// What the mux redirects is a request for the cleaned path.
	for _, target := range []string{"/a//b", "/a/./b", "/a/x/../b", "//a/b", "/../a/b"} {
		require.True(t, routed(t, "/a/b", request("GET", target)), target)
	}
}

// isPlain reports whether all routers read the path of r alike.
func isPlain(r *http.Request) bool {
	p := r.URL.Path
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return r.URL.RawPath == "" && clean == p
}

// For any one pattern and plain request the guard says what a mux with that pattern would do. Of other paths it marks
// what any router might make of them, and never less than the mux.
func TestRoutesAgreeWithServeMux(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "a", "b", "", ".", "..", "%2F", "a%2Fb", "%2e%2e", "%61", "é", "%25", "a:b", "{x}", "*"})
	rapid.Check(t, func(rt *rapid.T) {
		part := rapid.SampledFrom([]string{"a", "b", "{x}", "{y}", "a%2Fb", "%61", "%25"})
		parts := rapid.SliceOfN(part, 0, 3).Draw(rt, "parts")
		seen := map[string]bool{}
		for k, p := range parts {
			if seen[p] && strings.HasPrefix(p, "{") {
				parts[k] = "b"
			}
			seen[p] = true
		}
		pattern := rapid.SampledFrom([]string{"", "", "GET ", "POST ", "GET\t", "HEAD ", "OPTIONS  "}).Draw(rt, "method") +
			rapid.SampledFrom([]string{"", "", "", "a.example", "b.example"}).Draw(rt, "host") + "/" + strings.Join(parts, "/")
		if len(parts) > 0 {
			pattern += rapid.SampledFrom([]string{"", "", "/", "/{$}", "/{z...}"}).Draw(rt, "end")
		} else {
			pattern += rapid.SampledFrom([]string{"", "{$}", "{z...}"}).Draw(rt, "end")
		}
		target := "/" + strings.Join(rapid.SliceOfN(segment, 0, 4).Draw(rt, "path"), "/")
		method := rapid.SampledFrom([]string{"GET", "GET", "HEAD", "POST", "OPTIONS", "PROPFIND"}).Draw(rt, "request method")
		host := rapid.SampledFrom([]string{"a.example", "b.example:8080", "c.example"}).Draw(rt, "request host")

		r := request(method, "/")
		u, err := r.URL.Parse("http://" + host + target)
		if err != nil {
			rt.Skip(err)
		}
		r.URL, r.Host = u, host
		got := routed(t, pattern, r)
		want, redirect := served(pattern, r)
		if redirect {
			// Either to the cleaned path, which is what the guard matches, or to /x/ for /x, which no pattern matches.
			mux := http.NewServeMux()
			mux.Handle(pattern, ok)
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			loc, err := r.URL.Parse(w.Header().Get("Location"))
			require.NoError(rt, err)
			again := request(method, "/")
			again.URL, again.Host = loc, host
			if want, redirect = served(pattern, again); redirect || loc.Path != "/" && strings.HasSuffix(loc.Path, "/") && !strings.HasSuffix(u.Path, "/") {
				return
			}
			// The mux sends the path on unescaped, so an escaped slash or dot is another path afterwards.
			if strings.Contains(target, "%") {
				return
			}
		}
		if isPlain(r) {
			require.Equal(rt, want, got, "%q: %s %s%s", pattern, method, host, target)
		}
		require.True(rt, got || !want, "%q: %s %s%s", pattern, method, host, target)
	})
}

// framework is an adapter's knowledge of a route.
type framework struct {
	route string
	asked *int
}

func (f framework) Route() string {
	if f.asked != nil {
		*f.asked++
	}
	return f.route
}
func (framework) Param(string) string      { return "" }
func (framework) Value(string) (any, bool) { return nil, false }

func TestRoutesMatchTheFrameworksPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, route string
		want           bool
	}{
		{"/users/{id}", "/users/:id", true},
		{"GET /users/{id}", "/users/:id", true},
		{"POST /users/{id}", "/users/:id", false},
		{"/users/{id}", "/users/{id}", true},
		{"/users/{id}/posts", "/users/:id/posts", true},
		{"/users/me", "/users/:id", false},
		{"/users/", "/users/:id", true},
		{"/files/{p...}", "/files/*path", true},
		{"/files/", "/files/*", true},
		{"/files/{p...}", "/files/{rest...}", true},
		{"/files/{name}", "/files/*path", false},
		{"/files", "/files/*path", false},
		{"/", "/anything/:at/*all", true},
		{"/{$}", "/", true},
		{"/a/{$}", "/a/:x", false},
		{"/v/{x}", "/v/v:version", true}, // a parameter with a literal before it
		{"/a/b", "/a/b", true},
		{"/a/b", "", false},
	} {
		r := request("GET", "/no/such/path/at-all")
		if c.pattern == "/" {
			continue
		}
		got := matched(t, match{Routes: []string{c.pattern}}, r, middleware.Entry{Framework: framework{route: c.route}})
		require.Equal(t, c.want, got, "%s for %s", c.pattern, c.route)
	}
	// The path matches where the framework's pattern says less.
	require.True(t, matched(t, match{Routes: []string{"/users/me"}}, request("GET", "/users/me"),
		middleware.Entry{Framework: framework{route: "/users/:id"}}))
}

func TestTheRouteIsAskedForOnlyIfItMatters(t *testing.T) {
	asked := 0
	e := middleware.Entry{Framework: framework{route: "/x/:y", asked: &asked}}
	matched(t, match{}, request("GET", "/x/1"), e)
	matched(t, match{Methods: []string{"GET"}}, request("GET", "/x/1"), e)
	matched(t, match{Routes: []string{"/x/{y}"}}, request("GET", "/x/1"), e)
	require.Zero(t, asked)
	matched(t, match{Routes: []string{"/z"}}, request("GET", "/x/1"), e)
	require.Equal(t, 1, asked)
}

func TestMatchFields(t *testing.T) {
	trusting := keyfunc.Trust{}
	for name, c := range map[string]struct {
		m       match
		request func() *http.Request
		want    bool
	}{
		"empty":             {match{}, func() *http.Request { return request("GET", "/") }, true},
		"method":            {match{Methods: []string{"POST", "PUT"}}, func() *http.Request { return request("PUT", "/") }, true},
		"other method":      {match{Methods: []string{"POST"}}, func() *http.Request { return request("GET", "/") }, false},
		"HEAD is GET":       {match{Methods: []string{"GET"}}, func() *http.Request { return request("HEAD", "/") }, true},
		"GET is not HEAD":   {match{Methods: []string{"HEAD"}}, func() *http.Request { return request("GET", "/") }, false},
		"host":              {match{Hosts: []string{"API.example"}}, func() *http.Request { return request("GET", "http://api.EXAMPLE:81/") }, true},
		"host with a dot":   {match{Hosts: []string{"api.example"}}, func() *http.Request { return request("GET", "http://api.example./") }, true},
		"other host":        {match{Hosts: []string{"api.example"}}, func() *http.Request { return request("GET", "http://example/") }, false},
		"below":             {match{Hosts: []string{"*.example.com"}}, func() *http.Request { return request("GET", "http://a.b.example.com/") }, true},
		"not below itself":  {match{Hosts: []string{"*.example.com"}}, func() *http.Request { return request("GET", "http://example.com/") }, false},
		"not beside":        {match{Hosts: []string{"*.example.com"}}, func() *http.Request { return request("GET", "http://badexample.com/") }, false},
		"no empty label":    {match{Hosts: []string{"*.example.com"}}, func() *http.Request { return request("GET", "http://.example.com/") }, false},
		"address":           {match{CIDRs: []string{"192.0.2.7"}}, func() *http.Request { return request("GET", "/") }, true},
		"network":           {match{CIDRs: []string{"192.0.2.99/24"}}, func() *http.Request { return request("GET", "/") }, true},
		"other network":     {match{CIDRs: []string{"198.51.100.0/24"}}, func() *http.Request { return request("GET", "/") }, false},
		"mapped client":     {match{CIDRs: []string{"192.0.2.0/24"}}, from("[::ffff:192.0.2.7]:80"), true},
		"mapped network":    {match{CIDRs: []string{"::ffff:192.0.2.0/120"}}, from("192.0.2.7:80"), true},
		"mapped is not all": {match{CIDRs: []string{"::ffff:192.0.2.0/120"}}, from("192.0.3.7:80"), false},
		"IPv6":              {match{CIDRs: []string{"2001:db8::/32"}}, from("[2001:db8::1]:80"), true},
		"IPv6 zone":         {match{CIDRs: []string{"fe80::/10"}}, from("[fe80::1%eth0]:80"), true},
		"unknown client":    {match{CIDRs: []string{"0.0.0.0/0", "::/0"}}, from("@"), false},
		"all must match":    {match{Methods: []string{"GET"}, Hosts: []string{"a.example"}}, func() *http.Request { return request("GET", "http://b.example/") }, false},
		"if":                {match{If: func(r *keyfunc.Request) bool { return r.Method == "GET" }}, func() *http.Request { return request("GET", "/") }, true},
		"if not":            {match{If: func(r *keyfunc.Request) bool { return false }}, func() *http.Request { return request("GET", "/") }, false},
		"if is asked last":  {match{Methods: []string{"POST"}, If: func(*keyfunc.Request) bool { panic("asked") }}, func() *http.Request { return request("GET", "/") }, false},
		"a proxy's word is no client": {match{CIDRs: []string{"203.0.113.9"}}, func() *http.Request {
			r := request("GET", "/")
			r.Header.Set("X-Forwarded-For", "203.0.113.9")
			return r
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, config{ClientIP: trusting, Policies: []policy{
				{Name: "m", Key: keyfunc.Global(), Limit: limiter.DenyAll, Match: c.m},
			}})
			v, err := g.Peek(c.request(), middleware.Entry{})
			require.NoError(t, err)
			require.Equal(t, c.want, !v.Allowed)

			// The same as an exemption, but that the empty one exempts nothing.
			for _, g := range []*middleware.Guard{
				newGuard(t, config{Policies: []policy{{Name: "m", Key: keyfunc.Global(), Limit: limiter.DenyAll, Exempt: c.m}}}),
				newGuard(t, config{Exempt: c.m, Policies: []policy{{Name: "m", Key: keyfunc.Global(), Limit: limiter.DenyAll}}}),
			} {
				v, err := g.Peek(c.request(), middleware.Entry{})
				require.NoError(t, err)
				require.Equal(t, c.want && name != "empty", v.Allowed)
			}
		})
	}
}

func from(remote string) func() *http.Request {
	return func() *http.Request {
		r := request("GET", "/")
		r.RemoteAddr = remote
		return r
	}
}

func preflight() *http.Request {
	r := request("OPTIONS", "/")
	r.Header.Set("Origin", "https://app.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	return r
}

func TestPreflights(t *testing.T) {
	deny := []policy{{Name: "d", Key: keyfunc.IP(), Limit: limiter.DenyAll}}
	g := newGuard(t, config{Policies: deny})
	w := serve(g, preflight(), answer(204))
	require.Equal(t, 204, w.Code)
	require.Empty(t, w.Header())
	require.Equal(t, 429, serve(g, request("OPTIONS", "/"), ok).Code, "no preflight without Origin")
	g = newGuard(t, config{Policies: deny, CountPreflights: true})
	require.Equal(t, 429, serve(g, preflight(), ok).Code)
}

// A guard outside of a mux knows its routes, and behind one takes what the mux has said.
func TestRoutesThroughAMux(t *testing.T) {
	seen := ""
	g := guardOf(t, policy{Name: "r", Limit: perMinute, Key: func(r *keyfunc.Request) (keyfunc.Key, error) {
		seen = r.Route()
		return r.Key("x", "y"), nil
	}})
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", ok)
	r := request("GET", "/users/7")
	p := g.Enter(httptest.NewRecorder(), r, middleware.Entry{Mux: mux})
	require.True(t, p.Proceed())
	require.Equal(t, "/users/{id}", seen)
	require.Empty(t, r.Pattern)

	mux.Handle("GET /inner/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.Serve(w, r, ok) }))
	mux.ServeHTTP(httptest.NewRecorder(), request("GET", "/inner/x"))
	require.Equal(t, "/inner/", seen)
}

// Every rule's bit is found, in configuration order, however many policies there are.
func TestManyPolicies(t *testing.T) {
	var policies []policy
	for k := range 300 {
		p := policy{Name: fmt.Sprintf("p%d", k), Limit: perMinute}
		if k%7 != 0 {
			p.Match.Routes = []string{fmt.Sprintf("GET /r%d/{id}", k%20)}
		}
		policies = append(policies, p)
	}
	g := guardOf(t, policies...)
	for route := range 20 {
		v, err := g.Peek(request("GET", fmt.Sprintf("/r%d/7", route)), middleware.Entry{})
		require.NoError(t, err)
		var got, want []string
		for _, s := range v.Policies {
			got = append(got, s.Policy)
		}
		for k := range 300 {
			if k%7 == 0 || k%20 == route {
				want = append(want, fmt.Sprintf("p%d", k))
			}
		}
		require.Equal(t, want, got)
	}
}

// Policies are found by their routes, not scanned: a request to one of very many routes costs about the same.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{3, 300} {
		b.Run(fmt.Sprintf("policies=%d", n), func(b *testing.B) {
			var policies []policy
			for k := range n {
				policies = append(policies, policy{
					Name: fmt.Sprintf("p%d", k), Limit: limiter.PerSecond(limiter.MaxRate),
					Match: match{Routes: []string{fmt.Sprintf("GET /r%d/{id}", k)}},
				})
			}
			store, err := memory.New(memory.Config{})
			require.NoError(b, err)
			g := newGuard(b, config{Limiter: store, Policies: byIP(policies...)})
			w, r := newQuiet(), request("GET", "/r1/7")
			b.ReportAllocs()
			for b.Loop() {
				w.reset()
				g.Serve(w, r, bare)
			}
		})
	}
}

// What a router, a proxy or a service behind may read as a path of a policy is matched by it.
func TestPathsThatHideInOthers(t *testing.T) {
	g := newGuard(t, config{Policies: byIP(
		policy{Name: "search", Match: match{Routes: []string{"/search"}}, Limit: limiter.DenyAll},
		policy{Name: "item", Match: match{Routes: []string{"/api/{id}/x"}}, Limit: limiter.DenyAll},
	)})
	for target, want := range map[string]int{
		"/search": 429, "/q": 200, "/api/1/x": 429,
		"x:http://h/search": 429, "http:search": 429, "x:http://h/q": 200, "x:http://h/a/../search": 429, "x:http://h/api/1%2f2/x": 429,
		"/q/%2e%2e/api/1%2f2/x": 429, "/q/%2E%2e//api/1%2f2/x": 429, "/%2e/search": 429,
	} {
		r := request("GET", "/")
		u, err := url.Parse(target)
		require.NoError(t, err)
		r.URL = u
		require.Equal(t, want, serve(g, r, ok).Code, target)
	}
}
