package live

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// grain is the resolution of a meter. Coarser intervals hide more, finer ones look back for less.
const grain = 10 * time.Millisecond

const (
	grains = 256 // of a ring: what comes this late, or before the sampler did, is not measured
	settle = 50  // grains that are left alone, as late events may still come
)

// meter measures by how much one key is admitted more than its limit promises. Events may come in any order and from any
// goroutine: they are counted in grains of time, and the sampler goes over those in order. An interval of whole grains is at
// least as long as that between the events in it, so what is measured is never too much; and the true one is higher by at most
// what the rate brings in two of them, as each end may lie anywhere in its grain.
type meter struct {
	hash  uint64 // of the key
	limit limiter.Limit
	width int64 // of a window in grains; 0: a bucket

	hits    atomic.Uint32 // since the last step
	head    atomic.Int64  // the latest grain that anything was counted in
	done    atomic.Int64  // up to this grain the sampler has been
	slowest atomic.Int64  // ns from a request's instant to when it passed
	ring    [grains]atomic.Uint64

	behind atomic.Uint32 // units came for grains that are long over, since the last step
	fresh  atomic.Bool   // units were counted since the last step
	wait   int64         // grains that the key has to be under one limit before it is measured
	begin  atomic.Int64  // the first grain that is measured after wait; 0: nothing has come yet

	mu    sync.Mutex
	other limiter.Limit // what the key was decided by meanwhile; zero: limit

	// Of the sampler.
	seen   int64   // head at the last step
	told   float64 // worst as of the step before
	level  float64 // of a bucket: what passed above the rate; of a window: what passed in it
	window int64   // the one of level
	worst  float64
}

func newMeter(hash uint64, l limiter.Limit) *meter {
	m := &meter{hash: hash, limit: l}
	if !isBucket(&l) {
		m.width = int64(l.Period / grain)
	}
	return m
}

// span is the grains after which a key that was under another limit has nothing left of it: the time until its quota is
// full, or two windows, as sliding ones look back at the one before.
func span(l *limiter.Limit) int64 {
	most := float64(l.Period)
	if isBucket(l) {
		most *= float64(l.Quota()) / float64(max(1, l.Rate))
	} else {
		most *= 2
	}
	return int64(min(most/float64(grain), math.MaxInt64/8)) + int64(time.Second/grain)
}

func isBucket(l *limiter.Limit) bool {
	return l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket
}

// measurable reports whether a meter can tell anything about l.
func measurable(l *limiter.Limit) bool {
	switch {
	case l.Period <= 0 || l.Align != (limiter.Align{}) || l.Quota() == 0 || l.Quota() == math.MaxInt:
		return false // a bound on requests in flight, a calendar, all or nothing
	case isBucket(l):
		return true
	}
	return l.Period >= grain && l.Period%grain == 0
}

// count adds what passed at an instant of the wall clock, in ns. It is called by any number of goroutines.
func (m *meter) count(e *limiter.Event, at int64) {
	m.hits.Add(1)
	d := &e.Decision
	if m.note(d) {
		return
	}
	g := at / int64(grain)
	if m.wait > 0 {
		begin := m.begin.Load()
		if begin == 0 {
			m.begin.CompareAndSwap(0, g+m.wait)
			begin = m.begin.Load()
		}
		if g < begin {
			if g < begin-m.wait-grains {
				m.behind.Add(1)
			} else {
				m.fresh.Store(true)
			}
			return
		}
	}
	if m.width == 0 && (d.Via == limiter.ViaStore || d.Via == limiter.ViaLease) {
		raise(&m.slowest, int64(time.Since(e.Time)))
	}
	m.add(g, e.N)
}

// note reports whether a decision is by another limit, and keeps it. That a limiter books nothing does not mean that it keeps
// what it knew by the limit before.
func (m *meter) note(d *limiter.Decision) bool {
	if d.Limit == m.limit {
		return false
	}
	if m.mu.TryLock() { // whoever holds it says as much
		m.other = d.Limit
		m.mu.Unlock()
	}
	return true
}

// add counts n units in a grain. Each cell holds the low bits of its grain beside the count, so that nothing has to be
// cleared, and what comes after its cell was given to a later grain is lost and not counted there.
func (m *meter) add(g int64, n int) {
	done := m.done.Load()
	if done == 0 {
		m.done.CompareAndSwap(0, g-grains/2) // there may be earlier ones on their way
		done = m.done.Load()
	}
	if g <= done {
		if g < done-grains {
			m.behind.Add(1)
		}
		return
	}
	m.fresh.Store(true)
	raise(&m.head, g)
	cell, tag := &m.ring[g%grains], uint64(uint32(g))<<32
	for {
		was := cell.Load()
		count := uint64(n)
		if was>>32 == tag>>32 {
			count += was & math.MaxUint32
		} else if int32(uint32(was>>32)-uint32(g)) > 0 && was != 0 {
			return
		}
		if cell.CompareAndSwap(was, tag|min(count, math.MaxUint32)) {
			return
		}
	}
}

