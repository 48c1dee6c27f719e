package degrade_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

// byteCounter is a ResponseWriter that keeps no bytes.
type byteCounter struct {
	h    http.Header
	code int
	n    int
}

func (w *byteCounter) Header() http.Header         { return w.h }
func (w *byteCounter) WriteHeader(code int)        { w.code = code }
func (w *byteCounter) Write(p []byte) (int, error) { w.n += len(p); return len(p), nil }

// toldFields is a response as a guard hands it to a handler.
func toldFields() (*httptest.ResponseRecorder, *degrade.Denial) {
	w := httptest.NewRecorder()
	before := http.Header{"X-Request-Id": {"7"}, "Vary": {"Accept-Encoding"}}
	maps.Copy(w.Header(), before.Clone())
	w.Header()["Retry-After"] = []string{"13"}
	w.Header()["X-Ratelimit-Remaining"] = []string{"0"}
	return w, &degrade.Denial{
		Policy: "api", Status: 429, RetryAfter: 12001 * time.Millisecond, Mode: degrade.ModeStatic,
		Withdraw: func() { clear(w.Header()); maps.Copy(w.Header(), before.Clone()) },
	}
}

// serveFixed returns what h writes for r: status, fields and body.
func serveFixed(t testing.TB, h degrade.Handler, r *http.Request) (int, http.Header, string) {
	t.Helper()
	require.NoError(t, degrade.Validate(h))
	w, d := toldFields()
	d.Mode = degrade.ModeOf(h)
	require.Equal(t, degrade.Done, h.Degrade(w, r, d))
	return w.Code, w.Result().Header, w.Body.String()
}

