package redislimit

import (
	"context"
	"time"

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
	return l.refund(ctx, l.reading(at), l.render(t.Key, t.Limit.Algorithm), t.Limit.Algorithm, t.N, t.Decision.Mark)
}

func (l *Limiter) refund(ctx context.Context, now int64, key string, a limiter.Algorithm, n int, mark int64) error {
	defer l.forget(key)()
	call := []byte{refundCall}
	if l.caller {
		call = appendInstant([]byte{refundCall | callerClock}, now)
	}
	start := time.Now()
	_, err := l.client.Run(ctx, script, []string{key}, appendRefund(call, a, n, mark))
	l.observe("refund", start, 1, err)
	return err
}

// Reset implements [limiter.Resetter].
func (l *Limiter) Reset(ctx context.Context, key limiter.Key) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	args := []any{"del"}
	for _, a := range limiter.Algorithms() {
		if k := l.render(key, a); len(args) == 1 || k != args[1] {
			args = append(args, k)
		}
	}
	keys := make([]string, len(args)-1)
	for i := range keys {
		keys[i] = args[i+1].(string)
	}
	defer l.forget(keys...)()
	start := time.Now()
	_, err := l.client.Do(ctx, args...)
	l.observe("reset", start, len(keys), err)
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
	for _, g := range gone {
		if l.decide(g) == nil {
			l.refundGroup(context.Background(), g)
		}
	}
}

// refundGroup gives back what a decided group booked, as far as that succeeds.
func (l *Limiter) refundGroup(ctx context.Context, g *group) {
	for i := range g.parts {
		if p := &g.parts[i]; p.booked > 0 {
			_ = l.refund(ctx, g.now, p.key, p.rule.limit.Algorithm, p.n, p.decision.Mark)
		}
	}
}
