package memory

import "github.com/spillway-go/spillway/limiter"

// The table is extendible hashing: a directory over segments, each with a mutex for those who add, free or move cells.
// Locks are taken in the order segment.mu, overMu, dirMu, lock bits. A second segment's mutex is only ever tried.

// graceTime is how long a key is kept after its quota is back: instants of callers may be so late.
const graceTime = int64(1e9)

// ref is a cell that has been found. It may have changed hands until it is locked.
type ref struct {
	seg  *segment
	i    int
	hash uint64
}

func (r ref) cell() *cell { return &r.seg.cells[r.i] }

// before is the order in which calls lock several cells: by place, which never changes, while whose cell it is may have
// since it was found. Own cells come before shared ones.
func (r ref) before(q ref) bool {
	switch {
	case r.seg.shared != q.seg.shared:
		return q.seg.shared
	case r.seg != q.seg:
		return r.seg.id < q.seg.id
	}
	return r.i < q.i
}

// lock takes the cell's bit if it is still the one that was found.
func (r ref) lock() (word uint32, ok bool) {
	c := r.cell()
	w := c.lock()
	if w&movedBit != 0 || c.hash.Load() != r.hash {
		c.unlock(w)
		return 0, false
	}
	return w, true
}

// lookup finds the cell of h without a lock. r.seg is nil if there is none.
func (l *Limiter) lookup(h uint64) (r ref, open bool) {
	d := l.dir.Load()
	if d == nil {
		return ref{}, false
	}
	s := d.of(h)
	if i := s.find(h); i >= 0 {
		return ref{s, i, h}, true
	}
	return ref{}, true
}

// obtain finds the cell of h or adds it. r.seg is nil if there is no room. at is the reading of the call.
func (l *Limiter) obtain(k *limiter.Key, r *rule, h uint64, at int64) (_ ref, open bool) {
	own := l.clock.now()
	now := min(at, own)
	for tried := false; ; {
		d := l.dir.Load()
		if d == nil {
			return ref{}, false
		}
		s := d.of(h)
		s.mu.Lock()
		if s.moved {
			s.mu.Unlock()
			continue
		}
		if i := s.find(h); i >= 0 {
			s.mu.Unlock()
			return ref{s, i, h}, true
		}
		if l.full(r) && s.idle.Load() <= now {
			l.reap(s, now)
		}
		if l.full(r) {
			s.mu.Unlock()
			if !tried && l.reclaim(now) {
				tried = true
				continue
			}
			return ref{}, true
		}
		i := s.vacancy(h)
		if i < 0 {
			l.grow(s, now)
			s.mu.Unlock()
			continue
		}
		if l.used.Add(1) > l.maxKeys {
			l.used.Add(-1)
			s.mu.Unlock()
			continue
		}
		c := s.claim(i, h, own)
		w := l.inherit(k, r.limit.Algorithm, ref{s, i, h}) // before anybody else can lock the cell
		if w != 0 {                                        // else whoever decides on it notes when it becomes idle
			s.lower(l.idleAt(ref{s, i, h}, w))
		}
		c.unlock(w)
		s.mu.Unlock()
		return ref{s, i, h}, true
	}
}

// full reports whether no key may be added.
func (l *Limiter) full(r *rule) bool {
	return l.used.Load() >= l.maxKeys || r.log && l.logged.Load()+minLog > l.maxLog
}

// reap frees the cells of s that are idle and reports how many. s.mu must be held.
func (l *Limiter) reap(s *segment, now int64) (n int) {
	s.idle.Store(noInstant) // first, so that no lowering meanwhile is lost
	least := int64(noInstant)
	for i := range s.cells {
		c := &s.cells[i]
		if c.hash.Load() <= freed {
			continue
		}
		w := c.lock()
		r := ref{seg: s, i: i}
		if at := l.idleAt(r, w); now < at {
			least = min(least, at)
			c.unlock(w)
			continue
		}
		c.hash.Store(freed)
		l.clear(r, w)
		c.unlock(0)
		n++
	}
	s.lower(least)
	s.live -= n
	if !s.shared {
		l.used.Add(-int64(n))
	}
	return n
}

// move moves the cells of s to other segments, which nobody else sees yet, and leaves s moved. s.mu must be held.
func (l *Limiter) move(s *segment, to func(h uint64) *segment) {
	for i := range s.cells {
		c := &s.cells[i]
		h := c.hash.Load()
		if h <= freed {
			continue
		}
		w := c.lock()
		t := to(h)
		j := t.vacancy(h)
		n := t.claim(j, h, c.at)
		n.frac, n.units = c.frac, c.units
		if x := s.sideOf(i); x != nil {
			t.makeSide(j)
			(*t.side.Load())[j] = x
		}
		n.unlock(w)
		c.unlock(movedBit)
		t.idle.Store(min(t.idle.Load(), l.idleAt(ref{seg: t, i: j}, w)))
	}
	s.moved = true
}

// grow makes room in s: by freeing idle cells, in a longer segment or in two. s.mu must be held.
func (l *Limiter) grow(s *segment, now int64) {
	if s.idle.Load() <= now {
		l.reap(s, now)
	}
	if s.live < mostLive || s.depth == maxDepth {
		l.resize(s)
		return
	}
	bit, upper := uint64(1)<<(63-s.depth), 0
	for i := range s.cells {
		if h := s.cells[i].hash.Load(); h > freed && h&bit != 0 {
			upper++
		}
	}
	a := newSegment(s.prefix, s.depth+1, fit(s.live-upper))
	b := newSegment(s.prefix|bit, s.depth+1, fit(upper))
	l.move(s, func(h uint64) *segment {
		t := a
		if h&bit != 0 {
			t = b
		}
		return t
	})
	l.publish([]*segment{s}, a, b)
}

// resize moves s to a segment that fits. s.mu must be held.
func (l *Limiter) resize(s *segment) {
	t := newSegment(s.prefix, s.depth, fit(s.live+1))
	l.move(s, func(uint64) *segment { return t })
	l.publish([]*segment{s}, t)
}

// publish puts segments into the directory in place of others, whose mutexes must be held.
func (l *Limiter) publish(old []*segment, now ...*segment) {
	l.dirMu.Lock()
	defer l.dirMu.Unlock()
	d := l.dir.Load()
	if d == nil {
		return
	}
	for _, s := range old {
		l.perDepth[s.depth]--
	}
	for _, s := range now {
		l.perDepth[s.depth]++
	}
	l.segments.Add(int64(len(now) - len(old)))
	n := d
	if depth := now[0].depth; depth > d.depth() {
		n = d.resized(depth)
	}
	for _, s := range now {
		first := s.prefix >> n.shift
		for i := range uint64(1) << (n.depth() - s.depth) {
			n.slots[first+i].Store(s)
		}
	}
	// One level unused is kept, so that a table on the edge does not copy to and fro.
	if m := n.depth(); m >= 2 && l.perDepth[m] == 0 && l.perDepth[m-1] == 0 {
		n = n.resized(m - 1)
	}
	if n != d {
		l.dir.Store(n)
	}
}
