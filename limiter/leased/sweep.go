package leased

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// hold notes that an entry may have something to give back, and sees to it that somebody looks. e is locked.
func (l *Limiter) hold(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders[e] = struct{}{}
	if l.timer == nil && !l.stopped {
		l.timer = time.AfterFunc(l.sync, l.sweep)
	}
}

// sweep gives back what nobody has asked for, and comes again while there is anything.
func (l *Limiter) sweep() {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return
	}
	l.running.Add(1)
	defer l.running.Done()
	holders := make([]*entry, 0, len(l.holders))
	for e := range l.holders {
		holders = append(holders, e)
	}
	l.mu.Unlock()

	now := l.now()
	found := l.news()
	for _, e := range holders {
		e.mu.Lock()
		e.node.expire(now)
		switch {
		case e.dead || e.node.held+e.node.recorded+e.node.back == 0 && !e.node.calling:
			l.mu.Lock() // while it is locked, so that it cannot hold something again just now
			delete(l.holders, e)
			l.mu.Unlock()
		case e.node.held > 0:
			n := found.of(e.key.Space)
			n.leases++
			n.units += e.node.held
			n.staleness = max(n.staleness, time.Duration(now-e.node.knownAt))
		}
		if l.observer != nil && !e.dead { // else what it did is among the retired
			more := e.untold()
			found.of(e.key.Space).add(&more)
		}
		e.mu.Unlock()
	}
	back := l.leaving(holders, (*node).idle)
	l.schedule(found)
	l.tellNews(found)
	l.giveBack(context.Background(), back)
}

// news are what a sweep has found, by policy.
type news map[string]*found

type found struct {
	leases, units int64
	staleness     time.Duration
	counts
}

func (n news) of(space string) *found {
	f := n[space]
	if f == nil {
		f = &found{}
		n[space] = f
	}
	return f
}

// news begins with the keys that were forgotten.
func (l *Limiter) news() news {
	n := news{}
	for space, counted := range l.retired.fetch() {
		n.of(space).add(counted)
	}
	return n
}

// schedule sets the timer again, unless there is nothing to come.
func (l *Limiter) schedule(found news) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopped:
	case len(l.holders) == 0 && len(found) == 0:
		l.timer = nil
	default:
		l.timer = time.AfterFunc(l.sync, l.sweep)
	}
}

// tellNews shows what is new of each policy: numbers that changed, and that the last lease is gone.
func (l *Limiter) tellNews(all news) {
	if l.observer == nil {
		return
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	for space := range l.told {
		all.of(space)
	}
	for space, f := range all {
		if f.leases == 0 {
			if _, was := l.told[space]; !was && f.counts == (counts{}) {
				continue
			}
			delete(l.told, space)
		} else {
			l.told[space] = struct{}{}
		}
		l.tell(limiter.Event{
			Kind: limiter.EventLease, Time: time.Now(), Name: l.name, Policy: space, Keys: f.leases, Leases: &limiter.Leases{
				Units: f.units, Staleness: f.staleness, Local: f.local, Calls: f.calls,
				Granted: f.granted, Returned: f.returned, Stranded: f.wasted, Late: f.late, LateBound: f.bound,
			},
		})
	}
}

// tellLast tells what came since the last sweep, and that nothing is held any more.
func (l *Limiter) tellLast(entries []*entry) {
	if l.observer == nil {
		return
	}
	all := l.news()
	for _, e := range entries {
		e.mu.Lock()
		if !e.dead {
			more := e.untold()
			all.of(e.key.Space).add(&more)
		}
		e.mu.Unlock()
	}
	l.tellNews(all)
}

// leaving asks entries for the calls by which they give back what they hold.
func (l *Limiter) leaving(entries []*entry, how func(*node, int64) (request, bool)) (out []leave) {
	for _, e := range entries {
		e.mu.Lock()
		if !e.dead {
			if q, due := how(e.node, l.now()); due {
				out = append(out, leave{e, q})
			}
		}
		e.mu.Unlock()
	}
	return out
}

// leave is an entry that gives back what it holds.
type leave struct {
	e *entry
	q request
}

// together is how many give back in one round trip.
const together = 500

// giveBack makes the calls of those who leave, many in a round trip and all within one time-out, and what is due after them.
func (l *Limiter) giveBack(ctx context.Context, all []leave) {
	ctx = rediscall.Since(ctx, time.Now())
	for some := range slices.Chunk(all, together) {
		calls := make([]call, len(some))
		for i := range some {
			calls[i] = call{key: some[i].e.rendered, request: some[i].q}
		}
		start := time.Now()
		l.store.leaseEach(ctx, calls)
		var failed error
		for i := range calls {
			failed = cmp.Or(failed, calls[i].err)
		}
		l.observe("return", start, len(calls), failed)
		for i := range some {
			e := some[i].e
			e.mu.Lock()
			now := l.now()
			l.answered(e, now, some[i].q.seq, calls[i].reply, calls[i].err)
			l.goOn(e, now) // for those who came meanwhile
			e.mu.Unlock()
		}
	}
}
