package limiter

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Algorithm is how a [Limit] counts. The zero value is [TokenBucket].
type Algorithm uint8

const (
	// TokenBucket holds Burst units and refills at Rate per Period. In every interval of length t at most
	// Burst + Rate·t/Period units pass. GCRA is the same algorithm in another notation.
	TokenBucket Algorithm = iota
	// LeakyBucket is a queue of Burst places whose requests leave Period/Rate apart. Burst counts the one that has
	// just left, so the default of 1 is strict spacing and k lets k−1 wait.
	LeakyBucket
	// FixedWindow counts Rate units per window; windows start at multiples of Period since the Unix epoch, or at
	// calendar edges (see [Align]). Up to twice Rate can pass in one Period around an edge.
	FixedWindow
	// SlidingWindow counts in Cells cells a window and weighs the oldest one by the share of it still inside.
	SlidingWindow
	// SlidingLog remembers every take: at most Rate in every interval of length Period, exactly. Its memory grows with
	// the number of takes in a period, up to Rate entries.
	SlidingLog

	unlimited Algorithm = 254
	denyAll   Algorithm = 255
)

var algorithmNames = [...]string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"}

// algorithmTags are the key suffixes of the algorithms: another algorithm is another counter.
var algorithmTags = [...]string{"tb", "lb", "fw", "sw", "sl"}

// String returns the name used in limit texts and documents, such as "token_bucket".
func (a Algorithm) String() string {
	switch {
	case int(a) < len(algorithmNames):
		return algorithmNames[a]
	case a == unlimited:
		return "unlimited"
	case a == denyAll:
		return "deny_all"
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// Tag returns the two letters a store appends to the key, so that state of one algorithm is never read as another's.
func (a Algorithm) Tag() string {
	if int(a) < len(algorithmTags) {
		return algorithmTags[a]
	}
	return ""
}

// Algorithms returns all algorithms.
func Algorithms() []Algorithm {
	return []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog}
}

// Limit says how much: Rate units per Period, counted by Algorithm. Limits are comparable values. The zero Limit is
// invalid, so that a forgotten limit is an error and not an open or a closed gate; see [Unlimited] and [DenyAll].
type Limit struct {
	Algorithm Algorithm
	Rate      int           // units per Period, 1…10⁹ (SlidingLog: …100,000)
	Period    time.Duration // 1 µs…366 days; ignored where Align is set
	Burst     int           // TokenBucket: capacity, LeakyBucket: places. 1…10⁹; zero: Rate (TokenBucket), 1 (LeakyBucket). Others ignore it
	Cells     int           // SlidingWindow: cells a window, 1…100; zero: 1. Period/Cells must be whole microseconds
	Align     Align         // FixedWindow: calendar windows; zero: multiples of Period since the epoch
}

// Align makes the windows of a [FixedWindow] calendar days, weeks (from Monday) or months in a zone.
type Align struct {
	Unit Unit
	Zone string // IANA name such as "Asia/Shanghai"; empty: UTC. "Local" is refused: nodes may differ in it
}

// Unit is a calendar unit of [Align]. The zero value means no alignment to the calendar.
type Unit uint8

// Calendar units.
const (
	Epoch Unit = iota // windows are multiples of Period since 1970-01-01T00:00:00Z
	Day
	Week // from Monday
	Month
)

var unitNames = [...]string{"epoch", "day", "week", "month"}

// String returns "epoch", "day", "week" or "month".
func (u Unit) String() string {
	if int(u) < len(unitNames) {
		return unitNames[u]
	}
	return fmt.Sprintf("Unit(%d)", uint8(u))
}

// Ranges of a [Limit].
const (
	MaxRate     = 1_000_000_000
	MaxLogRate  = 100_000
	MaxCells    = 100
	MinPeriod   = time.Microsecond
	MaxPeriod   = 366 * 24 * time.Hour
	maxDuration = time.Duration(9_000_000_000_000_000_000) // what "285 years or more" is reported as
)

// Never is the RetryAfter of a take that can never pass, because it asks for more than the quota. It is distinct from
// every real wait: those saturate at 9·10¹⁸ ns.
const Never = time.Duration(math.MaxInt64)

var (
	// Unlimited lets everything pass and keeps no state.
	Unlimited = Limit{Algorithm: unlimited}
	// DenyAll refuses every take of one unit or more, for good.
	DenyAll = Limit{Algorithm: denyAll}
)

// PerSecond is n units per second with a [TokenBucket] whose burst is n.
func PerSecond(n int) Limit { return Per(n, time.Second) }

// PerMinute is n units per minute with a [TokenBucket] whose burst is n.
func PerMinute(n int) Limit { return Per(n, time.Minute) }

// PerHour is n units per hour with a [TokenBucket] whose burst is n.
func PerHour(n int) Limit { return Per(n, time.Hour) }

// PerDay is n units per 24 hours with a [TokenBucket] whose burst is n.
func PerDay(n int) Limit { return Per(n, 24*time.Hour) }

// Per is n units per d with a [TokenBucket] whose burst is n.
func Per(n int, d time.Duration) Limit { return Limit{Rate: n, Period: d} }

// WithBurst returns a copy of l with the given burst.
func (l Limit) WithBurst(n int) Limit { l.Burst = n; return l }

// With returns a copy of l counted by algorithm a.
func (l Limit) With(a Algorithm) Limit { l.Algorithm = a; return l }

// WithCells returns a copy of l counted by a [SlidingWindow] of n cells.
func (l Limit) WithCells(n int) Limit { l.Algorithm, l.Cells = SlidingWindow, n; return l }

// Aligned returns a copy of l counted by a [FixedWindow] over calendar units of an IANA zone (empty: UTC).
func (l Limit) Aligned(u Unit, zone string) Limit {
	l.Algorithm, l.Align = FixedWindow, Align{Unit: u, Zone: zone}
	return l
}

// Current implements [Source]: a fixed limit is its own source.
func (l Limit) Current() Limit { return l }

// Quota returns the most units one key can have at once: Burst for the buckets, Rate for the windows and the log,
// math.MaxInt for [Unlimited], 0 for [DenyAll].
func (l Limit) Quota() int {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		return l.burst()
	case unlimited:
		return math.MaxInt
	case denyAll:
		return 0
	}
	return l.Rate
}

