package redislimit

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Allow implements [limiter.Limiter].
func (l *Limiter) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	if err := l.open(ctx); err != nil {
		return limiter.Decision{}, err
	}
	if n < 0 {
		return limiter.Decision{}, fmt.Errorf("%w: n %d is negative", limiter.ErrInvalid, n)
	}
	r, err := l.rules.get(limit)
	if err != nil {
		return limiter.Decision{}, err
	}
	var d limiter.Decision
	if r.stateless() {
		r.Decide(&d, &limiter.State{}, limiter.Reading{}, n, 0, false)
		return d, nil
	}
	g := new(group)
	l.single(g, key, r, n)
	g.now = l.reading(time.Time{})
	if err := l.ask(ctx, g); err != nil {
		return d, err
	}
	if g.decided {
		return g.decision, nil
	}
	if err := g.decide(&g.parts[0], &d, l.caller); err != nil {
		return limiter.Decision{}, err
	}
	return d, nil
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
	g, err := l.gather(takes)
	if err != nil {
		return false, err
	}
	g.now = l.reading(at)
	if err := l.ask(ctx, g); err != nil {
		return false, err
	}
	return g.answer(takes, l.caller)
}

// ask gets a group decided.
func (l *Limiter) ask(ctx context.Context, g *group) error {
	if g.stateless() {
		if g.verdict = booked; g.veto {
			g.verdict = refused
		}
		return nil
	}
	l.send(ctx, []*group{g})
	switch {
	case g.err != nil:
		return g.err
	case g.verdict == foreign:
		return errForeign
	}
	return nil
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
