package client

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// shape is a partner's limit as it is kept here.
type shape struct {
	limit limiter.Limit // what the Limiter counts by; zero: none
	even  bool          // requests leave at least gap apart
	gap   time.Duration // between two requests, on average at least
	close time.Duration // between two requests at the partner's own number: late ones leave no closer in this process
	late  time.Duration // so long after its instant a place is used no more; 0: there is no limit
}

const (
	// A queue of the store has room for an hour, within these bounds. A process is never there with more than what leaves
	// within ahead, so this is for many processes and costs nothing.
	leastPlaces, mostPlaces = 16, 100_000
	// A place may be used leastLate after its instant, however short the period: timers are no better. Who has left no headroom
	// for what is late gets noneLate or a tenth of the period, as without it nothing would ever be in time.
	leastLate, noneLate = time.Millisecond, 50 * time.Millisecond
)

// shapeOf applies the headroom: to the period of a bucket, which is exact to the nanosecond, and to the rate of a window
// or log, whose period is the partner's. One unit is the least.
func shapeOf(l limiter.Limit, headroom float64) shape {
	if l == limiter.Unlimited || l == limiter.DenyAll {
		return shape{limit: l}
	}
	period := l.Period
	switch l.Align.Unit {
	case limiter.Epoch:
	case limiter.Day:
		period = 24 * time.Hour
	case limiter.Week:
		period = 7 * 24 * time.Hour
	case limiter.Month:
		period = 31 * 24 * time.Hour
	}
	// A bucket whose burst nobody has named is kept evenly.
	if l.Algorithm == limiter.TokenBucket && l.Burst == 0 {
		l.Algorithm = limiter.LeakyBucket
	}
	s := shape{close: perUnit(period, l.Rate), even: l.Algorithm == limiter.LeakyBucket, late: lateness(period, headroom)}
	switch l.Algorithm {
	case limiter.LeakyBucket, limiter.TokenBucket:
		l.Period = time.Duration(math.Ceil(float64(l.Period) / headroom))
		period = l.Period
	default:
		l.Rate = scale(l.Rate, headroom)
	}
	if l.Burst > 0 && !s.even {
		l.Burst = scale(l.Burst, headroom)
	}
	s.gap = perUnit(period, l.Rate)
	if s.even && l.Burst == 0 {
		l.Burst = int(min(max(time.Hour/max(s.gap, 1), leastPlaces), mostPlaces))
	}
	s.limit = l
	return s
}

// lateness is the share 1 − headroom of a partner's period. Places are a stretched period/(rate·headroom) apart, or more. What leaves in
// one period, each at most that late, has its instants in period·(2 − headroom), which is never longer than period/headroom, in which
// there are no more than rate.
func lateness(period time.Duration, headroom float64) time.Duration {
	if headroom >= 1 {
		return max(period/10, noneLate)
	}
	return max(time.Duration(float64(period)*(1-headroom)), leastLate)
}

// scale rounds down, but for the error of a product that should have been whole.
func scale(n int, share float64) int { return max(1, int(math.Floor(float64(n)*share+1e-6))) }

func perUnit(period time.Duration, rate int) time.Duration {
	rate = max(rate, 1)
	return time.Duration((int64(period) + int64(rate) - 1) / int64(rate))
}
