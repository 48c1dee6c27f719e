package leased

import "math"

// front is who waits longest, nil if nobody does.
func (n *node) front() *waiter {
	for _, w := range n.waiters {
		if w != nil {
			return w
		}
	}
	return nil
}

// join lets w wait for the next call.
func (n *node) join(w *waiter) {
	w.limit, w.place = n.limit, len(n.waiters)
	n.waiters = append(n.waiters, w)
	n.waiting++
}

// forsake removes one who waits no longer. What arrives for it goes to others who wait, or is burnt.
func (n *node) forsake(w *waiter) {
	if w.place < len(n.waiters) && n.waiters[w.place] == w {
		n.waiters[w.place] = nil
		n.waiting--
	}
}

// dismiss lets all go who wait: there will be no call for them.
func (n *node) dismiss() (settled []*waiter) {
	for _, w := range n.waiters {
		if w != nil {
			w.verdict = failed
			settled = append(settled, w)
		}
	}
	clear(n.waiters)
	n.waiters, n.waiting = n.waiters[:0], 0
	return settled
}

// due reports whether it is time for a call.
func (n *node) due(now int64) bool {
	if n.calling {
		return false
	}
	n.expire(now)
	if n.waiting > 0 {
		return true
	}
	return n.held <= n.low && now >= n.quiet && now >= n.away && (n.low == math.MaxInt64 || n.ahead(now) > n.held)
}

// next returns the call that is due, if one is.
func (n *node) next(now int64) (request, bool) {
	if !n.due(now) {
		return request{}, false
	}
	return n.call(now), true
}

// idle returns the call that gives back everything held, if nobody has asked for long enough.
func (n *node) idle(now int64) (request, bool) {
	if now-n.last < 2*n.tickNanos() {
		return request{}, false
	}
	return n.leave(now)
}

// leave returns the call that gives back everything held, if there is something.
func (n *node) leave(now int64) (request, bool) {
	n.expire(now)
	// A record of what has been spent is worth a call as well: until it is gone the bucket does not fill up.
	if n.calling || n.waiting > 0 || n.reserved > 0 || n.held+n.back+n.recorded == 0 || now < n.away {
		return request{}, false
	}
	n.back += n.held
	n.held, n.low = 0, -1
	return n.send(now, request{step: 1}), true
}

// report returns the call that tells at once what was spent, where nothing is left of it and nothing is worth holding: else the
// bucket would not fill up until the node is found idle.
func (n *node) report(now int64) (request, bool) {
	if n.held > 0 || n.recorded == 0 || n.ahead(now) > 0 {
		return request{}, false
	}
	return n.leave(now)
}

const (
	mostCosts = 1000    // so many a call can ask for who do not want alike
	mostDue   = 1 << 50 // and so many tokens: exact in Lua's numbers
)

// call makes the request for all who wait under the limit of the first, and for what is worth holding beyond.
func (n *node) call(now int64) request {
	n.roll(now)
	q := request{step: 1}
	if first := n.front(); first != nil && first.limit != n.limit {
		n.relimit(first.limit)
	}
	n.ask(&q)
	if q.step > 1 { // what is held is too little for them, and may be what the bucket lacks
		n.back += n.held
		n.held = 0
	}
	q.want = min(n.burst, q.due+max(0, n.ahead(now)-n.held))
	return n.send(now, q)
}

// ask sums up those who wait. Together they may want more than there can be: then all of them are told.
func (n *node) ask(q *request) {
	first, asked, mixed := int64(0), 0, false
	for _, w := range n.waiters {
		if w == nil || w.limit != n.limit {
			continue
		}
		if first == 0 {
			first = w.cost
		}
		if mixed = mixed || w.cost != first; mixed && asked >= mostCosts || q.due > mostDue {
			break
		}
		asked++
		w.asked = n.seq + 1
		q.due += w.cost
		q.step = max(q.step, w.cost)
		if !w.reserve {
			q.spend += w.cost
		}
	}
	if !mixed {
		return
	}
	for _, w := range n.waiters {
		if w != nil && w.asked == n.seq+1 && !w.reserve {
			q.costs = append(q.costs, w.cost)
		}
	}
}

func (n *node) send(now int64, q request) request {
	n.seq++
	q.terms, q.id, q.seq, q.ack = n.terms, n.id, n.seq, n.ack
	q.kept, q.back = n.held+n.reserved, n.back
	q.demand = int64(min(max(1, n.demand(now)*1e15), mostDemand))
	q.dither = int64(n.random() % ditherRange)
	n.back, n.recorded = 0, q.kept // from now on the record may be as low as that
	n.sent, n.sentLimit, n.sentAt, n.calling = q, n.limit, now, true
	n.counted.calls++
	return q
}

// overdue reports that an answer to the call under way comes too late: who waited for it may have been counted long ago.
func (n *node) overdue(now int64) bool { return now-n.sentAt > n.timeout }

