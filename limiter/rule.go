package limiter

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Rule is a [Limit] checked and prepared for the steps: what a decision needs of it is computed once. Rules are
// immutable and safe for concurrent use.
type Rule struct {
	limit  Limit
	tick   int64 // ns per tick of the clock: the unit of the instants and periods below
	late   int64 // how far behind a reading of the store's own clock may be and still be a late one, not a step
	rate   int64 // units per period
	period int64 // 0 for calendar windows
	burst  int64 // buckets: capacity
	quota  int64
	cells  int64 // sliding window: cells a window
	cell   int64 // sliding window: a cell's length
	full   int64 // buckets: from empty to full, rounded up; math.MaxInt64 if that does not fit

	byRate, byPeriod divisor       // buckets
	step             time.Duration // buckets: what one unit takes, in ticks, rounded up

	zone   *time.Location // calendar windows
	window atomic.Pointer[span]
}

// NewRule validates l and prepares it for a clock of nanoseconds. The error wraps [ErrInvalid].
func NewRule(l Limit) (*Rule, error) { return NewTickRule(l, time.Nanosecond) }

// NewTickRule is [NewRule] for a store whose clock counts ticks of 1 ns, 1 µs or 1 ms. Instants of [State] and [Reading] are
// then ticks since the Unix epoch, and a Period that is not whole ticks is rounded up. Decisions, Marks and delays are in
// nanoseconds as ever, waits rounded up to a tick: the next reading that can matter.
func NewTickRule(l Limit, tick time.Duration) (*Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	r := &Rule{limit: l, tick: int64(tick), late: int64(time.Second / tick), rate: int64(l.Rate), quota: int64(l.Quota())}
	r.period = (int64(l.Period) + r.tick - 1) / r.tick
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		r.burst = r.quota
		r.byRate, r.byPeriod = newDivisor(r.rate), newDivisor(r.period)
		r.step = clip(r.byRate.up(uint64(r.period)))
		if r.full = mulAddDivUp(r.burst, r.period, 0, r.rate); r.full >= int64(maxDuration) {
			r.full = math.MaxInt64
		}
	case FixedWindow:
		if l.Align.Unit != Epoch {
			zone, err := loadZone(l.Align.Zone)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			r.zone, r.period = zone, 0
		}
	case SlidingWindow:
		r.cells = int64(l.cells())
		r.cell = r.period / r.cells
	}
	return r, nil
}

// Limit returns the limit the rule was made from.
func (r *Rule) Limit() Limit { return r.limit }

// sameTerms reports whether moving a key from r to o converts nothing: the bar for a live change of the limit.
func (r *Rule) sameTerms(o *Rule) bool {
	return r == o || r.rate == o.rate && r.period == o.period && r.burst == o.burst && r.cells == o.cells &&
		r.limit.Align == o.limit.Align
}

// Take decides n units at the reading and books them if they fit. A refusal changes nothing but what makes its announced
// wait come true: it stores a new limit and a stepped clock, unless n can never fit. maxDelay bounds the Delay of a
// LeakyBucket; see [Take]. n must not be negative; n == 0 looks and writes nothing.
//
// s must hold state of the same algorithm, or be zero.
func (r *Rule) Take(s *State, now Reading, n int, maxDelay time.Duration) (d Decision) {
	r.Decide(&d, s, now, n, maxDelay, true)
	return d
}

// Peek returns what [Rule.Take] would answer, and writes nothing.
func (r *Rule) Peek(s *State, now Reading, n int, maxDelay time.Duration) (d Decision) {
	r.Decide(&d, s, now, n, maxDelay, false)
	return d
}

// Decide is [Rule.Take], or [Rule.Peek] unless book, with the answer in *d: decisions are large, and copying them costs
// more than making them.
func (r *Rule) Decide(d *Decision, s *State, now Reading, n int, maxDelay time.Duration, book bool) {
	// Field by field: a literal would be made elsewhere first and copied.
	d.Allowed, d.Via = false, ViaMemory
	d.Limit = r.limit
	d.Remaining, d.RetryAfter, d.ResetAfter, d.NextAfter, d.Delay, d.Mark = 0, 0, 0, 0, 0, 0
	book = book && n > 0
	switch r.limit.Algorithm {
	case TokenBucket:
		if s.Rule == r && s.Shift == 0 && (now.Caller || now.Now >= s.At) {
			r.takeSteady(d, s, now.Now, int64(n), book)
		} else {
			r.takeTokens(d, s, now, int64(n), book)
		}
	case LeakyBucket:
		if maxDelay < maxDuration { // else any delay will do
			maxDelay /= time.Duration(r.tick)
		}
		r.takePlaces(d, s, now, int64(n), int64(maxDelay), book)
	case FixedWindow:
		r.takeFixed(d, s, now, int64(n), book)
	case SlidingWindow:
		r.takeSliding(d, s, now, int64(n), book)
	case SlidingLog:
		r.takeLogged(d, s, now, int64(n), book)
	case unlimited:
		d.Allowed, d.Remaining = true, math.MaxInt
	default:
		if d.Allowed = n == 0; n > 0 {
			d.RetryAfter = Never
		}
	}
	if r.tick > 1 {
		r.inNanoseconds(d)
	}
}

// inNanoseconds turns a decision in ticks into one in nanoseconds.
func (r *Rule) inNanoseconds(d *Decision) {
	for _, wait := range []*time.Duration{&d.RetryAfter, &d.ResetAfter, &d.NextAfter, &d.Delay} {
		switch {
		case *wait == Never:
		case *wait > maxDuration/time.Duration(r.tick):
			*wait = maxDuration
		default:
			*wait *= time.Duration(r.tick)
		}
	}
	d.Mark *= r.tick
}

// Learn stores a new limit and a stepped clock as a refused take does, and nothing else. A group of takes that is
// refused for another take's sake learns so.
func (r *Rule) Learn(s *State, now Reading) {
	if s.Rule == nil {
		return
	}
	i := s.instant(now)
	if !i.stepped && r.sameTerms(s.Rule) {
		return
	}
	switch r.limit.Algorithm {
	case TokenBucket:
		if v := r.tokens(s, i); !v.fresh {
			r.storeLevel(s, v)
		}
	case LeakyBucket:
		if v := r.places(s, i); !v.fresh {
			r.storeLevel(s, v)
		}
	case FixedWindow:
		if v := r.count(s, i); !v.fresh {
			r.storeLevel(s, v)
		}
	case SlidingWindow:
		r.learnSliding(s, i)
	case SlidingLog:
		r.learnLog(s, i)
	}
}
