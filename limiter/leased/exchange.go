package leased

import "math"

// next returns the call that is due, if one is.
func (n *node) next(now int64) (request, bool) {
	if n.calling {
		return request{}, false
	}
	n.expire(now)
	if len(n.waiters) > 0 {
		return n.call(now), true
	}
	if n.held <= n.low && now >= n.quiet && now >= n.away {
		if n.low == math.MaxInt64 || n.ahead(now) > n.held {
			return n.call(now), true
		}
	}
	return request{}, false
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
	if n.calling || len(n.waiters) > 0 || n.reserved > 0 || n.held+n.back+n.recorded == 0 || now < n.away {
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

// call makes the request for those who wait and for what is worth holding beyond.
func (n *node) call(now int64) request {
	n.roll(now)
	q := request{step: 1}
	if len(n.waiters) > 0 {
		q.step = n.waiters[0].cost
	}
	for _, w := range n.waiters { // those in front who want alike
		if w.cost != q.step || q.due+w.cost > n.burst {
			break
		}
		q.due += w.cost
		if !w.reserve {
			q.spend += w.cost
		}
	}
	if q.step > 1 { // what is held is too little for them, and may be what the bucket lacks
		n.back += n.held
		n.held = 0
	}
	q.want = min(n.burst, q.due+max(0, n.ahead(now)-n.held))
	return n.send(now, q)
}

func (n *node) send(now int64, q request) request {
	n.seq++
	q.terms, q.id, q.seq, q.ack = n.terms, n.id, n.seq, n.ack
	q.kept, q.back = n.held+n.reserved, n.back
	q.demand = int64(min(max(1, n.demand(now)*1e15), mostDemand))
	q.dither = int64(n.random() % ditherRange)
	n.back, n.recorded = 0, q.kept // from now on the record may be as low as that
	n.sent, n.sentAt, n.calling = q, now, true
	n.counted.calls++
	return q
}

// reply is the answer to the call seq. It settles those it can and returns them; the others wait for the next call. What is not
// the answer to the call under way is ignored.
func (n *node) reply(now, seq int64, r reply) (settled []*waiter) {
	if !n.calling || seq != n.sent.seq {
		return nil
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
	n.counted.granted += uint64(r.grant)
	n.counted.returned += uint64(sent.back)
	if !sent.sameLimit(n.terms) {
		n.level.frac, _ = mulDiv(n.level.frac, n.period, sent.period)
	}
	ready := min(r.grant, sent.spend)
	was := lateness{bound: float64(sent.rate) / float64(sent.period) * float64(now-n.sentAt) / 1000}
	was.late = min(float64(ready), was.bound)
	n.counted.raise(was)
	n.recent.raise(was)
	leased := r.grant - ready
	if deadline := n.sentAt + n.life/100*99*1000; now < deadline {
		n.deadline = deadline
		n.held += leased
		n.recorded = leased
		if r.status != statusReset {
			n.recorded += sent.kept
		}
		// A reservation that was dropped at the old deadline is in the record still, and nobody's.
	} else {
		n.counted.wasted += uint64(leased)
	}
	n.low = -1
	if n.held > 0 {
		n.low = n.held / 4
	}
	n.quiet = 0
	if r.wait > 0 {
		jitter := 0.9 + 0.2*float64(n.random()%1024)/1024
		n.quiet = now + int64(float64(r.wait)*1000*jitter)
		n.quietFrom = r.whole + 1
		if r.whole >= sent.step { // there is more, but it is the share of others
			n.quietFrom = 1
		} else if need := n.until(sent.step-r.whole, r.frac); sent.due > r.grant {
			n.quiet = max(n.quiet, now+min(need, patience*n.tick)*1000)
		}
	}
	return n.serve(now, ready)
}

// serve settles those who wait, in order, from tokens to be spent at once and from what is held.
func (n *node) serve(now, ready int64) (settled []*waiter) {
	left := n.waiters[:0]
	for _, w := range n.waiters {
		switch {
		case w.reserve && n.held >= w.cost:
			n.held -= w.cost
			n.reserved += w.cost
			w.verdict, w.epoch = taken, n.epoch
		case !w.reserve && ready+n.held >= w.cost:
			now := min(ready, w.cost)
			ready -= now
			n.held -= w.cost - now
			w.verdict = taken
		case w.cost > n.burst, now < n.quiet && w.cost >= n.quietFrom: // the burst was more when it came
			w.verdict = denied
		default:
			left = append(left, w)
			continue
		}
		settled = append(settled, w)
	}
	clear(n.waiters[len(left):])
	n.waiters = left
	n.counted.wasted += uint64(ready)
	return settled
}

// fail says that the call seq got no answer. Who waits for it is told; what is held stays.
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
	settled = append(settled, n.waiters...)
	for _, w := range settled {
		w.verdict = failed
	}
	clear(n.waiters)
	n.waiters = n.waiters[:0]
	return settled
}

// forsake removes one who waits no longer. What arrives for it goes to others who wait, or is burnt.
func (n *node) forsake(w *waiter) {
	for i, o := range n.waiters {
		if o == w {
			n.waiters = append(n.waiters[:i], n.waiters[i+1:]...)
			return
		}
	}
}
