package leased

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// hostile is a network without delays, so that the bound has no slack, and with everything else that can happen to a message.
var hostile = network{loseRequest: 0.03, loseReply: 0.03, twice: 0.03, late: 0.02}

// trouble crashes or cuts off a node now and then.
func (w *world) trouble(every time.Duration) {
	s := w.nodes[w.rng.IntN(len(w.nodes))]
	switch w.rng.IntN(3) {
	case 0: // it dies with what it holds, and comes again with another name
		s.reboot()
	case 1:
		s.cut = w.now + int64(3*time.Second)
	case 2: // it stops for a while and goes on as if nothing had been
		s.dead, s.wakes = true, w.now+w.rng.Int64N(int64(2*time.Second))
		s.wakes += (1000 - s.wakes%1000) % 1000
		w.after(s.wakes-w.now, func() { s.dead = false })
	}
	w.after(int64(every), func() { w.trouble(every) })
}

// Whatever becomes of nodes and messages, not one token more passes than one bucket would let pass: for takes of one token and
// of several, and while rates and bursts change under way.
func TestNothingMintsTokens(t *testing.T) {
	runs, d := 180, 8*time.Second
	if raceEnabled || testing.Short() {
		runs, d = 18, 4*time.Second
	}
	var ran faultCounts
	for run := range runs {
		n, burst := []int{2, 10, 50}[run%3], []int{50, 500, 2000}[run/3%3]
		shape := loads[run/9%len(loads)]
		l := limiter.PerSecond(burst)
		if run%4 == 3 {
			l = limiter.Per(700, 333*time.Millisecond).WithBurst(burst)
		}
		w := newWorld(t, uint64(run), n, l, sync100, hostile)
		cost := one
		if run%2 == 1 {
			cost = func() int64 { return 1 + w.rng.Int64N(9) }
		}
		if run%5 == 4 { // all but at once, as documents are read
			widest := l.WithBurst(burst * 2)
			widest.Rate *= 2
			w.meter = newMeter(widest)
			w.change(l, widest, 700*time.Millisecond)
		}
		w.demand(shape.of, cost, d)
		w.after(int64(200*time.Millisecond), func() { w.trouble(200 * time.Millisecond) })
		w.runUntil(d)
		require.LessOrEqual(t, w.meter.worst, rounding, "run %d: %d nodes, %v, %s", run, n, l, shape.name)
		require.NotZero(t, w.went)
		ran.repeats += w.ran.repeats
		ran.stale += w.ran.stale
		ran.late += w.ran.late
		ran.resets += w.ran.resets
	}
	t.Logf("%+v", ran)
	require.Positive(t, min(ran.repeats, ran.stale, ran.late, ran.resets), "the faults were there: %+v", ran)
}

// change lets every node know another limit in turns.
func (w *world) change(a, b limiter.Limit, every time.Duration) {
	for _, s := range w.nodes {
		w.after(w.rng.Int64N(int64(50*time.Millisecond)), func() {
			s.changed = &b
		})
	}
	w.after(int64(every), func() { w.change(b, a, every) })
}

// With delays the bound has the slack of any central limiter: tokens that are spent when the reply arrives are spent so much later.
func TestDelaysAreAllTheSlack(t *testing.T) {
	runs := 20
	if raceEnabled || testing.Short() {
		runs = 4
	}
	late, overdue := 0.0, int64(0)
	for run := range runs {
		l := limiter.PerSecond(2000)
		net := hostile
		net.median = time.Duration(1+run%4*3) * time.Millisecond
		w := newWorld(t, uint64(run), 10, l, sync100, net)
		w.demand(loads[run%len(loads)].of, one, 5*time.Second)
		w.after(int64(200*time.Millisecond), func() { w.trouble(200 * time.Millisecond) })
		w.runUntil(5 * time.Second)
		r := w.result(5 * time.Second)
		require.LessOrEqual(t, r.over, float64(l.Rate)*r.longest.Seconds()+1, "run %d: %v", run, r)
		require.LessOrEqual(t, r.longest, time.Duration(timeout), "what is later is not waited for")
		overdue += w.ran.overdue

		// It is what the nodes tell: no more than all they say they were late by, and than the longest bound.
		sum, bound := 0.0, 0.0
		for _, s := range w.nodes {
			s.lateness.raise(s.counted.lateness)
			require.LessOrEqual(t, s.lateness.late, s.lateness.bound)
			sum, bound = sum+s.lateness.late, max(bound, s.lateness.bound)
		}
		require.LessOrEqual(t, r.over, sum+1, "run %d: %v", run, r)
		require.LessOrEqual(t, r.over, bound+1, "run %d: %v", run, r)
		late += sum
	}
	require.Positive(t, late)
	require.Positive(t, overdue, "there were such")
}

