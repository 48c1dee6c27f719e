package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Refund implements [limiter.Refunder]: units go back to the limiter that booked them, which the take's Decision.Via says.
// Those of the primary go back to the share as well, which was charged for them, unless the primary cannot be asked: then
// the error is [limiter.ErrUnavailable] and nothing is given back.
func (l *Limiter) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	if t.Decision.Via == limiter.ViaFallback {
		return l.refundShare(ctx, at, t)
	}
	if l.primary.refund == nil {
		return fmt.Errorf("fallback: the primary cannot give back: %w", errors.ErrUnsupported)
	}
	if err := l.ask(ctx, func() error { return l.primary.refund.Refund(ctx, at, t) }); err != nil {
		return err
	}
	if t.Decision.Mark != 0 && t.N > 0 && l.secondary.refund != nil {
		_ = l.refundShare(context.Background(), at, t) // booked and settled at the primary, whatever the share is good for
	}
	return nil
}

func (l *Limiter) refundShare(ctx context.Context, at time.Time, t *limiter.Take) error {
	if l.secondary.refund == nil {
		return fmt.Errorf("fallback: the secondary cannot give back: %w", errors.ErrUnsupported)
	}
	s := *t
	s.Limit = Share(t.Limit, l.Replicas())
	return l.secondary.refund.Refund(ctx, at, &s)
}

// Reset implements [limiter.Resetter]: both limiters forget the key, a secondary that cannot keeps it charged. An error
// says that one of them may not have: [limiter.ErrUnavailable] while the primary is away, [errors.ErrUnsupported] where it
// cannot forget.
func (l *Limiter) Reset(ctx context.Context, key limiter.Key) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	if l.primary.reset == nil {
		return fmt.Errorf("fallback: the primary cannot forget a key: %w", errors.ErrUnsupported)
	}
	var errs [2]error
	if l.secondary.reset != nil {
		errs[1] = l.secondary.reset.Reset(ctx, key)
	}
	errs[0] = l.ask(ctx, func() error { return l.primary.reset.Reset(ctx, key) })
	return errors.Join(errs[:]...)
}

// Serves implements [limiter.Selective]: what both sides serve.
func (l *Limiter) Serves(limit limiter.Limit) error {
	if s, ok := l.primary.Limiter.(limiter.Selective); ok {
		if err := s.Serves(limit); err != nil {
			return err
		}
	}
	if s, ok := l.secondary.Limiter.(limiter.Selective); ok {
		return s.Serves(Share(limit, l.Replicas()))
	}
	return nil
}

func (l *Limiter) ready(ctx context.Context) error {
	if l.isClosed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// ask calls the primary for something that is no decision. It is never the probe: those are requests that somebody waits
// for, and only they say whether decisions work.
func (l *Limiter) ask(ctx context.Context, f func() error) error {
	err := errOpen
	if l.breaker.closed() {
		l.breaker.do(func() error {
			began := l.breaker.now()
			err = f()
			return l.judge(ctx, err, began)
		})
	}
	return err
}
