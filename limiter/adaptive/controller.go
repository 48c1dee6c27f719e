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
	manual bool    // tests: no goroutine, advance is called instead

	isStarted atomic.Bool
	origin    time.Time
	_         [64]byte
	inFlight  atomic.Int64
	_         [64]byte
	bound     atomic.Int64  // requests in flight
	share     atomic.Uint64 // of a rate: float bits
	stale     atomic.Int64  // ns since origin after which the limit is not known to be right
	state     atomic.Pointer[State]
	asked     atomic.Pointer[limiter.Limit] // a limit that Adjust was asked for since the last step
	seen      collector
	ages      ages

	mu       sync.Mutex // guards what follows: starting, steps, closing
	gov      governor
	sampler  *Sampler
	sched    *scheduler
	runnable float64
	sampleAt time.Time
	openAt   time.Time
	stepAt   time.Time
	isOpen   bool
	isClosed bool
	told     telling
	nominal  limiter.Limit // of a rate, as far as is known
	cancel   context.CancelFunc
	done     chan struct{}
}

// telling is what observers and the log were told last.
type telling struct {
	limit    limiter.Limit
	reason   Reason
	fallback Reason
}

// State is what a controller knows, as of its last step.
type State struct {
	Time     time.Time // of the last step; zero before the first
	Limit    float64   // not rounded: requests in flight, or the share of a rate
	Bound    int       // requests in flight; 0 for a rate
	InFlight int       // now
	Reason   Reason
	Fallback Reason    // why the fixed limit is in force; "": it is not
	Until    time.Time // when the law tries again; zero without Fallback
	CPU      Reading
	Window   Window // the last one closed
}

// New returns a controller at its fixed limit, or an error wrapping [limiter.ErrInvalid] that names everything wrong with c. It does
// no I/O and starts nothing.
func New(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.filled()
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	a := &Controller{cfg: c, unit: 1, sampler: NewSampler(c.CPUQuota), sched: newScheduler(), runnable: -1}
	if c.Target == Rate {
		a.unit = 100
	}
	a.gov = governor{
		law: c.Law(c.thresholds()), least: c.Min * a.unit, most: c.Max * a.unit, fixed: c.Fixed * a.unit,
		cpuAt: c.CPU, errorsAt: max(0, c.Errors), interval: c.Interval, minSamples: c.MinSamples,
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
	a.publish(time.Time{}, Window{}, Reading{Runnable: -1})
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
	c.mu.Lock()
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

// Close stops the controller: from then on the fixed limit is in force. Requests in flight are released as before. Closing
// again does nothing.
func (c *Controller) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	c.gov.cur, c.gov.why, c.gov.fallback, c.gov.until = c.gov.fixed, FallbackClosed, FallbackClosed, time.Time{}
	c.publish(c.gov.last, Window{}, Reading{Runnable: -1})
	c.stale.Store(math.MaxInt64)
	cancel, done := c.cancel, c.done
	c.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	return nil
}

// advance does what is due and returns when there is more to do.
func (c *Controller) advance(now time.Time) (next time.Time) {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return now.Add(time.Hour)
	}
	if !now.Before(c.sampleAt) {
		c.sample(now)
		c.sampleAt = now.Add(sampleInterval)
	}
	var tell func()
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
			c.seen.open(now, int(c.inFlight.Load()))
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
	c.mu.Unlock()
	if tell != nil {
		tell()
	}
	return next
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
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	v, ok = c.cfg.CPUSource()
	return v, ok && v >= 0 && v <= 2
}

// step closes a window and moves the limit. It returns what is to be called without the lock.
func (c *Controller) step(now time.Time) (tell func()) {
	w := c.seen.close(now, int(c.inFlight.Load()))
	w.Oldest, w.Overdue = c.ages.look(int64(now.Sub(c.origin)), int64(c.cfg.RTT))
	w.QueueDelay = c.sched.waited()
	w.Peak = float64(w.MaxInFlight)
	if c.cfg.Target == Rate {
		if w.Peak = 0; w.Rejected > 0 {
			w.Peak = c.gov.cur
		}
	}
	cpu := c.reading(now)
	c.gov.step(now, w, cpu)
	c.publish(now, w, cpu)
	c.freshen(now)
	return c.telling(now)
}

// freshen says until when the limit is right without another step.
func (c *Controller) freshen(now time.Time) {
	c.stale.Store(int64(now.Sub(c.origin) + overdueAfter(c.cfg.Interval)))
}

// whole rounds a limit down: at least 1, and not by what adding up fractions left.
func whole(l float64) int64 { return max(1, int64(math.Floor(l+edge))) }

func (c *Controller) publish(now time.Time, w Window, cpu Reading) {
	s := &State{Time: now, Limit: c.gov.cur / c.unit, Reason: c.gov.why, Fallback: c.gov.fallback, CPU: cpu, Window: w}
	if c.gov.fallback != "" {
		s.Until = c.gov.until
	}
	if c.cfg.Target == Concurrency {
		s.Bound = int(whole(c.gov.cur))
		c.bound.Store(int64(s.Bound))
	} else {
		c.share.Store(math.Float64bits(s.Limit))
	}
	c.state.Store(s)
}

// State returns what the controller knows.
func (c *Controller) State() State {
	s := *c.state.Load()
	s.InFlight = int(c.inFlight.Load())
	return s
}

// telling returns what there is to tell, nil if nothing is.
func (c *Controller) telling(now time.Time) func() {
	s := c.state.Load()
	was := c.told
	is := telling{reason: s.Reason, fallback: s.Fallback, limit: limiter.Limit{Burst: s.Bound}}
	if c.cfg.Target == Rate {
		if p := c.asked.Swap(nil); p != nil {
			c.nominal = *p
		}
		is.limit = scale(c.nominal, s.Limit)
	}
	c.told = is
	complaint := c.gov.complaint()
	if is == was && complaint == nil {
		return nil
	}
	return func() {
		if is.fallback != was.fallback || complaint != nil {
			c.log(is, s, complaint)
		}
		if c.cfg.Observer != nil && is != was && is.limit != (limiter.Limit{}) {
			defer func() { _ = recover() }() // an observer must not end the process
			c.cfg.Observer.Observe(limiter.Event{
				Kind: limiter.EventAdapt, Time: now, Policy: c.cfg.Name, Decision: limiter.Decision{Limit: is.limit},
				Reason: string(is.reason), Err: complaint,
			})
		}
	}
}

func (c *Controller) log(is telling, s *State, complaint error) {
	defer func() { _ = recover() }()
	attrs := []slog.Attr{slog.String("policy", c.cfg.Name), slog.Float64("limit", s.Limit)}
	if is.fallback == "" {
		c.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "adaptive limit: the law rules again", attrs...)
		return
	}
	attrs = append(attrs, slog.String("reason", string(is.fallback)), slog.Time("until", s.Until))
	if complaint != nil {
		attrs = append(attrs, slog.Any("error", complaint))
	}
	c.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "adaptive limit: the fixed limit is in force", attrs...)
}
