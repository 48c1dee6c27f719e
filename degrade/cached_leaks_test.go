package degrade_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
)

// Faults of other response caches, each once.

// Spring Cloud Gateway, CVE-2026-59426: the route was no part of the key, so one route's answer was served on another.
func TestLeakRouteIsPartOfTheKey(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, answers(200, "restricted", "Cache-Control: public"))
	s.route = "/admin/{rest...}"
	s.allow(fetch("/x"))
	require.Equal(t, "restricted", copyOf(s.refuse(fetch("/x"))))
	s.route = "/{rest...}"
	require.Nil(t, s.refuse(fetch("/x")))
	s.route, s.policy = "/admin/{rest...}", "other"
	require.Nil(t, s.refuse(fetch("/x")), "nor of another policy")
}

// Spring Cloud Gateway, CVE-2026-59427: Cache-Control was compared as a whole, so "private, no-store" was stored.
func TestLeakCombinedDirectives(t *testing.T) {
	for _, control := range []string{"private, no-store", "No-Store,private", "max-age=60 , private", "public,private", `ext="x", private`, "\tprivate"} {
		s := newSite(t, degrade.PagesConfig{}, answers(200, "mine", "Cache-Control: "+control))
		s.allow(fetch("/"))
		require.Nil(t, s.refuse(fetch("/")), control)
	}
}

// APISIX #13831: a crafted path made the key of another entry and variant.
func TestLeakCraftedKey(t *testing.T) {
	p := degrade.NewPages(degrade.PagesConfig{Partition: byIdentity})
	word := rapid.StringOfN(rapid.SampledFrom([]rune("a/:|\x00\x01\x02é")), 0, 4, -1)
	type parts struct{ policy, route, host, path, query, forwarded, partition string }
	draw := func(t *rapid.T, label string) parts {
		var x parts
		for _, at := range []*string{&x.policy, &x.route, &x.host, &x.path, &x.query, &x.forwarded, &x.partition} {
			*at = word.Draw(t, label)
		}
		return x
	}
	key := func(x parts) (string, string) {
		r := &http.Request{Method: "GET", Host: x.host, URL: &url.URL{Path: x.path, RawQuery: x.query}, Header: http.Header{"X-Identity": {x.partition}}}
		if x.forwarded != "" {
			r.Header["X-Forwarded-Host"] = []string{x.forwarded}
		}
		return p.Address(r, x.policy, x.route)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		if rapid.Bool().Draw(t, "alike") { // moves one boundary
			b = a
			b.path, b.query = a.path+a.query, ""
			if rapid.Bool().Draw(t, "more") {
				b.policy, b.route = a.policy+a.route, ""
			}
		}
		privateA, sharedA := key(a)
		privateB, sharedB := key(b)
		require.Equal(t, a == b, privateA == privateB, "%q and %q", a, b)
		alike := a
		alike.partition = b.partition
		require.Equal(t, alike == b, sharedA == sharedB, "%q and %q", a, b)
		if a.partition != "" {
			require.NotEqual(t, privateA, sharedB, "a partition is no part of an address")
		}
	})
	names := []string{"A", "B"}
	values := func(a, b string) func(string) []string {
		return func(name string) []string { return map[string][]string{"A": {a}, "B": {b}}[name] }
	}
	require.NotEqual(t, degrade.Variant(names, values("x", "yz")), degrade.Variant(names, values("xy", "z")))
	require.NotEqual(t, degrade.Variant(names, values("x\x00\x01B", "")), degrade.Variant(names, values("x", "B")))
	require.NotEqual(t, degrade.Variant(names, values("x\x01B\x01y", "")), degrade.Variant(names, values("x", "y\x01B\x01")))
	absent := func(string) []string { return nil }
	empty := func(string) []string { return []string{""} }
	require.NotEqual(t, degrade.Variant(names, absent), degrade.Variant(names, empty))
	joined := func(string) []string { return []string{"x, y"} }
	lines := func(string) []string { return []string{" x", "y\t"} }
	require.Equal(t, degrade.Variant(names, joined), degrade.Variant(names, lines))
}

