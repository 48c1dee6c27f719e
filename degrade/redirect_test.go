package degrade_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

func TestRedirect(t *testing.T) {
	to := degrade.Redirect(degrade.RedirectConfig{URL: "/wait"})
	require.Equal(t, "redirect", degrade.ModeOf(to))
	for method, want := range map[string]int{"GET": 307, "HEAD": 307, "POST": 303, "PUT": 303, "DELETE": 303} {
		code, h, body := serveFixed(t, to, fixedRequest(method))
		require.Equal(t, want, code, method)
		require.Equal(t, "/wait", h.Get("Location"))
		require.Equal(t, []string{"no-store"}, h["Cache-Control"])
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, []string{"Accept-Encoding", "Accept"}, h["Vary"])
		require.Equal(t, "text/plain; charset=utf-8", h.Get("Content-Type"))
		require.Equal(t, []string{"13"}, h["Retry-After"])
		require.Empty(t, h.Get("X-RateLimit-Remaining"), "limits are not told")
		require.Equal(t, "7", h.Get("X-Request-Id"))
		text := http.StatusText(want) + ": /wait\n"
		require.Equal(t, strconv.Itoa(len(text)), h.Get("Content-Length"))
		if method == "HEAD" {
			text = ""
		}
		require.Equal(t, text, body)
	}
	for _, status := range []int{303, 307} {
		for _, method := range []string{"GET", "POST"} {
			code, _, _ := serveFixed(t, degrade.Redirect(degrade.RedirectConfig{URL: "/wait", Status: status}), fixedRequest(method))
			require.Equal(t, status, code)
		}
	}
	_, h, body := serveFixed(t, degrade.Redirect(degrade.RedirectConfig{URL: "/wait?a='1'&b=<2>"}), fixedRequest("GET", "Accept", browserAccept))
	require.Equal(t, "text/html; charset=utf-8", h.Get("Content-Type"))
	require.Equal(t, "<!doctype html><title>Temporary Redirect</title><a href=\"/wait?a=&#39;1&#39;&amp;b=%3C2%3E\">Temporary Redirect</a>\n", body)
	require.Equal(t, "/wait?a='1'&b=%3C2%3E", h.Get("Location"))
}

func TestRedirectForgetsWhatItReplaces(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header()["Etag"], w.Header()["Cache-Control"], w.Header()["Cdn-Cache-Control"] = []string{`"1"`}, []string{"public"}, []string{"max-age=9"}
	require.Equal(t, degrade.Done, degrade.Redirect(degrade.RedirectConfig{URL: "/wait"}).Degrade(w, fixedRequest("GET"), &degrade.Denial{RetryAfter: 1}))
	require.Equal(t, http.Header{
		"Cache-Control": {"no-store"}, "Content-Length": {"26"}, "Content-Type": {"text/plain; charset=utf-8"}, "Location": {"/wait"},
		"Retry-After": {"1"}, "Vary": {"Accept"}, "X-Content-Type-Options": {"nosniff"},
	}, w.Result().Header)
}

func TestRedirectRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		wait, longer time.Duration
		told         string
		none         bool
		want         []string
	}{
		"up to whole seconds":        {wait: 12001 * time.Millisecond, want: []string{"13"}},
		"whole seconds":              {wait: 12 * time.Second, want: []string{"12"}},
		"at least one":               {wait: 0, want: []string{"1"}},
		"a moment":                   {wait: 1, want: []string{"1"}},
		"never":                      {wait: limiter.Never},
		"never, but told":            {wait: limiter.Never, told: "9"},
		"left out":                   {wait: time.Second, none: true},
		"left out, but told":         {wait: time.Second, told: "9", none: true},
		"the guard spreads in time":  {wait: 12 * time.Second, told: "15", want: []string{"15"}},
		"less than it takes":         {wait: 12 * time.Second, told: "3", want: []string{"12"}},
		"a date":                     {wait: 12 * time.Second, told: "Thu, 01 Jan 2026 00:00:13 GMT", want: []string{"Thu, 01 Jan 2026 00:00:13 GMT"}},
		"a handler knows better":     {wait: 12 * time.Second, longer: time.Minute, told: "15", want: []string{"60"}},
		"a handler has given it up":  {wait: 12 * time.Second, longer: limiter.Never, told: "15"},
		"nearly as long as there is": {wait: limiter.Never - 1, want: []string{"9223372037"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			if c.told != "" {
				w.Header().Set("Retry-After", c.told)
			}
			h := degrade.Redirect(degrade.RedirectConfig{URL: "/wait", NoRetryAfter: c.none})
			d := &degrade.Denial{RetryAfter: c.wait, Wait: c.longer, Withdraw: func() { clear(w.Header()) }}
			require.Equal(t, degrade.Done, h.Degrade(w, fixedRequest("GET"), d))
			require.Equal(t, c.want, w.Result().Header["Retry-After"])
		})
	}
}

