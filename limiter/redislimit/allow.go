package redislimit

import (
	"context"
	"errors"
	"sync/atomic"
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
	err := l.gather(g, takes)
	if err == nil {
		g.now = l.reading(at)
		if err = l.ask(ctx, g); err != nil {
			g = nil // may be under way still
		} else {
			err = l.decide(g)
		}
	}
	ok := err == nil && g.answer(takes)
	if g != nil {
		l.free(g)
	}
	if err == nil {
		return ok, nil
	}
	for k := range takes {
		takes[k].Decision = limiter.Decision{}
	}
	if errors.Is(err, limiter.ErrUnavailable) && ctx.Err() != nil {
		err = ctx.Err() // a caller who has left says nothing about the store
	}
	return false, err
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
		return l.detached(ctx, g, l.scatter)
	case l.lines == nil && !l.client.Sharded() && !g.calendar() && !l.hurried(ctx):
		l.sendAlone(ctx, g) // one round trip has its time-out by itself
	case l.lines == nil:
		return l.detached(ctx, g, l.sendAlone)
	default:
		return l.askInLine(ctx, g)
	}
	return nil
}

// hurried reports whether the caller's deadline comes before the end of a time-out.
func (l *Limiter) hurried(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) < l.client.Timeout()
}

func (l *Limiter) sendAlone(ctx context.Context, g *group) { l.send(ctx, g.alone()) }

// detached calls f, which decides g within the time-out. A caller whose deadline comes first leaves it to itself, and what it
// books then is given back.
func (l *Limiter) detached(ctx context.Context, g *group, f func(context.Context, *group)) error {
	ctx = rediscall.Since(ctx, time.Now()) // there may be several round trips, within one time-out
	if !l.hurried(ctx) {
		f(ctx, g)
		return nil
	}
	var over atomic.Bool // one of the two came first
	done := make(chan struct{})
	go func() {
		f(rediscall.Since(context.WithoutCancel(ctx), time.Now()), g)
		if over.CompareAndSwap(false, true) {
			close(done)
			return
		}
		l.giveUp([]*group{g})
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		if over.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		<-done
		return nil
	}
}

// askInLine is ask for a group whose keys have one place, in a round trip with others.
func (l *Limiter) askInLine(ctx context.Context, g *group) error {
	start := g.sent // the deny cache was asked then
	if start.IsZero() {
		start = time.Now()
	}
	if g.calendar() {
		ctx = rediscall.Since(ctx, start) // there may be two round trips, within one time-out
	}
	var node any
	if l.client.Sharded() {
		node = l.client.Node(ctx, g.key())
	}
	if err := l.lines.at(node).do(ctx, start, g); err != nil {
		return err
	}
	if g.err != nil && l.client.Sharded() {
		l.sendMoving(rediscall.Since(ctx, start), g.alone())
	}
	return nil
}

// sendMoving is send for those of groups of which some keys were on their way to another node of a Cluster: by itself each
// waits for them. Together with others it would hold them up.
func (l *Limiter) sendMoving(ctx context.Context, groups []*group) {
	for _, g := range groups {
		if g.err != nil && rediscall.Cause(g.err) == "try_again" {
			g.next, g.last = nil, nil
			l.sendAlone(ctx, g)
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
