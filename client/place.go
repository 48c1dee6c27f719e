package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// mostStale is how many answers in a row may come too late before the store counts as away, without Strict.
const mostStale = 3

// errStale is a decision that has come too late.
var errStale = fmt.Errorf("%w: it answers too late for the period of the limit", limiter.ErrUnavailable)

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
//
// A queue gives a place as a wait from the instant of its decision, which is somewhere between the call and its answer. Counted from
// the answer, a departure is not too early, and too late by no more than the call has taken. A call that has taken longer than a place
// may be late gives none: the places of others have come meanwhile, and those of a fleet would leave together.
func (u *turn) place(ctx context.Context) (p place, back func(), err error) {
	back = func() {}
	if u.s.limit == (limiter.Limit{}) {
		now := time.Now()
		return u.booked(now, now, 0), back, nil
	}
	if u.s.even {
		if s, ok := u.l.takeSpare(u.key, u.s.limit, u.until); ok {
			u.shown = s.shown
			return s.place, func() { u.l.leftOver(s) }, nil
		}
	}
	take := limiter.Take{Key: u.key, Limit: u.s.limit, N: 1, NoCache: true}
	asked := time.Now()
	var away error // what the store was, the last time
	for try := 0; ; try++ {
		sent := time.Now()
		left := u.until.Sub(sent)
		switch {
		case left <= 0 && away != nil:
			return p, back, u.limited(ReasonUnavailable, 0, away)
		case left <= 0:
			return p, back, u.late(ctx, ReasonQuota)
		}
		take.MaxDelay = left
		d, err := u.ask(ctx, &take)
		if err == nil && u.t.config.Strict && d.Via == limiter.ViaFallback {
			err = errSubstitute
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return p, back, ctx.Err()
		case (errors.Is(err, limiter.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)) && !time.Now().Before(u.until):
			return p, back, u.limited(ReasonUnavailable, 0, unavailable(err))
		case errors.Is(err, limiter.ErrUnavailable) && !u.t.config.Strict:
			p, err := u.share()
			return p, u.keeps(p), err
		case errors.Is(err, limiter.ErrUnavailable):
			away = err
			if err := u.again(ctx, try, err); err != nil {
				return p, back, err
			}
			asked = time.Now()
			continue
		case err != nil:
			return p, back, fmt.Errorf("client: %w", err)
		}
		u.shown, away = d, nil
		switch {
		case d.Allowed && u.s.late > 0 && time.Since(sent) > u.s.late:
			if !u.s.even {
				u.t.giveBack(ctx, take, d)
			}
			u.stale++
			if u.stale >= mostStale && !u.t.config.Strict {
				p, err := u.share()
				return p, u.keeps(p), err
			}
			away = errStale
			if u.stale > 1 { // each time costs all of them a place
				if err := u.again(ctx, u.stale-2, errStale); err != nil {
					return p, back, err
				}
			}
			asked = time.Now()
			continue
		case d.Allowed:
			u.stale = 0
			p = u.booked(asked, sent, d.Delay)
			if u.s.even {
				return p, u.keeps(p), nil
			}
			return p, func() { u.t.giveBack(ctx, take, d) }, nil
		case d.RetryAfter == limiter.Never:
			return p, back, u.limited(ReasonQuota, limiter.Never, nil)
		}
		need := max(d.RetryAfter, time.Millisecond)
		if u.s.even {
			need = max(need, d.ResetAfter) // a place may be free sooner, and leaves after all that are booked
		}
		if need > time.Until(u.until) {
			return p, back, u.limited(ReasonQuota, need, nil)
		}
		// Only other processes can be there first.
		wait := max(d.RetryAfter, time.Millisecond)
		if try > 0 {
			wait += rand.N(min(wait/4, time.Second, max(0, time.Until(u.until)-wait)) + 1)
		}
		if err := sleep(ctx, wait, nil); err != nil {
			return p, back, err
		}
	}
}

// keeps returns what leaves a departure to the next one.
func (u *turn) keeps(p place) func() {
	s := spare{key: u.key, limit: u.s.limit, place: p, shown: u.shown}
	return func() { u.l.leftOver(s) }
}

// ask asks the Limiter, for no longer than the request may wait.
func (u *turn) ask(ctx context.Context, take *limiter.Take) (limiter.Decision, error) {
	ctx, cancel := by(ctx, u.until)
	defer cancel()
	return u.t.ask(ctx, take)
}

// booked takes note of a place of the Limiter, which was asked since asked, the last time at sent.
func (u *turn) booked(asked, sent time.Time, delay time.Duration) place {
	u.l.mu.Lock()
	defer u.l.mu.Unlock()
	p := place{at: time.Now().Add(delay), due: sent.Add(delay)}
	u.l.bookedLocked(asked, p.at, u.s.gap)
	u.l.grid = grid{}
	return p
}

// share books a departure under this process's share of the limit, evenly: while the store is away nobody here knows what
// the others do.
func (u *turn) share() (place, error) {
	if u.s.limit == limiter.DenyAll {
		return place{}, u.limited(ReasonQuota, limiter.Never, nil)
	}
	now := time.Now()
	u.l.mu.Lock()
	gap := time.Duration(min(float64(u.s.gap)*float64(u.t.config.Replicas), float64(forever)))
	at := u.l.shareLocked(now, gap, u.t.config.Replicas > 1 && gap > 0)
	if at.After(u.until) {
		u.l.mu.Unlock()
		return place{}, u.limited(ReasonQuota, at.Sub(now), nil)
	}
	u.l.bookedLocked(now, at, gap)
	u.l.mu.Unlock()
	u.shown = limiter.Decision{Allowed: true, Via: limiter.ViaFallback, Limit: u.s.limit}
	return place{at: at, due: at}, nil
}

// grid are the instants of a process's share, gap apart. A share that follows the store's places goes on from them, and so those of a
// fleet stay as far apart as the store has put them. One that begins with work after a pause begins anywhere within its gap: all
// processes may get work at one moment.
type grid struct {
	from time.Time
	gap  time.Duration // 0: the store has decided last
}

func (l *lane) shareLocked(now time.Time, gap time.Duration, fleet bool) time.Time {
	latest := l.planned
	if l.last.After(latest) {
		latest = l.last
	}
	if !fleet {
		if next := latest.Add(gap); !latest.IsZero() && next.After(now) {
			return next
		}
		return now
	}
	if l.grid.gap != gap {
		from := latest.Add(gap)
		if latest.IsZero() || from.Before(now) {
			from = now.Add(rand.N(gap))
		}
		l.grid = grid{from: from, gap: gap}
	}
	at := now
	if next := l.planned.Add(gap); !l.planned.IsZero() && next.After(at) {
		at = next
	}
	if from := l.grid.from; at.Before(from) {
		return from
	}
	if over := at.Sub(l.grid.from) % gap; over > 0 {
		at = at.Add(gap - over)
	}
	return at
}
