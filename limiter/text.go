package limiter

import (
	"encoding"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxText is how many bytes a limit text may have. The longest canonical one has about half of that.
const maxText = 200

// textUnits are the units of a period, the longest first. The first name of each is the canonical one.
var textUnits = [...]struct {
	names []string
	d     time.Duration
}{
	{[]string{"d", "day"}, 24 * time.Hour},
	{[]string{"h", "hour"}, time.Hour},
	{[]string{"m", "min", "minute"}, time.Minute},
	{[]string{"s", "sec", "second"}, time.Second},
	{[]string{"ms"}, time.Millisecond},
	{[]string{"us"}, time.Microsecond},
	{[]string{"ns"}, time.Nanosecond},
}

// ParseLimit reads a limit as people write it:
//
//	RATE/PERIOD [ALGORITHM] [burst N] [cells N] [align day|week|month [ZONE]]
//	unlimited
//	deny_all
//
// for example "600/m", "5/s burst 20", "10/500ms sliding_window cells 10", "25/day fixed_window align day Asia/Shanghai".
// Words are separated by spaces or tabs; case does not matter, but in the name of a zone. What follows the rate may come
// in any order, each at most once.
//
//   - RATE and N are whole decimal numbers from 1, without a sign. What is left out has its default, see [Limit]: an
//     explicit 0 is an error.
//   - PERIOD is a unit, or numbers with units from the longest to the shortest: d (day), h (hour), m (min, minute),
//     s (sec, second), ms, us, ns, as in "2m", "1h30m", "7d". An "m" is a minute in either case, never a month.
//   - ALGORITHM is token_bucket (the default), gcra (the same), leaky_bucket, fixed_window, sliding_window or
//     sliding_log. burst belongs to the buckets, cells to sliding_window, align to fixed_window: with another algorithm
//     each is an error, and none chooses its algorithm by itself.
//   - With align the windows are calendar units, so the period may be left out, "25 fixed_window align day". One that is
//     written must say the same ("25/day", "100/week", "1000/month", "25/24h"); the Limit's Period is zero either way.
//
// The result is valid. Any error wraps [ErrInvalid], shows the text, shortened, and says what is wrong with it.
func ParseLimit(s string) (Limit, error) {
	l, err := parseLimit(s)
	if err != nil {
		return Limit{}, fmt.Errorf("%w: limit %s: %w", ErrInvalid, shown(s), err)
	}
	return l, nil
}

// shown quotes a text for an error, shortened: it may be long, or hostile to logs.
func shown(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return strconv.Quote(s)
}

func parseLimit(s string) (Limit, error) {
	if len(s) > maxText {
		return Limit{}, fmt.Errorf("%d bytes are more than %d", len(s), maxText)
	}
	for i := range len(s) {
		if c := s[i]; c != '\t' && (c < ' ' || c > '~') {
			return Limit{}, fmt.Errorf("byte %#02x at %d is not printable ASCII", c, i)
		}
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		return Limit{}, errors.New("empty; say unlimited or deny_all if that is meant")
	}
	for _, whole := range [...]Limit{Unlimited, DenyAll} {
		if name := whole.Algorithm.String(); strings.EqualFold(words[0], name) {
			if len(words) > 1 {
				return Limit{}, fmt.Errorf("%s is a limit of its own: nothing may follow it", name)
			}
			return whole, nil
		}
	}

	var l Limit
	rate, period, hasPeriod := strings.Cut(words[0], "/")
	var err error
	if l.Rate, err = parseCount("rate", rate, MaxRate); err != nil {
		return Limit{}, err
	}
	var seen struct{ algorithm, burst, cells, align bool }
	once := func(what string, flag *bool) error {
		if *flag {
			return fmt.Errorf("%s is given twice", what)
		}
		*flag = true
		return nil
	}
	for rest := words[1:]; len(rest) > 0; {
		word := strings.ToLower(rest[0])
		rest = rest[1:]
		value := func() (v string) {
			if len(rest) > 0 {
				v, rest = rest[0], rest[1:]
			}
			return v
		}
		switch word {
		case "burst":
			if err = once(word, &seen.burst); err == nil {
				l.Burst, err = parseCount(word, value(), MaxRate)
			}
		case "cells":
			if err = once(word, &seen.cells); err == nil {
				l.Cells, err = parseCount(word, value(), MaxCells)
			}
		case "align":
			if err = once(word, &seen.align); err != nil {
				break
			}
			l.Align.Unit, err = parseUnit(value())
			if err == nil && len(rest) > 0 && !isLimitWord(rest[0]) {
				l.Align.Zone = value()
			}
		default:
			a, ok := parseAlgorithm(word)
			if !ok {
				return Limit{}, fmt.Errorf("%s is none of an algorithm, burst, cells, align", shown(word))
			}
			l.Algorithm, err = a, once("the algorithm", &seen.algorithm)
		}
		if err != nil {
			return Limit{}, err
		}
	}
	switch {
	case seen.burst && l.Algorithm != TokenBucket && l.Algorithm != LeakyBucket:
		return Limit{}, fmt.Errorf("burst belongs to token_bucket and leaky_bucket, not to %v", l.Algorithm)
	case seen.cells && l.Algorithm != SlidingWindow:
		return Limit{}, fmt.Errorf("cells belong to sliding_window, not to %v", l.Algorithm)
	case seen.align && l.Algorithm != FixedWindow:
		return Limit{}, fmt.Errorf("align belongs to fixed_window, not to %v", l.Algorithm)
	case seen.align && hasPeriod:
		err = checkAligned(period, l.Align.Unit)
	case !hasPeriod && !seen.align:
		err = errors.New("the period is missing; write RATE/PERIOD, such as 600/m")
	case hasPeriod:
		l.Period, err = parsePeriod(period)
	}
	if err != nil {
		return Limit{}, err
	}
	if err := l.Validate(); err != nil {
		// One prefix and one line are enough here.
		text := strings.ReplaceAll(err.Error(), ErrInvalid.Error()+": ", "")
		return Limit{}, errors.New(strings.ReplaceAll(text, "\n", "; "))
	}
	return l, nil
}

// parseCount reads a whole number in 1…most. It is stricter than strconv: no sign, no underscore, no fraction.
func parseCount(what, s string, most int) (int, error) {
	if s == "" {
		return 0, fmt.Errorf("the number of %s is missing", what)
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("%s %s is not a whole number in plain digits", what, shown(s))
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > uint64(most) {
		return 0, fmt.Errorf("%s %s is outside 1…%d", what, shown(s), most)
	}
	if n == 0 {
		if what == "rate" {
			return 0, fmt.Errorf("rate 0 is outside 1…%d; say deny_all or unlimited if that is meant", most)
		}
		return 0, fmt.Errorf("%s 0 is outside 1…%d; leave it out for the default", what, most)
	}
	return int(n), nil
}

// parsePeriod reads a unit, or numbers with units in descending order.
func parsePeriod(s string) (time.Duration, error) {
	const outside = "period %s is outside 1us…366d"
	if s == "" {
		return 0, errors.New("the period after / is missing")
	}
	if u := textUnit(s); u >= 0 {
		return textUnits[u].d, nil
	}
	if strings.EqualFold(s, "week") || strings.EqualFold(s, "month") {
		return 0, fmt.Errorf("period %s needs align %s; without it say 7d or 30d", shown(s), strings.ToLower(s))
	}
	var sum time.Duration
	last := -1
	for rest := s; rest != ""; {
		digits := leading(rest, func(c byte) bool { return c >= '0' && c <= '9' })
		rest = rest[len(digits):]
		name := leading(rest, func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' })
		rest = rest[len(name):]
		u := textUnit(name)
		switch {
		case digits == "" || u < 0:
			return 0, fmt.Errorf("period %s is not whole numbers with units d, h, m, s, ms, us, ns", shown(s))
		case u <= last:
			return 0, fmt.Errorf("period %s does not name its units once each, the longest first", shown(s))
		}
		last = u
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n > uint64(MaxPeriod/textUnits[u].d) {
			return 0, fmt.Errorf(outside, shown(s))
		}
		// At most seven addends of 366 days: no overflow.
		sum += time.Duration(n) * textUnits[u].d
	}
	if sum < MinPeriod || sum > MaxPeriod {
		return 0, fmt.Errorf(outside, shown(s))
	}
	return sum, nil
}

func leading(s string, is func(byte) bool) string {
	n := 0
	for n < len(s) && is(s[n]) {
		n++
	}
	return s[:n]
}

// textUnit returns the index of a unit, or −1.
func textUnit(name string) int {
	for i, u := range textUnits {
		for _, n := range u.names {
			if strings.EqualFold(n, name) {
				return i
			}
		}
	}
	return -1
}

// checkAligned reports whether a period written beside align says the same as it: "25/h … align day" is a mistake.
func checkAligned(period string, u Unit) error {
	if strings.EqualFold(period, u.String()) {
		return nil
	}
	if d, err := parsePeriod(period); err == nil &&
		(u == Day && d == 24*time.Hour || u == Week && d == 7*24*time.Hour) {
		return nil
	}
	return fmt.Errorf("period %s contradicts align %v; leave it out", shown(period), u)
}

func parseUnit(s string) (Unit, error) {
	for u := Day; int(u) < len(unitNames); u++ {
		if strings.EqualFold(s, unitNames[u]) {
			return u, nil
		}
	}
	return 0, fmt.Errorf("align %s is none of day, week, month", shown(s))
}

func parseAlgorithm(word string) (Algorithm, bool) {
	if word == "gcra" {
		return TokenBucket, true
	}
	for _, a := range Algorithms() {
		if word == algorithmNames[a] {
			return a, true
		}
	}
	return 0, false
}

// isLimitWord tells the words of the grammar from the name of a zone.
func isLimitWord(s string) bool {
	s = strings.ToLower(s)
	if s == "burst" || s == "cells" || s == "align" {
		return true
	}
	_, ok := parseAlgorithm(s)
	return ok
}

// String returns the shortest text that [ParseLimit] reads as l, such as "600/m" or "5/s burst 20". What is zero in l,
// and so has its default, is left out; so is what the algorithm ignores: the Burst of a window or log, the Period of a
// window aligned to the calendar. But for these ignored fields a valid limit comes back equal. The text of an invalid
// limit shows its fields and is refused by ParseLimit.
func (l Limit) String() string {
	return string(l.appendText(make([]byte, 0, 64)))
}

func (l Limit) appendText(b []byte) []byte {
	switch l {
	case Limit{}:
		return append(b, "zero limit"...)
	case Unlimited, DenyAll:
		return append(b, l.Algorithm.String()...)
	}
	b = strconv.AppendInt(b, int64(l.Rate), 10)
	if l.Align.Unit == Epoch {
		b = append(b, '/')
		b = appendPeriod(b, l.Period)
	}
	if l.Algorithm != TokenBucket {
		b = append(b, ' ')
		b = append(b, l.Algorithm.String()...)
	}
	// A negative burst makes any limit invalid, and must show.
	if buckets := l.Algorithm == TokenBucket || l.Algorithm == LeakyBucket; l.Burst != 0 && (buckets || l.Burst < 0 || l.Burst > MaxRate) {
		b = append(b, " burst "...)
		b = strconv.AppendInt(b, int64(l.Burst), 10)
	}
	if l.Cells != 0 {
		b = append(b, " cells "...)
		b = strconv.AppendInt(b, int64(l.Cells), 10)
	}
	if l.Align != (Align{}) {
		b = append(b, " align "...)
		b = append(b, l.Align.Unit.String()...)
		if l.Align.Zone != "" {
			b = append(b, ' ')
			b = append(b, zoneText(l.Align.Zone)...)
		}
	}
	return b
}

// zoneText returns the name of a zone as one clean word: that of an invalid limit may hold anything.
func zoneText(s string) string {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '"' {
			return strconv.Quote(s)
		}
	}
	return s
}

// appendPeriod writes a period in the largest unit that divides it, "90m", or in several where that is shorter,
// "1h1ns".
func appendPeriod(b []byte, d time.Duration) []byte {
	if d <= 0 {
		return append(b, d.String()...)
	}
	for _, u := range textUnits {
		if d == u.d {
			return append(b, u.names[0]...)
		}
	}
	start := len(b)
	for _, u := range textUnits {
		if d%u.d == 0 {
			b = strconv.AppendInt(b, int64(d/u.d), 10)
			b = append(b, u.names[0]...)
			break
		}
	}
	single := len(b)
	rest := d
	for _, u := range textUnits {
		if n := rest / u.d; n > 0 {
			b = strconv.AppendInt(b, int64(n), 10)
			b = append(b, u.names[0]...)
			rest -= n * u.d
		}
	}
	if len(b)-single < single-start {
		return append(b[:start], b[single:]...)
	}
	return b[:single]
}

// MarshalText returns what [Limit.String] does, or an error wrapping [ErrInvalid] if l is invalid: what is written can
// be read back.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return l.appendText(nil), nil
}

// UnmarshalText sets l to what [ParseLimit] reads, and leaves it alone if that is an error.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

// MarshalText is [Limit.MarshalText] of the limit last set.
func (v *Var) MarshalText() ([]byte, error) { return v.Current().MarshalText() }

// UnmarshalText sets v to what [ParseLimit] reads, and leaves it alone if that is an error. It is safe while serving.
func (v *Var) UnmarshalText(text []byte) error {
	l, err := ParseLimit(string(text))
	if err == nil {
		err = v.Set(l)
	}
	return err
}

var (
	_ encoding.TextMarshaler   = Limit{}
	_ encoding.TextUnmarshaler = (*Limit)(nil)
	_ encoding.TextMarshaler   = (*Var)(nil)
	_ encoding.TextUnmarshaler = (*Var)(nil)
)
