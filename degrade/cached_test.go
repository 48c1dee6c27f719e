package degrade_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
)

// What is stored: an allowed request, and what a refused one without credentials gets a second later.
func TestCachedStores(t *testing.T) {
	const page = "page"
	long := strings.Repeat("x", 256<<10)
	type all = degrade.PagesConfig
	for name, c := range map[string]struct {
		cfg    degrade.PagesConfig
		r      *http.Request
		origin http.HandlerFunc
		want   string // "" is a refusal
	}{
		"plain":               {origin: answers(200, page), want: page},
		"public":              {origin: answers(200, page, "Cache-Control: public, max-age=60"), want: page},
		"max-age=0":           {origin: answers(200, page, "Cache-Control: max-age=0"), want: page},
		"no status written":   {origin: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }, want: page},
		"right length":        {origin: answers(200, page, "Content-Length: 4"), want: page},
		"of the longest":      {origin: answers(200, long), want: long},
		"one byte more":       {origin: answers(200, long+"x")},
		"own bound":           {cfg: all{MaxPage: 3}, origin: answers(200, page)},
		"short of its length": {origin: answers(200, page, "Content-Length: 5")},
		"longer than said":    {origin: answers(200, page, "Content-Length: 3")},
		"no length":           {origin: answers(200, page, "Content-Length: many")},
		"two lengths":         {origin: answers(200, page, "Content-Length: 4", "Content-Length: 4")},
		"nothing written":     {origin: func(http.ResponseWriter, *http.Request) {}},
		"empty":               {origin: answers(200, "")},
		"said to be empty":    {origin: answers(200, "", "Content-Length: 0"), want: "-"},
		"panic": {origin: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, page)
			panic(http.ErrAbortHandler)
		}},
		"recovered":            {origin: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pa"); http.Error(w, "no", 500) }},
		"404":                  {origin: answers(404, page)},
		"404 allowed":          {cfg: all{Statuses: []int{200, 404}}, origin: answers(404, page), want: page},
		"301 allowed, no body": {cfg: all{Statuses: []int{301}}, origin: answers(301, "", "Location: /b"), want: "-"},
		"200 not allowed":      {cfg: all{Statuses: []int{301}}, origin: answers(200, page)},
		"500":                  {origin: answers(500, page)},
		"206":                  {origin: answers(206, page, "Content-Range: bytes 0-3/9")},
		"Content-Range":        {origin: answers(200, page, "Content-Range: bytes 0-3/9")},
		"no-store":             {origin: answers(200, page, "Cache-Control: public", "Cache-Control: no-store")},
		"private":              {origin: answers(200, page, "Cache-Control: max-age=60,private")},
		"no-cache":             {origin: answers(200, page, "Cache-Control: no-cache=\"X\"")},
		"must-revalidate":      {origin: answers(200, page, "Cache-Control: max-age=60, must-revalidate")},
		"proxy-revalidate":     {origin: answers(200, page, "Cache-Control: proxy-revalidate")},
		"s-maxage":             {origin: answers(200, page, "Cache-Control: s-maxage=60")},
		"garbage":              {origin: answers(200, page, "Cache-Control: max-age=60;public")},
		"Pragma":               {origin: answers(200, page, "Pragma: no-cache")},
		"Set-Cookie":           {origin: answers(200, page, "Cache-Control: public", "Set-Cookie: a=b")},
		"set-cookie": {origin: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["set-cookie"] = []string{"a=b"}
			_, _ = io.WriteString(w, page)
		}},
		"cache-control": {origin: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["cache-control"] = []string{"private"}
			_, _ = io.WriteString(w, page)
		}},
		"X-Accel-Expires":       {origin: answers(200, page, "X-Accel-Expires: 0")},
		"CDN-Cache-Control":     {origin: answers(200, page, "CDN-Cache-Control: no-store")},
		"Surrogate-Control":     {origin: answers(200, page, `Surrogate-Control: no-store, content="ESI/1.0"`)},
		"Vary: *":               {origin: answers(200, page, "Vary: Accept", "Vary: *")},
		"Vary of 8":             {origin: answers(200, page, "Vary: a,b,c,d", "Vary: e,f,g,h"), want: page},
		"Vary of 9":             {origin: answers(200, page, "Vary: a,b,c,d", "Vary: e,f,g,h,i")},
		"Vary of garbage":       {origin: answers(200, page, "Vary: a b")},
		"event stream":          {origin: answers(200, page, "Content-Type: text/event-stream; charset=utf-8")},
		"of a guard further in": {origin: answers(200, page, "X-RateLimit-Degraded: static")},
		"a copy further in":     {origin: answers(200, page, "Cache-Status: cdn;fwd=miss, ratelimit;hit;ttl=-3")},
		"a copy of another":     {origin: answers(200, page, "Cache-Status: cdn;hit"), want: page},
		"too old":               {origin: answers(200, page, "Cache-Control: max-age=60", "Age: 121")},
		"old":                   {origin: answers(200, page, "Cache-Control: max-age=60", "Age: 118"), want: page},
		"HEAD":                  {r: cacheRequest("HEAD", "/"), origin: answers(200, page)},
		"POST":                  {r: cacheRequest("POST", "/"), origin: answers(200, page, "Cache-Control: public")},
		"body of the request":   {r: httptest.NewRequest("GET", "/", strings.NewReader("query")), origin: answers(200, page)},
		"Range":                 {r: fetch("/", "Range: bytes=0-3"), origin: answers(200, page)},
		"Upgrade":               {r: fetch("/", "Upgrade: websocket"), origin: answers(200, page)},
		"request no-store":      {r: fetch("/", "Cache-Control: no-store"), origin: answers(200, page)},
		"request no-cache":      {r: fetch("/", "Cache-Control: no-cache"), origin: answers(200, page), want: page},
		"request garbage":       {r: fetch("/", "Cache-Control: ;"), origin: answers(200, page)},
		"override":              {r: fetch("/", "X-HTTP-Method-Override: DELETE"), origin: answers(200, page)},
		"degraded": {r: func() *http.Request {
			r := fetch("/")
			return r.WithContext(degrade.NewContext(r.Context(), degrade.Info{Mode: "flag"}))
		}(), origin: answers(200, page)},
		"flushed": {origin: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, page)
			_ = http.NewResponseController(w).Flush()
		}},
		"flushed without a type": {cfg: all{Flushed: true}, origin: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, page)
			w.(http.Flusher).Flush()
		}},
		"flushed with a type": {cfg: all{Flushed: true}, origin: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, page)
			w.(http.Flusher).Flush()
		}, want: page},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, c.cfg, c.origin)
				r := c.r
				if r == nil {
					r = fetch("/")
				}
				s.allow(r)
				time.Sleep(time.Second)
				rec := s.refuse(fetch("/"))
				switch c.want {
				case "":
					require.Nil(t, rec)
				case "-":
					require.Empty(t, copyOf(rec))
				default:
					require.Equal(t, c.want, copyOf(rec))
				}
			})
		})
	}
}

