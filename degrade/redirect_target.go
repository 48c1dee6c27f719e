package degrade

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/spillway-go/spillway/limiter"
)

func newRedirect(cfg RedirectConfig) *redirect {
	x := &redirect{status: cfg.Status, noRetryAfter: cfg.NoRetryAfter}
	wrong := func(format string, args ...any) {
		x.errs = append(x.errs, fmt.Errorf("degrade: Redirect: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if cfg.Status != 0 && cfg.Status != http.StatusSeeOther && cfg.Status != http.StatusTemporaryRedirect {
		wrong("Status: %d, want 303 or 307, or 0 for the one that suits the method", cfg.Status)
	}
	if strings.ContainsFunc(cfg.Return, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\ufffd' }) {
		wrong("Return: %q is no name of a parameter", cfg.Return)
	}
	u, err := parseTarget(cfg.URL)
	if err != nil {
		wrong("URL: %w", err)
		return x
	}
	if cfg.Return != "" && u.Query().Has(cfg.Return) {
		wrong("Return: %q is a parameter of URL already", cfg.Return)
	}
	x.host, x.path = targetHost(u), targetPath(u.Path)
	u.RawQuery = escapeQuery(u.RawQuery)
	x.plain = u.String()
	if cfg.Return == "" {
		return x
	}
	target := *u
	target.Fragment, target.RawFragment, target.RawQuery, target.ForceQuery = "", "", "", false
	x.before = target.String() + "?"
	if u.RawQuery != "" {
		x.before += u.RawQuery + "&"
	}
	x.before += url.QueryEscape(cfg.Return) + "="
	if u.Fragment != "" {
		x.after = "#" + u.EscapedFragment()
	}
	return x
}

// parseTarget accepts what all clients take for the same place. Browsers read a backslash as a slash and drop tabs and line
// ends, so that "/\host" is another host to them.
func parseTarget(s string) (*url.URL, error) {
	if s == "" {
		return nil, fmt.Errorf("required")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return nil, fmt.Errorf("%q has a blank, a control character or a backslash", s)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q: %w", s, err)
	case u.User != nil:
		return nil, fmt.Errorf("it has a user, which everybody would be told")
	case u.Scheme == "" && (u.Host != "" || !staysHere(s) || !staysHere(u.EscapedPath())): // where net/url escapes anew, %2F becomes a slash
		return nil, fmt.Errorf("%q, want http://…, https://… or a path that begins with one slash", s)
	case u.Scheme == "":
		return u, nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("%q, want http://…, https://… or a path that begins with one slash", s)
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > 0x7f }):
		return nil, fmt.Errorf("%q: write the host in ASCII (xn--…)", s)
	}
	return u, nil
}

// escapeQuery escapes what a Location may not have: net/url keeps queries as they are.
func escapeQuery(q string) string {
	var b strings.Builder
	for i := range len(q) {
		if c := q[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// targetHost returns the host as requests are compared by: without the ports that the schemes have anyway, as nobody knows
// which scheme a request came by.
func targetHost(u *url.URL) string {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if port := u.Port(); port != "" && port != "80" && port != "443" {
		host += ":" + port
	}
	return host
}

// targetPath returns the path as requests are compared by. Routers send "/wait/" and "//wait" on to "/wait", or the other way
// round.
func targetPath(p string) string { return path.Clean("/" + p) }

// arrived reports whether the request is for the target itself.
func (x *redirect) arrived(r *http.Request) bool {
	if x.host != "" && x.host != targetHost(&url.URL{Host: r.Host}) {
		return false
	}
	if targetPath(r.URL.Path) == x.path {
		return true
	}
	u := asSent(r) // a mux may have taken a prefix off
	return u != nil && targetPath(u.Path) == x.path
}

// asSent returns the target of the request as the client has sent it; nil if it has none.
func asSent(r *http.Request) *url.URL {
	if r.RequestURI == "" { // not from a server
		return r.URL
	}
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return nil
	}
	return u
}

// maxWayBack bounds the way back, in bytes: servers accept longer targets than others accept fields.
const maxWayBack = 2048

// wayBack returns path and query of the request, or "" where they might lead to another host in the hands of the page that
// gets them. Beside "//host" and what browsers take for it, that is what becomes it after one decoding too many, and dot
// segments, which no browser sends.
func wayBack(r *http.Request) string {
	u := asSent(r)
	if u == nil {
		return ""
	}
	back := u.EscapedPath()
	if u.RawQuery != "" {
		back += "?" + u.RawQuery
	}
	if len(back) > maxWayBack || !staysHere(back) || !staysHere(u.Path) {
		return ""
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return ""
		}
	}
	return back
}

// staysHere reports whether a reference begins with exactly one slash, in all readings.
func staysHere(s string) bool {
	return len(s) > 0 && s[0] == '/' && (len(s) == 1 || s[1] != '/') &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
}
