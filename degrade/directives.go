package degrade

import "strings"

// maxDelta is the largest delta-seconds: RFC 9111 1.2.2 asks to take anything above as this.
const maxDelta = 1 << 31

// directives is what the lines of one Cache-Control field say together, of a request or a response. Whatever is not
// understood is bad: a directive that might have been a prohibition must not be passed over.
type directives struct {
	bad bool // not a list of directives, or a number that is none

	noStore, noCache, private, public bool
	revalidate                        bool // must-revalidate, proxy-revalidate or s-maxage: never to be served stale, RFC 9111 4.2.4

	maxAge, staleIfError, minFresh, maxStale int64 // seconds; -1: not said
	anyStale                                 bool  // max-stale without a number
}

// parseDirectives reads all lines of a Cache-Control field by the grammar of RFC 9111 5.2. Of a number said twice, the
// stricter one counts.
func parseDirectives(lines []string) directives {
	d := directives{maxAge: -1, staleIfError: -1, minFresh: -1, maxStale: -1}
	for _, s := range lines {
		for s = afterCommas(s); s != "" && !d.bad; s = afterCommas(s) {
			name, rest := cutToken(s)
			value, given := "", false
			if strings.HasPrefix(rest, "=") {
				given = true
				value, rest, d.bad = cutArgument(rest[1:])
			}
			if rest = strings.TrimLeft(rest, " \t"); name == "" || rest != "" && rest[0] != ',' {
				d.bad = true
			}
			if !d.bad {
				d.take(strings.ToLower(name), value, given)
			}
			s = rest
		}
	}
	return d
}

func (d *directives) take(name, value string, given bool) {
	switch name {
	case "no-store":
		d.noStore = true
	case "no-cache": // with a list of fields too: what is left out of a copy is not told apart
		d.noCache = true
	case "private":
		d.private = true
	case "public":
		d.public = d.public || !given
	case "must-revalidate", "proxy-revalidate", "s-maxage":
		d.revalidate = true
	case "max-age":
		d.lower(&d.maxAge, value)
	case "stale-if-error":
		d.lower(&d.staleIfError, value)
	case "max-stale":
		if given {
			d.lower(&d.maxStale, value)
		} else {
			d.anyStale = true
		}
	case "min-fresh":
		if n, ok := deltaSeconds(value); ok {
			d.minFresh = max(d.minFresh, n)
		} else {
			d.bad = true
		}
	}
}

func (d *directives) lower(x *int64, value string) {
	switch n, ok := deltaSeconds(value); {
	case !ok:
		d.bad = true
	case *x < 0 || n < *x:
		*x = n
	}
}

// forbids reports whether a response with these directives is never to be served by a shared store that does not ask the
// origin.
func (d *directives) forbids() bool {
	return d.bad || d.noStore || d.noCache || d.private || d.revalidate
}

// deltaSeconds reads RFC 9111 1.2.2: digits, which may be more than any number has.
func deltaSeconds(s string) (int64, bool) {
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), maxDelta)
	}
	return n, s != ""
}

// afterCommas skips empty elements of a list.
func afterCommas(s string) string { return strings.TrimLeft(s, " \t,") }

func cutToken(s string) (token, rest string) {
	i := 0
	for i < len(s) && isTokenByte(s[i]) {
		i++
	}
	return s[:i], s[i:]
}

// cutArgument cuts a token or a quoted-string, without its quotes, off s.
func cutArgument(s string) (value, rest string, bad bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest = cutToken(s)
		return value, rest, value == ""
	}
	var b []byte // of a string with escapes
	escapes := false
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			if escapes {
				return string(b), s[i+1:], false
			}
			return s[1:i], s[i+1:], false
		case c == '\\' && i+1 < len(s):
			if !escapes {
				b, escapes = append(b, s[1:i]...), true
			}
			i++
			c = s[i]
		case c == '\\':
			return "", "", true
		}
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", "", true
		}
		if escapes {
			b = append(b, c)
		}
	}
	return "", "", true // the closing quote is missing
}

func isToken(s string) bool {
	_, rest := cutToken(s)
	return s != "" && rest == ""
}

func isTokenByte(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}
