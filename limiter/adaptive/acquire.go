package adaptive

import (
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// ErrLimited is what [Controller.Do] returns for what it did not call.
var ErrLimited = errors.New("adaptive: too many in flight")

// Acquire takes a place for a request that begins now, if there is one: never more are in flight than the bound that is in
// force at that moment, those that are detached aside, and never more than Max together with those. reserve is the share of the
// bound, 0…1, that has to stay free for more important requests, rounded up. It returns how much of the bound is in use, by this
// request as well, and the whole bound: where inFlight is less than that and ok is false, the reserve was in the way. What is
// detached uses the bound only where no more than the rest of it is left of Max. A refusal by the bound counts as a rejection,
// from which the controller learns that the limit is binding; one by Max alone does not.
//
// Each place that was taken has to be given back by Release, once, in a defer. A controller of a rate has no bound: it admits
// everybody, and tells math.MaxInt.
//
// Where the controller has not been run for three intervals, the fixed limit is in force.
func (c *Controller) Acquire(now time.Time, reserve float64) (inFlight, bound int, ok bool) {
	at := c.at(now)
	b := c.boundAt(at)
	free := b - reserved(reserve, b)
	for {
		word := c.places.word.Load()
		n := taken(word, b, c.most)
		if n >= free {
			if held, _ := unpack(word); held >= free { // else it is Max that refuses, and a higher bound would not help
				c.seen.current.Load().rejected.Add(1)
			}
			return int(n), int(b), false
		}
		if c.places.word.CompareAndSwap(word, word+onePlace) {
			c.admitted(at)
			return int(n + 1), int(b), true
		}
	}
}

// Admit takes a place whether there is one or not, and tells in ok if there was: for requests that are counted and never
// refused, as those of a policy in shadow, and all those of a rate.
func (c *Controller) Admit(now time.Time) (inFlight, bound int, ok bool) {
	at := c.at(now)
	b := c.boundAt(at)
	n := taken(c.places.word.Add(onePlace), b, c.most)
	c.admitted(at)
	return int(n), int(b), n <= b
}

func (c *Controller) admitted(at int64) {
	c.seen.current.Load().admitted.Add(1)
	c.ages.begin(at)
}

// Reject counts a request that was refused by the limit, elsewhere: a rate's. Refusals of [Controller.Acquire] are counted
// already. It never plays a part in round-trip times.
func (c *Controller) Reject(now time.Time) {
	c.at(now)
	c.seen.current.Load().rejected.Add(1)
}

// Release gives a place back. began is the instant that Acquire was told, now minus that is the round-trip time. It must be
// called once for each place taken; more often than that for all of them together does nothing. What is [Withdrawn] is taken
// back out of all counts, as if it had never come.
func (c *Controller) Release(now, began time.Time, r Result) { c.release(now, began, r, r == Detached) }

// release is Release of a request whose age counts no longer, if isDetached.
func (c *Controller) release(now, began time.Time, r Result, isDetached bool) {
	n, ok := c.places.give(isDetached)
	if !ok {
		return
	}
	if !isDetached {
		c.ages.end(c.at(began))
	}
	t := c.seen.current.Load()
	if r == Withdrawn {
		t.withdrawn.Add(1)
		return
	}
	// The most in flight is what the next one to leave sees, so those that were never there need not raise it.
	raise(&t.peak, n)
	took := now.Sub(began)
	if !isDetached && c.cfg.RTT > 0 && took >= c.cfg.RTT {
		t.overdue.Add(1)
	}
	switch r {
	case Succeeded:
		t.measure(took)
	case Failed:
		t.failed.Add(1)
	default:
		t.unmeasured.Add(1)
	}
}

// Detach says that the request that began then is long by its nature: an upgraded connection, a stream. It keeps its place
// among Max and leaves the moving bound to others, and its age no longer is a sign of trouble. Its Release then has to say
// [Detached]; which of the two calls comes first does not matter.
func (c *Controller) Detach(began time.Time) {
	c.places.detach()
	c.ages.end(c.at(began))
}

// Bound returns how many requests may be in flight, as of the last step; math.MaxInt for a rate.
func (c *Controller) Bound() int {
	return int(c.boundNow())
}

// Max returns what Bound can be at most; math.MaxInt for a rate.
func (c *Controller) Max() int {
	if c.cfg.Target != Concurrency {
		return math.MaxInt
	}
	return int(c.cfg.Max)
}

// InFlight returns how much of Bound is in use at this moment, as Acquire tells it: the requests in flight that are not
// detached, and more where Max is all but used up. [State] tells how many are detached.
func (c *Controller) InFlight() int {
	return int(taken(c.places.word.Load(), c.boundNow(), c.most))
}

// boundNow is the bound as of the last step.
func (c *Controller) boundNow() int64 {
	if c.cfg.Target == Rate {
		return math.MaxInt64
	}
	return c.bound.Load()
}

func (c *Controller) boundAt(at int64) int64 {
	if c.cfg.Target != Rate && at > c.stale.Load() {
		return whole(c.cfg.Fixed)
	}
	return c.boundNow()
}

// reserved is the share of a bound in whole requests, rounded up.
func reserved(share float64, bound int64) int64 {
	if !(share > 0) || bound == math.MaxInt64 {
		return 0
	}
	return int64(math.Ceil(min(share, 1)*float64(bound) - edge))
}

// Ticket is a place that gives itself back once. Its methods are safe for concurrent use.
type Ticket struct {
	c     *Controller
	began time.Time
	state atomic.Uint32
}

const (
	ticketHeld = iota
	ticketDetached
	ticketReleased
)

// Ticket is [Controller.Acquire] whose place cannot be given back twice; nil if there is none.
func (c *Controller) Ticket(now time.Time, reserve float64) *Ticket {
	if _, _, ok := c.Acquire(now, reserve); !ok {
		return nil
	}
	return &Ticket{c: c, began: now}
}

// Detach is [Controller.Detach]. After Release, and for the second time, it does nothing.
func (t *Ticket) Detach() {
	if t.state.CompareAndSwap(ticketHeld, ticketDetached) {
		t.c.Detach(t.began)
	}
}

// Release gives the place back. All calls but the first do nothing.
func (t *Ticket) Release(now time.Time, r Result) {
	switch t.state.Swap(ticketReleased) {
	case ticketHeld:
		if r == Detached { // which it is not
			r = Unmeasured
		}
		t.c.release(now, t.began, r, false)
	case ticketDetached:
		if r != Withdrawn {
			r = Detached
		}
		t.c.release(now, t.began, r, true)
	}
}

// Do calls f if there is a place, and gives it back whatever f does. It returns what f returns, which counts as failed if it
// is an error, as a panic does; or [ErrLimited] if f was not called. reserve is that of [Controller.Acquire].
func (c *Controller) Do(reserve float64, f func() error) error {
	now := time.Now()
	if _, _, ok := c.Acquire(now, reserve); !ok {
		return ErrLimited
	}
	result := Failed
	defer func() { c.Release(time.Now(), now, result) }()
	err := f()
	if err == nil {
		result = Succeeded
	}
	return err
}
