package leased

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// node is one process's part in one key's bucket: what it holds, who waits, and when to call the script. It does no I/O and has
// no clock: every method is told the instant, in nanoseconds of a clock that never steps. The limiter and the simulator drive
// the same node. It is not safe for concurrent use.
//
// Tokens it may spend without asking are held. They end at the deadline, which is counted from before the call that got them
// was sent and so comes before the script's own. Tokens for takes that wait are spent when the reply arrives and never held.
type node struct {
	terms
	limit limiter.Limit // of which the terms are
	id    string
	newID func() string

	held     int64
	reserved int64 // for batches that are not decided yet: held too, and nobody else's
	back     int64 // to be given back with the next call; not held any more
	recorded int64 // the script's record is at least this: nothing given back here may lift what is held above it
	low      int64 // held at or below it asks for more in the background; −1: not at all
	deadline int64
	epoch    uint64 // another one as soon as everything held was dropped
	since    int64  // when this epoch began

	seq, ack  int64
	calling   bool
	sent      request
	sentAt    int64
	sentLimit limiter.Limit
	waiters   []*waiter // in order; nil: has left
	waiting   int       // how many there are

	window int64 // when the window of arrivals began
	count  int64 // tokens asked for in it
	first  int64 // by the arrival that opened it
	mean   float64
	last   int64 // when somebody last asked

	quiet     int64 // until then nobody who wants quietFrom tokens or more need ask
	quietFrom int64
	away      int64 // until then the store is not asked
	failures  int

	known   bool // a reply has arrived: level is what was left for anybody at knownAt
	level   level
	knownAt int64
	nodes   int64
	room    int64 // the level cannot rise above it before roomEnd: others hold the rest, and may be dead
	roomEnd int64

	sync    int64 // ns
	timeout int64 // ns: a reply that is later is none
	random  func() uint64
	counted counts
	recent  lateness // since it was last fetched
}

// counts are what a node did.
type counts struct {
	local, calls, failed      uint64
	granted, returned, wasted uint64 // tokens; wasted: leased or granted, and never spent
	lateness
}

// lateness is the most that one reply may have let pass above the limit, and the most that any could have: tokens that were waited
// for pass when the reply is here, and were counted at some instant of the call.
type lateness struct{ late, bound float64 }

func (l *lateness) raise(o lateness) { l.late, l.bound = max(l.late, o.late), max(l.bound, o.bound) }

// verdict is what becomes of an arrival.
type verdict uint8

const (
	taken  verdict = iota + 1
	denied         // the bucket is known to hold too little
	failed         // the store is away and nothing is held
	waits          // a call is needed
)

// waiter is a take that a call must decide.
type waiter struct {
	cost    int64
	limit   limiter.Limit
	reserve bool  // its tokens are to be held for it: they may be given back
	place   int   // among the waiters
	asked   int64 // seq of the call that asks for it; 0: none yet
	epoch   uint64
	until   int64 // when what it got is nobody's any more
	verdict verdict

	// Of the limiter.
	done     chan struct{} // closed when the verdict is there
	decision limiter.Decision
	err      error
}

const (
	// phi is the part of a burst that all nodes together hold beyond the demand of the moment.
	phi       = 0.5
	patience  = 5 // ticks the longest wait of the script is
	longestUp = 16
)

// newNode returns a node that holds nothing.
func newNode(l limiter.Limit, sync, timeout time.Duration, now int64, newID func() string, random func() uint64) *node {
	return &node{
		terms: newTerms(l, sync), limit: l, id: newID(), newID: newID, low: -1, nodes: 1, sync: int64(sync), timeout: int64(timeout),
		random: random, window: now, last: now, since: now,
	}
}

// tickNanos is T' in the node's unit.
func (n *node) tickNanos() int64 { return n.tick * 1000 }

// roll closes the window of arrivals when it is over.
func (n *node) roll(now int64) {
	elapsed := now - n.window
	if elapsed < n.tickNanos() {
		return
	}
	rate := float64(n.count) / float64(elapsed)
	n.mean += (rate - n.mean) * -math.Expm1(-float64(elapsed)/float64(3*n.tickNanos()))
	n.window, n.count, n.first = now, 0, 0
}

