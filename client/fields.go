package client

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// advice is what the fields of one response say about when more may be sent.
type advice struct {
	retry    time.Duration // Retry-After, 0 or more
	hasRetry bool
	bounds   []bound
}

// bound is what one policy of a server has left: no more than left requests in the next span.
type bound struct {
	name  string // "": not told
	left  int64
	span  time.Duration
	quota int64 // 0: not told
}

const (
	// mostSeconds bounds what others name, in seconds: what still fits a Duration.
	mostSeconds = 9_000_000_000
	// mostDelta tells a delta from an instant. No quota lasts longer than 400 days, and all instants since February 1971
	// are larger numbers.
	mostDelta = 400 * 24 * 60 * 60
	// leastMillis tells epoch milliseconds from seconds: as seconds it would be the year 5138.
	leastMillis = 100_000_000_000
	// mostText is the longest field that is read, in bytes, and mostBounds how many policies are obeyed.
	mostText   = 8 << 10
	mostBounds = 8
	// mostLines is how many lines of a field are looked at.
	mostLines = 8
)

// Canonical names of the fields.
const (
	keyAge       = "Age"
	keyDate      = "Date"
	keyRetry     = "Retry-After"
	keyState     = "Ratelimit"
	keyPolicy    = "Ratelimit-Policy"
	keyLeft06    = "Ratelimit-Remaining"
	keyQuota06   = "Ratelimit-Limit"
	keyReset06   = "Ratelimit-Reset"
	keyLeftX     = "X-Ratelimit-Remaining"
	keyQuotaX    = "X-Ratelimit-Limit"
	keyResetX    = "X-Ratelimit-Reset"
	keyLeftDash  = "X-Rate-Limit-Remaining"
	keyQuotaDash = "X-Rate-Limit-Limit"
	keyResetDash = "X-Rate-Limit-Reset"
)

var triples = [...]struct{ left, quota, reset string }{
	{keyLeft06, keyQuota06, keyReset06},
	{keyLeftX, keyQuotaX, keyResetX},
	{keyLeftDash, keyQuotaDash, keyResetDash},
}

// readAdvice reads Retry-After (RFC 9110 section 10.2.3) and, of the families of fields that tell a quota, the first that
// says something: RateLimit of draft-ietf-httpapi-ratelimit-headers-11 or -07, the three fields of its draft -06,
// X-RateLimit-*, X-Rate-Limit-*. now is when the response was read. What is malformed is as if it were not there.
func readAdvice(h http.Header, now time.Time) advice {
	var a advice
	age, aged := seconds(only(h[keyAge]))
	// Instants are the server's: count from its own reading of the clock, so that no skew matters. Date is cut to seconds,
	// so a wait is too long by less than one.
	clock := now
	if at, err := http.ParseTime(only(h[keyDate])); err == nil {
		clock = at.Add(span(age))
	}
	for _, line := range firstOf(h[keyRetry]) {
		if d, ok := readRetry(line, clock); ok {
			a.retry, a.hasRetry = max(a.retry, d), true
		}
	}
	// The draft, section 5: what has an age tells of somebody else's request.
	if aged && age > 0 {
		return a
	}
	if a.bounds = readState(h); a.bounds == nil {
		a.bounds = readDictionary(h)
	}
	for i := 0; a.bounds == nil && i < len(triples); i++ {
		t := &triples[i]
		a.bounds = readTriple(h[t.left], h[t.quota], h[t.reset], clock)
	}
	return a
}

// firstOf returns the lines that are looked at.
func firstOf(lines []string) []string { return lines[:min(len(lines), mostLines)] }

func only(lines []string) string {
	if len(lines) != 1 {
		return ""
	}
	return lines[0]
}

// seconds reads a non-negative decimal integer, saturating.
func seconds(text string) (int64, bool) {
	text = strings.Trim(text, " \t")
	if text == "" {
		return 0, false
	}
	n := int64(0)
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int64(c-'0'), 1_000_000_000_000_000)
	}
	return n, true
}

