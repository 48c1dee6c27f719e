package adaptive

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Result is how a request ended.
type Result = limiter.Result

// The results of package limiter.
const (
	Succeeded  = limiter.ResultSucceeded
	Failed     = limiter.ResultFailed
	Unmeasured = limiter.ResultUnmeasured
	Detached   = limiter.ResultDetached
	Withdrawn  = limiter.ResultWithdrawn
)

var _ limiter.Controller = (*Controller)(nil)

// Controller moves a limit by what happens to requests. Make one with [New] and Close it at the end. All methods are safe
// for concurrent use.
//
// One that bounds requests in flight is used around each request:
//
//	now := time.Now()
//	if _, _, ok := c.Acquire(now, 0); !ok {
//		… // refuse
//	}
//	defer func() { c.Release(time.Now(), now, result) }()
//
// or by [Controller.Do] and [Controller.Ticket], which see to it that a place is given back once.
//
// One that scales a rate is a [limiter.Adjuster] of policies; it learns from requests that are shown to it by Admit, Release and
// Reject, without which it stays where it is.
//
// The first use starts a goroutine that takes a measurement every 250 ms and moves the limit once an interval. Close ends it.
type Controller struct {
	cfg    Config
	unit   float64 // of a law's limit: 1 request, or 1 % of a rate
	most   int64   // requests in flight, the detached ones included
	manual bool    // tests: no goroutine, advance is called instead

	isStarted atomic.Bool
	origin    time.Time
	_         [64]byte
	places    places
	_         [64]byte
	bound     atomic.Int64  // requests in flight
	share     atomic.Uint64 // of a rate: float bits
	stale     atomic.Int64  // ns since origin after which the limit is not known to be right
	state     atomic.Pointer[State]
	asked     atomic.Pointer[limiter.Limit] // a limit that Adjust was asked for since the last step
	seen      collector
	ages      ages

	steps    sync.Mutex // guards what follows: one step at a time. It is held while a step calls the user's code
	gov      governor
	sampler  *Sampler
	sched    *scheduler
	runnable float64
	sampleAt time.Time
	openAt   time.Time
	stepAt   time.Time
	isOpen   bool
	told     telling
	nominal  limiter.Limit // of a rate, as far as is known

	mu       sync.Mutex // guards what follows: starting, publishing, closing. Taken after steps, and for moments
	isClosed bool
	cancel   context.CancelFunc
	done     chan struct{}
	busy     chan struct{} // can be received from while the user's code runs
}

// State is what a controller knows, for monitoring and tests. All but InFlight and Detached is as of the last step, which comes once an
// interval. [Controller.Explain] says the same in words.
type State struct {
	Time     time.Time // of the last step; zero before the first
	Limit    float64   // the limit with its fraction: a number of requests in flight, or for a rate the share of the nominal one
	Bound    int       // the limit that holds: Limit rounded down; 0 for a rate
	InFlight int       // requests in flight at this moment, without those that are detached
	Detached int       // those, at this moment: the bound does not hold for them, only Max for all together
	Reason   Reason    // why the limit was moved to, or left at, where it is
	Fallback Reason    // why the law is not asked and the fixed limit holds; "": the law is asked
	Until    time.Time // when the law is asked again; zero without Fallback
	CPU      Reading   // the load of the processors
	Window   Window    // what the last window saw. A law may have been shown several together
}