// A replica that takes over has not heard of the last grants: they are granted again, and no more than those.
func TestFailoverLosesTheLastGrantsOnly(t *testing.T) {
	for _, lag := range []time.Duration{0, 10 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second} {
		t.Run(fmt.Sprint(lag), func(t *testing.T) {
			l := limiter.PerSecond(2000)
			w := newWorld(t, 5, 10, l, sync100, network{})
			w.demand(even(2), one, time.Second)
			w.runUntil(3 * time.Second)
			replica := w.bucket.clone()
			before := w.went
			w.runUntil(3*time.Second + lag)
			lost := float64(w.went-before) + float64(l.Rate)*2*sync100.Seconds() // spent, and held
			w.bucket, w.lost = replica, true
			w.runUntil(8 * time.Second)
			t.Logf("over %.1f", w.meter.worst)
			require.LessOrEqual(t, w.meter.worst, min(lost, float64(l.Quota()))+rounding)
			if lag == 0 {
				require.LessOrEqual(t, w.meter.worst, rounding)
			}
			w.meter = newMeter(l)
			w.meter.at = w.now
			w.runUntil(20 * time.Second)
			require.LessOrEqual(t, w.meter.worst, rounding, "and never again")
		})
	}
}

// A grant can be a whole burst: however little the replica is behind, so much is granted again, and no more.
func TestFailoverOfAFullBucket(t *testing.T) {
	l := limiter.Per(1, time.Hour).WithBurst(1000)
	w := newWorld(t, 5, 2, l, sync100, network{})
	w.nodes[0].arrive(1)
	w.runUntil(4 * time.Hour)
	replica := w.bucket.clone()
	w.runUntil(4*time.Hour + time.Millisecond)
	w.nodes[0].arrive(1000)
	require.LessOrEqual(t, w.meter.worst, rounding)
	w.bucket, w.lost = replica, true
	for range 2 {
		w.nodes[1].arrive(1000)
		w.nodes[0].arrive(1000)
	}
	require.InDelta(t, 1000, w.meter.worst, 1)
}

// Processes need not agree on Sync, as while another document is rolled out: a key outlives every lease of it, and no lease is cut
// by who thinks that they live shorter.
func TestNodesOfDifferentSyncs(t *testing.T) {
	runs, d := 24, 40*time.Second
	if raceEnabled || testing.Short() {
		runs = 6
	}
	var expired, held int64
	for run := range runs {
		l := limiter.PerSecond(500).WithBurst(250)
		w := newWorld(t, uint64(run), 4, l, sync100, hostile)
		longest, cycle := longestSync, int64(14)
		if run%2 == 1 { // pauses in which all leases end, and the key
			longest, cycle = 2*time.Second, 60
		}
		for k, s := range w.nodes {
			s.sync = []time.Duration{sync100, longest, shortestSync, time.Second}[(run+k)%4]
			s.reboot()
		}
		on := func(_, k int, now int64) float64 { // in turns, with pauses
			if now := now / int64(350*time.Millisecond); now%cycle < 4 && (now+int64(run)/3)%4 == int64(k) {
				return 0.7
			}
			return 0
		}
		w.demand(on, one, d)
		for at := time.Duration(0); at < d; at += 100 * time.Millisecond {
			w.runUntil(at)
			for _, s := range w.nodes {
				if s.check(); s.sync == longest && w.now < s.deadline {
					held += s.held
				}
			}
		}
		require.LessOrEqual(t, w.meter.worst, rounding, "run %d", run)
		require.NotZero(t, w.went)
		expired += w.ran.expired
	}
	require.Positive(t, expired, "keys ended")
	require.Positive(t, held)
}

func (b *bucket) clone() *bucket {
	c := *b
	c.records = map[string]record{}
	for id, r := range b.records {
		c.records[id] = r
	}
	return &c
}

// A flush gives everybody a new burst, once. What nodes hold was paid for from the one before, and is dropped with their next call.
func TestFlushCostsOneBurst(t *testing.T) {
	l := limiter.PerSecond(1000)
	w := newWorld(t, 6, 10, l, sync100, network{})
	w.demand(even(5), one, time.Second)
	w.runUntil(3 * time.Second)
	require.LessOrEqual(t, w.meter.worst, rounding)
	w.bucket, w.lost = &bucket{}, true
	w.runUntil(6 * time.Second)
	require.Greater(t, w.meter.worst, 0.5*float64(l.Rate), "the meter sees it")
	require.LessOrEqual(t, w.meter.worst, float64(l.Quota())+rounding)
	w.meter = newMeter(l)
	w.meter.at = w.now
	w.runUntil(20 * time.Second)
	require.LessOrEqual(t, w.meter.worst, rounding, "and never again")
}
