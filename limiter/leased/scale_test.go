package leased

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// wholeFleet is set for the runs whose table stands in docs/operations.md: 1,000 processes, a million requests a second and ten
// seconds. They take minutes; otherwise a tenth of all is simulated, or less, at which a process sees as much of a key.
var wholeFleet = os.Getenv("SPILLWAY_FLEET") == "whole"

// shapeOfFleet is a number of keys that are asked for alike by all processes of a fleet, and what is measured of them.
type shapeOfFleet struct {
	name   string
	keys   int     // of which all requests come
	part   int     // how many of them are simulated: keys know nothing of each other; 0: all
	times  float64 // requests, in units of the limit
	hot    float64 // the part of all requests that come to a tenth of the processes; 0: to all alike
	at     int     // how many processes a key is asked for at; 0: all
	sync   time.Duration
	bursts int  // Burst, in what the rate brings in a second or so; 0: one
	quiet  bool // neither network nor Redis take any time, so that the bound has no slack
}

// served is how long Redis is busy with a call, one after the other: benchmarks/cmd/rediscost measures it.
const served = 20 * time.Microsecond

// fleetRun is what a run came to. Calls are those of all keys, also where a part of them is simulated.
type fleetRun struct {
	over    float64       // tokens above the bucket in the fullest interval of any key
	longest time.Duration // round trip
	slack   float64       // tokens that the rate of a key brings in that time
	use     float64       // of what ideal buckets let pass
	low     float64       // what passes at a process, against what passes at all of them
	high    float64
	calls   float64 // per second
	peak    float64 // per second, in the busiest 10 ms but for the first two Syncs, in which everybody comes at once
	start   float64 // in the busiest 10 ms of those
	rounds  float64 // calls for 1,000 requests
	waited  float64 // the part of requests that waited for a call
	lease   int64   // the largest that a process held
	out     float64 // the most that all together held, in bursts
	perTick float64 // requests of a key at a process in a Sync
	came    int64
	failed  int64 // calls that were given up
}

func (r fleetRun) String() string {
	fair := "–"
	if r.low > 0 {
		fair = fmt.Sprintf("%.2f…%.2f", r.low, r.high)
	}
	return fmt.Sprintf("%.4g | %.1f (%.1f) | %.1f %% | %s | %.0f | %.0f | %.0f | %.0f | %.1f %% | %d | %.0f %% | %d",
		r.perTick, r.over, r.slack, 100*r.use, fair, r.calls, r.peak, r.start, r.rounds, 100*r.waited, r.lease, 100*r.out, r.failed)
}

const fleetHeader = "units of a key, process and tick | excess (what delays allow) | used | fairness | calls/s | busiest 10 ms, /s | " +
	"at the start, /s | calls per 1,000 | waited | largest lease | held together, of Burst | given up"

// exactMeter is meter in whole numbers: with a million tokens floating point would be off by more than nothing.
type exactMeter struct{ rate, period, full, level, at, worst int64 }

func (m *exactMeter) admit(now, cost int64) {
	if elapsed := now - m.at; elapsed > m.full/m.rate+1 {
		m.level = m.full
	} else {
		m.level = min(m.full, m.level+elapsed*m.rate)
	}
	m.at = now
	m.level -= cost * m.period
	m.worst = max(m.worst, -m.level)
}

// fleet is one key of it.
type fleet struct {
	*world
	shape   shapeOfFleet
	perNano float64
	due     float64 // when the next request comes
	at      []*fleetNode
	spread  int // the process that is the key's first
	exact   exactMeter
	lease   int64
	out     int64
	free    int64 // when Redis has done with the calls that are there
}

// fleetNode is a process's part in the key.
type fleetNode struct {
	*simNode
	fleet   *fleet
	watched bool // somebody looks whether it is idle
}

