package degrade

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// judge decides by status and header whether the response is to be stored, and makes the header of the copy.
func (x *recording) judge(h http.Header, now time.Time) {
	p := x.pages
	x.verdict = forbidden
	switch {
	case x.status >= 500, x.status == http.StatusPartialContent, x.status == http.StatusNotModified, x.status == http.StatusTooManyRequests:
		x.verdict = unsaid
		return
	}
	h = canonical(h)
	if len(h["X-Ratelimit-Degraded"]) > 0 || p.replayed(h["Cache-Status"]) {
		x.verdict = unsaid // of a guard further in: it is no response of the origin
		return
	}
	d := parseDirectives(h["Cache-Control"])
	encoded := len(h["Content-Encoding"]) > 0
	vary, ok := varyNames(h["Vary"], encoded)
	if !ok || !slices.Contains(p.statuses, x.status) || refused(h, &d) || x.asker == stranger && !d.public {
		return
	}
	x.verdict = allowed
	if x.length, ok = contentLength(h); !ok || x.length > int64(p.maxPage) || streams(h) {
		x.broken = true
		return
	}
	x.vary, x.taking = vary, true
	x.page = Page{
		Public: d.public, Status: x.status, Began: x.began, Stored: now,
		Age: initialAge(h, x.began, now), Lifetime: lifetime(h, &d, now), StaleIfError: seconds(d.staleIfError),
	}
	x.page.Header = x.copied(h)
	if _, ok := h["Date"]; !ok { // the server adds one, a little later
		x.page.Header["Date"] = []string{now.UTC().Format(http.TimeFormat)}
	}
}

// judgeAgain looks for what speaks against storing the response in the header that went out. A field that it depends on
// besides is taken over, but for Accept-Encoding: who compresses further out does so with copies, too.
func (x *recording) judgeAgain(h http.Header) {
	h = canonical(h)
	d := parseDirectives(h["Cache-Control"])
	late, ok := varyNames(h["Vary"], false)
	vary := slices.Clone(x.vary)
	for _, name := range late {
		if name != "Accept-Encoding" && !slices.Contains(vary, name) {
			vary = append(vary, name)
		}
	}
	if !ok || len(vary) > MaxVary || refused(h, &d) || x.asker == stranger && !d.public {
		x.verdict = forbidden
		x.stop()
		return
	}
	slices.Sort(vary)
	x.vary, x.page.Public = vary, x.page.Public && d.public
	if n := lifetime(h, &d, x.page.Stored); n >= 0 && n < x.page.Lifetime {
		x.page.Lifetime = n
	}
}

// refused reports whether a response must not be stored whatever the settings.
func refused(h http.Header, d *directives) bool {
	if d.forbids() || len(h["Set-Cookie"]) > 0 || len(h["Set-Cookie2"]) > 0 || len(h["Content-Range"]) > 0 {
		return true
	}
	// Older and narrower ways to say no-store: RFC 9111 5.4, RFC 9213, Edge Architecture 1.0, nginx.
	if len(h["Cache-Control"]) == 0 && containsFold(h["Pragma"], "no-cache") {
		return true
	}
	for _, name := range []string{"Cdn-Cache-Control", "Surrogate-Control"} {
		if lines := h[name]; len(lines) > 0 {
			if d := parseDirectives(lines); d.noStore || d.noCache || d.private || containsFold(lines, "no-store") {
				return true
			}
		}
	}
	return slices.Contains(h["X-Accel-Expires"], "0")
}

func containsFold(lines []string, word string) bool {
	return slices.ContainsFunc(lines, func(s string) bool { return strings.Contains(strings.ToLower(s), word) })
}

// streams reports whether the body has no end that could be waited for.
func streams(h http.Header) bool {
	return slices.ContainsFunc(h["Content-Type"], func(s string) bool {
		return strings.HasPrefix(strings.ToLower(strings.TrimSpace(s)), "text/event-stream")
	})
}

// contentLength returns what the response says, -1 for nothing.
func contentLength(h http.Header) (int64, bool) {
	lines := h["Content-Length"]
	if len(lines) == 0 {
		return -1, true
	}
	n, err := strconv.ParseInt(lines[0], 10, 64)
	return n, err == nil && n >= 0 && len(lines) == 1
}

