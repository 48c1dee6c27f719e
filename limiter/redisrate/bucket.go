package redisrate

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/spillway-go/spillway/limiter"
)

const (
	second = int64(time.Second)
	// redis_rate stores the instant at which the bucket is full as a double in seconds since this one (Unix seconds).
	epoch = 1_483_228_800
	// fastest is the shortest interval between two units. An interval is rounded up by two ticks of 60 ns at most.
	fastest = 100 * time.Microsecond
	// longest is the longest time from empty to full: what limiters report as "285 years or more".
	longest = uint64(9_000_000_000_000_000_000)
	// fine is the finest grid that instants have: a double between 2²⁸ and 2²⁹ seconds, as long as 2034 is not reached,
	// is a multiple of 2⁻²⁴ s.
	fine = 24
	// skew is how far the server's clock may be ahead of this one.
	skew = 30 * 24 * 3600
)

// bucket is a limit told to redis_rate in ticks of 2^-bits seconds, so that all that its script adds, subtracts and
// compares are whole ticks, which doubles hold exactly. In seconds they round with every take: a rate of 1.6 million per
// second becomes one of 1.68 million, and above 33.5 million nothing is ever refused.
//
// The interval of one unit is rounded up. So this is a bucket of the same burst that refills a little slower, and no
// take passes here that the exact bucket would have refused.
type bucket struct {
	bits  uint
	unit  int64 // ticks per unit
	burst int64 // units
	slack int64 // ticks
}

// newBucket returns the bucket of a limit, or an error wrapping [limiter.ErrInvalid]. now is about what the server's
// clock says.
func newBucket(l limiter.Limit, now time.Time) (bucket, error) {
	if err := l.Validate(); err != nil {
		return bucket{}, err
	}
	bad := func(format string, args ...any) (bucket, error) {
		return bucket{}, fmt.Errorf("%w: %s; use redislimit", limiter.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if l.Algorithm != limiter.TokenBucket {
		return bad("redis_rate has no %v", l.Algorithm)
	}
	rate, period, burst := int64(l.Rate), int64(l.Period), int64(l.Quota())
	if period < rate*int64(fastest) {
		return bad("%d units per %v are more than redis_rate can count, one in %v", l.Rate, l.Period, fastest)
	}
	hi, lo := bits.Mul64(uint64(burst), uint64(period))
	full := uint64(math.MaxUint64) // ns from empty to full
	if hi < uint64(rate) {
		full, _ = bits.Div64(hi, lo, uint64(rate))
	}
	if full > longest {
		return bad("burst %d at %d per %v takes more than 285 years to refill", l.Quota(), l.Rate, l.Period)
	}
	b := bucket{bits: fine, burst: burst}
	for until := max(0, now.Unix()-epoch) + skew + int64(full)/second + 1; until >= 1<<(53-b.bits); {
		b.bits--
	}
	hi, lo = bits.Mul64(uint64(period), 1<<b.bits)
	down, _ := bits.Div64(hi, lo, uint64(rate)*uint64(second))
	// More than exact, so that TTLs, which are whole seconds, are never cut to the time to full exactly.
	b.unit = int64(down) + 1
	if period%(rate*int64(time.Microsecond)) != 0 {
		// The server's clock shows whole microseconds, and rounds each to a tick. That is no matter where units are
		// whole microseconds apart too, and may let a unit in a tick early elsewhere.
		b.unit++
	}
	if b.bits < fine {
		// Years ahead instants are on a coarser grid than the clock: the whole burst of a fresh key may be rounded up, so
		// it needs room, and the interval has to make up for the room.
		b.unit += 4
		b.slack = 2
	}
	if uint64(b.tooMuch64()) > math.MaxInt {
		return bad("burst %d at %d per %v is more than redis_rate can count where int has 32 bits", l.Quota(), l.Rate, l.Period)
	}
	return b, nil
}

// asked is the limit as redis_rate is told: one tick is one of its units.
func (b bucket) asked() redis_rate.Limit {
	return redis_rate.Limit{Rate: 1 << b.bits, Period: time.Second, Burst: int(b.room())}
}

func (b bucket) room() int64 { return b.burst*b.unit + b.slack }

func (b bucket) cost(n int) int { return int(min(int64(n), b.burst) * b.unit) }

// tooMuch is a cost that is always refused. It is how to look at a key: even a take of 0 writes, but a refusal does not.
func (b bucket) tooMuch() int     { return int(b.tooMuch64()) }
func (b bucket) tooMuch64() int64 { return b.room() + 1 }

// decide makes a decision of what redis_rate answered to n units, or to tooMuch where n is 0 or over the burst.
func (b bucket) decide(l limiter.Limit, n int, res *redis_rate.Result) limiter.Decision {
	d := limiter.Decision{Limit: l, Via: limiter.ViaStore}
	// used is how many ticks it takes until the bucket is full. Of the numbers in the answer, each is used where it is
	// the most precise one.
	var used int64
	switch {
	case n == 0, int64(n) > b.burst:
		d.Allowed = n == 0
		used = max(0, b.ticks(res.ResetAfter))
		if n > 0 {
			d.RetryAfter = limiter.Never
		}
	case res.Allowed > 0:
		d.Allowed = true
		used = b.room() - int64(res.Remaining)
	default:
		wait := max(1, b.ticks(res.RetryAfter))
		d.RetryAfter = b.wait(wait)
		if used = wait + b.room() - int64(n)*b.unit; used < 0 {
			used = math.MaxInt64 // beyond every number
		}
	}
	if used == 0 {
		d.Remaining = int(b.burst)
		return d
	}
	// One unit less than the burst at most: what is full is not used.
	left := min(max(0, b.room()-used)/b.unit, b.burst-1)
	d.Remaining = int(left)
	d.ResetAfter = b.wait(used)
	d.NextAfter = min(d.ResetAfter, b.wait(max(1, used-(b.room()-(left+1)*b.unit))))
	return d
}

// ticks is a wait that redis_rate reports, which has 14 digits, in ticks: exactly if it is less than eleven days, else
// rounded up.
func (b bucket) ticks(d time.Duration) int64 {
	if d < 0 || uint64(d) > longest {
		return math.MaxInt64 // it does not fit a Duration
	}
	if b.bits == fine && d < 1_000_000*time.Second {
		hi, lo := bits.Mul64(uint64(d), 1<<fine)
		lo, carry := bits.Add64(lo, uint64(second)/2, 0)
		q, _ := bits.Div64(hi+carry, lo, uint64(second))
		return int64(q)
	}
	// Half a unit of the 14th digit, and what was cut off below a nanosecond.
	half := int64(6)
	for rest := d / (1_000_000 * time.Second); rest > 0; rest /= 10 {
		half *= 10
	}
	hi, lo := bits.Mul64(uint64(int64(d)+half), 1<<b.bits)
	q, rem := bits.Div64(hi, lo, uint64(second))
	if rem > 0 {
		q++
	}
	return int64(q)
}

// wait is ticks as a duration, rounded up to a microsecond, the unit of the server's clock.
func (b bucket) wait(ticks int64) time.Duration {
	hi, lo := bits.Mul64(uint64(ticks), uint64(time.Second/time.Microsecond))
	up := uint64(1)<<b.bits - 1
	lo, carry := bits.Add64(lo, up, 0)
	hi += carry
	if hi>>b.bits != 0 {
		return time.Duration(longest)
	}
	us := hi<<(64-b.bits) | lo>>b.bits
	return time.Duration(min(us, longest/1000)) * time.Microsecond
}
