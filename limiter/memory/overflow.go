package memory

import (
	"slices"

	"github.com/spillway-go/spillway/limiter"
)

// Beyond the cap keys share overflow cells, a few per space and algorithm. They live in a segment of their own, are
// exempt from the cap and bounded in number; when even they are used up, all other keys of an algorithm share its cell
// of last resort. What a key was charged is always contained in the cell it finds first: its own, the shared one, the
// last resort. A cell that comes into being starts as a copy of the next one, so nobody gains by moving.
const (
	overflowSize = 1536
	mostOverflow = 1024
	minLog       = 4 // entries a log has memory for at least
)

// lookupOverflow finds the overflow cell that counts for a key without a cell of its own.
func (l *Limiter) lookupOverflow(k *limiter.Key, a limiter.Algorithm) ref {
	s := l.over.Load()
	if s == nil {
		return ref{}
	}
	shared, last := l.hasher.overflow(k, a)
	if i := s.find(shared); i >= 0 {
		return ref{s, i, shared}
	}
	if i := s.find(last); i >= 0 {
		return ref{s, i, last}
	}
	return ref{}
}

// obtainOverflow finds or adds the overflow cell for a key there is no room for.
func (l *Limiter) obtainOverflow(k *limiter.Key, a limiter.Algorithm, at int64) (_ ref, open bool) {
	own := l.clock.now()
	shared, last := l.hasher.overflow(k, a)
	if s := l.over.Load(); s != nil { // a flood must not queue for the mutex
		if i := s.find(shared); i >= 0 {
			return ref{s, i, shared}, true
		}
	}
	l.overMu.Lock()
	defer l.overMu.Unlock()
	s := l.over.Load()
	if s == nil {
		if l.dir.Load() == nil {
			return ref{}, false
		}
		s = newSegment(0, 0, overflowSize)
		s.shared = true
		l.over.Store(s)
	}
	h := shared
	if i := s.find(h); i >= 0 {
		return ref{s, i, h}, true
	}
	if s.live >= mostOverflow-len(l.hasher.last) && s.idle.Load() <= min(at, own) {
		l.reap(s, min(at, own))
	}
	if s.live >= mostOverflow-len(l.hasher.last) {
		h = last
		if i := s.find(h); i >= 0 {
			return ref{s, i, h}, true
		}
	}
	i := s.vacancy(h)
	if i < 0 {
		// Many came and went: the cells they left make searches long.
		t := newSegment(0, 0, overflowSize)
		t.shared = true
		l.move(s, func(uint64) *segment { return t })
		l.over.Store(t)
		s, i = t, t.vacancy(h)
	}
	// The cell of last resort is locked first: whoever holds the new one as well may wait for it, and not the other way.
	var from ref
	var fromWord, w uint32
	if h == shared {
		if j := s.find(last); j >= 0 {
			from = ref{s, j, last}
			fromWord, _ = from.lock() // it cannot have changed hands: overMu is held
		}
	}
	c := s.claim(i, h, own)
	if from.seg != nil {
		w = l.adopt(ref{s, i, h}, from, fromWord)
		from.cell().unlock(fromWord)
	}
	if w != 0 {
		s.lower(l.idleAt(ref{s, i, h}, w))
	}
	c.unlock(w)
	return ref{s, i, h}, true
}

// inherit gives a locked new cell what its key was charged on overflow cells and returns the cell's word.
func (l *Limiter) inherit(k *limiter.Key, a limiter.Algorithm, to ref) uint32 {
	for {
		from := l.lookupOverflow(k, a)
		if from.seg == nil {
			return 0
		}
		if w, ok := from.lock(); ok {
			word := l.adopt(to, from, w)
			from.cell().unlock(w)
			return word
		}
	}
}

// adopt copies one locked cell, whose word is w, into another, which is locked and new, and returns that one's word.
func (l *Limiter) adopt(to, from ref, w uint32) uint32 {
	c := from.cell()
	var s limiter.State
	r := l.state(&s, from, w)
	if r == nil {
		return 0
	}
	r.refs.Add(1) // the other cell holds it, so it is not given up
	t := to.cell()
	t.at, t.frac, t.units = c.at, c.frac, c.units
	switch {
	case r.log:
		// All units at the last instant: that lets in less, never more.
		then := limiter.Reading{Now: s.At, Caller: true}
		var copied limiter.State
		if n := r.quota - r.Peek(&s, then, 0, 0).Remaining; n > 0 {
			r.Take(&copied, then, n, 0)
		}
		to.seg.makeSide(to.i).log = copied.Log
		l.logged.Add(int64(copied.Log.Cap()))
	case r.side:
		to.seg.makeSide(to.i).counts = slices.Clone(s.Counts)
	}
	return w
}

// noteOverflow counts takes on overflow cells and reports whether they are the first in a while.
func (l *Limiter) noteOverflow(n int64) (first bool) {
	l.overflow.Add(n)
	return !l.overflowing.Load() && l.overflowing.CompareAndSwap(false, true)
}

// reapOverflow frees what is idle among the overflow cells, and all of their memory when none is left.
func (l *Limiter) reapOverflow(now int64) {
	l.overMu.Lock()
	defer l.overMu.Unlock()
	s := l.over.Load()
	if s == nil {
		return
	}
	if s.idle.Load() <= now {
		l.reap(s, now)
	}
	if s.live == 0 {
		l.over.Store(nil)
	}
}
