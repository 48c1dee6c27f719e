package response

import (
	"net/http"
	"strings"
)

const (
	keyExpose      = "Access-Control-Expose-Headers"
	keyCredentials = "Access-Control-Allow-Credentials"
	keyOrigin      = "Origin"
)

const (
	exposed   = "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
	exposed06 = exposed + ", RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset"
)

var (
	exposedLine   = []string{exposed}
	exposedLine06 = []string{exposed06}
)

// exposeFields lets scripts of another origin read the rate limit fields: none of them is safelisted by the Fetch
// standard. Names that are listed already are not repeated, and lines of others are kept.
func exposeFields(h http.Header, r *http.Request, draft06 bool) {
	if !crossOrigin(r) {
		return
	}
	line := exposedLine
	if draft06 {
		line = exposedLine06
	}
	have := h[keyExpose]
	if len(have) == 0 {
		h[keyExpose] = line
		return
	}
	if &have[0] == &line[0] {
		return
	}
	// With credentials "*" is an ordinary name, without it is everything.
	if listed(have, "*") && !hasCredentials(h) {
		return
	}
	var missing []byte
	for name := range strings.SplitSeq(line[0], ", ") {
		if listed(have, name) {
			continue
		}
		if len(missing) > 0 {
			missing = append(missing, ", "...)
		}
		missing = append(missing, name...)
	}
	if len(missing) == 0 {
		return
	}
	// A list over several lines is one list, but some clients of the field read the first line only.
	all := appendLines(nil, have)
	if len(all) > 0 {
		all = append(all, ", "...)
	}
	h[keyExpose] = []string{string(append(all, missing...))}
}

func hasCredentials(h http.Header) bool {
	v := h[keyCredentials]
	return len(v) > 0 && v[0] == "true"
}

// listed reports whether a list field has a name, in any case.
func listed(lines []string, name string) bool {
	for _, line := range lines {
		for v := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(v, " \t"), name) {
				return true
			}
		}
	}
	return false
}

// crossOrigin reports whether the request comes from a page of another origin. Behind a proxy the scheme is not known
// and hosts alone are compared. A wrong yes is harmless: it names fields that the page could read anyway.
func crossOrigin(r *http.Request) bool {
	v := r.Header[keyOrigin]
	if len(v) == 0 || v[0] == "" {
		return false
	}
	scheme, host, ok := strings.Cut(v[0], "://")
	if !ok {
		return true // "null": a page without an origin of its own
	}
	return !strings.EqualFold(host, r.Host) || r.TLS != nil && scheme != "https"
}
