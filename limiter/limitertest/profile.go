package limitertest

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Profile says what a limiter promises. The zero Profile promises everything, to the last unit and the last nanosecond;
// every field takes something away, so that what is not said is tested.
type Profile struct {
	// Algorithms are the supported ones; nil: all. A limit of another one must be ErrInvalid or errors.ErrUnsupported.
	Algorithms []limiter.Algorithm

	NoBatch   bool // is no Batcher
	NoRefund  bool // is no Refunder
	NoReset   bool // is no Resetter
	NoAlign   bool // knows no calendar windows
	NoRelimit bool // the limit of a key may not change while it is in use

	// NoInstants says that AllowAll and Refund ignore the instant they are given, so that the suite cannot choose the
	// time. It then runs the rules that need time on the limiter's own clock.
	NoInstants bool
	// ForeignClock says that the limiter's own clock is not this process's time.Now but, say, a server's. Rules about
	// the limiter's own clock are then skipped; for all others they run in bubbles of testing/synctest.
	ForeignClock bool

	// Tick is the unit of the deciding clock, to which waits are rounded up. Zero: 1 ns.
	Tick time.Duration
	// Late is how much longer than exact, rounded up to Tick, a reported wait may be. It may never be shorter.
	Late time.Duration
	// Margin allows a take to be refused that the exact limiter lets pass, if the refusal says that it will pass within
	// Margin. The reverse is never right.
	Margin time.Duration
	// FewerLeft is by how much a reported Remaining may be lower than the exact one. It may never be higher.
	FewerLeft int

	// Bounds makes a limiter bounded: only bounds on what it admits are tested, not each decision. Nil: exact.
	Bounds *Bounds

	// Skip names rules that are not run, each with its reason.
	Skip map[string]string
}

// Bounds are what a limiter keeps that cannot promise each decision, such as one that leases its quota.
type Bounds struct {
	// It admits at most Over·x + Slack where an exact limiter admits x. An Over of zero means 1.
	Over  float64
	Slack int
	// It admits at least the share Under of x, rounded down, where an exact one admits x: single units on a fresh key.
	// Zero: no promise.
	Under float64
}

// Exact is the profile of a limiter that decides every take as the pure steps do.
var Exact Profile

// Bounded returns the profile of a limiter that keeps bounds for the given algorithms, all if none is given.
func Bounded(b Bounds, algorithms ...limiter.Algorithm) Profile {
	return Profile{Bounds: &b, Algorithms: algorithms}
}

func (p Profile) supports(a limiter.Algorithm) bool {
	return len(p.Algorithms) == 0 || slices.Contains(p.Algorithms, a)
}

// instants says that the suite can choose the time of each decision.
func (p Profile) instants() bool { return !p.NoBatch && !p.NoInstants }

func (p Profile) tick() time.Duration { return max(p.Tick, 1) }

// most returns the most units that may pass where an exact limiter lets n pass.
func (p Profile) most(n float64) float64 {
	if p.Bounds == nil {
		return n
	}
	over := p.Bounds.Over
	if over == 0 {
		over = 1
	}
	return n*over + float64(p.Bounds.Slack)
}

// least returns the fewest units that must pass where an exact limiter lets n pass.
func (p Profile) least(n int) int {
	if p.Bounds == nil {
		return n
	}
	return int(math.Floor(float64(n) * p.Bounds.Under))
}

// roundUp is a wait as the deciding clock can count it.
func (p Profile) roundUp(d time.Duration) time.Duration {
	if d >= saturated {
		return d
	}
	if rest := d % p.tick(); rest > 0 {
		d += p.tick() - rest
	}
	return d
}

// saturated is what waits of 285 years or more are reported as, at least.
const saturated = time.Duration(9_000_000_000_000_000_000)

// sameWait reports whether got is the exact wait as this profile may report it.
func (p Profile) sameWait(exact, got, more time.Duration) bool {
	switch {
	case exact == limiter.Never || got == limiter.Never:
		return exact == got
	case exact >= saturated-time.Second:
		return got >= saturated-time.Second
	}
	exact = p.roundUp(exact)
	return got >= exact && got <= exact+p.Late+more
}