// Who is at the target already is not sent there again.
func TestRedirectNoLoop(t *testing.T) {
	const here, there = degrade.Skip, degrade.Done
	for name, c := range map[string]struct {
		url, host, uri string
		want           degrade.Outcome
	}{
		"itself":                   {"/wait", "a.example", "/wait", here},
		"with another query":       {"/wait?a=1#top", "a.example", "/wait?b=2", here},
		"as a folder":              {"/wait", "a.example", "/wait/", here},
		"of a folder":              {"/wait/", "a.example", "/wait", here},
		"with more slashes":        {"/wait", "a.example", "//wait", here},
		"escaped":                  {"/wait", "a.example", "/w%61it", here},
		"in dots":                  {"/wait", "a.example", "/a/../wait", here},
		"root":                     {"/", "a.example", "/?x", here},
		"below":                    {"/wait", "a.example", "/wait/a", there},
		"capitals":                 {"/wait", "a.example", "/Wait", there},
		"absolute":                 {"https://a.example/wait", "a.example", "/wait", here},
		"absolute, in capitals":    {"https://A.example/wait", "a.EXAMPLE", "/wait", here},
		"absolute, with a dot":     {"https://a.example/wait", "a.example.", "/wait", here},
		"absolute, with the port":  {"https://a.example:443/wait", "a.example", "/wait", here},
		"absolute, behind a proxy": {"https://a.example/wait", "a.example:80", "/wait", here},
		"absolute, own port":       {"https://a.example:8443/wait", "a.example:8443", "/wait", here},
		"absolute, other port":     {"https://a.example:8443/wait", "a.example", "/wait", there},
		"absolute, no path":        {"https://a.example", "a.example", "/", here},
		"absolute, other host":     {"https://wait.example/wait", "a.example", "/wait", there},
		"absolute, other path":     {"https://a.example/wait", "a.example", "/list", there},
		"absolute, IPv6":           {"http://[2001:db8::1]:8080/wait", "[2001:DB8::1]:8080", "/wait", here},
		"absolute, no host told":   {"https://a.example/wait", "", "/wait", there},
		"absolute form":            {"/wait", "a.example", "http://a.example/wait", here},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", c.uri, nil)
			r.Host = c.host
			h := degrade.Redirect(degrade.RedirectConfig{URL: c.url, Return: "back"})
			require.NoError(t, degrade.Validate(h))
			w, d := toldFields()
			before := w.Header().Clone()
			require.Equal(t, c.want, h.Degrade(w, r, d))
			if c.want == here {
				require.Equal(t, before, w.Header(), "who skips changes nothing")
				require.Empty(t, w.Body.String())
			}
		})
	}
	// A mux has taken the prefix off, on the way to the page and on the way elsewhere.
	r := httptest.NewRequest("GET", "/app/wait", nil)
	r.URL.Path = "/wait"
	for target, want := range map[string]degrade.Outcome{"/app/wait": here, "/wait": here, "/app": there} {
		require.Equal(t, want, degrade.Redirect(degrade.RedirectConfig{URL: target}).Degrade(httptest.NewRecorder(), r, new(degrade.Denial)))
	}
}

func TestRedirectTarget(t *testing.T) {
	for name, c := range map[string]struct{ url, param, want string }{
		"plain":                    {"/wait", "", "/wait"},
		"with all":                 {"https://wait.example:8443/a?b=c&d#e", "", "https://wait.example:8443/a?b=c&d#e"},
		"back":                     {"/wait", "back", "/wait?back=%2Flist%3Fa%3Db%26c%3D%252F%2B"},
		"back, no path":            {"https://wait.example", "back", "https://wait.example?back=%2Flist%3Fa%3Db%26c%3D%252F%2B"},
		"back, query and fragment": {"/wait?a=1&b#e%20f", "back", "/wait?a=1&b&back=%2Flist%3Fa%3Db%26c%3D%252F%2B#e%20f"},
		"back, empty query":        {"/wait?", "back", "/wait?back=%2Flist%3Fa%3Db%26c%3D%252F%2B"},
		"back, other name":         {"/wait?back2=1", "z&=#", "/wait?back2=1&z%26%3D%23=%2Flist%3Fa%3Db%26c%3D%252F%2B"},
		"not ASCII":                {"/等?名=值#尾", "", "/%E7%AD%89?%E5%90%8D=%E5%80%BC#%E5%B0%BE"},
		"escaped":                  {"/a%2Fb?c=%26", "", "/a%2Fb?c=%26"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/list?a=b&c=%2F+", nil)
			w := httptest.NewRecorder()
			h := degrade.Redirect(degrade.RedirectConfig{URL: c.url, Return: c.param})
			require.NoError(t, degrade.Validate(h))
			require.Equal(t, degrade.Done, h.Degrade(w, r, new(degrade.Denial)))
			require.Equal(t, c.want, w.Result().Header.Get("Location"))
		})
	}
}

