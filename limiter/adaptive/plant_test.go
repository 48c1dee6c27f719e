package adaptive_test

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

// epoch is when virtual time begins.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A plant is a service in virtual time: each request waits for a dependency and then needs a processor, which it gets in
// turn for 10 ms at a time. Clients give up after 3 s; the service does not notice, and what it does for them is lost.
type plant struct {
	random  *rand.Rand
	guard   plantGuard
	now     time.Duration
	events  plantEvents
	queue   []*plantRequest
	head    int
	cores   int
	running int
	busy    time.Duration // what processors have done so far
	phase   plantPhase
	stats   plantStats
	began   time.Duration // of the phase
}

// plantGuard is what decides in a plant.
type plantGuard interface {
	admit(now time.Duration) bool
	done(now, began time.Duration, r adaptive.Result)
	tick(now time.Duration, p *plant) (next time.Duration)
}

// plantPhase is how a plant is used for a while.
type plantPhase struct {
	name    string
	length  time.Duration
	rate    float64 // requests a second
	cores   int
	wait    time.Duration // of the dependency, on average
	settled time.Duration // from when on late ones count

	work     time.Duration // of a processor, on average; 0: plantWork
	patience time.Duration // of clients; 0: plantPatience
	inTime   time.Duration // what is good; 0: plantInTime
}

type plantStats struct {
	offered, rejected, good, late int
	lateSettled                   int
	goodSettled                   int
}

type plantRequest struct {
	arrived time.Duration
	work    time.Duration // left to do on a processor
	settled bool
}

type plantEvent struct {
	at      time.Duration
	kind    int
	request *plantRequest
	slice   time.Duration
}

const (
	plantArrives = iota
	plantWakes
	plantSliced
	plantTicks
)

type plantEvents []plantEvent

// push and pop are those of a heap, without the boxes that container/heap puts events in.
func (e *plantEvents) push(x plantEvent) {
	h := append(*e, x)
	k := len(h) - 1
	for ; k > 0 && x.at < h[(k-1)/2].at; k = (k - 1) / 2 {
		h[k] = h[(k-1)/2]
	}
	h[k] = x
	*e = h
}

func (e *plantEvents) pop() plantEvent {
	h := *e
	first, x := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*e = h
	k := 0
	for {
		child := 2*k + 1
		if child+1 < len(h) && h[child+1].at < h[child].at {
			child++
		}
		if child >= len(h) || x.at <= h[child].at {
			break
		}
		h[k] = h[child]
		k = child
	}
	if k < len(h) {
		h[k] = x
	}
	return first
}

const (
	plantQuantum  = 10 * time.Millisecond
	plantWork     = 8 * time.Millisecond
	plantPatience = 3 * time.Second
	plantInTime   = time.Second
)

// plantPhases are twice the capacity; a dependency eight times as slow; half the processors; and the usual load.
var plantPhases = []plantPhase{
	{name: "2x overload", length: 120 * time.Second, rate: 2000, cores: 8, wait: 12 * time.Millisecond, settled: 20 * time.Second},
	{name: "slow dependency", length: 120 * time.Second, rate: 500, cores: 8, wait: 96 * time.Millisecond, settled: 20 * time.Second},
	{name: "half the cores", length: 120 * time.Second, rate: 700, cores: 4, wait: 12 * time.Millisecond, settled: 20 * time.Second},
	{name: "usual load", length: 120 * time.Second, rate: 900, cores: 8, wait: 12 * time.Millisecond, settled: 60 * time.Second},
}

func newPlant(g plantGuard) *plant {
	p := &plant{random: rand.New(rand.NewPCG(1, 2)), guard: g}
	p.push(plantEvent{kind: plantTicks})
	p.push(plantEvent{kind: plantArrives})
	return p
}

func (p *plant) push(e plantEvent) { p.events.push(e) }

// run plays a phase.
func (p *plant) run(phase plantPhase) plantStats {
	p.phase, p.stats, p.began, p.cores = phase, plantStats{}, p.now, phase.cores
	p.phase.work, p.phase.patience, p.phase.inTime = cmp.Or(phase.work, plantWork), cmp.Or(phase.patience, plantPatience), cmp.Or(phase.inTime, plantInTime)
	for end := p.now + phase.length; ; {
		e := p.events[0]
		if e.at >= end {
			p.now = end
			return p.stats
		}
		p.events.pop()
		p.now = e.at
		switch e.kind {
		case plantArrives:
			p.arrive()
		case plantWakes:
			p.queue = append(p.queue, e.request)
		case plantSliced:
			p.sliced(e)
		case plantTicks:
			p.push(plantEvent{at: max(p.guard.tick(p.now, p), p.now+1), kind: plantTicks})
		}
		p.dispatch()
	}
}

func (p *plant) arrive() {
	p.push(plantEvent{at: p.now + time.Duration(p.random.ExpFloat64()/p.phase.rate*float64(time.Second)), kind: plantArrives})
	p.stats.offered++
	if !p.guard.admit(p.now) {
		p.stats.rejected++
		return
	}
	r := &plantRequest{
		arrived: p.now, work: time.Duration(p.random.ExpFloat64() * float64(p.phase.work)), settled: p.now-p.began >= p.phase.settled,
	}
	wait := time.Duration((0.5 + p.random.Float64()) * float64(p.phase.wait))
	p.push(plantEvent{at: p.now + wait, kind: plantWakes, request: r})
}

func (p *plant) dispatch() {
	for p.running < p.cores && p.head < len(p.queue) {
		r := p.queue[p.head]
		p.queue[p.head] = nil
		if p.head++; p.head > 4096 && p.head > len(p.queue)/2 {
			p.queue = append(p.queue[:0], p.queue[p.head:]...)
			p.head = 0
		}
		slice := min(r.work, plantQuantum)
		p.running++
		p.push(plantEvent{at: p.now + slice, kind: plantSliced, request: r, slice: slice})
	}
}