func span(secs int64) time.Duration { return time.Duration(min(secs, mostSeconds)) * time.Second }

func readRetry(text string, clock time.Time) (time.Duration, bool) {
	// What has been joined on its way is a list, and the longest wait of it counts.
	if n, ok := numbers([]string{text}, seconds, func(a, b int64) int64 { return max(a, b) }); ok {
		return span(n), true
	}
	// Some round nothing and send a fraction; it is an error by the RFC, and a wait all the same.
	text = strings.Trim(text, " \t")
	if whole, part, ok := strings.Cut(text, "."); ok && len(part) < 10 {
		n, good := seconds(whole)
		if _, digits := seconds(part); good && digits {
			return span(n + 1), true
		}
	}
	return readDate(text, clock)
}

func readDate(text string, clock time.Time) (time.Duration, bool) {
	at, err := http.ParseTime(text)
	if err != nil {
		// The form with UTC for GMT, as one library sends it.
		if at, err = time.Parse(time.RFC1123, text); err != nil || !strings.HasSuffix(text, " UTC") {
			return 0, false
		}
	}
	return min(max(at.Sub(clock), 0), mostSeconds*time.Second), true
}

// readState reads RateLimit as a List of named Items (drafts -08 to -11, and the a and w of the text after it).
func readState(h http.Header) []bound {
	list, ok := readList(h[keyState])
	if !ok {
		return nil
	}
	type policy struct {
		quota, window int64
		other         bool // counts something else than requests
	}
	policies := map[string]policy{}
	told, _ := readList(h[keyPolicy])
	for _, m := range told {
		name, p, ok := named(m)
		if !ok {
			continue
		}
		var known policy
		known.quota, _ = integer(p, "q")
		known.window, _ = integer(p, "w")
		if unit, has := p.Get("qu"); has && unit != "requests" && unit != "request" && unit != httpsfv.Token("requests") {
			known.other = true
		}
		policies[name] = known
	}
	var bounds []bound
	for _, m := range list {
		name, p, ok := named(m)
		if !ok {
			continue
		}
		left, hasLeft := remaining(p, "r")
		wait, hasWait := integer(p, "t")
		if !hasLeft {
			if left, hasLeft = remaining(p, "a"); hasLeft {
				wait, hasWait = integer(p, "w")
			}
		}
		about := policies[name]
		if !hasWait {
			wait, hasWait = about.window, about.window > 0
		}
		if !hasLeft || !hasWait || about.other {
			continue // without a window nothing follows: a bound on requests in flight has none
		}
		bounds = append(bounds, over(bound{name: name, left: left, span: span(wait), quota: about.quota}))
	}
	if len(bounds) > mostBounds {
		slices.SortStableFunc(bounds, func(a, b bound) int { return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(b.span, a.span)) })
		bounds = bounds[:mostBounds]
	}
	return bounds
}

func readList(lines []string) (httpsfv.List, bool) {
	lines = firstOf(lines)
	if !short(lines) {
		return nil, false
	}
	list, err := httpsfv.UnmarshalList(lines)
	return list, err == nil
}

// short tells whether there is something to read, and not more than anybody has reason to send.
func short(lines []string) bool {
	n := 0
	for _, l := range lines {
		n += len(l)
	}
	return n > 0 && n <= mostText
}

// named returns a member of a list that is an Item with a name.
func named(m httpsfv.Member) (string, *httpsfv.Params, bool) {
	item, ok := m.(httpsfv.Item)
	if !ok || item.Params == nil {
		return "", nil, false
	}
	switch v := item.Value.(type) {
	case string:
		return v, item.Params, true
	case httpsfv.Token:
		return string(v), item.Params, true
	}
	return "", nil, false
}

// integer returns a parameter that is an Integer of 0 or more.
func integer(p *httpsfv.Params, name string) (int64, bool) {
	v, _ := p.Get(name)
	n, ok := v.(int64)
	return n, ok && n >= 0
}