// New returns a controller at its fixed limit, or an error wrapping [limiter.ErrInvalid] that names everything wrong with c, a
// Law that panics included. It does no I/O and starts nothing.
func New(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.filled()
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	a := &Controller{cfg: c, unit: 1, most: int64(c.Max), sampler: NewSampler(c.CPUQuota), sched: newScheduler(), runnable: -1, busy: make(chan struct{})}
	if c.Target == Rate {
		a.unit = 100
	}
	a.gov = governor{
		call: a.call, least: c.Min * a.unit, most: c.Max * a.unit, fixed: c.Fixed * a.unit,
		cpuAt: c.CPU, errorsAt: max(0, c.Errors), interval: c.Interval, minSamples: c.MinSamples,
	}
	if v := a.call(func() { a.gov.law = c.Law(c.thresholds()) }); v != nil {
		return nil, fmt.Errorf("adaptive: %w: Law panicked: %v", limiter.ErrInvalid, v)
	}
	if a.gov.law == nil {
		return nil, fmt.Errorf("adaptive: %w: Law made nothing", limiter.ErrInvalid)
	}
	if _, is := a.gov.law.(*bbr); is && c.Target == Rate {
		return nil, fmt.Errorf("adaptive: %w: Law: bbr bounds requests in flight, it cannot scale a rate", limiter.ErrInvalid)
	}
	a.gov.cur, a.gov.why = a.gov.fixed, ReasonStart
	a.ages.init(c.RTT)
	a.seen.current.Store(&a.seen.tallies[0])
	a.seen.tallies[0].clear(0)
	a.publish(a.is(time.Time{}, Window{}, Reading{Runnable: -1}))
	return a, nil
}

// at returns an instant as ns since the first one. The first starts the goroutine.
func (c *Controller) at(now time.Time) int64 {
	if !c.isStarted.Load() {
		c.start(now)
	}
	return max(0, int64(now.Sub(c.origin)))
}

func (c *Controller) start(now time.Time) {
	c.mu.Lock() // nobody steps before it is started
	defer c.mu.Unlock()
	if c.isStarted.Load() {
		return
	}
	c.origin = now
	c.stale.Store(math.MaxInt64)
	c.isStarted.Store(true)
	if c.isClosed {
		return
	}
	c.gov.start(now)
	c.sampleAt, c.stepAt, c.openAt = now, now.Add(c.cfg.Interval), now.Add(c.cfg.Interval-c.cfg.Window)
	c.freshen(now)
	if c.manual {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	go c.run(ctx, c.done)
}

// call runs the user's code in a goroutine of its own, so that neither a panic nor a runtime.Goexit ends the controller's, and
// returns what it panicked with, nil if it returned. Meanwhile nobody who closes the controller is waited for: it may be this
// very code.
func (c *Controller) call(f func()) (panicked any) {
	ended := make(chan any, 1)
	go func() {
		var v any = "runtime.Goexit was called"
		defer func() {
			if r := recover(); r != nil {
				v = r
			}
			ended <- v
		}()
		f()
		v = nil
	}()
	for {
		select {
		case panicked = <-ended:
			return panicked
		case c.busy <- struct{}{}:
		}
	}
}

func (c *Controller) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		timer.Reset(max(0, c.advance(now).Sub(now)))
	}
}

// Close stops the controller: from then on the fixed limit is in force. Requests in flight are released as before. It waits
// for what runs in the background, but not for an Observer, a Logger's handler, a CPUSource or a Law that is being called: it
// may be called by one. No other is called after that. Closing again does nothing.
func (c *Controller) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	s := &State{Time: c.state.Load().Time, Limit: c.cfg.Fixed, Reason: FallbackClosed, Fallback: FallbackClosed, CPU: Reading{Runnable: -1}}
	c.put(s)
	c.stale.Store(math.MaxInt64)
	cancel, done := c.cancel, c.done
	c.mu.Unlock()
	if cancel != nil {
		cancel()
		select {
		case <-done:
		case <-c.busy:
		}
	}
	return nil
}

func (c *Controller) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isClosed
}

// advance does what is due and returns when there is more to do.
func (c *Controller) advance(now time.Time) (next time.Time) {
	tell, next := c.due(now)
	if tell != nil && !c.closed() {
		tell()
	}
	return next
}

