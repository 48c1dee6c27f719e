package prove_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	patience = 30 * time.Second // for decisions to come back: far more than it takes
	warm     = 1500 * time.Millisecond
	lead     = 100 * time.Millisecond // so long late is asked for before: some is spent, and some is leased
	tail     = 2 * time.Second        // longer than a lease lives

	// What a goroutine or two of a pool that grew under load may add. Leaks of a fault add some for each of thousands of
	// requests; what is left when a guard has ended is compared exactly.
	slack = 40

	// Instants are in microseconds on Redis.
	rounding = 0.01
)

// cell is one fault in one mode.
type cell struct {
	rig
	t         *testing.T
	fault     fault
	mode      string
	adapters  []string // of each guard
	guards    []*process
	meter     *meter
	load      *load
	evictions map[string]int // by policy

	began, ended, back time.Time     // the fault; decisions are back
	broken             []string      // promises
	starved            time.Duration // the longest that a guard did not run
}

func (c *cell) breaks(format string, args ...any) {
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}

// result is what is told of a cell.
type result struct {
	fault, mode    string
	adapters       []string
	promised, over map[string]float64 // units above L in the fullest interval, by count
	wrong          int                // refusals that the store cannot have made rightly; −1: not told of this mode
	statuses       map[int]int
	longest        time.Duration // answer
	starved        time.Duration // the longest that a guard did not run for want of a processor
	back           time.Duration
}

// run makes the fault happen under load and returns what came of it.
func (c *cell) run() result {
	t := c.t
	c.rig, c.evictions = c.fault.start(t), map[string]int{}
	c.meter = newMeter(t)
	for k := range c.adapters {
		c.guards = append(c.guards, begin(t, c.setup(k)))
	}
	c.load = newLoad(t, c.guards)
	for k := range 10 { // charged to the count that all others are given back of
		c.load.ask(k%len(c.guards), refund, drain)
	}
	for _, d := range demands {
		if d.name != late {
			c.load.begin(d)
		}
	}
	pause(warm)
	before := c.states()

	for _, d := range demands {
		if d.name == late {
			c.load.begin(d)
		}
	}
	pause(lead)
	c.began = time.Now()
	c.fault.begin(c)
	pause(c.fault.long)
	if c.fault.end != nil {
		c.fault.end(c)
	}
	c.ended = time.Now()
	require.Eventually(t, func() (isBack bool) {
		c.back, isBack = c.load.decidedSince(c.ended)
		return isBack
	}, patience, 20*time.Millisecond, "decisions did not come back: %v", c.statuses())
	pause(tail)
	c.load.end()
	for k := range c.guards {
		for n := 0; c.load.ask(k, refund, drain).status == http.StatusOK; n++ {
			require.Less(t, n, 100_000, "it is never spent")
		}
	}
	for k, after := range c.states() {
		c.starved = max(c.starved, after.Starved)
		require.LessOrEqual(t, after.Goroutines, before[k].Goroutines+slack, "goroutines of guard %d", k)
		require.LessOrEqual(t, after.Files, before[k].Files+slack, "files and sockets of guard %d", k)
	}
	c.load.client.CloseIdleConnections()
	for k, g := range c.guards {
		require.Empty(t, g.end(), "left behind by guard %d, %s", k, c.adapters[k])
	}
	return c.verdict()
}

// setup is what one guard is told.
func (c *cell) setup(guard int) setup {
	s := c.rig.setup(guard)
	s.Mode, s.Adapter, s.Meter, s.Guards = c.mode, c.adapters[guard], c.meter.address(), len(c.adapters)
	return s
}

func (c *cell) states() (all []state) {
	for _, g := range c.guards {
		all = append(all, g.state(c.t, c.load.client))
	}
	return all
}

// killGuard kills the first guard. Its clients get no answers until startGuard.
func (c *cell) killGuard() { c.guards[0].kill() }

func (c *cell) startGuard() {
	c.guards[0] = begin(c.t, c.setup(0))
	c.load.urls[0].Store(&c.guards[0].url)
}

// statuses counts answers of policies that fail closed.
func (c *cell) statuses() map[int]int {
	out := map[int]int{}
	for _, name := range []string{busy, calm, early, late, both, refund, drain} {
		for _, a := range c.load.of(name) {
			out[a.status]++
		}
	}
	return out
}

// verdict compares what was measured with what was promised, and notes every promise that is broken.
func (c *cell) verdict() result {
	r := result{
		fault: c.fault.name, mode: c.mode, adapters: c.adapters, promised: map[string]float64{}, over: map[string]float64{},
		statuses: c.statuses(), back: c.back.Sub(c.ended), starved: c.starved,
	}
	for _, name := range counts {
		c.compare(&r, name)
	}
	r.wrong = c.wronglyRefused()
	c.checkStatuses(&r)
	c.checkLost()
	return r
}

