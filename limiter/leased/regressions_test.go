package leased

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// ten is ten tokens and ten a second. Leases live for five seconds.
var ten = newTerms(limiter.PerSecond(10), time.Second)

const begin = int64(1_800_000_000_000_000)

// asks is a call by hand.
func asks(id string, seq, ack, kept, back, want, spend int64) request {
	return request{terms: ten, id: id, seq: seq, ack: ack, kept: kept, back: back, want: want, due: spend, spend: spend, step: 1, demand: 1e9}
}

func seconds(s float64) int64 { return int64(s * 1e6) }

// What a node spends late was not in the bucket before, so it was not there to be refilled.
func TestReportComesAfterTheCap(t *testing.T) {
	b := &bucket{}
	require.Equal(t, int64(5), b.acquire(begin, asks("a", 1, 0, 0, 0, 5, 0)).grant)
	r := b.acquire(begin+seconds(1), asks("a", 2, 1, 0, 0, 0, 0)) // it has spent five just now
	require.Equal(t, int64(5), r.whole, "five in this instant, and five more")
	require.Equal(t, int64(10), b.acquire(begin+seconds(1.5), asks("b", 1, 0, 0, 0, 10, 10)).grant)
}

// Of a grant whose reply was lost what was leased comes back. What was to be spent at once was in nobody's account, so the bucket
// has refilled in its place.
func TestSpentPartOfALostReplyIsNotRefunded(t *testing.T) {
	b := &bucket{}
	require.Equal(t, int64(4), b.acquire(begin, asks("a", 1, 0, 0, 0, 0, 0)).grant+b.acquire(begin, asks("a", 2, 1, 0, 0, 4, 3)).grant)
	require.Equal(t, int64(1), b.out)
	require.Equal(t, int64(9), b.acquire(begin+seconds(2), asks("b", 1, 0, 0, 0, 9, 9)).grant, "full but for what is leased")
	r := b.acquire(begin+seconds(2), asks("a", 3, 1, 0, 0, 0, 0))
	require.Equal(t, int64(1), r.whole)
}

func newTestNode() *node {
	names := 0
	name := func() string { names++; return fmt.Sprintf("node%d", names) }
	return newNode(limiter.PerSecond(10), time.Second, time.Duration(timeout), 0, name, func() uint64 { return 512 })
}

// callFor lets a take of a cost wait and returns the call for it.
func callFor(t *testing.T, n *node, now, cost int64) (request, *waiter) {
	t.Helper()
	require.Equal(t, waits, n.arrive(now, cost))
	w := &waiter{cost: cost}
	n.join(w)
	q, due := n.next(now)
	require.True(t, due)
	return q, w
}

func TestLostReply(t *testing.T) {
	b, n := &bucket{}, newTestNode()
	n.mean = 3e-9 // three a second
	q, w := callFor(t, n, 0, 1)
	require.Equal(t, int64(1), n.sent.spend)
	first := n.reply(1000, q.seq, b.acquire(begin, q))
	require.Equal(t, []*waiter{w}, first)
	held := n.held
	require.Positive(t, held)
	n.held, n.mean = 0, 6e-9 // spent
	q, w = callFor(t, n, 1e6, 1)
	r := b.acquire(begin+1000, q)
	require.Greater(t, r.grant, int64(1))
	require.Equal(t, []*waiter{w}, n.fail(50e6, q.seq))
	require.Equal(t, failed, w.verdict)
	require.Nil(t, n.reply(51e6, q.seq, r), "a reply after the call was given up is ignored")
	require.Zero(t, n.held)
	before := b.clone()
	q, _ = callFor(t, n, 10e9, 1)
	third := b.acquire(begin+1000, q)
	require.Equal(t, before.whole+(r.grant-1), b.whole+third.grant, "the leased part is back, and the spent one is not")
}

func TestLostRequest(t *testing.T) {
	b, n := &bucket{}, newTestNode()
	q, _ := callFor(t, n, 0, 1)
	n.mean = 3e-9
	n.reply(1000, q.seq, b.acquire(begin, q))
	q, _ = callFor(t, n, 1e6, 1)
	n.reply(2e6, q.seq, b.acquire(begin, q))
	held, out := n.held, b.out
	require.Positive(t, held)
	require.Equal(t, held, out)
	q, due := n.leave(3e6)
	require.True(t, due)
	require.Equal(t, held, q.back)
	n.fail(60e6, q.seq) // never arrived
	require.Zero(t, n.held, "what was given back is not spent, whatever became of it")
	q, _ = callFor(t, n, 10e9, 1)
	whole := b.whole
	r := b.acquire(begin, q)
	require.Equal(t, whole-r.grant, r.whole, "and it is burnt")
}