func (p *plant) sliced(e plantEvent) {
	p.running--
	p.busy += e.slice
	r := e.request
	if r.work -= e.slice; r.work > 0 {
		p.queue = append(p.queue, r)
		return
	}
	took := p.now - r.arrived
	result := adaptive.Succeeded
	if took > p.phase.patience {
		result = adaptive.Unmeasured // nobody is there
	}
	if took <= p.phase.inTime {
		p.stats.good++
		if p.now-p.began >= p.phase.settled {
			p.stats.goodSettled++
		}
	} else {
		p.stats.late++
		if r.settled {
			p.stats.lateSettled++
		}
	}
	p.guard.done(p.now, r.arrived, result)
}

// goodput is what was done in time, a second.
func (s plantStats) goodput(phase plantPhase) float64 {
	return float64(s.good) / phase.length.Seconds()
}

func (s plantStats) settledGoodput(phase plantPhase) float64 {
	return float64(s.goodSettled) / (phase.length - phase.settled).Seconds()
}

func (s plantStats) rejectedRatio() float64 { return float64(s.rejected) / float64(max(1, s.offered)) }

// controlled is a plant's guard by a controller of requests in flight.
type controlled struct {
	c       *adaptive.Controller
	usage   func() (time.Duration, float64)
	highest int              // by how much a bound was passed
	states  []adaptive.State // of all steps
}

func newControlled(c adaptive.Config) *controlled {
	g := new(controlled)
	made, err := adaptive.NewManual(c, func() (time.Duration, float64) { return g.usage() })
	if err != nil {
		panic(err)
	}
	g.c = made
	return g
}

func (g *controlled) admit(now time.Duration) bool {
	n, bound, ok := g.c.Acquire(epoch.Add(now), 0)
	if ok {
		g.highest = max(g.highest, n-bound)
	}
	return ok
}

func (g *controlled) done(now, began time.Duration, r adaptive.Result) {
	g.c.Release(epoch.Add(now), epoch.Add(began), r)
}

func (g *controlled) tick(now time.Duration, p *plant) time.Duration {
	g.usage = func() (time.Duration, float64) { return p.busy, float64(p.cores) }
	next := g.c.Advance(epoch.Add(now)).Sub(epoch)
	if s := g.c.State(); len(g.states) == 0 || !s.Time.Equal(g.states[len(g.states)-1].Time) {
		g.states = append(g.states, s)
	}
	return next
}

// unguarded admits everybody.
type unguarded struct{}

func (unguarded) admit(time.Duration) bool                             { return true }
func (unguarded) done(time.Duration, time.Duration, adaptive.Result)   {}
func (unguarded) tick(now time.Duration, _ *plant) (nxt time.Duration) { return now + time.Second }

// fixedRate is a token bucket that holds a tenth of a second.
type fixedRate struct {
	rate, tokens float64
	last         time.Duration
}

func (g *fixedRate) admit(now time.Duration) bool {
	g.tokens = min(g.tokens+(now-g.last).Seconds()*g.rate, g.rate/10)
	g.last = now
	if g.tokens < 1 {
		return false
	}
	g.tokens--
	return true
}
func (g *fixedRate) done(time.Duration, time.Duration, adaptive.Result) {}
func (g *fixedRate) tick(now time.Duration, _ *plant) time.Duration     { return now + time.Second }

// fixedInFlight is a bound that does not move.
type fixedInFlight struct{ bound, n int }

func (g *fixedInFlight) admit(time.Duration) bool {
	if g.n >= g.bound {
		return false
	}
	g.n++
	return true
}
func (g *fixedInFlight) done(time.Duration, time.Duration, adaptive.Result) { g.n-- }
func (g *fixedInFlight) tick(now time.Duration, _ *plant) time.Duration     { return now + time.Second }

// classic is the published law, as it is published: every 10 s, by the mean of 5 s, in whole numbers.
type classic struct {
	fixedRate
	fixedInFlight
	isRate       bool
	limit        int
	least, most  int
	busy         time.Duration
	sum          time.Duration
	count        int
	countedSince time.Duration
}

func newClassic(isRate bool, limit, least, most int) *classic {
	c := &classic{isRate: isRate, limit: limit, least: least, most: most}
	c.set()
	return c
}

func (g *classic) set() { g.rate, g.bound = float64(g.limit), g.limit }

func (g *classic) admit(now time.Duration) bool {
	if g.isRate {
		return g.fixedRate.admit(now)
	}
	return g.fixedInFlight.admit(now)
}

func (g *classic) done(now, began time.Duration, r adaptive.Result) {
	g.n--
	g.sum += now - began
	g.count++
}

func (g *classic) tick(now time.Duration, p *plant) time.Duration {
	if now%(10*time.Second) == 5*time.Second {
		g.sum, g.count, g.busy, g.countedSince = 0, 0, p.busy, now
	}
	if now > 0 && now%(10*time.Second) == 0 {
		cpu := (p.busy - g.busy).Seconds() / ((now - g.countedSince).Seconds() * float64(p.cores))
		mean := time.Duration(0)
		if g.count > 0 {
			mean = g.sum / time.Duration(g.count)
		}
		const c, r = 0.8, 100 * time.Millisecond
		switch {
		case cpu > c || mean > r:
			g.limit = max(g.least, int(0.8*float64(g.limit)))
		case cpu < 0.7*c && mean < r/2:
			g.limit = min(g.most, int(1.05*float64(g.limit)))
		}
		g.set()
	}
	return now + 5*time.Second
}