func fixedRequest(method string, header ...string) *http.Request {
	r := httptest.NewRequest(method, "/list", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func staticContents() []degrade.Content {
	return []degrade.Content{
		{Type: "application/json", Body: []byte(`[]`)},
		{Type: "text/html", Language: "en", Body: []byte("<p>busy")},
		{Type: "text/html", Language: "zh-CN", Body: []byte("<p>繁忙")},
		{Type: "text/plain", Language: "de", Body: []byte("später")},
		{Type: "text/plain", Body: []byte("later")},
	}
}

func TestStaticChooses(t *testing.T) {
	handler := degrade.Static(degrade.StaticConfig{Contents: staticContents()})
	const both, one = "Accept-Encoding; Accept, Accept-Language", "Accept-Encoding; Accept"
	for name, c := range map[string]struct {
		accept, language string
		body, mime, told string
		vary             string
	}{
		"nothing asked":            {"", "", "[]", "application/json", "", one},
		"anything":                 {"*/*", "zh-CN", "[]", "application/json", "", one},
		"browser":                  {browserAccept, "en-GB,en;q=0.9", "<p>busy", "text/html; charset=utf-8", "en", both},
		"chinese browser":          {browserAccept, "zh-CN,zh;q=0.9,en;q=0.8", "<p>繁忙", "text/html; charset=utf-8", "zh-CN", both},
		"french browser":           {browserAccept, "fr", "<p>busy", "text/html; charset=utf-8", "en", both},
		"a browser of no language": {browserAccept, "", "<p>busy", "text/html; charset=utf-8", "en", both},
		"text":                     {"text/plain", "", "later", "text/plain; charset=utf-8", "", both},
		"german text":              {"text/plain", "de-AT", "später", "text/plain; charset=utf-8", "de", both},
		"text for everybody else":  {"text/plain", "fr", "later", "text/plain; charset=utf-8", "", both},
		"by weight":                {"application/json;q=0.4, text/plain;q=0.6", "", "later", "text/plain; charset=utf-8", "", both},
		"by group":                 {"text/*", "zh", "<p>繁忙", "text/html; charset=utf-8", "zh-CN", both},
		"none acceptable: first":   {"image/png", "en", "[]", "application/json", "", one},
		"all refused: first":       {"*/*;q=0", "", "[]", "application/json", "", one},
		"refused by name":          {"*/*, application/json;q=0", "zh", "<p>繁忙", "text/html; charset=utf-8", "zh-CN", both},
		"JSON of another name":     {"application/problem+json", "", "[]", "application/json", "", one},
	} {
		t.Run(name, func(t *testing.T) {
			r := fixedRequest("GET")
			if c.accept != "" {
				r.Header.Set("Accept", c.accept)
			}
			if c.language != "" {
				r.Header.Set("Accept-Language", c.language)
			}
			for _, method := range []string{"GET", "POST", "HEAD"} {
				r.Method = method
				code, h, body := serveFixed(t, handler, r)
				require.Equal(t, 429, code)
				require.Equal(t, c.mime, h.Get("Content-Type"))
				require.Equal(t, c.told, h.Get("Content-Language"))
				require.Equal(t, strconv.Itoa(len(c.body)), h.Get("Content-Length"))
				require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
				require.Equal(t, []string{"no-store"}, h["Cache-Control"])
				require.Equal(t, c.vary, strings.Join(h["Vary"], "; "))
				require.Equal(t, "13", h.Get("Retry-After"))
				require.Equal(t, "0", h.Get("X-RateLimit-Remaining"))
				require.Equal(t, "7", h.Get("X-Request-Id"))
				if method == "HEAD" {
					require.Empty(t, body)
				} else {
					require.Equal(t, c.body, body)
				}
			}
		})
	}
}

func plainText(s string) []degrade.Content {
	return []degrade.Content{{Type: "text/plain", Body: []byte(s)}}
}

func TestStaticFields(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    degrade.StaticConfig
		before http.Header // set earlier
		code   int
		want   map[string]string // "": not there
	}{
		"own status": {
			degrade.StaticConfig{Status: 200, Contents: plainText("x")},
			nil, 200,
			map[string]string{"Cache-Control": "no-store", "Content-Length": "1", "Vary": "Accept-Encoding"},
		},
		"of the real thing": {
			degrade.StaticConfig{Contents: plainText("x")},
			http.Header{
				"Cache-Control": {"public, max-age=300"}, "Expires": {"Fri, 01 Jan 2027 00:00:00 GMT"}, "Etag": {`"1"`}, "Cdn-Cache-Control": {"max-age=60"},
				"Last-Modified": {"Fri, 01 Jan 2026 00:00:00 GMT"}, "Content-Type": {"image/png"}, "Content-Language": {"fr"}, "Content-Length": {"9"},
				"Surrogate-Control": {"max-age=60"},
			},
			429,
			map[string]string{
				"Cache-Control": "no-store", "Expires": "", "Etag": "", "Cdn-Cache-Control": "", "Last-Modified": "", "Surrogate-Control": "",
				"Content-Type": "text/plain; charset=utf-8", "Content-Language": "", "Content-Length": "1",
			},
		},
		"compressed by an outer middleware": {
			degrade.StaticConfig{Contents: plainText("x")},
			http.Header{"Content-Encoding": {"gzip"}, "Content-Length": {"9"}},
			429,
			map[string]string{"Content-Length": "", "Content-Encoding": "gzip"},
		},
		"no body": {
			degrade.StaticConfig{Status: 503},
			http.Header{"Content-Type": {"text/html"}},
			503,
			map[string]string{"Content-Length": "0", "Content-Type": "", "Cache-Control": "no-store", "Vary": "Accept-Encoding"},
		},
		"no body, compressed": {
			degrade.StaticConfig{Status: 503}, http.Header{"Content-Encoding": {"gzip"}}, 503, map[string]string{"Content-Length": ""},
		},
		"no content": {degrade.StaticConfig{Status: 204}, nil, 204, map[string]string{"Content-Length": "", "Content-Type": ""}},
		"empty body": {
			degrade.StaticConfig{Contents: []degrade.Content{{Type: "text/css", Body: []byte{}}}},
			nil, 429,
			map[string]string{"Content-Length": "0", "Content-Type": "text/css; charset=utf-8"},
		},
		"own fields": {
			degrade.StaticConfig{Status: 200, Contents: plainText("x"), Header: http.Header{
				"x-request-id": {"8"}, "Link": {"<a>", "<b>"}, "Expires": {"0"}, "Vary": {"Origin, accept-encoding"}, "Access-Control-Expose-Headers": {"X-Total"},
			}},
			http.Header{"Access-Control-Expose-Headers": {"Retry-After"}},
			200,
			map[string]string{
				"X-Request-Id": "8", "Link": "<a>; <b>", "Expires": "0", "Vary": "Accept-Encoding; Origin", "Access-Control-Expose-Headers": "Retry-After; X-Total",
			},
		},
		"own fields without a body": {
			degrade.StaticConfig{Status: 302, Header: http.Header{"Location": {"/wait"}, "Vary": {"Origin"}}},
			http.Header{"Vary": {"*"}},
			302,
			map[string]string{"Location": "/wait", "Vary": "*", "Retry-After": "13"},
		},
		"may be kept by its client": {
			degrade.StaticConfig{Status: 200, Contents: plainText("x"), CacheControl: "Private, max-age=5"},
			nil, 200,
			map[string]string{"Cache-Control": "Private, max-age=5", "X-Ratelimit-Remaining": "0"},
		},
		"may be kept by a CDN, with the limits of nobody": {
			degrade.StaticConfig{Status: 503, Contents: plainText("x"), CacheControl: "max-age=5"},
			nil, 503,
			map[string]string{"Cache-Control": "max-age=5", "X-Ratelimit-Remaining": "", "Retry-After": "", "X-Request-Id": "7"},
		},
		"not to be stored": {
			degrade.StaticConfig{Contents: plainText("x"), CacheControl: "no-cache,NO-STORE"},
			nil, 429,
			map[string]string{"Cache-Control": "no-cache,NO-STORE", "X-Ratelimit-Remaining": "0", "Retry-After": "13"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := degrade.Static(c.cfg)
			require.NoError(t, degrade.Validate(h))
			for range 2 { // the second response is not that of the first with more
				w, d := toldFields()
				maps.Copy(w.Header(), c.before.Clone())
				require.Equal(t, degrade.Done, h.Degrade(w, fixedRequest("GET"), d))
				require.Equal(t, c.code, w.Code)
				for key, want := range c.want {
					require.Equal(t, want, strings.Join(w.Result().Header[key], "; "), key)
				}
			}
		})
	}
}

// The text for everybody else may stand before the others of its type, and a charset is kept.
func TestStaticOrderOfLanguages(t *testing.T) {
	h := degrade.Static(degrade.StaticConfig{Contents: []degrade.Content{
		{Type: "text/html; charset=GBK", Body: []byte("later")}, {Type: "text/html", Language: "de", Body: []byte("später")},
	}})
	for language, want := range map[string]string{"de": "später", "fr": "later", "": "later"} {
		_, fields, body := serveFixed(t, h, fixedRequest("GET", "Accept-Language", language))
		require.Equal(t, want, body)
		require.Equal(t, map[bool]string{true: "text/html; charset=utf-8", false: "text/html; charset=GBK"}[want == "später"], fields.Get("Content-Type"))
		require.Equal(t, []string{"Accept-Encoding", "Accept-Language"}, fields["Vary"])
	}
}

func TestStaticOutsideOfAGuard(t *testing.T) {
	w := httptest.NewRecorder()
	require.Equal(t, degrade.Done, degrade.Static(degrade.StaticConfig{Contents: plainText("x")}).Degrade(w, fixedRequest("GET"), new(degrade.Denial)))
	require.Equal(t, 429, w.Code)
	w = httptest.NewRecorder()
	w.Header().Set("Retry-After", "13") // of somebody else, for this client
	h := degrade.Static(degrade.StaticConfig{Status: 503, Contents: plainText("x"), CacheControl: "max-age=5"})
	require.Equal(t, degrade.Done, h.Degrade(w, fixedRequest("GET"), new(degrade.Denial)))
	require.Equal(t, 503, w.Code)
	require.Empty(t, w.Result().Header.Get("Retry-After"))
}

// A handler keeps what it was given, whatever becomes of it.
func TestStaticCopies(t *testing.T) {
	cfg := degrade.StaticConfig{Header: http.Header{"X-A": {"1"}}, Contents: plainText("one")}
	h := degrade.Static(cfg)
	cfg.Header["X-A"][0], cfg.Contents[0].Type, cfg.Contents[0].Body[0] = "2", "text/css", 'x'
	_, fields, body := serveFixed(t, h, fixedRequest("GET"))
	require.Equal(t, "1", fields.Get("X-A"))
	require.Equal(t, "one", body)
}

// Fields set earlier may be shared by all responses.
func TestStaticAddsToACopy(t *testing.T) {
	shared := []string{"Origin", ""}
	w := httptest.NewRecorder()
	w.Header()["Vary"] = shared[:1]
	h := degrade.Static(degrade.StaticConfig{Contents: staticContents()})
	require.Equal(t, degrade.Done, h.Degrade(w, fixedRequest("GET"), &degrade.Denial{Status: 429}))
	require.Equal(t, []string{"Origin", "Accept"}, w.Header()["Vary"])
	require.Equal(t, []string{"Origin", ""}, shared)
}

func TestStaticFiles(t *testing.T) {
	files := fstest.MapFS{
		"busy/en.html": {Data: []byte("<p>busy")},
		"latin.txt":    {Data: []byte("sp\xe4ter")},
		"large":        {Data: make([]byte, degrade.MaxContent)},
		"larger":       {Data: make([]byte, degrade.MaxContent+1)},
		"pipe":         {Mode: os.ModeNamedPipe},
	}
	file := func(name string) degrade.StaticConfig {
		return degrade.StaticConfig{FS: files, Contents: []degrade.Content{{Type: "text/html", File: name}}}
	}
	h := degrade.Static(file("busy/en.html"))
	delete(files, "busy/en.html") // read once
	_, _, body := serveFixed(t, h, fixedRequest("GET"))
	require.Equal(t, "<p>busy", body)

	_, fields, body := serveFixed(t, degrade.Static(file("latin.txt")), fixedRequest("GET"))
	require.Equal(t, "sp\xe4ter", body)
	require.Equal(t, "text/html", fields.Get("Content-Type"), "its charset is not known")
	_, fields, _ = serveFixed(t, degrade.Static(file("large")), fixedRequest("HEAD"))
	require.Equal(t, "1048576", fields.Get("Content-Length"))

	for name, want := range map[string]string{
		"busy/en.html": "Contents[0]: File: open busy/en.html: file does not exist", "larger": "Contents[0]: longer than 1048576 bytes",
		"../etc/passwd": "Contents[0]: File: ", "/etc/passwd": "Contents[0]: File: ",
		"busy": "does not exist", "pipe": "no regular file", ".": "no regular file",
	} {
		h := degrade.Static(file(name))
		require.ErrorContains(t, degrade.Validate(h), want, name)
		require.ErrorIs(t, degrade.Validate(h), limiter.ErrInvalid)
		require.Equal(t, degrade.Skip, ask(h, new(degrade.Denial)))
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("on disk"), 0o600))
	h = degrade.Static(degrade.StaticConfig{FS: os.DirFS(dir), Contents: []degrade.Content{{Type: "text/plain", File: "a"}}})
	_, _, body = serveFixed(t, h, fixedRequest("GET"))
	require.Equal(t, "on disk", body)
}

