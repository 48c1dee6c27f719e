package leased

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// load is a shape of demand: what each of n nodes asks for at an instant, in units of the whole rate.
type load struct {
	name string
	of   func(n, k int, now int64) float64
	low  float64 // fairness to reach
	high float64
	use  float64
}

func even(times float64) func(n, k int, now int64) float64 {
	return func(n, _ int, _ int64) float64 { return times / float64(n) }
}

// skewed is nine tenths of all demand on one node.
func skewed(times float64, hot func(n int, now int64) int) func(n, k int, now int64) float64 {
	return func(n, k int, now int64) float64 {
		if k == hot(n, now) {
			return 0.9 * times
		}
		return 0.1 * times / float64(n-1)
	}
}

func first(int, int64) int { return 0 }

// moving is another node every two seconds.
func moving(n int, now int64) int { return int(now/int64(2*time.Second)) * 7 % n }

// bursty is a tenth below the rate, and for one second in five twenty times the rate.
func bursty(n, _ int, now int64) float64 {
	if now/int64(time.Second)%5 == 2 {
		return 20 / float64(n)
	}
	return 0.9 / float64(n)
}

var loads = []load{
	{name: "even x0.95", of: even(0.95), low: 0.85, high: 1.15, use: 0.97},
	{name: "even x2", of: even(2), low: 0.85, high: 1.15, use: 0.97},
	{name: "even x10", of: even(10), low: 0.85, high: 1.15, use: 0.97},
	{name: "skewed x0.95", of: skewed(0.95, first), low: 0.85, high: 1.15, use: 0.95},
	{name: "skewed x2", of: skewed(2, first), low: 0.85, high: 1.15, use: 0.95},
	{name: "skewed x10", of: skewed(10, first), low: 0.85, high: 1.15, use: 0.95},
	{name: "moving x2", of: skewed(2, moving), low: 0.8, high: 1.45, use: 0.95},
	{name: "bursty", of: bursty, low: 0.8, high: 1.45, use: 0.95},
}

// result is what a run came to.
type result struct {
	over, use, low, high float64
	hot, others          float64 // of the first node, and of all the others together
	calls                float64 // per second
	perThousand          float64
	longest              time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("over %.3f, use %.1f %%, fair %.2f…%.2f (the first %.2f, others %.2f), %.0f calls/s, %.0f per 1000",
		r.over, 100*r.use, r.low, r.high, r.hot, r.others, r.calls, r.perThousand)
}

// fewest is how many takes of a node must pass before their part says something of the design: of fewer, chance is the more.
const fewest = 500

func (w *world) result(d time.Duration) result {
	r := result{
		over: w.meter.worst, use: float64(w.went) / float64(w.passed), low: 1, high: 1,
		calls: float64(w.calls) / d.Seconds(), perThousand: 1000 * float64(w.calls) / float64(w.came),
	}
	mean := float64(w.went) / float64(w.came)
	for _, s := range w.nodes {
		r.longest = max(r.longest, time.Duration(s.longest))
		if s.went < fewest {
			continue
		}
		ratio := float64(s.went) / float64(s.came) / mean
		r.low, r.high = min(r.low, ratio), max(r.high, ratio)
	}
	first := w.nodes[0]
	r.hot = float64(first.went) / float64(first.came) / mean
	r.others = float64(w.went-first.went) / float64(w.came-first.came) / mean
	return r
}

// demand lets takes come at all nodes for so long, and the nodes look whether they are idle.
func (w *world) demand(of func(n, k int, now int64) float64, cost func() int64, d time.Duration) {
	perSecond := float64(w.limit.Rate) / w.limit.Period.Seconds()
	for k, s := range w.nodes {
		most := 0.0
		for at := time.Duration(0); at < d; at += time.Second {
			most = max(most, of(len(w.nodes), k, int64(at)))
		}
		s.arrivals(most*perSecond, func(now int64) float64 { return of(len(w.nodes), k, now) * perSecond }, cost)
		w.after(w.rng.Int64N(int64(w.sync)), s.idleCheck)
	}
}

func simulate(
	t testing.TB, seed uint64, n int, l limiter.Limit, sync time.Duration, net network, of func(n, k int, now int64) float64, d time.Duration,
) result {
	w := newWorld(t, seed, n, l, sync, net)
	w.demand(of, one, d)
	w.runUntil(d)
	return w.result(d)
}

