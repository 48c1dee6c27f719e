package limiter

import (
	"math/bits"
	"time"
)

// level is a key's state brought to an instant and converted to a rule: whole + frac/period tokens left (TokenBucket),
// places used (LeakyBucket), or a count (FixedWindow).
type level struct {
	instant
	whole, frac int64
	fresh       bool // as if never seen
	changed     bool // the rule differs in its terms from the one stored
}

func (r *Rule) storeLevel(s *State, v level) {
	s.At, s.Shift, s.Rule, s.Units, s.Frac = v.e, v.shift, r, v.whole, v.frac
}

// keep returns State.At as a refusal leaves it: only a new limit or a stepped clock is stored.
func (v level) keep(s *State) int64 {
	if v.changed || v.fresh {
		return v.e
	}
	return s.At
}

func clip(ns int64) time.Duration { return time.Duration(min(ns, int64(maxDuration))) }

// tokens brings a TokenBucket to i: tokens = min(B, tokens + (e − at)·R/P) under the stored limit, then min(tokens, new B).
func (r *Rule) tokens(s *State, i instant) level {
	old := s.Rule
	if old == nil {
		return level{instant: i, whole: r.burst, fresh: true}
	}
	v := level{instant: i, whole: s.Units, frac: s.Frac}
	if el := i.e - s.At; el >= old.full {
		v.whole = old.burst
	} else if el > 0 {
		// Splitting el·R/P into whole and remainder and carrying once keeps the level exact for ever.
		q, rem := mulDiv(el, old.rate, old.period)
		v.whole += q
		if v.frac += rem; v.frac >= old.period {
			v.frac -= old.period
			v.whole++
		}
	}
	if v.whole >= old.burst {
		return level{instant: i.fresh(), whole: r.burst, fresh: true}
	}
	if v.changed = !r.sameTerms(old); v.changed {
		if r.period != old.period {
			v.frac, _ = mulDiv(v.frac, r.period, old.period) // toward refusal
		}
		if v.whole >= r.burst {
			v.whole, v.frac = r.burst, 0
		}
	}
	return v
}

func (r *Rule) takeTokens(d *Decision, s *State, now Reading, n int64, book bool) {
	v := r.tokens(s, s.instant(now))
	at := v.keep(s)
	switch {
	case n <= v.whole:
		d.Allowed = true
		if n > 0 {
			v.whole -= n
			at = v.e
			if book {
				r.storeLevel(s, v)
				d.Mark = v.e
			}
		}
	case n > r.burst:
		d.RetryAfter = Never
		at = s.At
	default:
		d.RetryAfter = clip(v.after(mulSubDivUp(n-v.whole, r.period, v.frac, r.rate), at))
		if book && (v.changed || v.stepped) {
			r.storeLevel(s, v)
		}
	}
	d.Remaining = int(v.whole)
	if v.whole < r.burst {
		d.ResetAfter = clip(v.after(mulSubDivUp(r.burst-v.whole, r.period, v.frac, r.rate), at))
		d.NextAfter = clip(v.after(mulSubDivUp(1, r.period, v.frac, r.rate), at))
	}
}

// takeSteady is takeTokens in the usual case: the limit is the stored one and there is no shift.
func (r *Rule) takeSteady(d *Decision, s *State, now, n int64, book bool) {
	whole, frac, lag := s.Units, s.Frac, int64(0)
	switch el := now - s.At; {
	case el < 0:
		lag, now = -el, s.At
	case el >= r.full:
		whole = r.burst
	default:
		hi, lo := bits.Mul64(uint64(el), uint64(r.rate))
		if hi != 0 || lo >= uint64(r.period) {
			var q, rem int64
			if hi == 0 {
				u, v := r.byPeriod.div(lo)
				q, rem = int64(u), int64(v)
			} else {
				q, rem = mulDiv(el, r.rate, r.period)
			}
			whole += q
			lo = uint64(rem)
		}
		if frac += int64(lo); frac >= r.period {
			frac -= r.period
			whole++
		}
	}
	if whole >= r.burst {
		r.takeFull(d, s, now-lag, n, book)
		return
	}
	switch {
	case n <= whole:
		d.Allowed = true
		whole -= n
		if book {
			s.At, s.Units, s.Frac = now, whole, frac
			d.Mark = now
		}
	case n > r.burst:
		d.RetryAfter = Never
	}
	d.Remaining = int(whole)
	next := clip(addSat(lag, r.byRate.up(uint64(r.period-frac))))
	d.NextAfter = next
	if r.burst-whole == 1 {
		d.ResetAfter = next
	} else {
		d.ResetAfter = clip(addSat(lag, r.until(r.burst-whole, frac)))
	}
	if d.Allowed || d.RetryAfter == Never {
		return
	}
	if n-whole == 1 {
		d.RetryAfter = next
	} else {
		d.RetryAfter = clip(addSat(lag, r.until(n-whole, frac)))
	}
}