// remaining returns a parameter that is an Integer; what is below nothing is nothing.
func remaining(p *httpsfv.Params, name string) (int64, bool) {
	v, _ := p.Get(name)
	n, ok := v.(int64)
	return max(n, 0), ok
}

// readDictionary reads RateLimit as draft -07 has it: limit=100, remaining=50, reset=30.
func readDictionary(h http.Header) []bound {
	lines := firstOf(h[keyState])
	if !short(lines) {
		return nil
	}
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return nil
	}
	number := func(name string) (int64, bool) {
		m, _ := dict.Get(name)
		item, ok := m.(httpsfv.Item)
		if !ok {
			return 0, false
		}
		n, ok := item.Value.(int64)
		return n, ok
	}
	left, hasLeft := number("remaining")
	reset, hasReset := number("reset")
	quota, _ := number("limit")
	if !hasLeft || !hasReset || reset < 0 {
		return nil
	}
	left, quota = max(left, 0), max(quota, 0)
	return []bound{over(bound{left: left, span: span(reset), quota: quota})}
}

// over is a bound whose time was over when it was read, as after a handler that took long: the whole quota is back.
func over(b bound) bound {
	if b.span == 0 {
		b.left, b.span = max(b.left, b.quota), time.Second
	}
	return b
}

// readTriple reads the three fields of a family. Several values, as of limiters one behind another, are one: the fewest
// units left until the latest reset.
func readTriple(left, quota, reset []string, clock time.Time) []bound {
	n, ok := numbers(left, atLeastNothing, func(a, b int64) int64 { return min(a, b) })
	if !ok {
		return nil
	}
	wait, ok := readReset(reset, clock)
	if !ok {
		return nil
	}
	q, _ := numbers(quota, seconds, func(a, _ int64) int64 { return a })
	return []bound{over(bound{left: n, span: wait, quota: q})}
}

// atLeastNothing reads a decimal integer; what is below nothing is nothing.
func atLeastNothing(text string) (int64, bool) {
	n, negative := strings.CutPrefix(strings.Trim(text, " \t"), "-")
	v, ok := seconds(n)
	if negative {
		v = 0
	}
	return v, ok
}

// numbers reads integers in a list, each perhaps with parameters behind a semicolon, and folds them into one.
func numbers(lines []string, read func(string) (int64, bool), fold func(a, b int64) int64) (n int64, ok bool) {
	lines = firstOf(lines)
	if !short(lines) {
		return 0, false
	}
	for _, line := range lines {
		for text := range strings.SplitSeq(line, ",") {
			text, _, _ = strings.Cut(text, ";")
			v, good := read(text)
			if !good {
				return 0, false
			}
			if ok {
				v = fold(n, v)
			}
			n, ok = v, true
		}
	}
	return n, ok
}

// readReset reads when a quota is back: seconds from now, or an instant in epoch seconds or milliseconds, which are told
// apart by their size, or a date.
func readReset(lines []string, clock time.Time) (time.Duration, bool) {
	if n, ok := numbers(lines, seconds, func(a, b int64) int64 { return max(a, b) }); ok {
		return sinceReset(n, clock)
	}
	text := strings.Trim(only(lines), " \t")
	if len(text) > 40 {
		return 0, false
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f < mostSeconds {
		return sinceReset(int64(f)+1, clock) // a fraction, rounded up
	}
	d, ok := readDate(text, clock)
	return d, ok && d <= mostDelta*time.Second
}

// sinceReset refuses an instant further away than any quota lasts, as in microseconds.
func sinceReset(n int64, clock time.Time) (time.Duration, bool) {
	at := time.UnixMilli(n)
	switch {
	case n <= mostDelta:
		return span(n), true
	case n < leastMillis:
		at = time.Unix(n, 0)
	}
	d := max(at.Sub(clock), 0)
	return d, d <= mostDelta*time.Second
}
