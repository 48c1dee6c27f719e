package leased

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// world is a discrete-event simulation: virtual time, a network, Redis as the model, and nodes that are the real ones. Instants
// are whole microseconds in nanoseconds, so that the script's clock is nobody's approximation.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	now    int64
	events events
	order  int64
	net    network
	limit  limiter.Limit
	sync   time.Duration
	bucket *bucket
	clock  func(now int64) int64 // Redis's, in µs
	nodes  []*simNode
	meter  meter
	ideal  meter
	passed int64 // what one ideal bucket lets pass of the same arrivals
	calls  int64
	came   int64
	went   int64
	names  int
	ran    faultCounts
	lost   bool                                  // Redis has lost data: nodes hold what nobody has a record of
	settle func(n *simNode, cost int64, ok bool) // sees every decision; nil: nobody
}

type faultCounts struct{ repeats, stale, late, overdue, resets, expired int64 }

// network is how messages travel.
type network struct {
	median                              time.Duration // of the one-way delay; 0: no delay at all
	loseRequest, loseReply, twice, late float64
}

type simNode struct {
	*node
	w        *world
	k        int
	cut      int64 // partitioned until
	dead     bool
	came     int64
	went     int64
	changed  *limiter.Limit
	sync     time.Duration
	wakes    int64 // stopped until: it sees nothing, and everything that came for it then
	longest  int64 // of its round trips
	lateness       // of those it was before
}

type event struct {
	at, order int64
	run       func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}

// meter is an independent bucket of its own arithmetic: fed with what was admitted, it says by how much that was too much.
type meter struct {
	rate, burst float64 // per ns
	level       float64
	at          int64
	worst       float64
}

func newMeter(l limiter.Limit) meter {
	return meter{rate: float64(l.Rate) / float64(l.Period), burst: float64(l.Quota()), level: float64(l.Quota())}
}

func (m *meter) to(now int64) {
	m.level = min(m.burst, m.level+m.rate*float64(now-m.at))
	m.at = now
}

func (m *meter) admit(now, cost int64) {
	m.to(now)
	m.level -= float64(cost)
	m.worst = max(m.worst, -m.level)
}

const (
	timeout = int64(50 * time.Millisecond)
	// rounding is how far the meter's own floating point may be off.
	rounding = 1e-6
)

func newWorld(t testing.TB, seed uint64, n int, l limiter.Limit, sync time.Duration, net network) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 77)), net: net, limit: l, sync: sync, bucket: &bucket{}, meter: newMeter(l), ideal: newMeter(l),
		clock: func(now int64) int64 { return 1_800_000_000_000_000 + now/1000 },
	}
	for k := range n {
		s := &simNode{w: w, k: k, sync: sync}
		s.reboot()
		w.nodes = append(w.nodes, s)
	}
	return w
}

func (w *world) name() string {
	w.names++
	return fmt.Sprintf("n%d", w.names)
}

func (s *simNode) reboot() {
	if s.node != nil {
		s.lateness.raise(s.counted.lateness)
	}
	s.node = newNode(s.w.limit, s.sync, time.Duration(timeout), s.w.now, s.w.name, s.w.rng.Uint64)
}

func (w *world) after(d int64, run func()) {
	at := w.now + max(0, d)
	at += (1000 - at%1000) % 1000
	w.order++
	heap.Push(&w.events, event{at, w.order, run})
}

func (w *world) runUntil(end time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= int64(end) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.run()
	}
	w.now = int64(end)
}

func (w *world) delay() int64 {
	if w.net.median == 0 {
		return 0
	}
	return int64(float64(w.net.median) * math.Exp(0.5*w.rng.NormFloat64()))
}

// arrive is a take of a client at a node.
func (s *simNode) arrive(cost int64) {
	w := s.w
	w.came += cost
	s.came += cost
	w.ideal.to(w.now)
	if w.ideal.level >= float64(cost)-rounding {
		w.ideal.level -= float64(cost)
		w.passed += cost
	}
	if s.dead {
		return
	}
	if s.changed != nil {
		s.relimit(*s.changed)
		s.changed = nil
	}
	if cost > s.burst {
		return
	}
	switch s.node.arrive(w.now, cost) {
	case taken:
		s.admit(cost)
	case waits:
		s.join(&waiter{cost: cost})
	default:
		s.decided(cost, false)
	}
	s.ask(s.next(w.now))
	s.check()
}

func (s *simNode) decided(cost int64, ok bool) {
	if s.w.settle != nil {
		s.w.settle(s, cost, ok)
	}
}

func (s *simNode) admit(cost int64) {
	s.went += cost
	s.w.went += cost
	s.w.meter.admit(s.w.now, cost)
	s.decided(cost, true)
}

