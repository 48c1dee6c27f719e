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
	rate   int64 // units per period
	period int64 // ns; 0 for calendar windows
	burst  int64 // buckets: capacity
	quota  int64
	cells  int64 // sliding window: cells a window
	cell   int64 // sliding window: ns per cell
	full   int64 // buckets: ns from empty to full, rounded up; math.MaxInt64 if that does not fit

	zone   *time.Location // calendar windows
	window atomic.Pointer[span]
}

// NewRule validates l and prepares it. The error wraps [ErrInvalid].
func NewRule(l Limit) (*Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	r := &Rule{limit: l, rate: int64(l.Rate), period: int64(l.Period), quota: int64(l.Quota())}
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		r.burst = r.quota
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
func (r *Rule) Take(s *State, now Reading, n int, maxDelay time.Duration) Decision {
	return r.decide(s, now, int64(n), int64(maxDelay), n > 0)
}

// Peek returns what [Rule.Take] would answer, and writes nothing.
func (r *Rule) Peek(s *State, now Reading, n int, maxDelay time.Duration) Decision {
	return r.decide(s, now, int64(n), int64(maxDelay), false)
}

func (r *Rule) decide(s *State, now Reading, n, maxDelay int64, book bool) Decision {
	switch r.limit.Algorithm {
	case TokenBucket:
		return r.takeTokens(s, now, n, book)
	case LeakyBucket:
		return r.takePlaces(s, now, n, maxDelay, book)
	case FixedWindow:
		return r.takeFixed(s, now, n, book)
	case SlidingWindow:
		return r.takeSliding(s, now, n, book)
	case SlidingLog:
		return r.takeLogged(s, now, n, book)
	case unlimited:
		return Decision{Allowed: true, Limit: r.limit, Remaining: math.MaxInt}
	}
	if n == 0 {
		return Decision{Allowed: true, Limit: r.limit}
	}
	return Decision{Limit: r.limit, RetryAfter: Never}
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
