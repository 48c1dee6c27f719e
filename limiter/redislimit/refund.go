package redislimit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// Refund implements [limiter.Refunder].
func (l *Limiter) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	if t.N <= 0 || t.Decision.Mark == 0 || t.Limit.Algorithm == limiter.LeakyBucket {
		return nil // nothing was booked, or it stays spent
	}
	r := refunded{key: l.render(t.Key, t.Limit.Algorithm), algorithm: t.Limit.Algorithm, n: t.N, mark: t.Decision.Mark, now: l.reading(at)}
	defer l.forget(r.key)()
	return l.observed("refund", 1, func() error {
		_, err := l.client.Run(ctx, script, []string{r.key}, r.arg(l.caller))
		return err
	})
}

// refunded is units to be given back.
type refunded struct {
	key       string
	algorithm limiter.Algorithm
	n         int
	mark, now int64
}

func (r *refunded) arg(caller bool) []byte {
	if caller {
		return appendRefund(appendGroup(nil, refundFlag|callerClock, r.now), r.algorithm, r.n, r.mark)
	}
	return appendRefund(appendGroup(nil, refundFlag, 0), r.algorithm, r.n, r.mark)
}

// observed calls Redis. A panic of an observer or a hook of the client is an error.
func (l *Limiter) observed(op string, n int, call func() error) (err error) {
	defer contain(&err)
	start := time.Now()
	err = call()
	l.observe(op, start, n, err)
	return err
}

// Reset implements [limiter.Resetter].
func (l *Limiter) Reset(ctx context.Context, key limiter.Key) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	var keys []string
	for _, a := range limiter.Algorithms() {
		if k := l.render(key, a); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	defer l.forget(keys...)()
	return l.observed("reset", len(keys), func() error {
		ctx := rediscall.Since(ctx, time.Now())
		if !l.client.Sharded() || tag(keys[0]) != keys[0] {
			return l.del(ctx, keys...)
		}
		for _, k := range keys { // without an identity in braces they have places of their own
			if err := l.del(ctx, k); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *Limiter) del(ctx context.Context, keys ...string) error {
	args := []any{"del"}
	for _, k := range keys {
		args = append(args, k)
	}
	_, err := l.client.Do(ctx, args...)
	return err
}

// forget makes the deny cache forget keys that are about to gain units, and again when they have.
func (l *Limiter) forget(keys ...string) (again func()) {
	if l.denials == nil {
		return func() {}
	}
	l.denials.forget(keys...)
	return func() { l.denials.forget(keys...) }
}

// giveUp gives back what was booked for callers who have left.
func (l *Limiter) giveUp(gone []*group) {
	var back []refunded
	for _, g := range gone {
		if l.decide(g) == nil {
			back = g.appendRefunds(back)
		}
	}
	l.refundEach(back)
}

// appendRefunds appends what a decided group booked and can be given back.
func (g *group) appendRefunds(back []refunded) []refunded {
	for i := range g.parts {
		p := &g.parts[i]
		if a := p.rule.limit.Algorithm; p.booked > 0 && a != limiter.LeakyBucket {
			back = append(back, refunded{key: p.key, algorithm: a, n: p.n, mark: p.decision.Mark, now: g.now})
		}
	}
	return back
}

// refundEach gives units back, in as few round trips as can be and within one time-out, as far as that succeeds.
func (l *Limiter) refundEach(back []refunded) {
	if len(back) == 0 {
		return
	}
	calls := make([]rediscall.Call, len(back))
	keys := make([]string, len(back))
	for i := range back {
		keys[i] = back[i].key
		calls[i] = rediscall.Call{Keys: keys[i : i+1], Args: []any{back[i].arg(l.caller)}}
	}
	defer l.forget(keys...)()
	_ = l.observed("refund", len(back), func() (err error) {
		l.client.RunEach(context.Background(), script, calls)
		for i := range calls {
			err = cmp.Or(err, calls[i].Err)
		}
		return err
	})
}