// Who is asked with which credentials, and who gets the copy.
func TestCachedIdentities(t *testing.T) {
	cfg := degrade.PagesConfig{Partition: byIdentity, IgnoreCookies: []string{"_ga", "theme"}, Credentials: []string{"x-session"}, Log: slog.New(slog.DiscardHandler)}
	askers := map[string][]string{
		"nobody":       nil,
		"alice":        {"X-Identity: alice"},
		"alice again":  {"X-Identity: alice", "Authorization: Bearer 2"},
		"bob":          {"X-Identity: bob"},
		"token":        {"Authorization: Bearer 1"},
		"proxy token":  {"Proxy-Authorization: Basic eA=="},
		"key":          {"X-Api-Key: 1"},
		"session":      {"X-Session: 1"},
		"cookie":       {"Cookie: sid=1"},
		"no cookie":    {"Cookie: _ga=1; theme=dark;", "Cookie: _ga=2"},
		"and a cookie": {"Cookie: _ga=1; sid=2"},
		"a comma":      {"Cookie: _ga=1, sid=2"},
		"a quote":      {`Cookie: _ga="1; theme=2"`},
		"broken":       {"X-Identity: panic"},
		"skipped":      {"X-Identity: skip"},
	}
	same := map[string]string{"no cookie": "nobody", "alice again": "alice"}
	who := func(name string) string {
		if n, ok := same[name]; ok {
			return n
		}
		return name
	}
	for _, control := range []string{"", "Cache-Control: max-age=60", "Cache-Control: public"} {
		for first, fields := range askers {
			for second, others := range askers {
				synctest.Test(t, func(t *testing.T) {
					s := newSite(t, cfg, answers(200, "secret", control))
					s.allow(fetch("/", fields...))
					kept := who(first) == "nobody" || who(first) == "alice" || who(first) == "bob"
					want := "refused"
					if strings.Contains(control, "public") || kept && who(first) == who(second) {
						want = "secret"
					}
					require.Equal(t, want, copyOf(s.refuse(fetch("/", others...))), "%q: %s, then %s", control, first, second)
				})
			}
		}
	}
}

