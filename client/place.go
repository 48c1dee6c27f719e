package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// errSubstitute is a decision of somebody else than the store.
var errSubstitute = fmt.Errorf("%w: a fallback has decided", limiter.ErrUnavailable)

// unavailable is the cause where a store does not answer in time: what it says then may be the deadline alone.
func unavailable(err error) error {
	if errors.Is(err, limiter.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
}

// place takes one unit of the limit and returns when it may leave. back offers it back, or leaves it to the next one.
func (u *turn) place(ctx context.Context) (at time.Time, back func(), err error) {
	back = func() {}
	if u.s.limit == (limiter.Limit{}) {
		return u.booked(time.Now(), 0), back, nil
	}
	if u.s.even {
		if s, ok := u.l.takeSpare(u.key, u.s.limit, u.until); ok {
			u.shown = s.shown
			return s.at, func() { u.l.leftOver(s) }, nil
		}
	}
	take := limiter.Take{Key: u.key, Limit: u.s.limit, N: 1, NoCache: true}
	asked := time.Now()
	var away error // what the store was, the last time
	for try := 0; ; try++ {
		left := time.Until(u.until)
		switch {
		case left <= 0 && away != nil:
			return at, back, u.limited(ReasonUnavailable, 0, away)
		case left <= 0:
			return at, back, u.late(ctx, ReasonQuota)
		}
		take.MaxDelay = left
		d, err := u.ask(ctx, &take)
		if err == nil && u.t.config.Strict && d.Via == limiter.ViaFallback {
			err = errSubstitute
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return at, back, ctx.Err()
		case (errors.Is(err, limiter.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)) && !time.Now().Before(u.until):
			return at, back, u.limited(ReasonUnavailable, 0, unavailable(err))
		case errors.Is(err, limiter.ErrUnavailable) && !u.t.config.Strict:
			at, err := u.share()
			return at, u.keeps(at), err
		case errors.Is(err, limiter.ErrUnavailable):
			away = err
			if err := u.again(ctx, try, err); err != nil {
				return at, back, err
			}
			asked = time.Now()
			continue
		case err != nil:
			return at, back, fmt.Errorf("client: %w", err)
		}
		u.shown, away = d, nil
		if d.Allowed {
			at = u.booked(asked, d.Delay)
			if u.s.even {
				return at, u.keeps(at), nil
			}
			return at, func() { u.t.giveBack(ctx, take, d) }, nil
		}
		if d.RetryAfter == limiter.Never {
			return at, back, u.limited(ReasonQuota, limiter.Never, nil)
		}
		need := max(d.RetryAfter, time.Millisecond)
		if u.s.even {
			need = max(need, d.ResetAfter) // a place may be free sooner, and leaves after all that are booked
		}
		if need > time.Until(u.until) {
			return at, back, u.limited(ReasonQuota, need, nil)
		}
		// Only other processes can be there first.
		wait := max(d.RetryAfter, time.Millisecond)
		if try > 0 {
			wait += rand.N(min(wait/4, time.Second, max(0, time.Until(u.until)-wait)) + 1)
		}
		if err := sleep(ctx, wait, nil); err != nil {
			return at, back, err
		}
	}
}

// keeps returns what leaves a departure to the next one.
func (u *turn) keeps(at time.Time) func() {
	s := spare{key: u.key, limit: u.s.limit, at: at, shown: u.shown}
	return func() { u.l.leftOver(s) }
}

// ask asks the Limiter, for no longer than the request may wait.
func (u *turn) ask(ctx context.Context, take *limiter.Take) (limiter.Decision, error) {
	ctx, cancel := by(ctx, u.until)
	defer cancel()
	return u.t.ask(ctx, take)
}

func (u *turn) booked(asked time.Time, delay time.Duration) time.Time {
	u.l.mu.Lock()
	defer u.l.mu.Unlock()
	at := time.Now().Add(delay)
	u.l.bookedLocked(asked, at, u.s.gap)
	return at
}

// share books a departure under this process's share of the limit, evenly: while the store is away nobody here knows what
// the others do.
func (u *turn) share() (time.Time, error) {
	now := time.Now()
	u.l.mu.Lock()
	gap := time.Duration(min(float64(u.s.gap)*float64(u.t.config.Replicas), float64(forever)))
	at := now
	for _, busy := range []time.Time{u.l.planned, u.l.last} {
		if next := busy.Add(gap); !busy.IsZero() && next.After(at) {
			at = next
		}
	}
	if at.After(u.until) {
		u.l.mu.Unlock()
		return at, u.limited(ReasonQuota, at.Sub(now), nil)
	}
	u.l.bookedLocked(now, at, gap)
	u.l.mu.Unlock()
	u.shown = limiter.Decision{Allowed: true, Via: limiter.ViaFallback, Limit: u.s.limit}
	return at, nil
}
