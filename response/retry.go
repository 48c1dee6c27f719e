package response

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// waitSeconds is a wait as t tells it: rounded up, at least 1, capped. Never is not a wait.
func (x *Renderer) waitSeconds(wait time.Duration) int64 {
	return min(max(1, ceilSeconds(wait)), x.maxRetry)
}

// spread adds the jitter to a wait. It only ever adds, so that nobody comes back before the wait is over.
func (x *Renderer) spread(wait time.Duration) time.Duration {
	wait = max(wait, 0)
	if x.jitter > 0 {
		// Waits saturate at 9·10¹⁸ ns, a day is 8.64·10¹³ ns: the sum fits.
		wait += time.Duration(rand.Int64N(int64(x.jitter) + 1))
	}
	return wait
}

// appendRetry appends the Retry-After of a wait that includes its jitter, and returns the seconds a client will wait
// from now (RFC 9110 section 10.2.3).
func (x *Renderer) appendRetry(b []byte, wait time.Duration, now time.Time) ([]byte, int64) {
	if !x.retryDate {
		secs := x.waitSeconds(wait)
		return strconv.AppendInt(b, secs, 10), secs
	}
	wait = min(wait, time.Duration(x.maxRetry)*time.Second)
	// A date says less than seconds do: round up the instant, and never name a second that has begun.
	at := max(ceilEpoch(now, wait), now.Unix()+1)
	return time.Unix(at, 0).UTC().AppendFormat(b, http.TimeFormat), ceilSeconds(time.Unix(at, 0).Sub(now))
}

// mostRetry bounds waits that others ask for, in seconds: what still fits a Duration when rounded up.
const mostRetry = 9_000_000_000

// parseRetry reads the field a limiter or anybody else has set already, and returns the longest wait its lines ask for,
// saturating, and that line. now is called for dates alone.
func parseRetry(lines []string, now func() time.Time) (wait time.Duration, line string, ok bool) {
	for _, text := range lines {
		d, good := parseRetryLine(text, now)
		if good && (!ok || d > wait) {
			wait, line, ok = d, text, true
		}
	}
	return wait, line, ok
}

func parseRetryLine(text string, now func() time.Time) (time.Duration, bool) {
	if n := len(text); n > 0 && (text[0] <= ' ' || text[n-1] <= ' ') {
		text = strings.Trim(text, " \t")
	}
	if text == "" {
		return 0, false
	}
	secs := int64(0)
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			// The shortest of the three date forms has 24 bytes; do not pay for parsing anything else.
			if len(text) < 24 {
				return 0, false
			}
			at, err := http.ParseTime(text)
			if err != nil {
				return 0, false
			}
			return min(at.Sub(now()), mostRetry*time.Second), true
		}
		secs = min(secs*10+int64(c-'0'), mostRetry)
	}
	return time.Duration(secs) * time.Second, true
}

// told returns the wait that h already asks for if it is enough for wait, and reduces the field to that one line. A
// limiter further out, or the guard itself, may have set it: the longest wait wins.
func (x *Renderer) told(h http.Header, wait time.Duration, now func() time.Time) (time.Duration, bool) {
	lines := h[keyRetry]
	if len(lines) == 0 {
		return 0, false
	}
	have, line, ok := parseRetry(lines, now)
	if !ok {
		return 0, false
	}
	// Compare waits, not rounded seconds: a date a little before the end of the wait would round up to the same second.
	if wait != limiter.Never && (have <= 0 || have < min(wait, time.Duration(x.maxRetry)*time.Second)) {
		return 0, false
	}
	if len(lines) > 1 {
		h[keyRetry] = []string{line}
	}
	return have, true
}
