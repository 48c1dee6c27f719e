package degrade

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// When units of a limit are there, as far as decisions tell. All of it errs towards later: whoever asks too early is refused,
// and has waited in vain.

// farAway stands for all longer waits, so that instants do not overflow.
const farAway = 366 * 24 * time.Hour

// refill is how long n units of l take to come, rounded up.
func refill(l *limiter.Limit, n int) time.Duration { return ofUnits(l, n, true) }

func ofUnits(l *limiter.Limit, n int, up bool) time.Duration {
	if n <= 0 || l.Rate <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(windowOf(l)))
	if hi >= uint64(l.Rate) {
		return farAway
	}
	q, rem := bits.Div64(hi, lo, uint64(l.Rate))
	if up && rem > 0 {
		q++
	}
	return time.Duration(min(q, uint64(farAway)))
}

// windowOf is the Period of l, or about that of a calendar window: the next but one of these is farther away than anybody
// waits.
func windowOf(l *limiter.Limit) time.Duration {
	const day = 24 * time.Hour
	switch l.Align.Unit {
	case limiter.Day:
		return day
	case limiter.Week:
		return 7 * day
	case limiter.Month:
		return 28 * day
	}
	return max(l.Period, 1)
}

// spacing is how long after a take of n units as many are there again. A window may have room at once; what becomes of the
// take will tell.
func spacing(l *limiter.Limit, n int) time.Duration {
	if l.Algorithm == limiter.FixedWindow {
		return 0
	}
	return refill(l, n)
}

// asked reports whether a policy was: the decision behind a shut gate has a limit alone.
func asked(d *limiter.Decision) bool {
	return d.Limit.Rate > 0 && (d.Allowed || d.RetryAfter > 0)
}

// untilFits is how long after decision d one of cost n could pass. refused is the cost of the request that its RetryAfter was
// told, 0 if that says nothing.
func untilFits(d *limiter.Decision, refused, n int) time.Duration {
	switch {
	case n > d.Limit.Quota():
		return limiter.Never
	case !d.Allowed && refused == n && d.RetryAfter != limiter.Never:
		return d.RetryAfter
	case d.Limit.Algorithm == limiter.LeakyBucket:
		// A place among others would be held until they have left, so all have to.
		return d.ResetAfter
	case n <= d.Remaining:
		return 0
	case d.Limit.Algorithm == limiter.FixedWindow:
		return d.ResetAfter
	}
	wait := min(d.NextAfter, farAway) + refill(&d.Limit, n-d.Remaining-1)
	if d.Limit.Algorithm != limiter.TokenBucket {
		// Entries leave a sliding window as they came, which only the window's end bounds.
		wait = min(wait, d.ResetAfter)
	}
	return wait
}

const (
	jitterShare = 10 // a tenth of the wait
	mostJitter  = 50 * time.Millisecond
)

// jittered adds jitter to a wait that a store has named, so that processes do not ask it all at once.
func jittered(via limiter.Via, wait time.Duration) time.Duration {
	if via == limiter.ViaMemory || wait <= 0 || wait >= farAway {
		return min(wait, farAway)
	}
	return wait + rand.N(min(wait/jitterShare, mostJitter)+1)
}

// due is when a request of that cost could be asked for, were it the first.
func (l *line) due(cost int) time.Time {
	switch {
	case l.limit.Algorithm == limiter.LeakyBucket || l.limit.Algorithm == limiter.FixedWindow:
		return l.turn
	case cost > l.fits:
		return l.turn.Add(refill(&l.limit, cost-l.fits))
	case cost < l.fits && l.limit.Algorithm == limiter.TokenBucket:
		return l.turn.Add(-ofUnits(&l.limit, l.fits-cost, false))
	}
	return l.turn
}

// behind is when a request of that cost has its turn behind others of ahead units in all, the first of which costs first.
func (l *line) behind(now time.Time, ahead, first, cost int) time.Time {
	if ahead == 0 {
		return later(l.due(cost), now)
	}
	base := later(l.due(first), now)
	switch l.limit.Algorithm {
	case limiter.LeakyBucket:
		return base.Add(refill(&l.limit, ahead))
	case limiter.FixedWindow:
		windows := (ahead + cost - 1) / max(l.limit.Rate, 1)
		return base.Add(min(farAway, windowOf(&l.limit)) * time.Duration(min(windows, 64)))
	}
	return base.Add(refill(&l.limit, ahead-first+cost))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
