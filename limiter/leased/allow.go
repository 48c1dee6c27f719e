package leased

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Allow implements [limiter.Limiter]. While the key's lease lasts it makes no call; else it waits for one.
func (l *Limiter) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (d limiter.Decision, err error) {
	if err := l.open(ctx); err != nil {
		return d, err
	}
	for {
		e := l.table.get(&key, l.table.hash(&key))
		if e == nil {
			if err := l.check(&limit, n); err != nil {
				return d, err
			}
			if stateless(&limit) {
				return decideStateless(&limit, n), nil
			}
			e = l.enter(key, limit)
		}
		e.mu.Lock()
		if e.dead {
			e.mu.Unlock()
			continue
		}
		if n <= 0 || e.limit != limit || n > int(e.node.burst) {
			return l.allowOdd(ctx, e, limit, n)
		}
		now := l.now()
		switch e.node.arrive(now, int64(n)) {
		case taken:
			v := e.node.view()
			if e.node.held <= e.node.low {
				l.goOn(e, now)
			}
			e.mu.Unlock()
			d.Allowed, d.Via, d.Limit, d.Mark = true, limiter.ViaLease, limit, l.wall+now
			v.numbers(&d, v.estimate(now))
			return d, nil
		case denied:
			l.decide(&d, e, now, n, false, limiter.ViaLease)
			e.mu.Unlock()
			return d, nil
		case failed:
			err = e.err
			e.mu.Unlock()
			return d, err
		}
		w := &waiter{cost: int64(n), done: make(chan struct{})}
		l.join(e, now, w)
		e.mu.Unlock()
		return l.wait(ctx, e, w)
	}
}

// allowOdd is Allow for what is not the usual: a look, another limit, more than the quota. e is locked.
func (l *Limiter) allowOdd(ctx context.Context, e *entry, limit limiter.Limit, n int) (d limiter.Decision, err error) {
	if e.limit != limit || n < 0 {
		if err := l.check(&limit, n); err != nil {
			e.mu.Unlock()
			return d, err
		}
	}
	switch {
	case stateless(&limit):
		e.mu.Unlock()
		return decideStateless(&limit, n), nil
	case n > limit.Quota():
		d, err = l.look(ctx, e, limit)
		if err == nil {
			d.Allowed, d.RetryAfter = false, limiter.Never
		}
		return d, err
	case n == 0:
		return l.look(ctx, e, limit)
	}
	l.relimit(e, limit)
	e.mu.Unlock()
	return l.Allow(ctx, e.key, limit, n)
}

func (l *Limiter) open(ctx context.Context) error {
	if l.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

func (l *Limiter) check(limit *limiter.Limit, n int) error {
	if err := l.Serves(*limit); err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("%w: leased: n = %d", limiter.ErrInvalid, n)
	}
	return nil
}

func stateless(limit *limiter.Limit) bool { return limit.Algorithm != limiter.TokenBucket }

func decideStateless(limit *limiter.Limit, n int) limiter.Decision {
	d := limiter.Decision{Allowed: true, Limit: *limit, Via: limiter.ViaMemory}
	if *limit == limiter.Unlimited {
		d.Remaining = math.MaxInt
	} else if n > 0 {
		d.Allowed, d.RetryAfter = false, limiter.Never
	}
	return d
}

// enter makes an entry for a key. What has to go for it gives back what it holds.
func (l *Limiter) enter(key limiter.Key, limit limiter.Limit) *entry {
	e := &entry{
		key: key, rendered: key.Render(l.prefix, suffix), hash: l.table.hash(&key), number: l.entries.Add(1), limit: limit,
		node: newNode(newTerms(limit, l.sync), int64(l.sync), l.now(), l.newID, rand.Uint64),
	}
	e, victims := l.table.add(e)
	for _, v := range victims {
		v.dead = true
		if q, due := v.node.leave(l.now()); due {
			l.start(v, q)
		}
		l.retire(v)
		v.mu.Unlock()
	}
	return e
}