func (c *Controller) due(now time.Time) (tell func(), next time.Time) {
	c.steps.Lock()
	defer c.steps.Unlock()
	if c.closed() {
		return nil, now.Add(time.Hour)
	}
	if !now.Before(c.sampleAt) {
		c.sample(now)
		c.sampleAt = now.Add(sampleInterval)
	}
	if !now.Before(c.stepAt) {
		tell = c.step(now)
		c.isOpen = false
		if c.stepAt = c.stepAt.Add(c.cfg.Interval); !c.stepAt.After(now) {
			c.stepAt = now.Add(c.cfg.Interval)
		}
		c.openAt = c.stepAt.Add(-c.cfg.Window)
	}
	if !c.isOpen && !now.Before(c.openAt) {
		c.isOpen = true
		if c.cfg.Window < c.cfg.Interval { // else the one before ended here
			_, overdue := c.ages.look(int64(now.Sub(c.origin)), int64(c.cfg.RTT))
			held, _ := c.places.read()
			c.seen.open(now, int(held), overdue)
			c.sched.waited()
		} else if c.seen.opened.IsZero() {
			c.seen.opened = c.origin
		}
	}
	next = c.sampleAt
	if c.stepAt.Before(next) {
		next = c.stepAt
	}
	if !c.isOpen && c.openAt.Before(next) {
		next = c.openAt
	}
	return tell, next
}

func (c *Controller) sample(now time.Time) {
	if c.cfg.CPUSource == nil {
		c.sampler.Sample(now)
	}
	c.runnable = c.sched.runnable()
}

// reading is the load of the processors at a step.
func (c *Controller) reading(now time.Time) Reading {
	r := Reading{Runnable: -1}
	if c.cfg.CPUSource == nil {
		r = c.sampler.Read(now)
	} else if v, ok := c.ask(); ok {
		r.Value, r.OK, r.At = min(v, 1), true, now
	}
	r.Runnable = c.runnable
	if c.cfg.Runnable > 0 && r.Runnable > c.cfg.Runnable {
		r.Value, r.OK, r.At = max(r.Value, min(1, c.cfg.CPU*r.Runnable/c.cfg.Runnable)), true, now
	}
	return r
}

// ask asks the user's source. More than twice everything is no share: a percentage, most likely, which would mean overload for ever.
func (c *Controller) ask() (v float64, ok bool) {
	panicked := c.call(func() { v, ok = c.cfg.CPUSource() })
	return v, panicked == nil && ok && v >= 0 && v <= 2
}

// step closes a window and moves the limit. It returns what is to be called without a lock.
func (c *Controller) step(now time.Time) (tell func()) {
	oldest, overdue := c.ages.look(int64(now.Sub(c.origin)), int64(c.cfg.RTT))
	held, _ := c.places.read()
	w := c.seen.close(now, int(held), overdue)
	w.Oldest = oldest
	w.QueueDelay = c.sched.waited()
	w.Peak = float64(w.MaxInFlight)
	if c.cfg.Target == Rate {
		if w.Peak = 0; w.Rejected > 0 {
			w.Peak = c.gov.cur
		}
	}
	cpu := c.reading(now)
	if c.closed() { // by who was asked, or meanwhile: the law is not asked any more
		return nil
	}
	c.gov.step(now, &w, cpu)
	s := c.is(now, w.Window, cpu)
	if !c.publish(s) {
		return nil
	}
	c.freshen(now)
	return c.telling(now, s)
}

// freshen says until when the limit is right without another step.
func (c *Controller) freshen(now time.Time) {
	c.stale.Store(int64(now.Sub(c.origin) + overdueAfter(c.cfg.Interval)))
}

// whole rounds a limit down: at least 1, and not by what adding up fractions left.
func whole(l float64) int64 { return max(1, int64(math.Floor(l+edge))) }

// is what the governor has come to.
func (c *Controller) is(now time.Time, w Window, cpu Reading) *State {
	s := &State{Time: now, Limit: c.gov.cur / c.unit, Reason: c.gov.why, Fallback: c.gov.fallback, CPU: cpu, Window: w}
	if s.Fallback != "" {
		s.Until = c.gov.until
	}
	return s
}

// publish puts a state in force, unless the controller has been closed meanwhile.
func (c *Controller) publish(s *State) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return false
	}
	c.put(s)
	return true
}

func (c *Controller) put(s *State) {
	if c.cfg.Target == Concurrency {
		s.Bound = int(whole(s.Limit))
		c.bound.Store(int64(s.Bound))
	} else {
		c.share.Store(math.Float64bits(s.Limit))
	}
	c.state.Store(s)
}

// State returns what the controller knows.
func (c *Controller) State() State {
	s := *c.state.Load()
	held, detached := c.places.read()
	s.InFlight, s.Detached = int(held), int(detached)
	return s
}