func (l Limit) burst() int {
	switch {
	case l.Burst != 0:
		return l.Burst
	case l.Algorithm == LeakyBucket:
		return 1
	}
	return l.Rate
}

// Validate returns nil, or an error wrapping [ErrInvalid] that names everything wrong with l.
func (l Limit) Validate() error {
	if l == Unlimited || l == DenyAll {
		return nil
	}
	if l == (Limit{}) {
		return fmt.Errorf("%w: zero limit; say Unlimited or DenyAll if that is meant", ErrInvalid)
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
	}
	if int(l.Algorithm) >= len(algorithmNames) {
		bad("algorithm %d is unknown", uint8(l.Algorithm))
	}
	maxRate := MaxRate
	if l.Algorithm == SlidingLog {
		maxRate = MaxLogRate
	}
	if l.Rate < 1 || l.Rate > maxRate {
		bad("rate %d is outside 1…%d", l.Rate, maxRate)
	}
	if l.Align.Unit == Epoch && (l.Period < MinPeriod || l.Period > MaxPeriod) {
		bad("period %v is outside %v…366 days", l.Period, MinPeriod)
	}
	if l.Burst < 0 || l.Burst > MaxRate {
		bad("burst %d is outside 1…%d", l.Burst, MaxRate)
	}
	switch {
	case l.Algorithm != SlidingWindow && l.Cells != 0:
		bad("cells belong to sliding_window, not to %v", l.Algorithm)
	case l.Cells < 0 || l.Cells > MaxCells:
		bad("cells %d are outside 1…%d", l.Cells, MaxCells)
	case l.Algorithm == SlidingWindow && l.Period >= MinPeriod && l.Period%(time.Duration(l.cells())*time.Microsecond) != 0:
		bad("period %v is not %d cells of whole microseconds", l.Period, l.cells())
	}
	if l.Align != (Align{}) {
		if l.Algorithm != FixedWindow {
			bad("align belongs to fixed_window, not to %v", l.Algorithm)
		}
		if l.Align.Unit == Epoch || int(l.Align.Unit) >= len(unitNames) {
			bad("align unit %v is none of day, week, month", l.Align.Unit)
		}
		if _, err := loadZone(l.Align.Zone); err != nil {
			bad("%v", err)
		}
	}
	return errors.Join(errs...)
}

func (l Limit) cells() int { return max(l.Cells, 1) }

// loadZone returns the location of an IANA name.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`zone "Local" differs between machines; name an IANA zone`)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q: %w", name, err)
	}
	return loc, nil
}
