package leased

import (
	"math"
)

// request is what a node asks of the script, and reply what it is told. Numbers are whole; demand is in millionths of a token per
// second.
type request struct {
	terms
	id     string
	seq    int64   // grows by one for each call of a node; 0: a look that writes nothing
	ack    int64   // seq of the last reply that arrived; 0: none did
	kept   int64   // what the node may still spend of what it was leased
	back   int64   // what it gives back of it
	want   int64   // tokens asked for
	due    int64   // how many of them somebody is waiting for
	spend  int64   // how many of those are spent when the reply arrives, so that they are never held
	step   int64   // the most that one of those who wait needs: of the tokens to be spent fewer are of no use
	costs  []int64 // what each of those needs whose tokens are spent when the reply arrives, in order; nil: step
	demand int64
	dither int64 // a random number below ditherRange, by which shares of less than a token are rounded
}

const (
	ditherRange = 1 << 20
	mostDemand  = 10_000_000_000_000 // ten million tokens per second and node: sums stay exact in Lua's numbers
	never       = 1 << 53
	backstep    = 1_000_000 // µs: by more than that a clock was set back, by less it is late
)

type reply struct {
	status int64
	grant  int64
	level        // what is left for anybody
	wait   int64 // µs before which asking again is of no use; 0: none
	nodes  int64 // how many have a share, at least 1
	room   int64 // the level cannot rise above it while others hold what they hold
	ends   int64 // µs before which no lease ends; 0: there is none
}

// What became of a call.
const (
	statusOK      int64 = iota
	statusReset         // the node's record was not there: what it held is nobody's any more
	statusStale         // a later call was there before
	statusForeign       // the key holds something else
)

// record is what is known of a node.
type record struct {
	seq    int64
	held   int64 // the most the node may spend
	demand int64
	leased int64 // what the last grant added to held
	credit float64
	at     int64
	expiry int64
	last   reply
}

// bucket is the state of one key, and acquire are the rules by which the script changes it. It is the script's twin: the simulator
// proves the rules on it, and a differential test holds the two together.
//
// The invariant is level + out ≤ burst, where out is all that nodes may still spend. So tokens and what is held together are
// never more than one bucket of that burst and rate would have.
type bucket struct {
	terms
	level
	seen    bool
	at      int64
	out     int64
	demand  int64 // of all records
	nodes   int64 // number of records
	next    int64 // no record expires before
	latest  int64 // nor after; each node's lease lives as long as that node says
	records map[string]record
	kept    int64 // ms for which the key was kept when it was last written
	expires int64 // when Redis drops the key, by the clock of calls
}

// move brings the bucket to the instant and to the terms of a call, and returns the instant on its own clock.
func (b *bucket) move(now int64, t terms) int64 {
	if !b.seen {
		b.seen, b.terms, b.level, b.at, b.next = true, t, level{whole: t.burst}, now, never
		return now
	}
	switch {
	case now < b.at-backstep:
		b.at, b.next = now, now // a clock that was set back earns nothing, and no record may outlive its time by the step
	case now < b.at:
		now = b.at
	}
	// Capped by what was out until now: what is given back in this call was not there to be refilled meanwhile.
	b.level = b.terms.refilled(b.level, now-b.at, b.burst-b.out)
	b.at = now
	if !b.sameLimit(t) {
		if b.out == 0 && b.whole >= b.burst {
			b.level = level{whole: t.burst} // full stays full
		} else if b.period != t.period {
			b.frac, _ = mulDiv(b.frac, t.period, b.period)
		}
	}
	b.terms = t
	b.cap()
	return now
}

// cap keeps the invariant where a burst was lowered.
func (b *bucket) cap() {
	if room := max(0, b.burst-b.out); b.whole >= room {
		b.level = level{whole: room}
	}
}

// reap forgets nodes whose time is over. Their tokens are burnt, as they may have been spent. What is out is summed up anew, so
// that whatever failed half-way before heals.
func (b *bucket) reap(now int64) {
	if now < b.next {
		return
	}
	b.next, b.latest, b.out, b.demand, b.nodes = never, 0, 0, 0, 0
	for id, r := range b.records {
		if r.expiry <= now {
			delete(b.records, id)
			continue
		}
		if r.at > now { // from before the clock was set back: it has its own life from now on
			r.expiry, r.at = r.expiry-r.at+now, now
			b.records[id] = r
		}
		b.next, b.latest = min(b.next, r.expiry), max(b.latest, r.expiry)
		b.out += r.held
		b.demand += r.demand
		b.nodes++
	}
}