const sync100 = 100 * time.Millisecond

// The table of what the design is to reach: never more than one bucket would admit, hardly less, fairly shared and with few calls.
func TestLeasesAreStrictUsefulAndFair(t *testing.T) {
	l, d := limiter.PerSecond(2000), 20*time.Second
	sizes := []int{2, 10, 50, 200}
	if raceEnabled || testing.Short() {
		d, sizes = 10*time.Second, []int{2, 10}
	}
	for _, n := range sizes {
		for _, shape := range loads {
			t.Run(fmt.Sprintf("%d nodes, %s", n, shape.name), func(t *testing.T) {
				r := simulate(t, uint64(n), n, l, sync100, network{median: 250 * time.Microsecond}, shape.of, d)
				t.Log(r)
				require.LessOrEqual(t, r.over, float64(l.Rate)*r.longest.Seconds()+1)
				require.GreaterOrEqual(t, r.use, shape.use)
				require.GreaterOrEqual(t, min(r.low, r.hot, r.others), shape.low)
				require.LessOrEqual(t, max(r.high, r.hot, r.others), shape.high)
				require.LessOrEqual(t, r.calls, 1.75*float64(n)/sync100.Seconds(), "each node asks less than twice in a tick")
			})
		}
	}
}

// Small bursts and low rates: what a tick refills is a few tokens, or less than one.
func TestSmallBuckets(t *testing.T) {
	d := 20 * time.Second
	if raceEnabled || testing.Short() {
		d = 6 * time.Second
	}
	for name, c := range map[string]struct {
		l   limiter.Limit
		n   int
		use float64
	}{
		"50 ms of the rate":            {limiter.PerSecond(2000).WithBurst(100), 10, 0.95},
		"10 ms of the rate":            {limiter.PerSecond(2000).WithBurst(20), 10, 0.9},
		"less than one a node":         {limiter.PerSecond(100), 200, 0.95},
		"one at a time":                {limiter.PerSecond(10).WithBurst(1), 5, 0.8},
		"so rare that it is no matter": {limiter.PerMinute(30).WithBurst(3), 5, 0.9},
	} {
		for times, of := range map[string]func(n, k int, now int64) float64{
			"x0.95": even(0.95), "x2": even(2), "x10": even(10), "skewed x2": skewed(2, first),
		} {
			t.Run(name+", "+times, func(t *testing.T) {
				r := simulate(t, 3, c.n, c.l, sync100, network{median: 250 * time.Microsecond}, of, d)
				t.Log(r)
				require.LessOrEqual(t, r.over, float64(c.l.Rate)/c.l.Period.Seconds()*r.longest.Seconds()+1)
				require.GreaterOrEqual(t, r.use, c.use)
			})
		}
	}
}

// Takes of many costs: a call asks for all who wait, and large takes are not starved by small ones.
func TestMixedCosts(t *testing.T) {
	l, d := limiter.PerSecond(2000), 10*time.Second
	for times, of := range map[string]func(n, k int, now int64) float64{"x0.95": even(0.95), "x2": even(2), "skewed x2": skewed(2, first)} {
		t.Run(times, func(t *testing.T) {
			w := newWorld(t, 8, 10, l, sync100, network{median: 250 * time.Microsecond})
			came, went := map[int64]int{}, map[int64]int{}
			w.settle = func(_ *simNode, cost int64, ok bool) {
				if came[cost]++; ok {
					went[cost]++
				}
			}
			const mean = 5
			few := func(n, k int, now int64) float64 { return of(n, k, now) / mean }
			w.demand(few, func() int64 { return 1 + 8*w.rng.Int64N(2) }, d)
			w.runUntil(d)
			r := w.result(d)
			part := func(cost int64) float64 { return float64(went[cost]) / float64(came[cost]) }
			t.Logf("%v; of 1 %.2f, of 9 %.2f", r, part(1), part(9))
			require.LessOrEqual(t, r.over, float64(l.Rate)*r.longest.Seconds()+1)
			require.GreaterOrEqual(t, r.use, 0.9)
			require.Greater(t, part(9), 0.3*part(1))
		})
	}
}
