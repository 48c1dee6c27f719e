package degrade_test

import (
	"bufio"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
)

// back asks for uri and returns the way back that the waiting page reads. It checks what holds for every redirect.
func back(t require.TestingT, r *http.Request) (way string, given bool) {
	h := degrade.Redirect(degrade.RedirectConfig{URL: "https://wait.example/room?a=1#top", Return: "back"})
	w := httptest.NewRecorder()
	require.Equal(t, degrade.Done, h.Degrade(w, r, new(degrade.Denial)))
	location := w.Result().Header.Get("Location")
	for i := range len(location) {
		require.True(t, location[i] > ' ' && location[i] < 0x7f, "%q", location)
	}
	u, err := url.Parse(location)
	require.NoError(t, err)
	require.Equal(t, "https://wait.example/room", u.Scheme+"://"+u.Host+u.Path)
	require.Equal(t, "top", u.Fragment)
	q, err := url.ParseQuery(u.RawQuery)
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, q["a"], "a parameter is neither added nor changed")
	require.Subset(t, []string{"a", "back"}, slices.Collect(maps.Keys(q)))
	require.LessOrEqual(t, len(q["back"]), 1)
	require.Contains(t, html.UnescapeString(w.Body.String()), location)
	return q.Get("back"), q.Has("back")
}

// leaves reports whether a page that goes to ref leaves its origin, as net/url and as browsers read it: they drop blanks
// and control characters around and tabs and line ends within, and take a backslash for a slash before the query.
func leaves(ref string) bool {
	own := &url.URL{Scheme: "https", Host: "own.example", Path: "/room"}
	if u, err := own.Parse(ref); err != nil || u.Host != own.Host || u.Scheme != own.Scheme {
		return true
	}
	ref = strings.TrimFunc(ref, func(r rune) bool { return r <= ' ' })
	ref = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(ref)
	path, _, _ := strings.Cut(ref, "?")
	path = strings.ReplaceAll(path, `\`, "/")
	return !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//")
}

// stays checks a way back, also for a page that decodes it once more than it should, or goes to its path without dots.
func stays(t require.TestingT, way string) {
	require.False(t, leaves(way), "%q", way)
	for i := range len(way) {
		require.True(t, way[i] >= ' ' && way[i] != 0x7f, "%q", way)
	}
	path, _, _ := strings.Cut(way, "?")
	again, err := url.PathUnescape(path)
	require.NoError(t, err)
	require.False(t, leaves(strings.ReplaceAll(again, "%", "%25")), "%q is %q", way, again)
	u, err := (&url.URL{Scheme: "https", Host: "own.example", Path: "/"}).Parse(way)
	require.NoError(t, err)
	require.False(t, strings.HasPrefix(u.EscapedPath(), "//"), "%q", way)
}

func TestRedirectReturn(t *testing.T) {
	for uri, want := range map[string]string{
		"/list":                         "/list",
		"/":                             "/",
		"/list?a=b&c=%2F+":              "/list?a=b&c=%2F+",
		"/list?":                        "/list",
		"/a%2Fb/%E7%AD%89?x=//y":        "/a%2Fb/%E7%AD%89?x=//y",
		"/img/https://cdn.example/a":    "/img/https://cdn.example/a",
		"/list?next=//evil.example":     "/list?next=//evil.example",
		"/@evil.example":                "/@evil.example",
		"http://evil.example/list?a":    "/list?a",
		"//evil.example/":               "",
		"///evil.example/":              "",
		"/%2Fevil.example/":             "",
		"/%2fevil.example/":             "",
		"/%5Cevil.example/":             "",
		`/\evil.example/`:               "",
		`/list?a=\b`:                    "",
		"/%09/evil.example":             "",
		"/%0A/evil.example":             "",
		"/%00":                          "",
		"/a%0D%0ASet-Cookie:x":          "",
		"/.//evil.example":              "",
		"/a/..//evil.example":           "",
		"/%2e//evil.example":            "",
		"/a/%2E%2e//evil.example":       "",
		"/" + strings.Repeat("a", 2047): "/" + strings.Repeat("a", 2047),
		"/" + strings.Repeat("a", 2048): "",
	} {
		t.Run(uri, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			u, err := url.ParseRequestURI(uri)
			require.NoError(t, err)
			r.URL, r.RequestURI = u, uri
			way, given := back(t, r)
			require.Equal(t, want, way)
			require.Equal(t, want != "", given, "nothing is left out, not empty")
		})
	}
	r := httptest.NewRequest("OPTIONS", "*", nil)
	_, given := back(t, r)
	require.False(t, given)
	for _, uri := range []string{"wait.example:443", "http://own.example", "http://own.example?a", "%zz"} {
		r.RequestURI = uri
		_, given = back(t, r)
		require.False(t, given, uri)
	}
	r = httptest.NewRequest("GET", "/app/list", nil)
	r.URL.Path = "/list" // by http.StripPrefix
	way, _ := back(t, r)
	require.Equal(t, "/app/list", way)
	r.RequestURI = "" // not from a server
	way, _ = back(t, r)
	require.Equal(t, "/list", way)
}

// Whatever the server takes for a request, the way back stays on the origin, and is the request where there is one.
func TestRedirectReturnStays(t *testing.T) {
	part := rapid.SampledFrom([]string{
		"/", "/", "//", `\`, "%2f", "%2F", "%5c", "%09", "%0a", "%0d", "%00", "%25", ".", "..", "%2e", "?", "#", "&", "=", "+", "a", "@", ":", ";",
		"evil.example", "http:", "\u3002", "\uff0f", "%E3%80%82", "\t", "\x00", "\x7f", "\x80", "%zz", "'", `"`, "<", "[", "]", "*",
	})
	rapid.Check(t, func(t *rapid.T) {
		uri := "/" + strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "parts"), "")
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			t.Skip(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.URL, r.RequestURI = u, uri
		way, given := back(t, r)
		if !given {
			return
		}
		stays(t, way)
		again, err := url.ParseRequestURI(way)
		require.NoError(t, err)
		require.Equal(t, u.Path, again.Path)
		require.Equal(t, u.RawQuery, again.RawQuery)
	})
}

