package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// ErrNever means that [Wait] was asked for a take that can never pass, because it asks for more than the quota
// (RetryAfter is [Never]). Waiting, or trying again, is useless under this limit.
var ErrNever = errors.New("limiter: the take can never pass")

const (
	// settleTimeout bounds what is settled after the caller has left: it must not hold a request that is over.
	settleTimeout = 250 * time.Millisecond
	// leastWait is slept after a refusal that names no wait. No limiter here gives such an answer; one that does must
	// not make its callers spin.
	leastWait = time.Millisecond
	// mostJitter is the most that is added to a wait after a lost race.
	mostJitter = time.Second
)

// Wait blocks until n units of key's limit are taken. It sleeps for as long as each refusal says and then tries again;
// it never polls, starts no goroutine, and so sees a refund or a raised limit only at its next try.
//
// It fails at once, and never retries, with a zero Decision and
//   - the context's error, if the context has ended before the call, while waiting, or in the limiter. Nothing is taken;
//   - an error wrapping [context.DeadlineExceeded] that says the wait, if that would not end before ctx's deadline;
//   - an error wrapping [ErrNever], if n is more than the quota, and under [DenyAll];
//   - the limiter's error, if it could not decide.
//
// n == 0 returns at once with what a look shows; n < 0 is [ErrInvalid]. The numbers of the Decision are those of the
// instant it was made. Its Delay is zero: what there was of it has been waited for.
//
// # Who comes first
//
// Under a [LeakyBucket] and a limiter that is a [Batcher], a waiter takes a place in the queue at once and sleeps until
// its own departure: first come, first served, without a race. If the context ends before, the place is offered back by
// [Refunder] and the context's error is returned; most limiters do not give a departure back. Only Burst places exist,
// so choose it as large as the number of waiters: those who find the queue full race for the next free place.
//
// All other waiters race. Everybody who waits for one key is told about the same instant, whoever asks first then wins,
// and the losers wait again, for up to a quarter (at most 1 s) longer than they are told, so that they do not come all
// at once. There is no order among them, and a take of many units can lose to a stream of small ones for ever: give it a
// deadline, or use a LeakyBucket.
func Wait(ctx context.Context, l Limiter, key Key, limit Limit, n int) (Decision, error) {
	var until time.Time
	deadline, ok := ctx.Deadline()
	if ok {
		until = beforeEnd(deadline)
	}
	d, need, err := await(ctx, l, &Take{Key: key, Limit: limit, N: n}, until)
	switch {
	case err != nil:
		return Decision{}, err
	case d.Allowed:
		return d, nil
	case d.RetryAfter == Never:
		return Decision{}, fmt.Errorf("%w: %d units of %v", ErrNever, n, d.Limit)
	}
	return Decision{}, fmt.Errorf("limiter: a wait of %v would not end before the deadline in %v: %w",
		need, time.Until(deadline), context.DeadlineExceeded)
}

// AllowWithin is [Wait] for at most timeout: what would take longer than that, or would not end before ctx's deadline,
// comes back at once as the refusal it is, with a nil error and the RetryAfter the limiter named. So does a take that can
// never pass, with RetryAfter [Never]. A refusal has taken nothing. A timeout of zero or less does not wait at all.
//
// Under a [LeakyBucket], RetryAfter says when AllowWithin could succeed, having waited up to timeout.
func AllowWithin(ctx context.Context, l Limiter, key Key, limit Limit, n int, timeout time.Duration) (Decision, error) {
	until := time.Now().Add(max(timeout, 0))
	if deadline, ok := ctx.Deadline(); ok {
		if end := beforeEnd(deadline); end.Before(until) {
			until = end
		}
	}
	d, _, err := await(ctx, l, &Take{Key: key, Limit: limit, N: n}, until)
	return d, err
}

// beforeEnd returns the last instant before a deadline: a wait that ends with it finds the context done.
func beforeEnd(deadline time.Time) time.Time { return deadline.Add(-1) }

// await takes t by until (zero: whenever it may be). A refusal comes with the wait it would have needed.
func await(ctx context.Context, l Limiter, t *Take, until time.Time) (d Decision, need time.Duration, err error) {
	left := func() time.Duration {
		if until.IsZero() {
			return math.MaxInt64
		}
		return time.Until(until)
	}
	var queue Batcher
	if t.Limit.Algorithm == LeakyBucket {
		queue, _ = l.(Batcher)
	}
	for lost := false; ; lost = true {
		// A limiter may not look at the context, and would take the units of somebody who is gone.
		if err := ctx.Err(); err != nil {
			return Decision{}, 0, err
		}
		t.MaxDelay = max(left(), 0)
		if queue != nil && t.MaxDelay > 0 {
			d, err = place(ctx, queue, t)
			if errors.Is(err, errors.ErrUnsupported) {
				queue = nil
			}
		}
		if queue == nil || t.MaxDelay == 0 {
			d, err = l.Allow(ctx, t.Key, t.Limit, t.N)
		}
		if err != nil {
			return Decision{}, 0, err
		}
		if d.Allowed {
			d, err = hold(ctx, l, t, d)
			return d, 0, err
		}
		if d.RetryAfter == Never {
			return d, Never, nil
		}
		wait := d.RetryAfter
		if wait <= 0 {
			wait = leastWait
		}
		need = wait
		if queue != nil {
			// A place would be free sooner, but whoever takes it leaves only after all who are queued now.
			need = max(need, d.ResetAfter)
		}
		spare := left() - need
		if spare < 0 {
			return d, need, nil
		}
		if lost {
			wait += rand.N(min(wait/4, mostJitter, spare) + 1)
		}
		if err := sleep(ctx, wait); err != nil {
			return Decision{}, 0, err
		}
	}
}

// place takes a place in a queue, to be held for up to t.MaxDelay.
func place(ctx context.Context, queue Batcher, t *Take) (Decision, error) {
	takes := [1]Take{*t}
	ok, err := queue.AllowAll(ctx, time.Time{}, takes[:])
	if err != nil {
		return Decision{}, err
	}
	d := takes[0].Decision
	d.Allowed = d.Allowed && ok
	return d, nil
}

// hold waits for the departure of an allowed take.
func hold(ctx context.Context, l Limiter, t *Take, d Decision) (Decision, error) {
	if d.Delay <= 0 {
		return d, nil
	}
	if err := sleep(ctx, d.Delay); err != nil {
		if r, ok := l.(Refunder); ok {
			t.Decision = d
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
			defer cancel()
			// What fails here stays charged: the answer to the caller is the same.
			_ = r.Refund(ctx, time.Time{}, t)
		}
		return Decision{}, err
	}
	d.Delay = 0
	return d, nil
}

// sleep waits for d, or returns the context's error as soon as it ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