// Kong #12867: compressed and plain bodies of an origin that forgot Vary were mixed.
func TestLeakCompressedToThoseWhoCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "gzip" {
				_, _ = io.WriteString(w, "plain")
				return
			}
			r.Header.Del("Accept-Encoding") // as some compressors do, for what is further in
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "gzip")
		})
		s.allow(fetch("/", "Accept-Encoding: gzip"))
		require.Equal(t, "gzip", copyOf(s.refuse(fetch("/", "Accept-Encoding: gzip"))))
		require.Nil(t, s.refuse(fetch("/")))
		require.Nil(t, s.refuse(fetch("/", "Accept-Encoding: br")))
		s.allow(fetch("/"))
		require.Equal(t, "plain", copyOf(s.refuse(fetch("/"))))
		require.Equal(t, "gzip", copyOf(s.refuse(fetch("/", "Accept-Encoding: gzip"))))
	})
}

// Souin #192: Vary was passed over.
func TestLeakVary(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "accept-language , X-Tenant")
		_, _ = io.WriteString(w, r.Header.Get("Accept-Language")+r.Header.Get("X-Tenant"))
	})
	s.allow(fetch("/", "Accept-Language: de", "X-Tenant: a"))
	require.Equal(t, "dea", copyOf(s.refuse(fetch("/", "Accept-Language: de", "X-Tenant: a"))))
	for _, other := range [][]string{
		nil,
		{"Accept-Language: de"},
		{"Accept-Language: de", "X-Tenant: b"},
		{"Accept-Language: d", "X-Tenant: ea"},
		{"Accept-Language: de", "X-Tenant: a", "X-Tenant: b"},
	} {
		require.Nil(t, s.refuse(fetch("/", other...)), other)
	}
	// At most 8, the oldest goes.
	for i := range 9 {
		for range 2 { // again is no other
			s.allow(fetch("/", fmt.Sprintf("X-Tenant: %d", i)))
		}
	}
	require.Nil(t, s.refuse(fetch("/", "X-Tenant: 0")))
	for i := 1; i < 9; i++ {
		require.Equal(t, fmt.Sprint(i), copyOf(s.refuse(fetch("/", fmt.Sprintf("X-Tenant: %d", i)))))
	}
}

// An origin that names more fields than before, or forgets one, makes no older copy fit more requests.
func TestLeakVaryThatChanges(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, answers(200, "for all"))
	s.allow(fetch("/"))
	s.origin = answers(200, "for a", "Vary: X-Tenant")
	s.allow(fetch("/", "X-Tenant: a"))
	require.Nil(t, s.refuse(fetch("/", "X-Tenant: b")), "the origin says that this depends")
	require.Nil(t, s.refuse(fetch("/")))
	s.origin = answers(200, "for c")
	s.allow(fetch("/", "X-Tenant: c"))
	require.Equal(t, "for a", copyOf(s.refuse(fetch("/", "X-Tenant: a"))))
	require.Equal(t, "for c", copyOf(s.refuse(fetch("/", "X-Tenant: c"))))
	require.Nil(t, s.refuse(fetch("/", "X-Tenant: b")))
}

// Souin #806, and gin-cache v1.10.0: Bob got Alice's body and her Set-Cookie, and a POST the GET.
func TestLeakBobAndAlice(t *testing.T) {
	for name, fields := range map[string][]string{
		"by cookie": {"Cookie: sid="}, "by token": {"Authorization: Bearer "},
	} {
		for _, response := range [][]string{{"Set-Cookie: sid=new"}, {"Cache-Control: private, no-store"}, nil, {"Cache-Control: public", "Set-Cookie: sid=new"}} {
			s := newSite(t, degrade.PagesConfig{}, answers(200, "alice's", response...))
			s.allow(fetch("/me", fields[0]+"alice"))
			require.Nil(t, s.refuse(fetch("/me", fields[0]+"bob")), name)
			require.Nil(t, s.refuse(fetch("/me", fields[0]+"alice")), name)
			require.Nil(t, s.refuse(fetch("/me")), name)
		}
	}
	s := newSite(t, degrade.PagesConfig{}, answers(200, "page", "Cache-Control: public"))
	s.allow(fetch("/"))
	require.Nil(t, s.refuse(cacheRequest("POST", "/")))
}