func TestReorderedRequests(t *testing.T) {
	b := &bucket{}
	b.acquire(begin, asks("a", 1, 0, 0, 0, 4, 0))
	b.acquire(begin+1, asks("a", 3, 1, 4, 0, 2, 0))
	before := b.clone()
	require.Equal(t, statusStale, b.acquire(begin+seconds(2), asks("a", 2, 1, 0, 4, 9, 9)).status)
	require.Equal(t, before, b)
}

func TestDuplicateRequests(t *testing.T) {
	b := &bucket{}
	q := asks("a", 1, 0, 0, 0, 4, 1)
	first := b.acquire(begin, q)
	before := b.clone()
	for i := range int64(5) {
		require.Equal(t, first, b.acquire(begin+i*seconds(0.9), q))
		require.Equal(t, before, b)
	}
	n := newTestNode()
	sent, _ := callFor(t, n, 0, 1)
	n.mean = 3e-9
	r := reply{grant: 3, level: level{whole: 7}, nodes: 1}
	sent.want = 3
	n.reply(1000, sent.seq, r)
	held := n.held
	require.Nil(t, n.reply(2000, sent.seq, r), "the second reply is ignored")
	require.Equal(t, held, n.held)
}

// Tokens given back when nobody knows of them any more are nobody's.
func TestLateReturnAfterTheRecordWasReaped(t *testing.T) {
	b := &bucket{}
	b.acquire(begin, asks("a", 1, 0, 0, 0, 5, 0))
	late := asks("a", 2, 1, 0, 5, 0, 0)
	b.acquire(begin+ten.life+seconds(1), asks("b", 1, 0, 0, 0, 1, 1)) // reaps
	require.Empty(t, b.records)
	before := b.clone()
	r := b.acquire(begin+ten.life+seconds(1), late)
	require.Equal(t, statusReset, r.status)
	require.Equal(t, before.level, b.level)
	require.Zero(t, b.out)
}

// What is held ends at its deadline though the reply that renews it is on its way.
func TestReplyAfterTheOldDeadline(t *testing.T) {
	n := newTestNode()
	n.held, n.recorded, n.deadline, n.ack = 5, 5, 10e6, 7
	n.seq = 7
	q := n.call(9e6)
	require.Equal(t, int64(5), q.kept)
	epoch := n.epoch
	n.reply(11e6, q.seq, reply{grant: 2, level: level{whole: 3}, nodes: 1})
	require.Equal(t, int64(2), n.held, "what is new is there, what was old is not")
	require.False(t, n.alive(11e6, epoch), "nor is what was set aside of it")
	q = n.call(12e6)
	n.reply(12e6+ten.life*1000, q.seq, reply{grant: 2, level: level{whole: 3}, nodes: 1})
	n.expire(12e6 + ten.life*1000)
	require.Zero(t, n.held, "a reply as late as a lease is long leases nothing")
}

// A node that is told that its record was not there drops what it held: nobody counts it any more.
func TestResetDropsWhatIsHeld(t *testing.T) {
	n := newTestNode()
	n.held, n.reserved, n.recorded, n.deadline = 5, 1, 6, 1e12
	epoch := n.epoch
	q := n.call(1000)
	n.reply(2000, q.seq, reply{status: statusReset, grant: 2, level: level{whole: 3}, nodes: 1})
	require.Equal(t, int64(2), n.held)
	require.Equal(t, int64(2), n.recorded)
	require.False(t, n.alive(3000, epoch))
}

// Another life under the name of one before gets nothing of what that one had, and takes another name.
func TestRestartWithTheSameName(t *testing.T) {
	b := &bucket{}
	for seq := range int64(5) {
		b.acquire(begin, asks("node1", seq+1, seq, 0, 0, 1, 0))
	}
	held := b.out
	n := newTestNode()
	q, w := callFor(t, n, 0, 1)
	r := b.acquire(begin, q)
	require.Equal(t, statusStale, r.status)
	require.Empty(t, n.reply(1000, q.seq, r))
	require.Equal(t, "node2", n.id)
	q, due := n.next(1000)
	require.True(t, due)
	require.Equal(t, []*waiter{w}, n.reply(2000, q.seq, b.acquire(begin, q)))
	require.Equal(t, taken, w.verdict)
	require.Equal(t, held, b.out, "the dead one's tokens stay its own until its time is over")
	later := b.acquire(begin, asks("node1", 9, 0, 0, 0, 0, 0))
	require.Equal(t, statusReset, later.status, "nor does a later call of it, which knows of no reply, give anything back")
	require.Equal(t, int64(10-5-1), later.whole)
}