func TestCachedServes(t *testing.T) {
	modified := "Last-Modified: Thu, 01 Jan 1998 00:00:00 GMT"
	origin := answers(200, "page", "Content-Type: text/plain", "Cache-Control: max-age=60", `ETag: W/"v1"`, modified, "Content-Language: en", "X-Mine: 1", "Vary: Accept")
	for name, c := range map[string]struct {
		r      *http.Request
		status int // 0: refused
		body   string
	}{
		"GET":                       {fetch("/"), 200, "page"},
		"HEAD":                      {cacheRequest("HEAD", "/"), 200, ""},
		"POST":                      {cacheRequest("POST", "/"), 0, ""},
		"OPTIONS":                   {cacheRequest("OPTIONS", "/"), 0, ""},
		"Range":                     {fetch("/", "Range: bytes=0-1"), 200, "page"},
		"Vary":                      {fetch("/", "Accept: text/html"), 0, ""},
		"If-None-Match":             {fetch("/", `If-None-Match: "v0", "v1"`), 304, ""},
		"If-None-Match, HEAD":       {cacheRequest("HEAD", "/", `If-None-Match: "v1"`), 304, ""},
		"If-None-Match, lines":      {fetch("/", `If-None-Match: "v0"`, `If-None-Match: "v1"`), 304, ""},
		"If-None-Match, any":        {fetch("/", `If-None-Match: *`), 304, ""},
		"If-None-Match, other":      {fetch("/", `If-None-Match: "v2"`, "If-Modified-Since: "+httpDate(0)), 200, "page"},
		"If-Modified-Since":         {fetch("/", "If-Modified-Since: Thu, 01 Jan 1998 00:00:00 GMT"), 304, ""},
		"If-Modified-Since, before": {fetch("/", "If-Modified-Since: Wed, 31 Dec 1997 23:59:59 GMT"), 200, "page"},
		"If-Modified-Since, never":  {fetch("/", "If-Modified-Since: never"), 200, "page"},
		"If-Match":                  {fetch("/", `If-Match: "v1"`), 0, ""},
		"If-Unmodified-Since":       {fetch("/", "If-Unmodified-Since: "+httpDate(0)), 0, ""},
		"no-cache":                  {fetch("/", "Cache-Control: no-cache"), 0, ""},
		"no-store":                  {fetch("/", "Cache-Control: max-age=900", "Cache-Control: no-store"), 0, ""},
		"Pragma":                    {fetch("/", "Pragma: no-cache"), 0, ""},
		"Pragma is older":           {fetch("/", "Pragma: no-cache", "Cache-Control: max-stale"), 200, "page"},
		"max-age met":               {fetch("/", "Cache-Control: max-age=10"), 200, "page"},
		"max-age not met":           {fetch("/", "Cache-Control: max-age=9"), 0, ""},
		"min-fresh met":             {fetch("/", "Cache-Control: min-fresh=50"), 200, "page"},
		"min-fresh not met":         {fetch("/", "Cache-Control: min-fresh=51"), 0, ""},
		"only-if-cached":            {fetch("/", "Cache-Control: only-if-cached"), 200, "page"},
		"Upgrade":                   {fetch("/", "Upgrade: websocket"), 0, ""},
		"override":                  {fetch("/", "X-Method-Override: PUT"), 0, ""},
		"a body":                    {httptest.NewRequest("GET", "/", strings.NewReader("q")), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, degrade.PagesConfig{}, origin)
				s.allow(fetch("/"))
				time.Sleep(10 * time.Second)
				rec := s.refuse(c.r)
				if c.status == 0 {
					require.Nil(t, rec)
					return
				}
				require.NotNil(t, rec)
				require.Equal(t, c.status, rec.Code)
				require.Equal(t, c.body, rec.Body.String())
				want := http.Header{
					"Age": {"10"}, "Cache-Status": {"ratelimit;hit;ttl=50;detail=quota-exceeded"}, "Ratelimit": {`"default";r=0;t=60`},
					"Cache-Control": {"max-age=60"}, "Etag": {`W/"v1"`}, "Vary": {"Accept"}, "X-Mine": {"1"},
					"Date": {time.Now().Add(-10 * time.Second).UTC().Format(http.TimeFormat)},
				}
				if c.status == 200 {
					want["Content-Type"], want["Content-Language"], want["Content-Length"] = []string{"text/plain"}, []string{"en"}, []string{"4"}
					want["Last-Modified"] = []string{strings.TrimPrefix(modified, "Last-Modified: ")}
				}
				require.Equal(t, want, rec.Header())
			})
		})
	}
}

