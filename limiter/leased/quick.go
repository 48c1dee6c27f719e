package leased

import (
	"github.com/spillway-go/spillway/limiter"
)

// few is how many takes a group may have that is decided at once.
const few = 4

// quick decides a group of which every take can be had from a lease, without a call and without an allocation: the usual group of a
// busy service. false: nothing was done, and the long way decides.
func (l *Limiter) quick(takes []limiter.Take) bool {
	if len(takes) > few {
		return false
	}
	var entries [few]*entry // in the order of takes, and in the order to lock
	var order [few]int
	for k := range takes {
		t := &takes[k]
		if t.Shadow || t.N < 1 {
			return false
		}
		e := l.table.get(&t.Key, l.table.hash(&t.Key))
		if e == nil {
			return false
		}
		at := k
		for ; at > 0 && entries[order[at-1]].number >= e.number; at-- {
			if entries[order[at-1]] == e {
				return false // equal keys count together
			}
			order[at] = order[at-1]
		}
		entries[k], order[at] = e, k
	}
	for _, k := range order[:len(takes)] {
		entries[k].mu.Lock()
	}
	now := l.now()
	all := true
	for k := range takes {
		e, t := entries[k], &takes[k]
		all = all && !e.dead && e.node.limit == t.Limit
		if all {
			e.node.expire(now)
			all = e.node.held >= int64(t.N)
		}
	}
	if all {
		for k := range takes {
			e, t := entries[k], &takes[k]
			e.node.arrive(now, int64(t.N))
			l.decide(&t.Decision, e, &t.Limit, now, t.N, true, limiter.ViaLease)
			if e.node.held <= e.node.low {
				l.goOn(e, now)
			}
		}
	}
	for _, k := range order[:len(takes)] {
		entries[k].mu.Unlock()
	}
	return all
}