// A replica that has taken over knows of an older call than the node does: what that one granted arrived, and is not given back.
func TestRecordOlderThanTheNode(t *testing.T) {
	b := &bucket{}
	b.acquire(begin, asks("a", 1, 0, 0, 0, 1, 0))
	b.acquire(begin, asks("a", 2, 1, 0, 0, 4, 0))
	r := b.acquire(begin, asks("a", 6, 5, 0, 0, 0, 0))
	require.Equal(t, int64(5), r.whole)
	require.Zero(t, b.out)
}

// Data that was lost and a call that was late: the record that there is then does not cover what the node holds.
func TestRecordOfLessThanTheNodeHolds(t *testing.T) {
	for name, q := range map[string]request{
		"kept": asks("a", 9, 8, 5, 0, 0, 0), "given back": asks("a", 9, 8, 0, 5, 0, 0), "both": asks("a", 9, 8, 1, 2, 0, 0),
		"of a reply that was lost": asks("a", 9, 2, 1, 0, 0, 0),
	} {
		b := &bucket{}
		b.acquire(begin, asks("a", 3, 2, 0, 0, 2, 0)) // late, after a flush
		r := b.acquire(begin, q)
		require.Equal(t, statusReset, r.status, name)
		require.Equal(t, int64(8), r.whole, name)
		require.Zero(t, b.out, name)
	}
}

// What a dead node held comes back when its time is over, though the clock was set back by hours meanwhile.
func TestRecordsDoNotOutliveAClockThatWasSetBack(t *testing.T) {
	b := &bucket{}
	b.acquire(begin, asks("dead", 1, 0, 0, 0, 5, 0))
	back := begin - seconds(7200)
	b.acquire(back, asks("a", 1, 0, 0, 0, 1, 1))
	require.Equal(t, int64(5), b.out)
	b.acquire(back+ten.life, asks("a", 2, 1, 0, 0, 1, 1))
	require.Zero(t, b.out)
}

// A clock that is set mints nothing when it goes back, and at most what it jumped over when it goes ahead; and it stops nobody.
func TestClockOfRedisIsSet(t *testing.T) {
	for name, c := range map[string]struct {
		step time.Duration
		over float64
	}{
		"back a little": {-900 * time.Millisecond, rounding},
		"back 1 s":      {-time.Second, rounding},
		"back 5 s":      {-5 * time.Second, rounding},
		"back 1 h":      {-time.Hour, rounding},
		"ahead 100 ms":  {100 * time.Millisecond, 200 + rounding},
		"ahead 1 h":     {time.Hour, 4000 + rounding}, // a burst, and what was held
	} {
		t.Run(name, func(t *testing.T) {
			l := limiter.PerSecond(2000)
			w := newWorld(t, 9, 10, l, sync100, network{})
			w.demand(even(2), one, time.Second)
			w.runUntil(3 * time.Second)
			plain := w.clock
			w.clock = func(now int64) int64 { return plain(now) + c.step.Microseconds() }
			w.lost = c.step > 0 // records may be forgotten
			w.runUntil(6 * time.Second)
			require.LessOrEqual(t, w.meter.worst, c.over)
			before := w.went
			w.meter = newMeter(l)
			w.meter.at = w.now
			w.runUntil(12 * time.Second)
			require.LessOrEqual(t, w.meter.worst, rounding)
			require.Greater(t, float64(w.went-before), 0.97*6*2000, "and afterwards all is as before")
		})
	}
}

