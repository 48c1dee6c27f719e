package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

const (
	// ahead is how long before a departure the next one may be booked: the round trip to a store must not lower the rate.
	ahead = 50 * time.Millisecond
	// settleTimeout bounds what is settled for a caller who has left.
	settleTimeout = 250 * time.Millisecond
	// forever is longer than any wait, and an instant so far away fits a Duration.
	forever = 200 * 365 * 24 * time.Hour
)

// turn is one request on its way out.
type turn struct {
	t      *Transport
	l      *lane
	key    limiter.Key
	s      shape
	until  time.Time // it has to leave by then
	number uint64    // in the line
	holds  bool      // the turn
	flies  bool      // has a place in flight
	status int       // of the answer before
	stale  int       // answers of the store that came too late to be used
	shown  limiter.Decision
}

// place is a departure.
type place struct {
	at  time.Time // it may leave then
	due time.Time // the instant that the limit has for it, or one before
}

// missed reports whether a place may not be used at the instant now.
func (s *shape) missed(p place, now time.Time) bool { return s.late > 0 && now.Sub(p.due) > s.late }

// depart waits until the request may be sent. On success its place in flight is taken; on an error nothing is.
func (u *turn) depart(ctx context.Context) (f *flight, err error) {
	defer func() {
		if u.holds {
			u.holds = false
			u.l.pass()
		}
		if f == nil && u.flies { // also in a panic of a limiter
			u.land()
		}
	}()
	if err := u.outset(ctx); err != nil {
		return nil, err
	}
	for {
		if err := u.queue(ctx); err != nil {
			return nil, err
		}
		if f, err := u.leave(ctx); f != nil || err != nil {
			return f, err
		}
		if !u.holds {
			// The destination closed after the turn was passed on. Whoever has it may be waiting for our place in flight.
			u.land()
		}
	}
}

func (u *turn) land() {
	u.flies = false
	u.l.land(nil)
}

// outset refuses at once what can be seen to come too late.
func (u *turn) outset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	if b := u.l.breaker; b != nil {
		if wait, open := b.opened(now); open {
			return u.limited(ReasonBreaker, wait, nil)
		}
	}
	o := u.l.outlook(u.s, now)
	switch {
	case o.ahead >= u.t.config.MaxWaiting:
		return u.limited(ReasonWaiting, o.wait, nil)
	case o.wait > u.until.Sub(now):
		return u.limited(o.reason, o.wait, nil)
	}
	return nil
}

func (u *turn) limited(reason Reason, wait time.Duration, cause error) error {
	return &LimitedError{Reason: reason, RetryAfter: wait, Key: u.key, Status: u.status, Err: cause}
}

// queue waits for the turn and for a place in flight.
func (u *turn) queue(ctx context.Context) error {
	if !u.holds {
		if err := u.line(ctx); err != nil {
			return err
		}
	}
	for !u.flies {
		if u.flies = u.l.fly(); u.flies {
			break
		}
		left := time.Until(u.until)
		if left <= 0 {
			return u.late(ctx, ReasonInFlight)
		}
		if err := sleep(ctx, left, u.l.wake); err != nil {
			return err
		}
	}
	return nil
}

// line waits for the turn.
func (u *turn) line(ctx context.Context) error {
	w := u.l.join(u.number)
	u.number = w.number
	select {
	case <-w.turn:
		u.holds = true
		return nil
	default:
	}
	timer := time.NewTimer(time.Until(u.until))
	defer timer.Stop()
	select {
	case <-w.turn:
		u.holds = true
		return nil
	case <-timer.C:
		u.l.quit(w)
		return u.late(ctx, u.l.holdUp())
	case <-ctx.Done():
		u.l.quit(w)
		return ctx.Err()
	}
}

// late is the error when the time is over. Its cause is the context's, if it is the context's time.
func (u *turn) late(ctx context.Context, reason Reason) error {
	if deadline, ok := ctx.Deadline(); ok && !deadline.After(u.until.Add(1)) {
		return u.limited(reason, 0, context.DeadlineExceeded)
	}
	return u.limited(reason, 0, nil)
}

// leave books a departure and waits for it. Neither a flight nor an error: something came in between.
func (u *turn) leave(ctx context.Context) (*flight, error) {
	if err := u.open(ctx); err != nil || !u.holds {
		return nil, err
	}
	p, back, err := u.place(ctx)
	if err != nil {
		return nil, err
	}
	f, err := u.hold(ctx, p)
	if f == nil {
		back()
	}
	return f, err
}