// As above, through the parser of a server.
func FuzzRedirectReturn(f *testing.F) {
	for _, uri := range []string{"/list?a=b", "//evil.example", `/\evil.example`, "/%09/evil", "http://evil.example/x", "/.//evil", "*", "/?\\\t"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + uri + " HTTP/1.1\r\nHost: own.example\r\n\r\n")))
		if err != nil {
			t.Skip()
		}
		if way, given := back(t, r); given {
			stays(t, way)
		}
	})
}

// Settings are taken or refused; those that are taken lead where they say.
func FuzzRedirectURL(f *testing.F) {
	for _, s := range []string{"/wait?a#b", "https://wait.example:8443/a%2Fb?c=%zz", "//evil.example", `/\evil`, "https://[::1]/", "/等?\"", "/%2f/x", `/%2f"`} {
		f.Add(s, "back")
	}
	f.Fuzz(func(t *testing.T, s, param string) {
		h := degrade.Redirect(degrade.RedirectConfig{URL: s, Return: param})
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/list/of/all", nil)
		out := h.Degrade(w, r, new(degrade.Denial))
		if degrade.Validate(h) != nil {
			require.Equal(t, degrade.Skip, out)
			return
		}
		if out == degrade.Skip {
			return // the target is the request
		}
		location := w.Result().Header.Get("Location")
		for i := range len(location) {
			require.True(t, location[i] > ' ' && location[i] < 0x7f && location[i] != '\\', "%q", location)
		}
		u, err := url.Parse(location)
		require.NoError(t, err)
		want, err := url.Parse(s)
		require.NoError(t, err)
		require.Equal(t, strings.ToLower(want.Host), strings.ToLower(u.Host))
		require.Equal(t, want.Path, u.Path)
		require.Equal(t, want.Fragment, u.Fragment)
		if u.Host == "" {
			require.False(t, leaves(location), "%q", location)
		}
		if param != "" {
			require.Equal(t, "/list/of/all", u.Query().Get(param))
		}
	})
}
