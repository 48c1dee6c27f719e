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
			if e, err = l.enter(key, limit); err != nil {
				return d, err
			}
		}
		e.mu.Lock()
		if e.dead {
			e.mu.Unlock()
			continue
		}
		if n <= 0 || e.node.limit != limit || n > int(e.node.burst) {
			if d, settled, err := l.allowOdd(ctx, e, limit, n); settled {
				return d, err
			}
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
			l.decide(&d, e, &limit, now, n, false, limiter.ViaLease)
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
		return l.wait(ctx, e, w, l.patience())
	}
}

// allowOdd is Allow for what is not the usual: a look, another limit, more than the quota. e is locked. false: it is locked still,
// and a take as usual now.
func (l *Limiter) allowOdd(ctx context.Context, e *entry, limit limiter.Limit, n int) (d limiter.Decision, settled bool, err error) {
	if e.node.limit != limit || n < 0 {
		if err := l.check(&limit, n); err != nil {
			e.mu.Unlock()
			return d, true, err
		}
	}
	switch {
	case stateless(&limit):
		e.mu.Unlock()
		return decideStateless(&limit, n), true, nil
	case n > limit.Quota():
		d, err = l.look(ctx, e, limit)
		if err == nil {
			d.Allowed, d.RetryAfter = false, limiter.Never
		}
		return d, true, err
	case n == 0:
		d, err = l.look(ctx, e, limit)
		return d, true, err
	}
	e.node.relimit(limit)
	return d, false, nil
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
func (l *Limiter) enter(key limiter.Key, limit limiter.Limit) (*entry, error) {
	if !l.begin() {
		return nil, errClosed
	}
	defer l.running.Done()
	e := &entry{
		key: key, rendered: key.Render(l.prefix, suffix), hash: l.table.hash(&key), number: l.entries.Add(1),
		node: newNode(limit, l.sync, l.store.timeout(), l.now(), l.newID, rand.Uint64),
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
	return e, nil
}

// join lets w wait for the next call, and starts one if none is under way. e is locked.
func (l *Limiter) join(e *entry, now int64, w *waiter) {
	e.node.join(w)
	l.goOn(e, now)
}

// goOn starts the call that is due, if one is. e is locked.
func (l *Limiter) goOn(e *entry, now int64) {
	switch {
	case !e.node.due(now):
	case l.begin():
		l.start(e, e.node.call(now))
		l.running.Done()
	default: // what is held is given back by Close
		l.finish(e, now, e.node.dismiss(), errClosed)
	}
}

// patience is until when a decision that begins now may wait: for the call that is under way, and for its own.
func (l *Limiter) patience() time.Time { return time.Now().Add(2 * l.store.timeout()) }

// wait returns what became of w.
func (l *Limiter) wait(ctx context.Context, e *entry, w *waiter, until time.Time) (limiter.Decision, error) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case w.verdict == taken && !w.reserve && l.now() >= w.until: // the process was stopped meanwhile
		w.verdict = failed
		e.node.counted.wasted += uint64(w.cost)
	case w.verdict != 0:
		return w.decision, w.err
	}
	e.node.forsake(w)
	if err := ctx.Err(); err != nil {
		return limiter.Decision{}, err
	}
	return limiter.Decision{}, l.errLate()
}

func (l *Limiter) errLate() error {
	return fmt.Errorf("%w: leased: no answer within %v", limiter.ErrUnavailable, l.store.timeout())
}

// look tells the numbers of a key and changes nothing. e is locked, and is not when it returns.
func (l *Limiter) look(ctx context.Context, e *entry, limit limiter.Limit) (d limiter.Decision, err error) {
	now := l.now()
	e.node.expire(now)
	if e.node.limit == limit && e.node.known && (e.node.held > 0 || now < e.node.quiet) {
		l.decide(&d, e, &limit, now, 0, true, limiter.ViaLease)
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

// decide fills in a decision about n units under a limit from what is known. e is locked.
func (l *Limiter) decide(d *limiter.Decision, e *entry, limit *limiter.Limit, now int64, n int, ok bool, via limiter.Via) {
	known := e.node.viewUnder(limit)
	v := known.estimate(now)
	if !ok && v.whole >= int64(n) { // the rest is the share of others
		v = level{whole: int64(n) - 1}
	}
	// Field by field: it may hold what was decided before, and a literal would be made elsewhere first and copied.
	d.Allowed, d.Via, d.Limit = ok, via, *limit
	d.RetryAfter, d.ResetAfter, d.NextAfter, d.Delay, d.Mark = 0, 0, 0, 0, 0
	known.numbers(d, v)
	switch {
	case int64(n) > known.burst:
		d.RetryAfter = limiter.Never
	case !ok:
		d.RetryAfter = max(inNanoseconds(known.until(int64(n)-v.whole, v.frac)), 1)
		if *limit == e.node.limit {
			d.RetryAfter = max(d.RetryAfter, time.Duration(e.node.quiet-now))
			if int64(n) > e.node.room { // it does not refill so far while others hold what they hold
				d.RetryAfter = max(d.RetryAfter, time.Duration(e.node.roomEnd-now))
			}
		}
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