// open waits until the destination is open. The turn may be gone then: it is passed on to who came earlier, had booked, and was
// sent back by a pause.
func (u *turn) open(ctx context.Context) error {
	for {
		now := time.Now()
		u.l.mu.Lock()
		wait, firm := u.l.closedLocked(now)
		u.l.mu.Unlock()
		if wait <= 0 {
			pause, err := u.paused(ctx)
			if err != nil {
				return err
			}
			if pause <= 0 {
				return nil
			}
			if u.l.shared && pause > time.Until(u.until) {
				return u.limited(ReasonTold, pause, nil) // no matter of the others in this line
			}
			u.l.pauseFor(pause, time.Now())
			continue
		}
		left := u.until.Sub(now)
		switch {
		case left <= 0:
			return u.late(ctx, ReasonTold)
		case firm && wait > left:
			return u.limited(ReasonTold, wait, nil)
		}
		if err := sleep(ctx, min(wait, left), u.l.wake); err != nil {
			return err
		}
		if u.l.yield(u.number) {
			u.holds = false
			return nil
		}
	}
}

// paused asks the other processes.
func (u *turn) paused(ctx context.Context) (pause time.Duration, err error) {
	if u.t.config.Pauses == nil {
		return 0, nil
	}
	until := u.until
	if soon := time.Now().Add(settleTimeout); !u.t.config.Strict && soon.Before(until) {
		until = soon
	}
	for try := 0; ; try++ {
		func() {
			bounded, cancel := by(ctx, until)
			defer cancel()
			pause, err = u.t.config.Pauses.Paused(bounded, u.key)
		}()
		switch {
		case err == nil:
			return pause, nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case !u.t.config.Strict:
			return 0, nil
		}
		if err := u.again(ctx, try, err); err != nil {
			return 0, err
		}
	}
}

// by is ctx with a deadline, where its own is later.
func by(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && !deadline.After(until.Add(1)) {
		return ctx, func() {}
	}
	if time.Until(until) > limiter.MaxPeriod {
		return ctx, func() {} // that is none
	}
	return context.WithDeadline(ctx, until)
}

// again waits before a store that was away is asked once more.
func (u *turn) again(ctx context.Context, try int, cause error) error {
	wait := min(50*time.Millisecond<<min(try, 5), time.Second)
	wait = wait/2 + rand.N(wait/2+1)
	if wait > time.Until(u.until) {
		return u.limited(ReasonUnavailable, 0, unavailable(cause))
	}
	return sleep(ctx, wait, nil)
}

// hold waits for a departure. The turn is passed on before, where nothing but the Limiter sets the pace.
func (u *turn) hold(ctx context.Context, p place) (*flight, error) {
	at := p.at
	if u.s.even {
		if wait := time.Until(at) - ahead; wait > 0 {
			if err := sleep(ctx, wait, nil); err != nil {
				return nil, err
			}
		}
		u.l.mu.Lock()
		if !u.l.spacedLocked() {
			u.holds = false
			u.l.passLocked()
		}
		u.l.mu.Unlock()
	}
	for {
		if err := sleep(ctx, time.Until(at), nil); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil { // both may have come at once
			return nil, err
		}
		now := time.Now()
		if now.After(u.until) {
			return nil, u.late(ctx, ReasonQuota)
		}
		f, next, err := u.start(p, now)
		if next.IsZero() {
			return f, err
		}
		at = next // a timer was late, and the one before has just left
	}
}

// start leaves now, or says when instead. Neither: the destination is closed, or the place is over.
func (u *turn) start(p place, now time.Time) (f *flight, next time.Time, err error) {
	l := u.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait, _ := l.closedLocked(now); wait > 0 || u.s.missed(p, now) {
		return nil, next, nil
	}
	if u.s.even && !l.shared && !l.last.IsZero() {
		if next = l.last.Add(u.s.close); next.After(now) {
			if next.After(u.until) {
				return nil, time.Time{}, &LimitedError{Reason: ReasonQuota, RetryAfter: next.Sub(now), Key: u.key, Status: u.status}
			}
			return nil, next, nil
		}
	}
	var done func(error)
	if l.breaker != nil {
		var wait time.Duration
		if done, wait = l.breaker.allow(now); done == nil {
			return nil, time.Time{}, &LimitedError{Reason: ReasonBreaker, RetryAfter: wait, Key: u.key, Status: u.status}
		}
	}
	f = l.leaveLocked(now)
	f.done = done
	return f, time.Time{}, nil
}