// 10⁵ refusals get no more bodies than there are units of the budget: ten times the limit, or that of a Within.
func TestStaticBudget(t *testing.T) {
	h := degrade.Static(degrade.StaticConfig{Contents: plainText("four")})
	for _, c := range []struct {
		h     degrade.Handler
		limit limiter.Limit
	}{
		{h, limiter.PerMinute(30)},
		{degrade.Within(limiter.PerHour(5), h), limiter.PerHour(5)},
		{degrade.Within(limiter.PerHour(5), degrade.First(h)), limiter.PerHour(5)},
	} {
		b := &budgetOf{granted: c.limit.Rate}
		outcomes, written := askMany(t, c.h, b)
		require.Equal(t, map[degrade.Outcome]int{degrade.Done: c.limit.Rate, degrade.Skip: 100_000 - c.limit.Rate}, outcomes)
		require.Equal(t, 4*c.limit.Rate, written)
		require.Equal(t, 100_000, b.asked[degrade.ModeOf(c.h)])
		require.Equal(t, c.limit, b.limits[degrade.ModeOf(c.h)])
	}
}

func TestStaticAtOnce(t *testing.T) {
	h := degrade.Static(degrade.StaticConfig{Contents: staticContents(), Header: http.Header{"Vary": {"Origin"}, "X-A": {"1"}}})
	want := map[string]string{"en": "<p>busy", "zh": "<p>繁忙"}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				language := []string{"en", "zh"}[i%2]
				w := httptest.NewRecorder()
				r := fixedRequest("GET", "Accept", browserAccept, "Accept-Language", language+",fr;q=0."+strconv.Itoa(g*200+i))
				h.Degrade(w, r, &degrade.Denial{Status: 429})
				w.Header().Add("X-A", "2") // as an outer middleware may
				if w.Body.String() != want[language] || w.Result().Header.Get("X-A") != "1" {
					t.Errorf("%s: %q", language, w.Body)
				}
			}
		})
	}
	wg.Wait()
}