// replayed reports whether a cache of our name has served the response, further in.
func (p *Pages) replayed(lines []string) bool {
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			name, rest, _ := strings.Cut(strings.TrimSpace(member), ";")
			if strings.TrimSpace(name) == p.name && strings.Contains(rest, "hit") {
				return true
			}
		}
	}
	return false
}

// canonical returns h with canonical names, h itself if they are: a handler may write into the map what it likes, and the
// server sends it so.
func canonical(h http.Header) http.Header {
	for name := range h {
		if http.CanonicalHeaderKey(name) == name {
			continue
		}
		c := make(http.Header, len(h))
		for name, values := range h {
			name = http.CanonicalHeaderKey(name)
			c[name] = append(c[name], values...)
		}
		return c
	}
	return h
}

// copied is what of h is replayed. What was there before the handler, as it was, is set by others for each request anew,
// unless it says what the body is. Nothing of it is shared with the handler: a short value may be a part of a long text,
// which would stay as long as the copy.
func (x *recording) copied(h http.Header) http.Header {
	hop := connectionFields(h)
	allow := allowsOrigin(h, x.vary)
	kept := func(name string, values []string) bool {
		switch {
		case dropped(name), slices.Contains(hop, name):
			return false
		case !allow && (name == "Access-Control-Allow-Origin" || name == "Access-Control-Allow-Credentials"):
			return false
		}
		return describes(name) || !same(x.held.before.get(name), values)
	}
	var few [16]string
	names, lines, size := few[:0], 0, 0
	for name, values := range h {
		if kept(name, values) {
			names, lines, size = append(names, name), lines+len(values), size+len(name)
			for _, v := range values {
				size += len(v)
			}
		}
	}
	var text strings.Builder
	text.Grow(size)
	for _, name := range names {
		text.WriteString(name)
		for _, v := range h[name] {
			text.WriteString(v)
		}
	}
	c, rest, all := make(http.Header, len(names)+laterFields), text.String(), make([]string, 0, lines)
	cut := func(n int) (s string) {
		s, rest = rest[:n], rest[n:]
		return s
	}
	for _, name := range names {
		own, lo := cut(len(name)), len(all)
		for _, v := range h[name] {
			all = append(all, cut(len(v)))
		}
		c[own] = all[lo:len(all):len(all)]
	}
	return c
}

// laterFields are added to those of a handler: Date, Content-Length and Content-Type.
const laterFields = 3

func same(before, values []string) bool { return len(before) > 0 && slices.Equal(before, values) }

// describes reports whether a field says what the body is, RFC 9110 8, or how long it is good.
func describes(name string) bool {
	switch name {
	case "Etag", "Last-Modified", "Cache-Control", "Expires", "Date", "Vary", "Location":
		return true
	}
	return strings.HasPrefix(name, "Content-")
}

// allowsOrigin reports whether Access-Control-Allow-Origin holds for whoever gets the copy.
func allowsOrigin(h http.Header, vary []string) bool {
	values := h["Access-Control-Allow-Origin"]
	return len(values) == 1 && values[0] == "*" || slices.Contains(vary, "Origin")
}

// connectionFields are the fields that Connection names, RFC 9110 7.6.1.
func connectionFields(h http.Header) (names []string) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// dropped reports whether a field belongs to one connection, one exchange or one caller, or is made anew for a copy.
func dropped(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", // RFC 9110 7.6.1
		"Set-Cookie", "Set-Cookie2", "Authentication-Info", "X-Csrf-Token", "X-Xsrf-Token",
		"Age", "Warning", "Content-Length", "Retry-After", "Ratelimit", "Server-Timing",
		"X-Request-Id", "X-Correlation-Id", "Request-Id", "X-Trace-Id", "X-Span-Id", "Traceparent", "Tracestate", "Traceresponse",
		"B3", "Uber-Trace-Id", "X-Amzn-Trace-Id", "X-Amzn-Requestid", "X-Amz-Request-Id", "X-Cloud-Trace-Context", "Sentry-Trace":
		return true
	}
	for _, prefix := range []string{"Proxy-", "Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-", "X-B3-", "X-Datadog-", http.TrailerPrefix} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