// A response takes older copies away that it speaks against, and leaves those it says nothing of.
func TestCachedRemoves(t *testing.T) {
	const public = "Cache-Control: public, max-age=60"
	nobody, alice, token := []string{}, []string{"X-Identity: alice"}, []string{"Authorization: Bearer 1"}
	for name, c := range map[string]struct {
		first, then []string // who asks
		fields      string   // of the first response
		r           *http.Request
		origin      http.HandlerFunc // of the second one
		want        string           // for the one who asked first
	}{
		"private":                {nobody, nobody, public, nil, answers(200, "new", "Cache-Control: private"), "refused"},
		"no-store":               {nobody, nobody, public, nil, answers(200, "new", "Cache-Control: no-store"), "refused"},
		"Set-Cookie":             {nobody, nobody, public, nil, answers(200, "new", "Set-Cookie: a=b"), "refused"},
		"403":                    {nobody, nobody, public, nil, answers(403, "new"), "refused"},
		"404":                    {nobody, nobody, "", nil, answers(404, "new"), "refused"},
		"410":                    {nobody, nobody, "", nil, answers(410, "new"), "refused"},
		"302":                    {nobody, nobody, "", nil, answers(302, "new"), "refused"},
		"private and too long":   {nobody, nobody, "", nil, answers(200, strings.Repeat("x", 1<<20), "Cache-Control: private"), "refused"},
		"newer":                  {nobody, nobody, "", nil, answers(200, "new"), "new"},
		"too long":               {nobody, nobody, "", nil, answers(200, strings.Repeat("x", 1<<20)), "old"},
		"500":                    {nobody, nobody, "", nil, answers(500, "new", "Cache-Control: no-store"), "old"},
		"503":                    {nobody, nobody, "", nil, answers(503, "new", "Cache-Control: no-store"), "old"},
		"429":                    {nobody, nobody, "", nil, answers(429, "new", "Cache-Control: no-store"), "old"},
		"304":                    {nobody, nobody, "", nil, answers(304, "", "Cache-Control: private"), "old"},
		"206":                    {nobody, nobody, "", nil, answers(206, "ne"), "old"},
		"nothing":                {nobody, nobody, "", nil, func(http.ResponseWriter, *http.Request) {}, "old"},
		"another's private page": {nobody, token, "", nil, answers(200, "new", "Cache-Control: private"), "old"},
		"public no more":         {nobody, token, public, nil, answers(200, "new", "Cache-Control: private"), "refused"},
		"public for whom":        {nobody, token, public, nil, answers(200, "new"), "refused"},
		"nobody's, newer":        {token, nobody, public, nil, answers(200, "new"), "refused"},
		"of a partition":         {alice, alice, "", nil, answers(200, "new", "Cache-Control: private"), "refused"},
		"newer of a partition":   {alice, alice, "", nil, answers(200, "new"), "new"},
		"public now":             {alice, alice, "", nil, answers(200, "new", public), "new"},
		"public to a partition":  {nobody, alice, public, nil, answers(200, "new", "Cache-Control: private"), "refused"},
		"POST":                   {nobody, nil, "", cacheRequest("POST", "/a"), answers(200, ""), "refused"},
		"PUT by a partition":     {alice, nil, "", cacheRequest("PUT", "/a", alice...), answers(204, ""), "refused"},
		"DELETE, other query":    {nobody, nil, "", cacheRequest("DELETE", "/a?x"), answers(303, ""), "refused"},
		"POST of another":        {alice, nil, "", cacheRequest("POST", "/a", token...), answers(200, ""), "refused"},
		"a method of their own":  {nobody, nil, "", cacheRequest("PURGE", "/a"), answers(200, ""), "refused"},
		"an override":            {nobody, nil, "", fetch("/a", "X-Http-Method: DELETE"), answers(200, ""), "refused"},
		"POST without a status":  {nobody, nil, "", cacheRequest("POST", "/a"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }, "refused"},
		"POST that breaks off":   {nobody, nil, "", cacheRequest("POST", "/a"), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, "refused"},
		"POST that fails":        {nobody, nil, "", cacheRequest("POST", "/a"), answers(409, ""), "old"},
		"POST that says nothing": {nobody, nil, "", cacheRequest("POST", "/a"), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "old"},
		"HEAD":                   {nobody, nil, "", cacheRequest("HEAD", "/a"), answers(404, ""), "old"},
		"OPTIONS":                {nobody, nil, "", cacheRequest("OPTIONS", "/a"), answers(204, ""), "old"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, degrade.PagesConfig{Partition: byIdentity}, answers(200, "old", c.fields))
				s.allow(fetch("/a", c.first...))
				require.Equal(t, "old", copyOf(s.refuse(fetch("/a", c.first...))))
				time.Sleep(time.Second)
				s.origin = c.origin
				if c.r == nil {
					c.r = fetch("/a", c.then...)
				}
				s.allow(c.r)
				require.Equal(t, c.want, copyOf(s.refuse(fetch("/a", c.first...))))
			})
		})
	}
}