// fits is what can be spent of a grant by those who want it whole, in order.
func (q *request) fits(grant int64) int64 {
	if q.costs == nil {
		return grant - grant%q.step
	}
	left := grant
	for _, cost := range q.costs {
		if cost <= left {
			left -= cost
		}
	}
	return grant - left
}

// keep says for how long the key is needed: until all leases are over, of whatever life, and the bucket is full after them. Then
// it is as if it had never been.
func (b *bucket) keep(clock, now int64) {
	const most = 9_000_000_000_000
	fill := float64(float64(b.burst)*float64(b.period)) / float64(b.rate)
	need := math.Ceil((float64(b.latest-now)+fill)/1000) + 1000
	b.kept = int64(min(most, need))
	b.expires = clock + 1000*b.kept
}

func (b *bucket) acquire(now int64, q request) reply {
	own, known := b.records[q.id]
	if known && q.seq > 0 && q.seq <= own.seq {
		if q.seq == own.seq {
			return own.last // sent twice
		}
		return reply{status: statusStale, nodes: 1}
	}
	if q.seq == 0 {
		look := *b
		look.move(now, q.terms)
		return reply{level: look.level, nodes: max(1, look.nodes)}
	}
	if b.records == nil {
		b.records = map[string]record{}
	}
	clock := now
	now = b.move(now, q.terms)
	b.reap(now)
	own, known = b.records[q.id]
	out := reply{}
	if known {
		b.out -= own.held
		b.demand -= own.demand
		b.nodes--
		lost := int64(0)
		if q.ack > 0 && q.ack < own.seq { // the last reply never arrived: what was leased with it is untouched
			lost = own.leased
		}
		if q.ack == 0 || q.kept+q.back > own.held-lost { // another life of the node, or of the data
			known = false
		} else {
			b.whole += lost + q.back
			b.out += q.kept
		}
		b.cap()
	}
	if !known {
		q.kept, out.status = 0, statusReset
	}

	perMicro := q.perMicro()
	share := float64(q.demand) / float64(b.demand+q.demand)
	pace := share * perMicro
	ceiling := max(1, float64(q.step), pace*float64(q.life))
	var credit float64
	if known {
		credit = own.credit + float64(pace*float64(max(0, now-own.at)))
	} else {
		// Who asks seldom gets the part of what it asks for that everybody gets on average.
		credit = float64(q.due) * min(1, perMicro*1e12/float64(b.demand+q.demand))
	}
	credit = min(ceiling, credit)
	scarce := float64(b.whole) < float64(q.rate)*float64(q.tick)/float64(q.period)
	shared := scarce && b.demand > 0
	grant := min(q.want, b.whole)
	if shared {
		part := credit + float64(float64(q.dither)/ditherRange*float64(q.step))
		grant = min(grant, max(0, int64(math.Floor(part))))
	} else {
		grant = min(grant, max(q.due, int64(math.Ceil(share*float64(b.whole)))))
	}
	if grant < q.spend {
		grant = q.fits(grant)
	}
	credit = max(credit-float64(grant), -float64(q.step))
	switch {
	case shared && grant < q.want:
		out.wait = int64(min(max(math.Ceil((float64(q.step)-credit)/pace), float64(q.tick)), float64(5*q.tick)))
	case grant < q.due && scarce:
		out.wait = q.tick
	case grant < q.due:
		out.wait = max(1, q.tick/10)
	}
	b.whole -= grant
	leased := max(0, grant-q.spend)
	held := q.kept + leased
	b.out += leased
	out.grant, out.level, out.nodes = grant, b.level, b.nodes+1
	b.latest = max(b.latest, now)
	listed := held > 0 || scarce && q.want > 0
	if listed {
		b.demand += q.demand
		b.nodes++
		b.next, b.latest = min(b.next, now+q.life), max(b.latest, now+q.life)
	}
	out.room = max(0, b.burst-(b.out-held))
	if b.next < never {
		out.ends = b.next - now
	}
	if listed {
		b.records[q.id] = record{
			seq: q.seq, held: held, demand: q.demand, leased: leased, credit: credit, at: now, expiry: now + q.life, last: out,
		}
	} else {
		delete(b.records, q.id)
	}
	b.keep(clock, now)
	return out
}