// demand is what is asked of this node in tokens per nanosecond: the mean, and half of what the running window has above it, so
// that a burst is seen at once. Two arrivals do not count: the one that opened the window, and the one on whose account this is
// reckoned. They are there whenever one looks, and would make nodes of little demand seem to have more.
func (n *node) demand(now int64) float64 {
	count := n.count - n.first
	if w := n.front(); w != nil {
		count -= w.cost
	}
	more := float64(count) - n.mean*float64(now-n.window)
	return n.mean + max(0, more)/float64(n.tickNanos())/2
}

// ahead is how many tokens are worth holding.
func (n *node) ahead(now int64) int64 {
	covered := n.demand(now) * float64(n.tickNanos())
	return int64(min(covered, phi*float64(n.burst)/float64(n.nodes)))
}

// expire drops what is held when its time is over.
func (n *node) expire(now int64) {
	if now >= n.deadline && n.held|n.reserved|n.back|n.recorded != 0 {
		n.drop(now)
	}
}

// drop forgets all that is held, reserved ones too.
func (n *node) drop(now int64) {
	n.counted.wasted += uint64(n.held + n.reserved + n.back)
	n.held, n.reserved, n.back, n.recorded, n.low = 0, 0, 0, 0, -1
	n.epoch++
	n.since = now
}

// relimit changes the limit. What is held above the new burst is given back, and the next arrival tells the script.
func (n *node) relimit(l limiter.Limit) {
	was, t := n.terms, newTerms(l, time.Duration(n.sync))
	n.terms, n.limit = t, l
	if was.sameLimit(t) {
		return
	}
	if n.held > t.burst {
		n.back += n.held - t.burst
		n.held = t.burst
	}
	n.level = t.converted(n.level, was)
	n.quiet, n.low = 0, math.MaxInt64
}

// arrive is a take of cost ≥ 1 tokens, at most the burst.
func (n *node) arrive(now, cost int64) verdict {
	n.arrived(now, cost)
	if n.held >= cost {
		n.held -= cost
		n.counted.local++
		return taken
	}
	return n.cannot(now, cost)
}

// reserve is arrive for a take that may be given back: its tokens are held for whoever has the ticket. Where it waits, the waiter
// gets them.
func (n *node) reserve(now, cost int64) (verdict, uint64) {
	n.arrived(now, cost)
	if n.held >= cost {
		n.held -= cost
		n.reserved += cost
		n.counted.local++
		return taken, n.epoch
	}
	return n.cannot(now, cost), 0
}

func (n *node) arrived(now, cost int64) {
	n.roll(now)
	if n.count == 0 {
		n.first = cost
	}
	n.count += cost
	n.last = now
	if now >= n.deadline {
		n.expire(now)
	}
}

func (n *node) cannot(now, cost int64) verdict {
	switch {
	case now < n.quiet && cost >= n.quietFrom:
		n.counted.local++
		return denied
	case now < n.away && !n.calling:
		return failed
	}
	return waits
}

// alive reports whether what was reserved at epoch may still be spent.
func (n *node) alive(now int64, epoch uint64) bool {
	n.expire(now)
	return epoch == n.epoch
}

// spend takes what was reserved for good. The caller has seen that it is alive.
func (n *node) spend(cost int64) { n.reserved -= cost }

// release gives back what was reserved at epoch: it is held again.
func (n *node) release(now, cost int64, epoch uint64) {
	if n.alive(now, epoch) {
		n.reserved -= cost
		n.held += cost
	}
}

// refund gives back tokens that were taken at an instant of this epoch, as far as the script's record has room for them, and
// returns how many.
func (n *node) refund(now, at, cost int64) int64 {
	n.expire(now)
	if at < n.since {
		return 0
	}
	back := max(0, min(cost, n.recorded-n.held-n.reserved-n.back))
	n.held += back
	return back
}

// view is what a node knows of how many tokens there are. The numbers of a decision follow from it without the node.
type view struct {
	terms
	level
	at   int64 // when it was told
	held int64
}

func (n *node) view() view { return view{n.terms, n.level, n.knownAt, n.held} }

// viewUnder is what it knows under a limit, its own or that of one who waited.
func (n *node) viewUnder(l *limiter.Limit) view {
	v := n.view()
	if *l != n.limit {
		v.terms = newTerms(*l, time.Duration(n.sync))
		v.level = v.converted(v.level, n.terms)
	}
	return v
}

// estimate is how many tokens there are for this node at the instant, and the fraction of one more.
func (v *view) estimate(now int64) level {
	e := v.refilled(v.level, (now-v.at)/1000, v.burst)
	if e.whole += v.held; e.whole >= v.burst {
		return level{whole: v.burst}
	}
	return e
}