// Takes of several tokens are served whole, in order, and what is too little for them is spent by smaller ones.
func TestCostsAboveOne(t *testing.T) {
	b, n := &bucket{}, newTestNode()
	var all []*waiter
	for _, cost := range []int64{4, 4, 4, 1} {
		require.Equal(t, waits, n.arrive(0, cost))
		w := &waiter{cost: cost}
		all = append(all, w)
		n.join(w)
	}
	q, _ := n.next(0)
	require.Equal(t, int64(13), q.spend, "all of them, though there are only ten")
	require.Equal(t, []int64{4, 4, 4, 1}, q.costs)
	n.reply(1000, q.seq, b.acquire(begin, q))
	for range 2 {
		if q, due := n.next(1000); due {
			n.reply(2000, q.seq, b.acquire(begin, q))
		}
	}
	for i, want := range []verdict{taken, taken, denied, taken} {
		require.Equal(t, want, all[i].verdict, "take %d", i)
	}
	require.Equal(t, int64(1), b.whole+n.held)
	require.Equal(t, denied, n.arrive(3000, 4))
}

// A lowered burst bites at once for what is not leased, and for the rest when the leases end; a raised one adds nothing to a
// bucket that was not full.
func TestBurstIsLoweredAndRaisedLive(t *testing.T) {
	wide, narrow := limiter.PerSecond(500).WithBurst(2000), limiter.PerSecond(500).WithBurst(100)
	w := newWorld(t, 4, 10, wide, sync100, network{})
	w.demand(even(0.5), one, time.Second)
	w.runUntil(3 * time.Second)
	w.tellAll(narrow)
	life := time.Duration(newTerms(narrow, sync100).life) * time.Microsecond
	w.runUntil(3*time.Second + life + 100*time.Millisecond)
	w.meter = newMeter(narrow)
	w.meter.at = w.now
	w.runUntil(8 * time.Second)
	require.LessOrEqual(t, w.meter.worst, rounding)

	b := &bucket{}
	from, to := newTerms(limiter.PerSecond(5).WithBurst(10), time.Second), newTerms(limiter.PerSecond(5).WithBurst(20), time.Second)
	q := asks("a", 1, 0, 0, 0, 4, 4)
	q.terms = from
	b.acquire(begin, q)
	q = asks("a", 2, 1, 0, 0, 0, 0)
	q.terms = to
	require.Equal(t, int64(6), b.acquire(begin, q).whole)
	b = &bucket{}
	q.terms = from
	b.acquire(begin, q)
	q.seq, q.terms = 3, to
	require.Equal(t, int64(20), b.acquire(begin, q).whole, "full stays full")
}

func (w *world) tellAll(l limiter.Limit) {
	for _, s := range w.nodes {
		w.after(w.rng.Int64N(int64(10*time.Millisecond)), func() {
			s.changed = &l
		})
	}
}

// The old rate counts up to the first call that brings the new one.
func TestRateChangesLive(t *testing.T) {
	b := &bucket{}
	b.acquire(begin, asks("a", 1, 0, 0, 0, 10, 10))
	q := asks("a", 2, 1, 0, 0, 0, 0)
	q.terms = newTerms(limiter.Per(10, 10*time.Second), time.Second)
	require.Equal(t, level{5, 5_000_000}, b.acquire(begin+seconds(0.55), q).level, "half of another, whatever the period")
	q.seq, q.ack = 3, 2
	require.Equal(t, level{6, 0}, b.acquire(begin+seconds(1.05), q).level)

	fast, slow := limiter.PerSecond(2000), limiter.PerSecond(200).WithBurst(2000)
	w := newWorld(t, 4, 10, fast, sync100, network{})
	w.demand(even(2), one, time.Second)
	w.runUntil(3 * time.Second)
	w.tellAll(slow)
	w.runUntil(4500 * time.Millisecond)
	w.meter = newMeter(slow)
	w.meter.at = w.now
	before := w.went
	w.runUntil(14500 * time.Millisecond)
	require.LessOrEqual(t, w.meter.worst, rounding)
	require.InDelta(t, 2000, w.went-before, 100, "ten seconds at the new rate")
}

// There is no number of nodes that was foreseen.
func TestTheTwoHundredAndFirstNode(t *testing.T) {
	hundred := newTerms(limiter.PerSecond(1000), time.Second)
	b := &bucket{}
	for k := range 201 {
		q := asks(fmt.Sprint(k), 1, 0, 0, 0, 2, 1)
		q.terms = hundred
		r := b.acquire(begin, q)
		require.Equal(t, int64(k+1), r.nodes)
		require.Equal(t, int64(2), r.grant)
	}
	require.Equal(t, int64(201), b.out)
	require.Equal(t, int64(1000-402), b.whole)
	b.acquire(begin+hundred.life, asks("0", 2, 1, 0, 0, 0, 0))
	require.Empty(t, b.records, "and all of them end")
	require.Zero(t, b.out)
}