func newFleet(t testing.TB, seed uint64, shape shapeOfFleet, n int, perSecond float64) *fleet {
	// So many in so long that what is asked for is as many times the limit as it is to be.
	rate := max(1, math.Round(perSecond))
	l := limiter.Per(int(rate), time.Duration(shape.times*rate/perSecond*float64(time.Second)))
	if shape.bursts > 0 {
		l = l.WithBurst(shape.bursts * int(rate))
	}
	net := network{median: 250 * time.Microsecond}
	if shape.quiet {
		net.median = 0
	}
	f := &fleet{
		world: newWorld(t, seed, 0, l, shape.sync, net), shape: shape, perNano: perSecond / 1e9,
		at: make([]*fleetNode, n),
	}
	period := int64(l.Period)
	f.exact = exactMeter{rate: int64(l.Rate), period: period, full: int64(l.Quota()) * period, level: int64(l.Quota()) * period}
	f.spread = int(f.rng.Uint64() % uint64(n))
	f.settle = func(s *simNode, cost int64, ok bool) {
		if ok {
			f.exact.admit(f.now, cost)
			f.lease = max(f.lease, s.held+cost)
		}
		f.out = max(f.out, f.bucket.out)
	}
	return f
}

// places is at how many processes the key is asked for.
func (f *fleet) places() int {
	if f.shape.at > 0 {
		return f.shape.at
	}
	return len(f.at)
}

// pick is the process at which a request comes.
func (f *fleet) pick() int {
	n := len(f.at)
	switch most := n / 10; {
	case f.shape.at > 0:
		return (f.spread + f.rng.IntN(f.shape.at)) % n
	case f.shape.hot == 0:
		return f.rng.IntN(n)
	case f.rng.Float64() < f.shape.hot:
		return f.rng.IntN(most)
	default:
		return most + f.rng.IntN(n-most)
	}
}

// come lets a request come and sees to the next. Processes have no state of a key before they are asked for it, and look whether
// they are idle while they hold something, as those of the limiter do.
func (f *fleet) come() {
	k := f.pick()
	s := f.at[k]
	if s == nil {
		s = &fleetNode{simNode: &simNode{w: f.world, k: k, sync: f.sync}, fleet: f}
		s.reboot()
		f.at[k], f.nodes = s, append(f.nodes, s.simNode)
	}
	s.arrive()
	if !s.watched {
		s.watched = true
		f.after(f.rng.Int64N(int64(f.sync)), s.look)
	}
	f.due += f.rng.ExpFloat64() / f.perNano
	f.after(int64(f.due)-f.now, f.come) // from the exact instant: what is rounded up does not add up
}

// arrive is that of a simNode, for one token and a process that goes on.
func (s *fleetNode) arrive() {
	f := s.fleet
	f.came++
	s.came++
	f.ideal.to(f.now)
	if f.ideal.level >= 1-rounding {
		f.ideal.level--
		f.passed++
	}
	switch s.node.arrive(f.now, 1) {
	case taken:
		s.admit(1)
	case waits:
		s.join(&waiter{cost: 1})
	default:
		s.decided(1, false)
	}
	s.ask(s.next(f.now))
}

// ask sends a call, if one is due, to a Redis that does one after the other. No message is lost, so that what is late is late as
// Redis is busy.
func (s *fleetNode) ask(q request, due bool) {
	s.check()
	if !due {
		return
	}
	f := s.fleet
	f.calls++
	sent, work := f.now, int64(served)
	if f.shape.quiet {
		work = 0
	}
	f.after(f.delay(), func() {
		begin := max(f.now, f.free)
		f.free = begin + work
		f.after(begin-f.now, func() {
			r := f.script(q)
			f.after(work+f.delay(), func() {
				if s.calling && s.sent.seq == q.seq && !s.overdue(f.now) {
					s.longest = max(s.longest, f.now-sent)
				}
				s.settle(s.reply(f.now, q.seq, r))
				s.ask(s.next(f.now))
			})
		})
	})
	f.after(timeout, func() { s.settle(s.fail(f.now, q.seq)) })
}

