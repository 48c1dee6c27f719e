package memory

import "github.com/spillway-go/spillway/limiter"

// state loads a locked cell whose word is w and returns its rule, nil if the key is as if never seen.
func (l *Limiter) state(s *limiter.State, r ref, w uint32) *rule {
	old := l.rules.at(w)
	if old == nil {
		return nil
	}
	c := r.cell()
	s.Rule, s.At, s.Frac, s.Units = old.Rule, c.at, c.frac, int64(c.units)
	if old.side {
		if x := r.seg.sideOf(r.i); x != nil {
			s.Counts, s.Log = x.counts, x.log
		}
	}
	return old
}

// store writes a state back after a step of rule r, loaded with rule old, and returns the cell's new word. acquired says
// that the caller holds a reference of r, which it must unless r is old; it passes to the cell or is given back.
func (l *Limiter) store(at ref, w uint32, s *limiter.State, old, r *rule, acquired bool) uint32 {
	c := at.cell()
	c.at, c.frac, c.units = s.At, s.Frac, uint32(s.Units)
	now := old // the rule of the state
	switch {
	case s.Rule == nil:
		now = nil
	case old == nil || s.Rule != old.Rule:
		now = r
	}
	if now != nil && now.side || old != nil && old.side {
		x := at.seg.makeSide(at.i)
		x.counts, x.log = s.Counts, s.Log
		if now == nil || !now.side {
			l.dropSide(at)
		}
	}
	if now == old {
		if acquired {
			r.release()
		}
		return w
	}
	old.release()
	if now == nil {
		if acquired {
			r.release()
		}
		return 0
	}
	return r.index << ruleShift
}

// dropSide gives up what a locked cell keeps beside itself.
func (l *Limiter) dropSide(r ref) {
	p := r.seg.side.Load()
	if p == nil || (*p)[r.i] == nil {
		return
	}
	l.logged.Add(-int64((*p)[r.i].log.Cap()))
	(*p)[r.i] = nil
}

// clear releases all that a locked cell holds on to.
func (l *Limiter) clear(r ref, w uint32) {
	l.rules.at(w).release()
	l.dropSide(r)
}

// room is what a step may add to a log.
type room struct {
	before   int // entries there was memory for
	reserved int64
}

// reserve takes what a log may grow by out of the bound on entries. If that is reached, the log takes no new entry.
func (l *Limiter) reserve(s *limiter.State, r *rule) (x room) {
	if !r.log {
		return x
	}
	x.before = s.Log.Cap()
	s.Log.Full = false
	if s.Log.Len() == x.before {
		x.reserved = int64(max(x.before, minLog))
		if l.logged.Add(x.reserved) > l.maxLog {
			l.logged.Add(-x.reserved)
			x.reserved = 0
			s.Log.Full = true
		}
	}
	return x
}

// settleLog counts what the log has really grown or shrunk by.
func (l *Limiter) settleLog(x room, s *limiter.State) {
	if d := int64(s.Log.Cap()-x.before) - x.reserved; d != 0 {
		l.logged.Add(d)
	}
}

// idleAt returns the instant from which a locked cell may be reused.
func (l *Limiter) idleAt(r ref, w uint32) int64 {
	var s limiter.State
	at := r.cell().at
	if l.state(&s, r, w) != nil {
		at = s.Gone()
	}
	if at > noInstant-graceTime {
		return noInstant
	}
	return at + graceTime
}
