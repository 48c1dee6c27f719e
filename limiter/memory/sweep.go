package memory

import (
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// passTime is how long a pass over all segments takes while calls come in.
const passTime = 3 * time.Second

// othersTried is how many other segments an insert at the cap looks at.
const othersTried = 4

// due reports whether a call read at an instant should do a step of the sweep, and is all of its price for the others.
func (l *Limiter) due(at int64) bool { return at >= l.nextSweep.Load() }

// sweep visits one segment: frees what is idle and gives back memory. at is the reading of the call that is due. No
// lock may be held.
func (l *Limiter) sweep(at int64) {
	own := l.clock.now()
	next := l.nextSweep.Load()
	// Segments that merge in a pass must not slow it down for those ahead.
	most := max(1, l.segments.Load(), l.passSegments.Load())
	step := int64(passTime) / most
	// Steps that nobody came for are made up for, those of one pass at most.
	if own < next || !l.nextSweep.CompareAndSwap(next, max(next, own-int64(passTime))+step) || !l.sweepMu.TryLock() {
		return
	}
	s := l.advance(&l.cursor)
	passed := l.cursor == 0
	if passed {
		most = 0
	}
	l.passSegments.Store(most)
	l.sweepMu.Unlock()
	now := min(at, own) // a caller's clock may be late: nothing is forgotten too early for it
	if s != nil && s.mu.TryLock() {
		l.tend(s, now)
	}
	if passed {
		l.reapOverflow(now)
		if l.overflow.Load() == l.lastOverflow.Swap(l.overflow.Load()) {
			l.overflowing.Store(false)
		}
		l.report()
	}
}

// advance returns the segment under a cursor and moves the cursor behind it; nil: closed. sweepMu must be held.
func (l *Limiter) advance(cursor *uint64) *segment {
	d := l.dir.Load()
	if d == nil {
		return nil
	}
	s := d.of(*cursor)
	*cursor = s.prefix + 1<<(64-s.depth) // wraps to 0
	return s
}

// tend frees what is idle in s, then merges or shrinks it if little is left. It releases s.mu.
func (l *Limiter) tend(s *segment, now int64) {
	if !s.moved && s.idle.Load() <= now {
		l.reap(s, now)
	}
	for !s.moved {
		t := l.merge(s)
		if t == nil {
			break
		}
		s.mu.Unlock()
		s = t
	}
	if spare := s.filled - s.live; !s.moved && (spare > len(s.cells)/4 || fit(s.live+1) <= len(s.cells)/2) {
		l.resize(s)
	}
	s.mu.Unlock()
}

// merge moves s and its buddy to one new segment, if few keys are left in both, and returns it with its mutex held.
// s.mu must be held and still is afterwards.
func (l *Limiter) merge(s *segment) *segment {
	if s.depth == 0 || s.live > fewLive {
		return nil
	}
	bit := uint64(1) << (64 - s.depth)
	d := l.dir.Load()
	if d == nil {
		return nil
	}
	b := d.of(s.prefix ^ bit)
	if b.depth != s.depth || !b.mu.TryLock() {
		return nil
	}
	defer b.mu.Unlock()
	if b.moved {
		return nil
	}
	// What is idle in b is left for b's own turn: a step frees the keys of one segment.
	if s.live+b.live > fewLive {
		return nil
	}
	t := newSegment(s.prefix&^bit, s.depth-1, fit(s.live+b.live+1))
	t.mu.Lock()
	to := func(uint64) *segment { return t }
	l.move(s, to)
	l.move(b, to)
	l.publish([]*segment{s, b}, t)
	return t
}

// reclaim frees idle cells in other segments for an insert at the cap, and reports whether it found any. No lock may be
// held. Segments without any are told by their bound, so this is a few loads.
func (l *Limiter) reclaim(now int64) (found bool) {
	for range othersTried {
		if !l.sweepMu.TryLock() {
			return false
		}
		s := l.advance(&l.spare)
		l.sweepMu.Unlock()
		if s == nil {
			return false
		}
		if s.idle.Load() > now || !s.mu.TryLock() {
			continue
		}
		found = !s.moved && l.reap(s, now) > 0
		s.mu.Unlock()
		if found {
			return true
		}
	}
	return false
}

// report tells the observer about the table. No lock may be held. A panic of the observer is dropped: it must not undo
// the decision that it happens to ride on.
func (l *Limiter) report() {
	if l.observer == nil {
		return
	}
	defer func() { _ = recover() }()
	e := limiter.Event{Kind: limiter.EventMemory, Time: time.Now(), Name: l.name, Keys: l.used.Load(), Overflow: l.overflow.Load()}
	if l.told.Load() {
		e.State, e.Keys = 1, 0
	}
	l.observer.Observe(e)
}