func (s *fleetNode) look() {
	s.ask(s.idle(s.fleet.now))
	if s.held+s.recorded+s.back == 0 && !s.calling {
		s.watched = false
		return
	}
	s.fleet.after(int64(s.sync), s.look)
}

// runFleet simulates a shape on n processes with so many requests a second in all.
func runFleet(t testing.TB, shape shapeOfFleet, n int, perSecond float64, d time.Duration) fleetRun {
	const slot = 10 * time.Millisecond
	part := shape.part
	if part == 0 {
		part = shape.keys
	}
	var (
		r                           fleetRun
		went, passed, calls, waited int64
		cameAt, wentAt              = make([]int64, n), make([]int64, n)
		slots                       = make([]int64, d/slot)
		perKey                      = perSecond / float64(shape.keys)
		scale                       = float64(shape.keys) / float64(part)
	)
	for key := range part {
		f := newFleet(t, uint64(key), shape, n, perKey)
		f.run(slots, slot)
		r.over = max(r.over, float64(f.exact.worst)/float64(f.exact.period))
		r.lease, r.out = max(r.lease, f.lease), max(r.out, float64(f.out)/float64(f.limit.Quota()))
		r.perTick = perKey / float64(f.places()) * float64(newTerms(f.limit, f.sync).tick) / 1e6
		r.came, went, passed, calls, waited = r.came+f.came, went+f.went, passed+f.passed, calls+f.calls, waited+f.came
		for _, s := range f.nodes {
			waited -= int64(s.counted.local)
			r.failed += int64(s.counted.failed)
			r.longest = max(r.longest, time.Duration(s.longest))
			cameAt[s.k], wentAt[s.k] = cameAt[s.k]+s.came, wentAt[s.k]+s.went
		}
	}
	r.slack = perKey / shape.times * r.longest.Seconds()
	r.use, r.waited = float64(went)/float64(passed), float64(waited)/float64(r.came)
	r.calls, r.rounds = scale*float64(calls)/d.Seconds(), 1000*float64(calls)/float64(r.came)
	for k, c := range slots {
		rate := scale * float64(c) / slot.Seconds()
		if time.Duration(k)*slot < 2*shape.sync {
			r.start = max(r.start, rate)
		} else {
			r.peak = max(r.peak, rate)
		}
	}
	r.low, r.high = fairness(cameAt, wentAt)
	return r
}

// run lets requests come, and adds the calls of each slot of time.
func (f *fleet) run(slots []int64, slot time.Duration) {
	f.due = f.rng.ExpFloat64() / f.perNano
	f.after(int64(f.due), f.come)
	for k := range slots {
		before := f.calls
		f.runUntil(time.Duration(k+1) * slot)
		slots[k] += f.calls - before
	}
}

// fairness is the part of its requests that passes at the worst and at the best process, against that of all; 0 where too few pass
// to tell.
func fairness(came, went []int64) (low, high float64) {
	var allCame, allWent float64
	for k := range came {
		allCame, allWent = allCame+float64(came[k]), allWent+float64(went[k])
	}
	for k := range came {
		if went[k] < fewest {
			continue
		}
		ratio := float64(went[k]) / float64(came[k]) * allCame / allWent
		high = max(high, ratio)
		if low == 0 || ratio < low {
			low = ratio
		}
	}
	return low, high
}

