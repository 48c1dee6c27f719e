package leased

import (
	"math"
	"math/bits"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// terms are a limit as the script counts it, in whole microseconds, with the pace at which nodes ask.
type terms struct {
	rate   int64 // tokens per period
	period int64
	burst  int64
	tick   int64 // T': how much demand a lease is to cover, and the shortest wait of those who share what is scarce
	life   int64 // how long the script lets a node keep what it was leased
}

// newTerms prepares a valid TokenBucket limit. Half a burst is the most a tick refills: leases that took longer to spend
// than the bucket takes to fill would leave it idle.
func newTerms(l limiter.Limit, sync time.Duration) terms {
	t := terms{rate: int64(l.Rate), period: (int64(l.Period) + 999) / 1000, burst: int64(l.Quota())}
	t.tick = sync.Microseconds()
	if half := float64(t.burst) * float64(t.period) / float64(t.rate) / 2; half < float64(t.tick) {
		t.tick = max(1, int64(half))
	}
	t.life = max(time.Second, 5*sync).Microseconds()
	return t
}

// perMicro is the rate in tokens per microsecond.
func (t terms) perMicro() float64 { return float64(t.rate) / float64(t.period) }

// sameLimit reports that the two count alike, whatever their pace.
func (t terms) sameLimit(o terms) bool {
	return t.rate == o.rate && t.period == o.period && t.burst == o.burst
}

// until returns the microseconds until n ≥ 1 more tokens are there when frac/period of one is there already, rounded up.
func (t terms) until(n, frac int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(t.period))
	lo, borrow := bits.Sub64(lo, uint64(frac), 0)
	hi -= borrow
	if hi >= uint64(t.rate) {
		return math.MaxInt64
	}
	q, rem := bits.Div64(hi, lo, uint64(t.rate))
	if rem > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// mulDiv returns the whole part and the remainder of a·b / d for a, b ≥ 0 and a quotient below 2⁶³.
func mulDiv(a, b, d int64) (q, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 {
		quo := lo / uint64(d)
		return int64(quo), int64(lo - quo*uint64(d))
	}
	quo, r := bits.Div64(hi, lo, uint64(d))
	return int64(quo), int64(r)
}

// level is a number of tokens: whole ones, and frac/period of another.
type level struct{ whole, frac int64 }

// converted is a level under other terms: full is as much as they allow.
func (t terms) converted(v level, was terms) level {
	if v.whole >= t.burst {
		return level{whole: t.burst}
	}
	v.frac, _ = mulDiv(v.frac, t.period, was.period)
	return v
}

// refilled returns v after elapsed microseconds, at most room whole tokens. What is above room already stays.
func (t terms) refilled(v level, elapsed, room int64) level {
	if elapsed <= 0 || v.whole >= room {
		return v
	}
	// Far beyond a full bucket the product would not fit. The script decides by the same three operations.
	if float64(elapsed)*float64(t.rate)/float64(t.period) >= float64(t.burst+1) {
		return level{whole: room}
	}
	whole, frac := mulDiv(elapsed, t.rate, t.period)
	whole, frac = whole+v.whole, frac+v.frac
	if frac >= t.period {
		whole, frac = whole+1, frac-t.period
	}
	if whole >= room {
		return level{whole: room}
	}
	return level{whole, frac}
}