// A page that was asked for before a write succeeded may show what was before it, even if it is ready later.
func TestCachedWriteMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, degrade.PagesConfig{}, nil)
		write := &site{h: s.h, policy: "writes", route: "/other", origin: answers(200, "")}
		s.origin = func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			write.allow(cacheRequest("POST", "/a"))
			_, _ = io.WriteString(w, "before the write")
		}
		s.allow(fetch("/a"))
		require.Nil(t, s.refuse(fetch("/a")))
		require.Zero(t, s.h.(interface{ Pages() *degrade.Pages }).Pages().Store().(*degrade.MemoryStore).Len(), "nor is it stored for nothing")
		time.Sleep(time.Second)
		s.origin = answers(200, "after")
		s.allow(fetch("/a"))
		require.Equal(t, "after", copyOf(s.refuse(fetch("/a"))))
	})
}

// Conditions are for what would be a 200; RFC 9110 13.2.1.
func TestCachedConditionOnAnotherStatus(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{Statuses: []int{404}}, answers(404, "none", `ETag: "v1"`))
	s.allow(fetch("/"))
	rec := s.refuse(fetch("/", `If-None-Match: "v1"`))
	require.Equal(t, "none", copyOf(rec))
	require.Equal(t, 404, rec.Code)
}

func TestCachedMisc(t *testing.T) {
	require.Error(t, degrade.Validate(degrade.Cached(nil)))
	h := degrade.Cached(nil)
	rec := httptest.NewRecorder()
	require.Equal(t, degrade.Skip, h.Degrade(rec, fetch("/"), &degrade.Denial{}))
	w, done := h.(degrade.Recorder).Record(rec, new(keyfunc.Request), "p", "")
	require.Same(t, rec, w)
	require.Nil(t, done)
	require.Equal(t, degrade.ModeCache, degrade.ModeOf(h))
}