// APISIX #13350: copies of one consumer were served to another.
func TestLeakConsumers(t *testing.T) {
	cfg := degrade.PagesConfig{Partition: byIdentity, Log: slog.New(slog.DiscardHandler)}
	s := newSite(t, cfg, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("X-Identity")) })
	for _, who := range []string{"alice", "bob"} {
		s.allow(fetch("/me", "X-Identity: "+who, "Authorization: Bearer "+who))
	}
	for _, who := range []string{"alice", "bob"} {
		require.Equal(t, who, copyOf(s.refuse(fetch("/me", "X-Identity: "+who))))
	}
	for _, other := range [][]string{
		nil, {"X-Identity: carol"}, {"Authorization: Bearer alice"}, {"X-Identity: panic"}, {"X-Identity: skip"}, {"X-Identity: alic"},
	} {
		require.Nil(t, s.refuse(fetch("/me", other...)), other)
	}
}

// nginx mailing list 2010-07, X-Accel-Expires: a page stored once by mistake was served on and on.
func TestLeakStoredByMistake(t *testing.T) {
	for _, later := range []string{"X-Accel-Expires: 0", "Cache-Control: no-store", "Cache-Control: private", "Set-Cookie: a=b", "Pragma: no-cache", "Vary: *"} {
		s := newSite(t, degrade.PagesConfig{}, answers(200, "by mistake", "Cache-Control: public, max-age=86400"))
		s.allow(fetch("/"))
		s.origin = answers(200, "right", later)
		s.allow(fetch("/"))
		require.Nil(t, s.refuse(fetch("/")), later)
	}
}

// A host that a proxy forwards decides links and tenants. Whoever forges one must not decide what others get.
func TestLeakForgedHost(t *testing.T) {
	for _, forged := range []string{
		"X-Forwarded-Host: evil", "X-Forwarded-Proto: http", "X-Original-URL: /admin", "X-Rewrite-URL: /admin", "Forwarded: for=1.2.3.4;host=evil",
	} {
		s := newSite(t, degrade.PagesConfig{}, answers(200, forged))
		s.allow(fetch("/", forged))
		require.Nil(t, s.refuse(fetch("/")), forged)
		require.Nil(t, s.refuse(fetch("/", "Forwarded: for=1.2.3.4", "X-Forwarded-Host: good")), forged)
		require.Equal(t, forged, copyOf(s.refuse(fetch("/", forged))))
	}
	s := newSite(t, degrade.PagesConfig{}, answers(200, "page"))
	s.allow(fetch("/", "Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4"))
	require.Equal(t, "page", copyOf(s.refuse(fetch("/", "Forwarded: for=5.6.7.8", "X-Forwarded-For: 5.6.7.8"))), "clients are not told apart by their addresses")
}

// kubestellar/console #17160: what is generated must not be taken for the page by other caches; a copy is the page.
func TestLeakCacheControlIsThatOfTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, degrade.PagesConfig{}, answers(200, "page", "Cache-Control: public, max-age=300"))
		s.allow(fetch("/"))
		time.Sleep(310 * time.Second)
		rec := s.refuse(fetch("/"))
		require.Equal(t, []string{"public, max-age=300"}, rec.Header()["Cache-Control"])
		require.Equal(t, "310", rec.Header().Get("Age"), "and by its age no other cache takes it for fresh")
	})
}