func TestRedirectValidate(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  degrade.RedirectConfig
		want []string
	}{
		"path":                 {degrade.RedirectConfig{URL: "/wait"}, nil},
		"absolute":             {degrade.RedirectConfig{URL: "HTTPS://wait.example/x?y#z", Status: 303, Return: "back"}, nil},
		"nothing":              {degrade.RedirectConfig{}, []string{"URL: required"}},
		"relative":             {degrade.RedirectConfig{URL: "wait"}, []string{`URL: "wait", want http`}},
		"query alone":          {degrade.RedirectConfig{URL: "?a"}, []string{`URL: "?a", want http`}},
		"other host":           {degrade.RedirectConfig{URL: "//evil.example/"}, []string{"a path that begins with one slash"}},
		"three slashes":        {degrade.RedirectConfig{URL: "///evil.example/"}, []string{"a path that begins with one slash"}},
		"backslash":            {degrade.RedirectConfig{URL: `/\evil.example`}, []string{"a backslash"}},
		"tab":                  {degrade.RedirectConfig{URL: "/\t/evil.example"}, []string{"a control character"}},
		"split":                {degrade.RedirectConfig{URL: "/wait\r\nSet-Cookie: a=b"}, []string{"a control character"}},
		"blank":                {degrade.RedirectConfig{URL: "/wait here"}, []string{"has a blank"}},
		"script":               {degrade.RedirectConfig{URL: "javascript:alert(1)"}, []string{"want http"}},
		"other scheme":         {degrade.RedirectConfig{URL: "ftp://wait.example/"}, []string{"want http"}},
		"no host":              {degrade.RedirectConfig{URL: "https:///wait"}, []string{"want http"}},
		"port alone":           {degrade.RedirectConfig{URL: "https://:8080/wait"}, []string{"want http"}},
		"opaque":               {degrade.RedirectConfig{URL: "https:wait"}, []string{"want http"}},
		"user":                 {degrade.RedirectConfig{URL: "https://me:secret@wait.example/"}, []string{"URL: it has a user"}},
		"bad escape":           {degrade.RedirectConfig{URL: "/%zz"}, []string{"invalid URL escape"}},
		"host not in ASCII":    {degrade.RedirectConfig{URL: "https://等.example/"}, []string{"write the host in ASCII"}},
		"permanent":            {degrade.RedirectConfig{URL: "/wait", Status: 301}, []string{"Status: 301, want 303 or 307"}},
		"parameter twice":      {degrade.RedirectConfig{URL: "/wait?back=/", Return: "back"}, []string{`Return: "back" is a parameter of URL already`}},
		"parameter of a blank": {degrade.RedirectConfig{URL: "/wait", Return: " "}, []string{`Return: " " is no name`}},
		"parameter of no text": {degrade.RedirectConfig{URL: "/wait", Return: "\xff"}, []string{"is no name"}},
		"all at once":          {degrade.RedirectConfig{Status: 200, Return: "\n"}, []string{"URL: required", "Status: 200", "Return: "}},
	} {
		t.Run(name, func(t *testing.T) {
			h := degrade.Redirect(c.cfg)
			err := degrade.Validate(h)
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, limiter.ErrInvalid)
			require.NotContains(t, err.Error(), "secret")
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.True(t, strings.HasPrefix(line, "degrade: Redirect: limiter: invalid: "), line)
			}
			require.Equal(t, degrade.Skip, ask(h, new(degrade.Denial)), "nothing wrong is served")
		})
	}
}

// A Within around a redirect costs a unit for each.
func TestRedirectBudget(t *testing.T) {
	b := &budgetOf{granted: 9}
	outcomes, written := askMany(t, degrade.Within(limiter.PerHour(9), degrade.Redirect(degrade.RedirectConfig{URL: "/wait"})), b)
	require.Equal(t, map[degrade.Outcome]int{degrade.Done: 9, degrade.Skip: 99_991}, outcomes)
	require.Equal(t, 9*len("Temporary Redirect: /wait\n"), written)
	require.Equal(t, map[string]int{"redirect": 100_000}, b.asked)
}