// idleCheck is the janitor: it looks every sync whether something is to be given back.
func (s *simNode) idleCheck() {
	if !s.dead {
		s.ask(s.idle(s.w.now))
		s.check()
	}
	s.w.after(int64(s.sync), s.idleCheck)
}

// ask sends a call over the network.
func (s *simNode) ask(q request, due bool) {
	if !due {
		return
	}
	w, me := s.w, s.node
	w.calls++
	sent := w.now
	times := 1
	if w.rng.Float64() < w.net.twice {
		times = 2
	}
	for range times {
		if w.rng.Float64() < w.net.loseRequest || w.now < s.cut {
			continue
		}
		way := w.delay()
		if w.rng.Float64() < w.net.late {
			way += w.rng.Int64N(int64(3 * time.Second))
		}
		deliver := func() {
			r := w.script(q)
			if w.rng.Float64() < w.net.loseReply || w.now < s.cut {
				return
			}
			var arrive func()
			arrive = func() {
				switch {
				case s.node != me:
					return
				case s.dead: // it finds what came when it goes on; where there are no delays it is lost
					if w.net.median > 0 {
						w.after(s.wakes-w.now, arrive)
					}
					return
				}
				if !me.calling || me.sent.seq != q.seq {
					w.ran.late++
				} else if me.overdue(w.now) {
					w.ran.overdue++
				} else {
					s.longest = max(s.longest, w.now-sent)
				}
				s.settle(s.reply(w.now, q.seq, r))
				s.ask(s.next(w.now))
				s.check()
			}
			if w.net.median == 0 {
				arrive()
			} else {
				w.after(w.delay(), arrive)
			}
		}
		if way == 0 {
			deliver()
		} else {
			w.after(way, deliver)
		}
	}
	if me.calling {
		var giveUp func()
		giveUp = func() {
			switch {
			case s.node != me:
			case s.dead:
				w.after(s.wakes-w.now, giveUp)
			default:
				s.settle(s.fail(w.now, q.seq))
				s.check()
			}
		}
		w.after(timeout, giveUp)
	}
}

func (s *simNode) settle(done []*waiter) {
	for _, x := range done {
		if x.verdict == taken {
			s.admit(x.cost)
		} else {
			s.decided(x.cost, false)
		}
	}
}

// script runs the model and checks its invariant.
func (w *world) script(q request) reply {
	if w.bucket.seen && w.clock(w.now) >= w.bucket.expires {
		w.bucket = &bucket{}
		w.ran.expired++
	}
	own, known := w.bucket.records[q.id]
	switch {
	case known && own.seq == q.seq:
		w.ran.repeats++
	case known && own.seq > q.seq:
		w.ran.stale++
	}
	r := w.bucket.acquire(w.clock(w.now), q)
	if r.status == statusReset && q.ack > 0 && q.kept > 0 {
		w.ran.resets++
	}
	b := w.bucket
	full := b.whole + b.out
	bad := b.out <= b.burst && (full > b.burst || full == b.burst && b.frac > 0)
	if bad || b.whole < 0 || b.frac < 0 || b.out < 0 || b.nodes < 0 || b.demand < 0 {
		w.t.Fatalf("at %v: %d + %d/%d tokens and %d out of a burst of %d", time.Duration(w.now), b.whole, b.frac, b.period, b.out, b.burst)
	}
	if w.calls%64 == 0 {
		var out, demand int64
		for _, x := range b.records {
			out, demand = out+x.held, demand+x.demand
		}
		require.Equal(w.t, out, b.out)
		require.Equal(w.t, demand, b.demand)
		require.Len(w.t, b.records, int(b.nodes))
	}
	return r
}

// check says that the script has a record of at least what a node may spend.
func (s *simNode) check() {
	if s.held < 0 || s.reserved < 0 || s.back < 0 {
		s.w.t.Fatalf("at %v node %d holds %d, %d reserved, %d to give back", time.Duration(s.w.now), s.k, s.held, s.reserved, s.back)
	}
	may := s.held + s.reserved + s.back
	if s.w.now >= s.deadline || may == 0 || s.w.lost {
		return
	}
	if r := s.w.bucket.records[s.id]; may > r.held {
		s.w.t.Fatalf("at %v node %d holds %d, and its record says %d", time.Duration(s.w.now), s.k, may, r.held)
	}
}

// arrivals lets takes come at a node at random, at a rate per second that is never above most.
func (s *simNode) arrivals(most float64, rate func(now int64) float64, cost func() int64) {
	if most <= 0 {
		return
	}
	var come func()
	again := func() { s.w.after(int64(s.w.rng.ExpFloat64()*1e9/most), come) }
	come = func() {
		if s.w.rng.Float64()*most < rate(s.w.now) {
			s.arrive(cost())
		}
		again()
	}
	again()
}

func one() int64 { return 1 }