func (l *Limiter) relimit(e *entry, limit limiter.Limit) {
	e.limit = limit
	e.node.relimit(newTerms(limit, l.sync))
}

// join lets w wait for the next call, and starts one if none is under way. e is locked.
func (l *Limiter) join(e *entry, now int64, w *waiter) {
	e.node.waiters = append(e.node.waiters, w)
	l.goOn(e, now)
}

// goOn starts the call that is due, if one is. e is locked.
func (l *Limiter) goOn(e *entry, now int64) {
	q, due := e.node.next(now)
	if due && !l.start(e, q) {
		l.finish(e, now, e.node.fail(now, q.seq), errClosed)
	}
}

// wait returns what became of w.
func (l *Limiter) wait(ctx context.Context, e *entry, w *waiter) (limiter.Decision, error) {
	timer := time.NewTimer(l.store.timeout())
	defer timer.Stop()
	select {
	case <-w.done:
		return w.decision, w.err
	case <-timer.C:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.verdict != 0 {
		return w.decision, w.err
	}
	e.node.forsake(w)
	if err := ctx.Err(); err != nil {
		return limiter.Decision{}, err
	}
	return limiter.Decision{}, fmt.Errorf("%w: leased: no answer within %v", limiter.ErrUnavailable, l.store.timeout())
}

// look tells the numbers of a key and changes nothing. e is locked, and is not when it returns.
func (l *Limiter) look(ctx context.Context, e *entry, limit limiter.Limit) (d limiter.Decision, err error) {
	now := l.now()
	e.node.expire(now)
	if e.limit == limit && e.node.known && (e.node.held > 0 || now < e.node.quiet) {
		l.decide(&d, e, now, 0, true, limiter.ViaLease)
		e.mu.Unlock()
		return d, nil
	}
	q := request{terms: newTerms(limit, l.sync), id: e.node.id, step: 1, demand: 1}
	e.mu.Unlock()
	r, err := l.call(ctx, e, &q)
	if err != nil {
		return d, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	held := e.node.held
	if v := r.level; v.whole+held < q.burst {
		r.whole += held
	} else {
		r.level = level{whole: q.burst}
	}
	q.numbers(&d, r.level)
	d.Allowed, d.Limit, d.Via = true, limit, limiter.ViaStore
	return d, nil
}

// decide fills in a decision about n units from what is known. e is locked, and what was taken is not there any more.
func (l *Limiter) decide(d *limiter.Decision, e *entry, now int64, n int, ok bool, via limiter.Via) {
	known := e.node.view()
	v := known.estimate(now)
	if !ok && v.whole >= int64(n) { // the rest is the share of others
		v = level{whole: int64(n) - 1}
	}
	// Field by field: it may hold what was decided before, and a literal would be made elsewhere first and copied.
	d.Allowed, d.Via, d.Limit = ok, via, e.limit
	d.RetryAfter, d.ResetAfter, d.NextAfter, d.Delay, d.Mark = 0, 0, 0, 0, 0
	e.node.numbers(d, v)
	switch {
	case int64(n) > known.burst:
		d.RetryAfter = limiter.Never
	case !ok:
		wait := e.node.until(int64(n)-v.whole, v.frac)
		d.RetryAfter = max(inNanoseconds(wait), time.Duration(e.node.quiet-now), 1)
	case n > 0:
		d.Mark = l.wall + now
	}
}

// numbers fills in what follows from a level.
func (t terms) numbers(d *limiter.Decision, v level) {
	d.Remaining = int(v.whole)
	if v.whole >= t.burst {
		return
	}
	d.NextAfter = inNanoseconds(t.until(1, v.frac))
	d.ResetAfter = d.NextAfter
	if more := t.burst - v.whole; more > 1 {
		d.ResetAfter = inNanoseconds(t.until(more, v.frac))
	}
}

// longest is what waits of 285 years or more are told as.
const longest = 9_000_000_000_000_000_000

func inNanoseconds(micros int64) time.Duration {
	if micros > longest/1000 {
		return longest
	}
	return time.Duration(micros * 1000)
}
