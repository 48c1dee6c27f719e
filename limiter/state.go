package limiter

import "math"

// State is what a store keeps of one key under one algorithm. The zero State is a key never seen. A key whose full quota
// is back is the same as one never seen, so a State may be forgotten from [State.Gone] on.
//
// A State is not safe for concurrent use: the store holds the key's lock around a step.
type State struct {
	At    int64 // effective instant of the last change, in ticks of the Rule's clock since the Unix epoch
	Shift int64 // what is added to readings since the clock was stepped back; 0 nearly always
	Rule  *Rule // the limit it was last changed under; nil: never seen

	// Units and Frac are the level: whole tokens left (TokenBucket), whole places used (LeakyBucket), each with a
	// fraction Frac/Period; the count of the window of At (FixedWindow); the counts of the cell of At and of the one
	// before (SlidingWindow with one cell).
	Units int64
	Frac  int64
	// Counts are the cells of a SlidingWindow with more than one, the newest first; the newest is the cell of At.
	Counts []int32
	// Log are the entries of a SlidingLog.
	Log Log
}

// Reading is one look at a clock.
type Reading struct {
	Now int64 // in ticks since the Unix epoch; see [NewTickRule]
	// Caller says that the clock is one of many, such as a caller's: an older reading than the state's is then a late
	// one, however old, earns nothing and moves nothing back. Otherwise a reading more than a second behind means that
	// the one clock was stepped, and time goes on from where it was.
	Caller bool
}

// instant is a reading seen by one key.
type instant struct {
	e, now, lag, shift int64
	stepped            bool // the clock was stepped back just now
}

// instant places a reading on the key's own clock, which never runs backwards.
func (s *State) instant(r Reading) instant {
	if s.Rule == nil {
		return instant{e: r.Now, now: r.Now}
	}
	i := instant{now: r.Now, shift: s.Shift}
	if i.shift > 0 && r.Now >= s.At {
		i.shift = 0 // the clock is back where it was
	}
	i.e = r.Now + i.shift
	if i.e >= s.At {
		return i
	}
	if behind := s.At - i.e; r.Caller || (behind >= 0 && behind <= s.Rule.late) {
		i.lag = behind
	} else {
		i.shift, i.stepped = s.At-r.Now, true
	}
	i.e = s.At
	return i
}

// fresh is the same reading on a key whose full quota is back: nothing of its past shows.
func (i instant) fresh() instant { return instant{e: i.now, now: i.now} }

// after turns a wait on the key's clock into one on the reading's. at is State.At as the decision leaves it: a shift ends
// when the reading gets there, and a wait that reaches so far is longer by it.
func (i instant) after(wait, at int64) int64 {
	x := addSat(i.lag, wait)
	if i.shift > 0 && x >= at-i.now {
		x = addSat(x, i.shift)
	}
	return x
}

// Refund gives back n units of a take booked at the effective instant taken, the Mark of its decision. It settles under the limit stored with the
// state; the balance is never lifted over the quota, a count never below zero, and a window or cell that is over is not
// touched. A LeakyBucket gives nothing back: a departure once promised is spent, and later ones are promised already.
func (s *State) Refund(now Reading, n int, taken int64) {
	if n <= 0 || s.Rule == nil {
		return
	}
	i := s.instant(now)
	taken /= s.Rule.tick
	switch s.Rule.limit.Algorithm {
	case TokenBucket:
		s.Rule.refundTokens(s, i, int64(n))
	case FixedWindow:
		s.Rule.refundFixed(s, i, int64(n), taken)
	case SlidingWindow:
		s.Rule.refundSliding(s, i, int64(n), taken)
	case SlidingLog:
		s.Rule.refundLogged(s, i, int64(n), taken)
	}
}

// Gone returns the effective instant from which the key is as if never seen, math.MinInt64 if it is already, and
// math.MaxInt64 if that is too far away. Readings are Shift behind it, but only until they reach At, where the shift ends:
// a store whose clock may be stepped forgets when a reading reaches Gone.
func (s *State) Gone() int64 {
	r := s.Rule
	if r == nil {
		return math.MinInt64
	}
	switch r.limit.Algorithm {
	case TokenBucket:
		return addSat(s.At, mulSubDivUp(r.burst-s.Units, r.period, s.Frac, r.rate))
	case LeakyBucket:
		return addSat(s.At, mulAddDivUp(s.Units, r.period, s.Frac, r.rate))
	case FixedWindow:
		_, end := r.Window(s.At)
		return end
	case SlidingWindow:
		return addSat(s.At, r.slidingReset(s.counts(), s.At))
	case SlidingLog:
		return addSat(s.Log.newest(), r.period)
	}
	return math.MinInt64
}

// forget makes the key one never seen, keeping memory for reuse.
func (s *State) forget() {
	log := s.Log
	log.clear()
	*s = State{Counts: s.Counts[:0], Log: log}
}