// colophon-group/jobseek #8261: the quota of one caller was told to the next. And everything else of one exchange.
func TestLeakFieldsOfOneExchange(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, r *http.Request) {
		setFields(w.Header(), []string{
			`RateLimit: "default";r=5;t=9`, "RateLimit-Policy: old", "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 5", "X-RateLimit-Reset: 9", "X-Rate-Limit-Remaining: 5",
			"Retry-After: 9", "Connection: close, X-Hop", "X-Hop: 1", "Keep-Alive: 1", "Proxy-Authenticate: x", "TE: x", "Trailer: X-Sum", "Upgrade: h2c",
			"X-Request-Id: 1", "Traceparent: 1", "Tracestate: 1", "X-B3-TraceId: 1", "Server-Timing: db", "Warning: 110 - x", "Age: 3", "X-CSRF-Token: 1",
			"Access-Control-Allow-Origin: https://one.example", "Access-Control-Allow-Credentials: true", "X-Kept: 1", "Date: " + time.Now().UTC().Format(http.TimeFormat),
		})
		w.Header()["x-ratelimit-used"] = []string{"5"} // as the server would send it
		_, _ = io.WriteString(w, "page")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
	})
	s.allow(fetch("/"))
	rec := s.refuse(fetch("/"))
	require.Equal(t, "page", copyOf(rec))
	h := rec.Header()
	require.Equal(t, []string{`"default";r=0;t=60`}, h["Ratelimit"], "fresh")
	for _, name := range []string{"Ratelimit", "Age", "Cache-Status", "Content-Length", "Content-Type", "Date", "X-Kept"} {
		require.NotEmpty(t, h[name], name)
		delete(h, name)
	}
	require.Empty(t, h)

	for vary, want := range map[string]string{"Origin": "https://one.example", "Accept": ""} {
		s := newSite(t, degrade.PagesConfig{}, answers(200, "page", "Vary: "+vary, "Access-Control-Allow-Origin: https://one.example"))
		s.allow(fetch("/", "Origin: https://one.example"))
		require.Equal(t, want, s.refuse(fetch("/", "Origin: https://one.example")).Header().Get("Access-Control-Allow-Origin"))
	}
	s = newSite(t, degrade.PagesConfig{}, answers(200, "page", "Access-Control-Allow-Origin: *"))
	s.allow(fetch("/"))
	require.Equal(t, "*", s.refuse(fetch("/")).Header().Get("Access-Control-Allow-Origin"))
}

// neatnik/omg.lol #635: 401 and 200 of one address were mixed between users.
func TestLeakAnonymousAndNot(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{Partition: byIdentity}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Identity") == "" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "secret")
	})
	for range 2 {
		s.allow(fetch("/", "X-Identity: alice"))
		s.allow(fetch("/"))
	}
	require.Nil(t, s.refuse(fetch("/")))
	require.Equal(t, "secret", copyOf(s.refuse(fetch("/", "X-Identity: alice"))))
}

// A list of parameters leaves out what makes no difference, and never a token that says who asks.
func TestLeakQuery(t *testing.T) {
	ask := func(list []string, first, second string) string {
		s := newSite(t, degrade.PagesConfig{Query: list}, answers(200, "page"))
		s.allow(fetch("/?" + first))
		return copyOf(s.refuse(fetch("/?" + second)))
	}
	for _, c := range []struct {
		list          []string
		first, second string
		want          string
	}{
		{nil, "a=1", "a=1", "page"},
		{nil, "a=1", "a=2", "refused"},
		{nil, "a=1&b=2", "b=2&a=1", "refused"},
		{nil, "", "a", "refused"},
		{[]string{"a"}, "a=1&utm=2", "utm=3&a=1", "page"},
		{[]string{"a"}, "a=1&a=2", "a=2&a=1", "refused"},
		{[]string{"a"}, "a=1", "%61=1", "refused"},
		{[]string{"a"}, "a=1;utm=1", "a=1;utm=2", "refused"},
		{[]string{"a"}, "x;a=1", "x;a=2", "refused"},
		{[]string{"a"}, "%zz=1", "%zz=2", "refused"},
		{[]string{"a"}, "a=1&access_token=x", "a=1", "refused"},
		{[]string{"a"}, "a=1", "a=1&Access_Token=x", "refused"},
		{[]string{}, "a=1", "b=1", "page"},
	} {
		require.Equal(t, c.want, ask(c.list, c.first, c.second), "%q: %s, %s", c.list, c.first, c.second)
	}
}
