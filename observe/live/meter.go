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

	mu    sync.Mutex
	other limiter.Limit // what the key was decided by meanwhile; zero: limit

	// Of the sampler.
	seen   int64   // head at the last step
	level  float64 // of a bucket: what passed above the rate; of a window: what passed in it
	window int64   // the one of level
	worst  float64
}

func newMeter(hash uint64, l limiter.Limit) *meter {
	m := &meter{hash: hash, limit: l}
	if l.Algorithm != limiter.TokenBucket && l.Algorithm != limiter.LeakyBucket {
		m.width = int64(l.Period / grain)
	}
	return m
}

// measurable reports whether a meter can tell anything about l.
func measurable(l *limiter.Limit) bool {
	switch {
	case l.Period <= 0 || l.Align != (limiter.Align{}) || l.Quota() == 0 || l.Quota() == math.MaxInt:
		return false // a bound on requests in flight, a calendar, all or nothing
	case l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket:
		return true
	}
	return l.Period >= grain && l.Period%grain == 0
}

// count adds what passed. It is called by any number of goroutines.
func (m *meter) count(e *limiter.Event) {
	m.hits.Add(1)
	d := &e.Decision
	if d.Limit != m.limit {
		if m.mu.TryLock() { // whoever holds it says as much
			m.other = d.Limit
			m.mu.Unlock()
		}
		return
	}
	at := d.Mark
	if m.width == 0 && (d.Via == limiter.ViaStore || d.Via == limiter.ViaLease) {
		took := max(0, time.Since(e.Time))
		at = e.Time.UnixNano() + int64(took)
		raise(&m.slowest, int64(took))
	}
	m.add(at/int64(grain), e.N)
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
		return
	}
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

// see counts a decision that took units of a key.
func (w *watch) see(hash uint64, e *limiter.Event) {
	m := w.meter.Load()
	if m == nil {
		w.meter.CompareAndSwap(nil, newMeter(hash, e.Decision.Limit)) // once
		m = w.meter.Load()
	}
	switch {
	case m.hash == hash:
		m.count(e)
	case w.candidate.Load() == hash:
		w.votes.Add(1)
	case w.votes.Add(-1) < 0:
		w.candidate.Store(hash)
		w.votes.Store(1)
	}
}

// step measures, and gives the meter to another key or limit where that is due.
func (w *watch) step() (worst, bound float64, on bool) {
	m := w.meter.Load()
	if m == nil {
		return 0, 0, false
	}
	if m.limit != (limiter.Limit{}) {
		worst, bound, on = m.step(), m.bound(), true
	}
	hits, votes := int64(m.hits.Swap(0)), w.votes.Swap(0)
	next := m.hash
	if votes > hits+1 {
		next = w.candidate.Load()
	}
	l, changed := m.changed()
	switch {
	case next != m.hash:
		w.meter.Store(newMeter(next, limiter.Limit{})) // its limit is seen when it comes
	case changed:
		w.meter.Store(newMeter(next, l))
	}
	return worst, bound, on
}
