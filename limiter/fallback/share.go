package fallback

import (
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// MaxReplicas is how many replicas may share a limit.
const MaxReplicas = 1_000_000

// Share returns what one of n replicas may admit of l by itself, by the rules of the package comment. The shares of n
// replicas together admit what l promises, and more only where l has less than n units to divide. With n ≤ 1, for
// [limiter.Unlimited] and for [limiter.DenyAll] it is l itself; a limit that is invalid stays as it is, so that whoever
// is asked to count by it refuses. More than [MaxReplicas] count as that many.
func Share(l limiter.Limit, n int) limiter.Limit {
	if n <= 1 || !divisible(&l) {
		return l
	}
	n = min(n, MaxReplicas)
	switch l.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		l.Burst = max(1, l.Quota()/n)
		l.Rate, l.Period = slower(l.Rate, l.Period, n)
	default:
		if l.Rate >= n {
			l.Rate /= n
			break
		}
		// One unit cannot be divided, but it can be had less often. A calendar cannot be stretched.
		every := (n + l.Rate - 1) / l.Rate
		l.Rate = 1
		if l.Align.Unit == limiter.Epoch {
			l.Period *= time.Duration(min(every, int(limiter.MaxPeriod/l.Period)))
		}
	}
	return l
}

// slower divides a rate by n: exactly, as r/n per p or r per n·p in lowest terms, or where n·p would be too long, rounded
// down to whole units in as many p as may be one period. One unit in that is the least.
func slower(r int, p time.Duration, n int) (int, time.Duration) {
	g := gcd(r, n)
	r, n = r/g, n/g
	k := int(limiter.MaxPeriod / p)
	if k >= n {
		return r, p * time.Duration(n)
	}
	return max(1, r*k/n), p * time.Duration(k)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// divisible reports whether l counts something and is in its ranges. Dividing could bring a number back into them, and a
// crafted limit must not become a valid one while the primary is away. Zones are left to the limiter that counts.
func divisible(l *limiter.Limit) bool {
	most := limiter.MaxRate
	switch l.Algorithm {
	case limiter.SlidingLog:
		most = limiter.MaxLogRate
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow, limiter.SlidingWindow:
	default:
		return false
	}
	if l.Rate < 1 || l.Rate > most || l.Burst < 0 || l.Burst > limiter.MaxRate {
		return false
	}
	if l.Align.Unit != limiter.Epoch {
		return l.Algorithm == limiter.FixedWindow && l.Cells == 0
	}
	if l.Period < limiter.MinPeriod || l.Period > limiter.MaxPeriod {
		return false
	}
	if l.Algorithm != limiter.SlidingWindow {
		return l.Cells == 0
	}
	return l.Cells >= 0 && l.Cells <= limiter.MaxCells && l.Period%(time.Duration(max(1, l.Cells))*time.Microsecond) == 0
}
