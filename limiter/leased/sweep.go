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
	leases := map[string]int64{}
	for _, e := range holders {
		e.mu.Lock()
		e.node.expire(now)
		switch {
		case e.dead || e.node.held+e.node.recorded+e.node.back == 0 && !e.node.calling:
			l.mu.Lock() // while it is locked, so that it cannot hold something again just now
			delete(l.holders, e)
			l.mu.Unlock()
		case e.node.held > 0:
			leases[e.key.Space]++
		}
		e.mu.Unlock()
	}
	back := l.leaving(holders, (*node).idle)
	changed := l.report(leases)
	for space, n := range changed {
		l.tell(limiter.Event{Kind: limiter.EventLease, Time: time.Now(), Name: l.name, Policy: space, Keys: n})
	}
	l.giveBack(context.Background(), back)
}

// report sets the timer again, and returns whose number of leases has changed.
func (l *Limiter) report(leases map[string]int64) map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := map[string]int64{}
	for space, n := range leases {
		if l.told[space] != n {
			l.told[space], changed[space] = n, n
		}
	}
	for space := range l.told {
		if leases[space] == 0 {
			delete(l.told, space)
			changed[space] = 0
		}
	}
	switch {
	case l.stopped:
	case len(l.holders) == 0 && len(l.told) == 0:
		l.timer = nil
	default:
		l.timer = time.AfterFunc(l.sync, l.sweep)
	}
	return changed
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