// takeFull is takeSteady where the full quota is back: what follows is known beforehand but for n.
func (r *Rule) takeFull(d *Decision, s *State, now, n int64, book bool) {
	if n > r.burst {
		d.Remaining, d.RetryAfter = int(r.burst), Never
		return
	}
	d.Allowed, d.Remaining = true, int(r.burst-n)
	if book {
		s.At, s.Units, s.Frac = now, r.burst-n, 0
		d.Mark = now
	}
	switch n {
	case 0:
	case 1:
		d.NextAfter, d.ResetAfter = r.step, r.step
	default:
		d.NextAfter, d.ResetAfter = r.step, clip(r.until(n, 0))
	}
}

// until returns the wait until n ≥ 1 more tokens are there.
func (r *Rule) until(n, frac int64) int64 {
	if hi, lo := bits.Mul64(uint64(n), uint64(r.period)); hi == 0 {
		return r.byRate.up(lo - uint64(frac))
	}
	return mulSubDivUp(n, r.period, frac, r.rate)
}

func (r *Rule) refundTokens(s *State, i instant, n int64) {
	v := r.tokens(s, i)
	// What refilled meanwhile is not given twice: the sum is capped.
	if v.fresh || n >= r.burst-v.whole {
		s.forget()
		return
	}
	v.whole += n
	r.storeLevel(s, v)
}

// places brings a LeakyBucket to i: used = max(0, used − (e − at)·R/P) under the stored limit, then min(used, new B).
func (r *Rule) places(s *State, i instant) level {
	old := s.Rule
	if old == nil {
		return level{instant: i, fresh: true}
	}
	v := level{instant: i, whole: s.Units, frac: s.Frac}
	if el := i.e - s.At; el >= old.full {
		v.whole, v.frac = 0, 0
	} else if el > 0 {
		q, rem := mulDiv(el, old.rate, old.period)
		v.whole -= q
		if v.frac -= rem; v.frac < 0 {
			v.frac += old.period
			v.whole--
		}
	}
	if v.whole < 0 || v.whole == 0 && v.frac == 0 {
		return level{instant: i.fresh(), fresh: true}
	}
	if v.changed = !r.sameTerms(old); v.changed {
		if r.period != old.period {
			if v.frac = mulAddDivUp(v.frac, r.period, 0, old.period); v.frac == r.period { // toward refusal
				v.frac = 0
				v.whole++
			}
		}
		if v.whole >= r.burst {
			v.whole, v.frac = r.burst, 0
		}
	}
	return v
}

func (r *Rule) takePlaces(d *Decision, s *State, now Reading, n, maxDelay int64, book bool) {
	maxDelay = max(0, maxDelay)
	v := r.places(s, s.instant(now))
	at := v.keep(s)
	free := r.burst - v.whole // whole units that fit
	if v.frac > 0 {
		free--
	}
	// The used units before the take leave first: that is the delay.
	var delay int64
	if !v.fresh {
		delay = addSat(v.lag, mulAddDivUp(v.whole, r.period, v.frac, r.rate))
	}
	switch {
	case n > r.burst:
		d.RetryAfter = Never
		at = s.At
	case n == 0:
		d.Allowed = true
	case n <= free && delay <= maxDelay:
		d.Allowed = true
		d.Delay = clip(delay)
		v.whole += n
		at = v.e
		if book {
			r.storeLevel(s, v)
			d.Mark = v.e
		}
	default:
		var room int64 // until n places are free
		if n > free {
			room = v.after(mulAddDivUp(v.whole+n-r.burst, r.period, v.frac, r.rate), at)
		}
		var near int64 // until the place would be near enough
		if delay > maxDelay {
			near = v.after(delay-v.lag-min(maxDelay, delay-v.lag), at)
			if v.lag > 0 {
				near = delay - maxDelay
			}
		}
		d.RetryAfter = clip(max(room, near))
		if book && (v.changed || v.stepped) {
			r.storeLevel(s, v)
		}
	}
	d.Remaining = int(r.burst - v.whole)
	if v.frac > 0 {
		d.Remaining--
	}
	if v.whole > 0 || v.frac > 0 {
		d.ResetAfter = clip(v.after(mulAddDivUp(v.whole, r.period, v.frac, r.rate), at))
		// One more place is free when the used units are down to B − (Remaining + 1).
		d.NextAfter = clip(v.after(mulAddDivUp(v.whole+int64(d.Remaining)+1-r.burst, r.period, v.frac, r.rate), at))
	}
}
