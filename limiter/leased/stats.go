package leased

import (
	"sync"
	"time"
)

// Stats are what a limiter did since it was made, and what it holds now.
type Stats struct {
	Keys   int   // known in this process
	Leases int   // keys for which something is held
	Held   int64 // tokens held
	// Staleness is how long ago the oldest lease that is held was told about by Redis.
	Staleness time.Duration

	// Slowest is the longest call that got an answer. What passes in an interval, measured at the processes, may be above the
	// promise by what comes back in that time.
	Slowest time.Duration
	// Late and LateBound are those of [limiter.Leases], since the limiter was made.
	Late, LateBound float64

	Local    uint64 // decisions without a call
	Calls    uint64 // calls for tokens, and to give some back
	Failed   uint64 // calls without an answer
	Granted  uint64 // tokens that Redis granted
	Returned uint64 // tokens given back
	// Stranded are tokens that were granted and not spent: their lease ended, or whoever waited for them had left.
	Stranded uint64
}

// Stats returns them. It looks at every key: once in some seconds is often enough.
func (l *Limiter) Stats() Stats {
	sum := l.retired.get()
	s := Stats{Slowest: time.Duration(l.slowest.Load())}
	now := l.now()
	for _, e := range l.table.all() {
		e.mu.Lock()
		if !e.dead {
			e.node.expire(now)
			s.Keys++
			s.Held += e.node.held
			if e.node.held > 0 {
				s.Leases++
				s.Staleness = max(s.Staleness, time.Duration(now-e.node.knownAt))
			}
			sum.add(&e.node.counted)
		}
		e.mu.Unlock()
	}
	s.Local, s.Calls, s.Failed = sum.local, sum.calls, sum.failed
	s.Granted, s.Returned, s.Stranded = sum.granted, sum.returned, sum.wasted
	s.Late, s.LateBound = sum.late, sum.bound
	return s
}

func (c *counts) add(o *counts) {
	c.local += o.local
	c.calls += o.calls
	c.failed += o.failed
	c.granted += o.granted
	c.returned += o.returned
	c.wasted += o.wasted
	c.raise(o.lateness)
}

// since returns what came after o. Maxima stay.
func (c counts) since(o *counts) counts {
	c.local -= o.local
	c.calls -= o.calls
	c.failed -= o.failed
	c.granted -= o.granted
	c.returned -= o.returned
	c.wasted -= o.wasted
	return c
}

// retired are the counts of keys that were forgotten, and what of them nobody was told yet.
type retired struct {
	mu     sync.Mutex
	sum    counts
	untold map[string]*counts // by policy; nil where nobody listens
}

// retire takes over the counts of an entry that is not in the table any more. e is locked.
func (l *Limiter) retire(e *entry) {
	r := &l.retired
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.add(&e.node.counted)
	if l.observer != nil {
		more := e.untold()
		if r.untold[e.key.Space] == nil {
			if r.untold == nil {
				r.untold = map[string]*counts{}
			}
			r.untold[e.key.Space] = &counts{}
		}
		r.untold[e.key.Space].add(&more)
	}
	e.node.counted, e.told = counts{}, counts{}
}

func (r *retired) get() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum
}

// fetch returns what nobody was told yet, once.
func (r *retired) fetch() map[string]*counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	untold := r.untold
	r.untold = nil
	return untold
}

// untold returns what an entry did since it was last told, once. e is locked.
func (e *entry) untold() counts {
	more := e.node.counted.since(&e.told)
	more.lateness = e.node.recent
	e.told, e.node.recent = e.node.counted, lateness{}
	return more
}
