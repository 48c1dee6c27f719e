package adaptive

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Adjust scales a limit by the share in force: its rate, and its burst in proportion, both rounded down and never below 1.
// What it returns for a valid limit is a valid one. [limiter.Unlimited] and [limiter.DenyAll] stay what they are, and so
// does every limit where the target is no [Rate]. Units in flight keep their meaning: limiters apply a changed limit to what
// a key has left.
func (c *Controller) Adjust(now time.Time, nominal limiter.Limit) limiter.Limit {
	if c.cfg.Target != Rate {
		return nominal
	}
	share := math.Float64frombits(c.share.Load())
	if c.at(now) > c.stale.Load() {
		share = c.cfg.Fixed
	}
	if c.asked.Load() == nil { // one in each interval, to be told with its share
		asked := nominal // or every call would allocate
		c.asked.CompareAndSwap(nil, &asked)
	}
	return scale(nominal, share)
}

var _ limiter.Adjuster = (*Controller)(nil)

// scale returns a share of a limit.
func scale(l limiter.Limit, share float64) limiter.Limit {
	if share == 1 || l == limiter.Unlimited || l == limiter.DenyAll || l == (limiter.Limit{}) {
		return l
	}
	most := limiter.MaxRate
	if l.Algorithm == limiter.SlidingLog {
		most = limiter.MaxLogRate
	}
	l.Rate = portion(l.Rate, share, most)
	if l.Burst != 0 {
		l.Burst = portion(l.Burst, share, limiter.MaxRate)
	}
	return l
}

// portion returns a share of n in whole units, 1…most. What is not positive is no limit, and left to be found as such.
func portion(n int, share float64, most int) int {
	if n <= 0 || n > most {
		return n
	}
	return int(min(max(math.Floor(float64(n)*share+edge), 1), float64(most)))
}

// Share returns what part of a nominal limit another one is, by their rates: the Min and Max of a [Rate] from limits as
// people write them. 0 where one of them has no rate: it is invalid, unlimited, denies all, or counts by the calendar while
// the other does not.
func Share(part, nominal limiter.Limit) float64 {
	if part.Rate < 1 || nominal.Rate < 1 || part.Align.Unit != nominal.Align.Unit {
		return 0
	}
	if part.Align.Unit != limiter.Epoch {
		return float64(part.Rate) / float64(nominal.Rate)
	}
	if part.Period <= 0 || nominal.Period <= 0 {
		return 0
	}
	return float64(part.Rate) / float64(nominal.Rate) * (float64(nominal.Period) / float64(part.Period))
}
