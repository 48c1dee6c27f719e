package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Allow implements [limiter.Limiter]. It returns [limiter.ErrInvalid], [limiter.ErrClosed] or the context's error.
func (l *Limiter) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (d limiter.Decision, err error) {
	if err := ctx.Err(); err != nil {
		return d, err
	}
	if n < 0 {
		return d, fmt.Errorf("memory: %w: n = %d", limiter.ErrInvalid, n)
	}
	if l.quick(&d, &key, &limit, n, 0, l.clock.now()) {
		return d, nil
	}
	return l.allowSlow(key, limit, n)
}

func (l *Limiter) allowSlow(key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	takes := [1]limiter.Take{{Key: key, Limit: limit, N: n}}
	if _, err := l.decide(time.Time{}, takes[:]); err != nil {
		return limiter.Decision{}, err
	}
	return takes[0].Decision, nil
}

// AllowAll implements [limiter.Batcher]. Up to eight takes of known keys need no allocation.
func (l *Limiter) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	pass, err := l.allowAll(ctx, at, takes)
	if err != nil {
		for k := range takes {
			takes[k].Decision = limiter.Decision{}
		}
	}
	return pass, err
}

func (l *Limiter) allowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if len(takes) == 1 {
		if t := &takes[0]; t.N >= 0 && l.quick(&t.Decision, &t.Key, &t.Limit, t.N, max(0, t.MaxDelay), l.clock.reading(at)) {
			return t.Decision.Allowed || t.Shadow, nil
		}
	}
	return l.decide(at, takes)
}

// quick decides one take if its key has a cell that is under the same limit already. false: nothing is done.
//
// The clock is read before the lock, which is held for less time then. Whoever overtakes this call makes its reading
// late by as much, and that is what the algorithms are made for: it earns nothing.
func (l *Limiter) quick(d *limiter.Decision, k *limiter.Key, limit *limiter.Limit, n int, maxDelay time.Duration, now int64) bool {
	dir := l.dir.Load()
	if dir == nil {
		return false
	}
	h := l.hasher.own(k, limit.Algorithm)
	seg := dir.of(h)
	i := seg.find(h)
	if i < 0 {
		return false
	}
	c := &seg.cells[i]
	due := l.due(now)
	w := c.lock()
	if w&movedBit != 0 || c.hash.Load() != h {
		c.unlock(w)
		return false
	}
	r := l.rules.at(w)
	if r == nil || r.side || !same(&r.limit, limit) {
		c.unlock(w)
		return false
	}
	s := limiter.State{At: c.at, Frac: c.frac, Units: int64(c.units), Rule: r.Rule}
	r.Decide(d, &s, limiter.Reading{Now: now, Caller: true}, n, maxDelay, true)
	c.at, c.frac, c.units = s.At, s.Frac, uint32(s.Units)
	c.unlock(w)
	if due {
		l.sweep(now)
	}
	return true
}