// compare says whether more than promised passed of one count.
func (c *cell) compare(r *result, name string) {
	passes, l := c.meter.of(name), limitOf(name)
	if name == all {
		passes = c.meter.of(both) // the handler of both is behind either
	}
	if len(passes) == 0 {
		c.t.Logf("%-6s nothing passed", name)
		return // checkLost says whether that may be
	}
	p := c.fault.promise(c.mode, l, len(c.adapters), c.evictions[policyOf(name)])
	slowest := slices.MaxFunc(passes, func(x, y pass) int { return int((x.at - x.began) - (y.at - y.began)) })
	delay := slowest.at - slowest.began
	late := p.within.rate * seconds(delay)
	seen, _ := excess(passes, p.within)
	sure := certainExcess(passes, p.within)
	if seen > p.extra+late+rounding {
		c.breaks("%s: %.2f units above what is promised, measured at the handlers; %.2f + %.2f for %v of delay may be",
			name, seen, p.extra, late, time.Duration(delay))
	}
	if sure > p.extra+rounding {
		c.breaks("%s: %.2f units above what is promised, whatever the delays; %.2f may be", name, sure, p.extra)
	}
	// What is told: against the limit itself, where fallback promises more for longer intervals.
	over, length := excess(passes, boundOf(l))
	r.over[name] = over
	r.promised[name] = p.within.over(length) - boundOf(l).over(length) + p.extra + late
	c.t.Logf("%-6s %4d passed %v; above L: at most %.2f, may be %.2f; above the promise: %.2f seen, %.2f certain, may be %.2f + %.2f for %v at %v",
		name, len(passes), c.meter.via[name], over, r.promised[name], seen, sure, p.extra, late,
		time.Duration(delay), time.Unix(0, slowest.began).Sub(c.began))
}

// wronglyRefused counts refusals of the store that its bucket cannot have made, under the limit that is asked for most. A
// process does not know what others have leased, so leased promises less than that.
func (c *cell) wronglyRefused() int {
	if c.mode == leases || c.mode == alone {
		return -1
	}
	bookings, refusals := []pass{}, []pass{}
	for _, a := range c.load.of(busy) {
		switch {
		case a.status == http.StatusOK && a.via == "store":
			bookings = append(bookings, a.pass)
		case a.status == http.StatusTooManyRequests && a.via != "fallback":
			refusals = append(refusals, a.pass)
		default: // it may have been booked, until Redis had worked off what it was sent
			a.at = max(a.at, c.ended.Add(time.Second).UnixNano())
			bookings = append(bookings, a.pass)
		}
	}
	b, lost := boundOf(limits[busy]), rounding
	if c.fault.setBack {
		first, last := c.ended.UnixNano(), int64(0)
		for _, k := range bookings {
			if k.began >= c.began.UnixNano() {
				first = min(first, k.at)
			} else {
				last = max(last, k.began)
			}
		}
		lost += b.rate * seconds(first-last)
		c.t.Logf("up to %.2f units were lost with the clock", lost)
	}
	wrong := wronglyRefused(refusals, bookings, b, lost)
	if len(wrong) > 0 {
		first, last := time.Unix(0, wrong[0].began).Sub(c.began), time.Unix(0, wrong[len(wrong)-1].began).Sub(c.began)
		c.breaks("%d of %s were refused that the store had units for, %v to %v after the fault began; it was over after %v",
			len(wrong), busy, first, last, c.ended.Sub(c.began))
	}
	return len(wrong)
}

// checkStatuses: who may be answered with what.
func (c *cell) checkStatuses(r *result) {
	allowed := []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTeapot}
	if c.mode != byFallback {
		allowed = append(allowed, http.StatusServiceUnavailable) // they fail closed
	}
	if c.fault.absent > 0 {
		allowed = append(allowed, 0)
	}
	for status, n := range r.statuses {
		if !slices.Contains(allowed, status) {
			c.breaks("%d times %d", n, status)
		}
	}
	for _, name := range []string{calm, open} {
		for _, a := range c.load.of(name) {
			switch {
			case a.status == http.StatusTooManyRequests:
				c.breaks("%s: refused within its limit, via %s, %v after the fault began", name, a.via, time.Unix(0, a.began).Sub(c.began))
			case name == open && a.status != http.StatusOK && (a.status != 0 || c.fault.absent == 0):
				c.breaks("%s: %d of a policy that fails open", name, a.status)
			}
		}
	}
	for name, answers := range c.load.answers {
		passed := 0
		for _, a := range answers {
			r.longest = max(r.longest, time.Duration(a.at-a.began))
			if a.status == http.StatusOK || a.status == http.StatusTeapot {
				passed++
			}
		}
		if seen := len(c.meter.of(name)); seen < passed || seen > passed+c.fault.absent*10 {
			c.breaks("%s: %d were let through, and the meter has seen %d", name, passed, seen)
		}
	}
}

// checkLost: what was taken stays taken, which compare has shown for what is hardly refilled; and no units are gone but those
// of calls whose end is not known.
func (c *cell) checkLost() {
	for _, name := range []string{early, late, drain} {
		unknown := len(c.meter.of(unbooked))
		asked := c.load.of(name)
		if name == drain {
			if c.mode == leases {
				continue // what comes back when its lease is over stays spent
			}
			asked = append(slices.Clone(asked), c.load.of(refund)...)
		} else {
			unknown = 0
		}
		for _, a := range asked {
			if a.status == 0 || a.status == http.StatusServiceUnavailable || a.via == "fallback" {
				unknown++
			}
		}
		got, q := len(c.meter.of(name)), limitOf(name).Quota()
		if c.mode == leases && c.fault.burnt {
			unknown += q / 2
		}
		if got < q-unknown {
			c.breaks("%s: %d of %d passed in all, and only %d can be with calls that failed", name, got, q, unknown)
		}
		c.t.Logf("%-6s %4d of %d passed; of %d calls the end is not known", name, got, q, unknown)
	}
}
