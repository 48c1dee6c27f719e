package response

import (
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// merge is what a limiter further out, or an earlier stage, has put on the response.
type merge struct {
	keep   bool   // it refused, we do not: leave everything alone
	enough bool   // its Retry-After covers our wait
	hasX   bool   // the response has, or had, X fields
	leftX  int64  // units left in them
	draft  Draft  // the form of its RateLimit
	policy string // the first line of its RateLimit-Policy
	has06  bool   // it tells one state in the manner of drafts 6 and 7
	left06 int64  // units left there
}

// stale are the fields that a pass may have told and a refusal must not keep.
var stale = [...]string{keyState, keyXLimit, keyXRemaining, keyXReset, key06Limit, key06Left, key06Reset}

// existing reads the fields already set, and drops those that ours make untrue.
func (x *Renderer) existing(h http.Header, s *sheet, now time.Time) (m merge) {
	prior := len(h[keyRetry]) > 0 // only refusals carry it
	if prior && !s.refused {
		m.keep = true
		return m
	}
	if prior {
		_, m.enough = x.told(h, s.wait, func() time.Time { return now })
	}
	if v := h[keyXRemaining]; len(v) > 0 {
		m.hasX, m.leftX = true, parseLeft(v[0])
	}
	if v := h[keyState]; len(v) > 0 {
		switch {
		case !isNamed(v[0]):
			m.draft = Draft07
			if _, text, ok := strings.Cut(v[0], "remaining="); ok {
				m.has06, m.left06 = true, parseLeft(text)
			}
		case strings.Contains(v[0], `";a=`):
			m.draft = DraftNext
		default:
			m.draft = Draft11
		}
	} else if v := h[key06Left]; len(v) > 0 {
		m.draft, m.has06, m.left06 = Draft06, true, parseLeft(v[0])
	}
	if v := h[keyPolicy]; len(v) > 0 {
		m.policy = v[0]
	}
	if s.refused && !prior {
		// What passes told is not why this request fails: "56 left" on a refusal sends the client back at once.
		for _, key := range stale {
			delete(h, key)
		}
		m.leftX, m.left06 = math.MaxInt64, math.MaxInt64
	}
	return m
}

// ours reports whether a single-policy family is to describe our policy rather than the one already described, which has
// so many units left. Between two refusals the longer wait counts.
func (s *sheet) ours(old *merge, ln *line, left int64) bool {
	if s.refused {
		return !old.enough || s.wait == limiter.Never
	}
	return ln.r < left
}

// named reports whether RateLimit is a list of named policies.
func (d Draft) named() bool { return d == Draft11 || d == DraftNext }

// isNamed reports whether the value of a field is a list of named policies, to which others can be added.
func isNamed(v string) bool { return strings.HasPrefix(strings.TrimLeft(v, " \t"), `"`) }

// appendLines appends the lines of a list field as one list (RFC 9110 section 5.3).
func appendLines(b []byte, lines []string) []byte {
	from := len(b)
	for _, v := range lines {
		if v == "" {
			continue
		}
		if len(b) > from {
			b = append(b, ", "...)
		}
		b = append(b, v...)
	}
	return b
}

// parseLeft reads the units left at the start of text; unreadable ones count as plenty, so that ours replace them.
func parseLeft(text string) int64 {
	text = strings.TrimLeft(text, " \t")
	n, i := int64(0), 0
	for ; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		n = min(n*10+int64(text[i]-'0'), maxInteger)
	}
	if i == 0 {
		return math.MaxInt64
	}
	return n
}
