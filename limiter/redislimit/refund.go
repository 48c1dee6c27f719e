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
	start := time.Now()
	_, err := l.client.Do(ctx, args...)
	l.observe("reset", start, len(args)-1, err)
	return err
}