// step goes over the grains that are complete, and returns the most of an overshoot so far.
func (m *meter) step() float64 {
	head := m.head.Load()
	to := head - settle
	if head == m.seen { // nothing comes any more
		to = head
	}
	m.seen = head
	from := m.done.Load()
	if to <= from {
		return m.worst
	}
	m.done.Store(to)
	if skip := to - grains - from; skip > 0 {
		m.pass(from+skip, 0, skip)
		from += skip
	}
	gap := int64(0)
	for g := from + 1; g <= to; g++ {
		gap++
		if was := m.ring[g%grains].Load(); uint32(was>>32) == uint32(g) && was&math.MaxUint32 != 0 {
			m.pass(g, float64(was&math.MaxUint32), gap)
			gap = 0
		}
	}
	m.pass(to, 0, gap)
	return m.worst
}

// pass is n units in grain g, which is gap grains after the one before.
func (m *meter) pass(g int64, n float64, gap int64) {
	if gap == 0 {
		return
	}
	if m.width > 0 {
		if w := g / m.width; w != m.window {
			m.window, m.level = w, 0
		}
		m.level += n
		m.worst = max(m.worst, m.level-float64(m.limit.Rate))
		return
	}
	// The largest of all intervals that end here, less what the rate brings in them (Lindley).
	perGrain := float64(m.limit.Rate) * float64(grain) / float64(m.limit.Period)
	m.level = max(0, m.level-perGrain*float64(gap-1)) + n - perGrain
	if over := m.level - float64(m.limit.Quota()); over > 1e-6*max(1, m.level) { // less is rounding
		m.worst = max(m.worst, over)
	}
	m.level = max(0, m.level)
}

// bound is what the rate brings in the slowest decision, for what is measured where requests pass.
func (m *meter) bound() float64 {
	if m.width > 0 || m.limit.Period <= 0 {
		return 0
	}
	return float64(m.limit.Rate) * float64(m.slowest.Load()) / float64(m.limit.Period)
}

// changed returns the limit by which the key is decided by now, if it is another one.
func (m *meter) changed() (limiter.Limit, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.other, m.other != limiter.Limit{}
}

// raise makes a at least v.
func raise(a *atomic.Int64, v int64) {
	for {
		was := a.Load()
		if v <= was || a.CompareAndSwap(was, v) {
			return
		}
	}
}

// watched is how many keys of a policy are measured at once.
const watched = 8

// watch is one meter of a policy and who else could have it. Keys are spread over the watches of their policy by their hash.
// The one whose majority of decisions is largest gets the meter (Boyer and Moore, 1981): votes are those that the candidate has
// had more than all others together but the one that is measured.
type watch struct {
	meter     atomic.Pointer[meter]
	candidate atomic.Uint64
	votes     atomic.Int64
}

// see counts a decision that took units of a key, which passed at an instant in ns.
func (w *watch) see(hash uint64, e *limiter.Event, at int64) {
	m := w.meter.Load()
	if m == nil {
		w.meter.CompareAndSwap(nil, newMeter(hash, e.Decision.Limit)) // once
		m = w.meter.Load()
	}
	switch {
	case m.hash == hash:
		m.count(e, at)
	case w.candidate.Load() == hash:
		w.votes.Add(1)
	case w.votes.Add(-1) < 0:
		w.candidate.Store(hash)
		w.votes.Store(1)
	}
}

// note looks at a decision that took nothing.
func (w *watch) note(hash uint64, e *limiter.Event) {
	if m := w.meter.Load(); m != nil && m.hash == hash {
		m.note(&e.Decision)
	}
}

// step measures, and gives the meter to another key or limit where that is due. What a step finds is told by the next one, and
// only if the key was under one limit until then: an event of another may come after those that it explains.
func (w *watch) step() (worst, bound float64, on bool) {
	m := w.meter.Load()
	if m == nil {
		return 0, 0, false
	}
	found := 0.0
	known := measurable(&m.limit)
	if known {
		found = m.step()
	}
	hits, votes := int64(m.hits.Swap(0)), w.votes.Swap(0)
	behind, fresh := m.behind.Swap(0), m.fresh.Swap(false)
	if l, changed := m.changed(); changed { // asked after the step, which has counted nothing that came later
		next := newMeter(m.hash, l)
		if m.limit != (limiter.Limit{}) {
			next.wait = span(&l)
		}
		w.meter.Store(next)
		return 0, 0, false
	}
	if behind > 0 && !fresh && m.limit != (limiter.Limit{}) { // the clock of those that decide was set back
		next := newMeter(m.hash, m.limit)
		next.wait = m.wait
		w.meter.Store(next)
		return m.told, m.bound(), false
	}
	worst, m.told = m.told, found
	if votes > hits+1 {
		w.meter.Store(newMeter(w.candidate.Load(), limiter.Limit{})) // its limit is seen when it comes
	}
	return worst, m.bound(), known && (m.wait == 0 || m.done.Load() != 0)
}

// again forgets what the meter holds: who decides is another, or his promise is.
func (w *watch) again() {
	m := w.meter.Load()
	if m == nil {
		return
	}
	next := newMeter(m.hash, m.limit)
	if m.limit != (limiter.Limit{}) {
		next.wait = span(&m.limit)
	}
	w.meter.Store(next)
}