var fleetShapes = []shapeOfFleet{
	{name: "1 of 10⁶/s", keys: 1, times: 0.95, sync: sync100},
	{name: "1 of 10⁶/s, no delays", keys: 1, times: 0.95, sync: sync100, quiet: true},
	{name: "1 of 10⁶/s, twice the limit", keys: 1, times: 2, sync: sync100},
	{name: "1 of 10⁶/s, twice the limit, no delays", keys: 1, times: 2, sync: sync100, quiet: true},
	{name: "1 of 10⁶/s, nine tenths at 100 processes", keys: 1, times: 0.95, hot: 0.9, sync: sync100},
	{name: "1 of 10⁶/s, twice the limit, nine tenths at 100 processes", keys: 1, times: 2, hot: 0.9, sync: sync100},
	{name: "1 of 10⁶/s, Sync 500 ms", keys: 1, times: 0.95, sync: 5 * sync100, bursts: 2},
	{name: "1 of 10⁶/s, Sync 1 s", keys: 1, times: 0.95, sync: 10 * sync100, bursts: 4},
	{name: "10 of 10⁵/s", keys: 10, times: 0.95, sync: sync100},
	{name: "100 of 10⁴/s", keys: 100, part: 10, times: 0.95, sync: sync100},
	{name: "100 of 10⁴/s, Sync 1 s", keys: 100, part: 10, times: 0.95, sync: 10 * sync100, bursts: 4},
	{name: "1,000 of 1,000/s", keys: 1000, part: 100, times: 0.95, sync: sync100},
	{name: "1,000 of 1,000/s, Sync 10 s", keys: 1000, part: 100, times: 0.95, sync: 100 * sync100, bursts: 40},
	{name: "10⁴ of 100/s", keys: 10_000, times: 0.95, sync: sync100},
	{name: "10⁴ of 100/s, twice the limit", keys: 10_000, part: 1000, times: 2, sync: sync100},
	{name: "10⁴ of 100/s, each at 10 processes", keys: 10_000, part: 1000, at: 10, times: 0.95, sync: sync100},
	{name: "10⁴ of 100/s, each at one process", keys: 10_000, part: 1000, at: 1, times: 0.95, sync: sync100},
	{name: "10⁶ of 1/s", keys: 1_000_000, part: 10_000, times: 0.95, sync: sync100},
}

// A large fleet is as strict as a small one, and leases save calls from about one unit of a key, process and tick on.
func TestLargeFleet(t *testing.T) {
	n, perSecond, d := 100, 1e5, 4*time.Second
	if raceEnabled || testing.Short() {
		n, perSecond, d = 10, 1e4, 3*time.Second
	}
	if wholeFleet {
		n, perSecond, d = 1000, 1e6, 10*time.Second
	}
	t.Log(fleetHeader)
	for _, shape := range fleetShapes {
		t.Run(shape.name, func(t *testing.T) {
			if !wholeFleet {
				// Few keys, but some thousands of requests.
				few := max(20, int(5000*float64(shape.keys)/(perSecond*d.Seconds())))
				if shape.part == 0 {
					shape.part = shape.keys
				}
				shape.part = min(shape.part, few)
			}
			r := runFleet(t, shape, n, perSecond, d)
			t.Logf("| %s | %v |", shape.name, r)
			if shape.quiet {
				require.Zero(t, r.over)
			}
			require.LessOrEqual(t, r.over, r.slack+1)
			require.GreaterOrEqual(t, r.use, 0.95)
			if r.low > 0 {
				require.GreaterOrEqual(t, r.low, 0.85)
				require.LessOrEqual(t, r.high, 1.15)
			}
			require.Zero(t, r.failed, "Redis keeps up")
			require.LessOrEqual(t, r.rounds, 1100.0, "hardly more than a call for each")
			switch {
			case r.perTick >= 50:
				require.LessOrEqual(t, r.rounds, 60.0)
			case r.perTick < 0.5:
				require.GreaterOrEqual(t, r.rounds, 850.0, "of less than a unit hardly anything can be leased")
			}
		})
	}
}

// The meter of these runs finds each token that is too much.
func TestExactMeter(t *testing.T) {
	const period = int64(time.Second)
	m := exactMeter{rate: 10, period: period, full: 10 * period, level: 10 * period}
	for range 10 {
		m.admit(0, 1)
	}
	require.Zero(t, m.worst)
	m.admit(int64(100*time.Millisecond), 1)
	require.Zero(t, m.worst)
	m.admit(int64(200*time.Millisecond)-1, 1)
	require.Equal(t, int64(10), m.worst, "a nanosecond too early")
	m.admit(int64(time.Hour), 11)
	require.Equal(t, period, m.worst, "never more than a burst comes back")
}