// Whatever is asked, the response is one of the contents, whole, with its own fields.
func TestStaticServesOneOfThem(t *testing.T) {
	all := staticContents()
	h := degrade.Static(degrade.StaticConfig{Contents: all})
	line := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{browserAccept, "*/*", "text/plain;q=0.5", "zh, en;q=0.5", "de"}))
	rapid.Check(t, func(t *rapid.T) {
		r := fixedRequest(rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method"))
		for _, key := range []string{"Accept", "Accept-Language"} {
			r.Header[key] = rapid.SliceOf(line).Draw(t, key)
		}
		w := httptest.NewRecorder()
		if h.Degrade(w, r, &degrade.Denial{Status: 503}) != degrade.Done {
			t.Fatal("not served")
		}
		fields := w.Result().Header
		for _, c := range all {
			if string(c.Body) == w.Body.String() {
				require.True(t, strings.HasPrefix(fields.Get("Content-Type"), c.Type))
				require.Equal(t, c.Language, fields.Get("Content-Language"))
				require.Equal(t, strconv.Itoa(len(c.Body)), fields.Get("Content-Length"))
				return
			}
		}
		t.Fatalf("%q is none of the contents", w.Body)
	})
}

func TestStaticAllocations(t *testing.T) {
	h := degrade.Static(degrade.StaticConfig{Contents: staticContents(), Header: http.Header{"X-A": {"1"}}})
	r := fixedRequest("GET", "Accept", browserAccept, "Accept-Language", "zh-CN,zh;q=0.9,en;q=0.8")
	w := &byteCounter{h: http.Header{}}
	d := &degrade.Denial{Status: 429}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		clear(w.h)
		h.Degrade(w, r, d)
	}))
}