// reply is the answer to the call seq. It settles those it was asked for and who else can be served, and returns them; the
// others wait for the next call. What is not the answer to the call under way is ignored, and one that is overdue is none.
func (n *node) reply(now, seq int64, r reply) (settled []*waiter) {
	if !n.calling || seq != n.sent.seq {
		return nil
	}
	if n.overdue(now) {
		return n.fail(now, seq)
	}
	n.calling, n.failures, n.away = false, 0, 0
	n.expire(now)
	if r.status == statusStale { // somebody else has this name
		n.drop(now)
		n.id, n.seq, n.ack = n.newID(), 0, 0
		return nil
	}
	if r.status == statusReset && n.held+n.reserved > 0 {
		n.drop(now)
	}
	sent := n.sent
	n.ack, n.nodes = seq, max(1, r.nodes)
	n.known, n.level, n.knownAt = true, r.level, now
	n.room, n.roomEnd = r.room, now+r.ends*1000
	n.counted.granted += uint64(r.grant)
	n.counted.returned += uint64(sent.back)
	if !sent.sameLimit(n.terms) {
		n.level = n.converted(n.level, sent.terms)
	}
	ready := min(r.grant, sent.spend)
	was := lateness{bound: float64(sent.rate) / float64(sent.period) * float64(now-n.sentAt) / 1000}
	was.late = min(float64(ready), was.bound)
	n.counted.raise(was)
	n.recent.raise(was)
	leased := r.grant - ready
	n.deadline = n.sentAt + n.life/100*99*1000 // later than any reply: a lease lives twice as long as a time-out at least
	n.held += leased
	n.recorded = leased
	if r.status != statusReset {
		n.recorded += sent.kept // what was dropped at the old deadline is in the record still, and nobody's
	}
	n.low = -1
	if n.held > 0 {
		n.low = n.held / 4
	}
	settled = n.serve(ready)
	return append(settled, n.refuse(now, r)...)
}

// serve settles those who can have what they wait for: those of the call first, in order, from tokens to be spent at once and
// from what is held.
func (n *node) serve(ready int64) (settled []*waiter) {
	seq := n.sent.seq
	for _, others := range []bool{false, true} {
		for _, w := range n.waiters {
			if w == nil || (w.asked != seq) != others {
				continue
			}
			switch {
			case w.reserve && n.held >= w.cost:
				n.held -= w.cost
				n.reserved += w.cost
				w.epoch, w.until = n.epoch, n.deadline
			case !w.reserve && ready+n.held >= w.cost:
				w.until = n.sentAt + n.timeout
				if ready == 0 {
					w.until = n.deadline
				}
				at := min(ready, w.cost)
				ready -= at
				n.held -= w.cost - at
			default:
				continue
			}
			w.verdict = taken
			n.forsake(w)
			settled = append(settled, w)
		}
	}
	n.close()
	n.counted.wasted += uint64(ready)
	return settled
}

// refuse settles those of the call who got nothing, and all others of the same limit who would get nothing either, and says until
// when it is of no use to ask again.
func (n *node) refuse(now int64, r reply) (settled []*waiter) {
	sent := &n.sent
	n.quiet = 0
	if r.wait == 0 {
		return nil
	}
	least := int64(0)
	for _, w := range n.waiters {
		if w != nil && w.asked == sent.seq && (least == 0 || w.cost < least) {
			least = w.cost
		}
	}
	if least == 0 {
		least = sent.step
	}
	jitter := 0.9 + 0.2*float64(n.random()%1024)/1024
	quiet, from := now+int64(float64(r.wait)*1000*jitter), r.whole+1
	if r.whole >= least { // there is more, but it is the share of others
		from = 1
	} else if need := sent.until(least-r.whole, r.frac); sent.due > r.grant {
		quiet = max(quiet, now+min(need, patience*sent.tick)*1000)
	}
	for _, w := range n.waiters {
		if w != nil && w.limit == n.sentLimit && w.cost >= from {
			w.verdict = denied
			n.forsake(w)
			settled = append(settled, w)
		}
	}
	n.close()
	if n.limit == n.sentLimit {
		n.quiet, n.quietFrom = quiet, from
	}
	return settled
}

// close closes the gaps that those left who wait no longer.
func (n *node) close() {
	left := n.waiters[:0]
	for _, w := range n.waiters {
		if w != nil {
			w.place = len(left)
			left = append(left, w)
		}
	}
	clear(n.waiters[len(left):])
	n.waiters = left
}

// fail says that the call seq got no answer. Who waits is told; what is held stays.
func (n *node) fail(now, seq int64) (settled []*waiter) {
	if !n.calling || seq != n.sent.seq {
		return nil
	}
	n.calling = false
	n.counted.failed++
	n.counted.wasted += uint64(n.sent.back) // it may have arrived, but who knows
	pause := n.sync << min(n.failures, 4)
	n.failures++
	n.away = now + pause/2 + int64(n.random()%uint64(pause/2+1))
	return n.dismiss()
}
