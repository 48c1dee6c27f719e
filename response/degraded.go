package response

import "net/http"

const keyDegraded = "X-Ratelimit-Degraded"

// reserved are fields that say something else already, in canonical form.
var reserved = map[string]bool{
	keyRetry: true, keyState: true, keyPolicy: true, keyXLimit: true, keyXRemaining: true, keyXReset: true, key06Limit: true, key06Left: true,
	key06Reset: true, "Age": true, "Cache-Control": true, "Cache-Status": true, "Connection": true, "Content-Encoding": true, "Content-Length": true,
	"Content-Type": true, "Date": true, "Etag": true, "Location": true, "Set-Cookie": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Vary": true,
}

// isToken reports whether name can be the name of a field (RFC 9110 section 5.1).
func isToken(name string) bool {
	for k := range len(name) {
		c := name[k]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && !containsByte("!#$%&'*+-.^_`|~", c) {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

func containsByte(s string, c byte) bool {
	for k := range len(s) {
		if s[k] == c {
			return true
		}
	}
	return false
}

// WriteDegraded names what a refused request gets instead, in the field that [Options] say.
func (x *Renderer) WriteDegraded(h http.Header, mode string) {
	if x.degraded != "" {
		h[x.degraded] = []string{mode}
	}
}
