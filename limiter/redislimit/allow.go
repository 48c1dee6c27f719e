package redislimit

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// Allow implements [limiter.Limiter].
func (l *Limiter) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	t := [1]limiter.Take{{Key: key, Limit: limit, N: n}}
	if _, err := l.AllowAll(ctx, time.Time{}, t[:]); err != nil {
		return limiter.Decision{}, err
	}
	return t[0].Decision, nil
}

// AllowAll implements [limiter.Batcher]. Takes of one identity are decided by one script run; on a Cluster or a Ring those
// of different identities are not: see the package comment.
func (l *Limiter) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if err := l.open(ctx); err != nil {
		return false, err
	}
	if len(takes) == 0 {
		return true, nil
	}
	g, _ := l.groups.Get().(*group)
	if g == nil {
		g = new(group)
	}
	if err := l.gather(g, takes); err != nil {
		l.free(g)
		return false, err
	}
	g.now = l.reading(at)
	if err := l.ask(ctx, g); err != nil {
		return false, err // g may be under way still
	}
	err := l.decide(g)
	ok := err == nil && g.answer(takes)
	l.free(g)
	if errors.Is(err, limiter.ErrUnavailable) && ctx.Err() != nil {
		err = ctx.Err() // a caller who has left says nothing about the store
	}
	return ok, err
}

// ask gets a group asked for, or decided from what is remembered. The error is that of a context that ended first.
func (l *Limiter) ask(ctx context.Context, g *group) error {
	switch {
	case g.stateless():
		if g.verdict = booked; g.veto {
			g.verdict = refused
		}
	case l.denials != nil && l.denials.refuses(g, l.caller):
	case l.client.Sharded() && g.scattered():
		l.scatter(ctx, g)
	default:
		return l.askAtOnePlace(ctx, g)
	}
	return nil
}

// askAtOnePlace is ask for a group whose keys have one place.
func (l *Limiter) askAtOnePlace(ctx context.Context, g *group) error {
	start := time.Now()
	sharded := l.client.Sharded()
	if sharded || g.calendar() {
		ctx = rediscall.Since(ctx, start) // there may be two round trips, within one time-out
	}
	if l.lines == nil {
		l.send(ctx, []*group{g})
		return nil
	}
	var node any
	if sharded {
		node = l.client.Node(ctx, g.key())
	}
	if err := l.lines.at(node).do(ctx, start, g); err != nil {
		return err
	}
	if sharded {
		l.sendMoving(ctx, []*group{g})
	}
	return nil
}

// sendMoving is send for those of groups of which some keys were on their way to another node of a Cluster: by itself each
// waits for them. Together with others it would hold them up.
func (l *Limiter) sendMoving(ctx context.Context, groups []*group) {
	for _, g := range groups {
		if g.err != nil && rediscall.Cause(g.err) == "try_again" {
			g.next, g.last = nil, nil
			l.send(ctx, []*group{g})
		}
	}
}

func (l *Limiter) open(ctx context.Context) error {
	if l.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// reading is the caller's clock, in ticks; 0 where the server's own decides.
func (l *Limiter) reading(at time.Time) int64 {
	switch {
	case !l.caller:
		return 0
	case at.IsZero():
		at = time.Now()
	}
	return min(max(at.UnixMicro(), -maxTicks), maxTicks)
}
