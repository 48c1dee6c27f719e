package limiter

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Counter is the least a shared store must do to hold limits: add to a number. Most stores a team already has can do it:
// a cache, a table with an upsert. Implementations are safe for concurrent use.
type Counter interface {
	// IncrBy adds n, which may be negative or zero, to the counter under key in one atomic step and returns the sum. A
	// key that is not there counts from 0. The key must live for at least ttl from the step that makes it, and should be
	// gone some time after; whether later steps extend that is the store's choice. ttl is a whole number of
	// milliseconds, more than one second: a store with a coarser expiry rounds up. Set it in the step that makes the
	// key, since a crash between two steps would leave a key for ever.
	//
	// An error means that the sum is not known. Return as soon as ctx ends.
	IncrBy(ctx context.Context, key string, n int64, ttl time.Duration) (sum int64, err error)
}

// CounterFunc is a function as a [Counter].
type CounterFunc func(ctx context.Context, key string, n int64, ttl time.Duration) (int64, error)

// IncrBy calls f.
func (f CounterFunc) IncrBy(ctx context.Context, key string, n int64, ttl time.Duration) (int64, error) {
	return f(ctx, key, n, ttl)
}

const (
	// counterMargin is how much longer than its window a key lives: a node whose clock is up to a second behind still
	// counts in that window, and would find it empty. The millisecond is for stores that expire by a clock cut to whole
	// ones.
	counterMargin = time.Second + time.Millisecond
	// mostRules bounds what Counting remembers of limits. Adaptive limits take many values.
	mostRules = 256
)

// Counting is a [Limiter] that runs [FixedWindow] over a [Counter]. It is for a store that can do no more; one that runs
// scripts can do all algorithms, exactly. It keeps no state of its own and is safe for concurrent use.
//
// The key is prefix:Space:{ID}:fw.START-END with the edges of the window in Unix seconds (nanoseconds where they are not
// whole), so every window is a counter of its own and none has to be reset. A [Key] with an empty Space is ID:fw.START-END:
// it cannot be the ID alone as elsewhere, for the count of one window would run on in the next.
//
// What it promises: at most Rate units per window and key are allowed by nodes whose clocks agree, whatever the
// concurrency, as long as the store keeps its keys. A take is one IncrBy; a refused one gives its units back with a
// second.
//
// What it cannot promise:
//   - The units of a refused take count until they are back. In that instant they can refuse another's take that would
//     have passed, and Remaining of other takes is lower by them.
//   - A crash or an error between the two steps costs these units until the window ends. So does an error, or the end of
//     the context, after the store has counted and before it has answered. Neither ever admits more.
//   - This process's clock decides the window, once per decision. Nodes whose clocks differ are in different windows
//     around an edge. A step that reaches the store more than a second after the end of its window, for a slow clock or
//     a slow network, may find that window's key gone and start it again.
//   - A new Period or Align starts a new count, as its windows have other edges. A new Rate acts at once.
//   - If the store loses a key (eviction, failover), that window starts again. Units given back to a key just lost are
//     put right by the next step that sees it; only takes decided at that very moment can pass on their account.
//   - It is no [Batcher], [Refunder] or [Resetter].
type Counting struct {
	counter Counter
	prefix  string
	rules   sync.Map // Limit → *Rule: loading a zone takes longer than a decision
	size    atomic.Int32
}

// NewCounting returns a limiter over c. Its keys begin with prefix and a colon, or without either if prefix is empty; see
// [Counting] for their form. A nil c is an error wrapping [ErrInvalid].
func NewCounting(c Counter, prefix string) (*Counting, error) {
	if c == nil {
		return nil, fmt.Errorf("%w: counter is nil", ErrInvalid)
	}
	return &Counting{counter: c, prefix: prefix}, nil
}

// Allow implements [Limiter]. An algorithm other than [FixedWindow] is [ErrInvalid]. [Unlimited], [DenyAll] and a take
// above the quota never touch the store; of the last, Remaining is 0 and ResetAfter the end of the window, since the
// true ones are not known. A look (n == 0) is an IncrBy of 0, which makes the key in some stores.
//
// RetryAfter, ResetAfter and NextAfter are the time to the end of the window. An error of the counter is
// [ErrUnavailable] and wraps it; if the context has ended, its error is returned as it is. A refusal whose units cannot
// be given back within 250 ms is still that refusal.
func (c *Counting) Allow(ctx context.Context, key Key, limit Limit, n int) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	if n < 0 {
		return Decision{}, fmt.Errorf("%w: take of %d units", ErrInvalid, n)
	}
	switch {
	case limit == Unlimited:
		return Decision{Allowed: true, Limit: limit, Remaining: math.MaxInt}, nil
	case limit == DenyAll && n == 0:
		return Decision{Allowed: true, Limit: limit}, nil
	case limit == DenyAll:
		return Decision{Limit: limit, RetryAfter: Never}, nil
	}
	rule, err := c.rule(limit)
	if err != nil {
		return Decision{}, err
	}
	now := time.Now().UnixNano()
	start, end := rule.Window(now)
	rest := time.Duration(end - now)
	if n > limit.Rate {
		return Decision{Limit: limit, RetryAfter: Never, ResetAfter: rest, NextAfter: rest}, nil
	}
	w := tally{
		counter: c.counter,
		key:     c.key(key, start, end),
		end:     end,
		ttl:     (rest + time.Millisecond - 1).Truncate(time.Millisecond) + counterMargin,
	}
	sum, err := w.take(ctx, int64(n))
	if err != nil {
		return Decision{}, err
	}
	d := Decision{Limit: limit, Via: ViaStore, Allowed: sum <= int64(limit.Rate) || n == 0}
	switch {
	case !d.Allowed:
		w.giveBack(ctx, int64(n))
		sum -= int64(n)
		d.RetryAfter = rest
	case n > 0:
		d.Mark = now
	}
	d.Remaining = int(max(0, int64(limit.Rate)-sum))
	if sum > 0 {
		d.ResetAfter, d.NextAfter = rest, rest
	}
	return d, nil
}

// rule returns the rule of a limit, which is a FixedWindow.
func (c *Counting) rule(limit Limit) (*Rule, error) {
	if r, ok := c.rules.Load(limit); ok {
		return r.(*Rule), nil
	}
	r, err := NewRule(limit)
	if err != nil {
		return nil, err
	}
	if limit.Algorithm != FixedWindow {
		return nil, fmt.Errorf("%w: a counter can hold fixed_window only, not %v", ErrInvalid, limit.Algorithm)
	}
	if c.size.Load() < mostRules {
		if _, found := c.rules.LoadOrStore(limit, r); !found {
			c.size.Add(1)
		}
	}
	return r, nil
}

func (c *Counting) key(k Key, start, end int64) string {
	unit := int64(time.Second)
	if start%unit != 0 || end%unit != 0 {
		unit = 1
	}
	suffix := make([]byte, 0, 48)
	suffix = append(suffix, FixedWindow.Tag()...)
	suffix = append(suffix, '.')
	suffix = strconv.AppendInt(suffix, start/unit, 10)
	suffix = append(suffix, '-')
	suffix = strconv.AppendInt(suffix, end/unit, 10)
	if k.Space == "" {
		return k.ID + ":" + string(suffix)
	}
	return k.Render(c.prefix, string(suffix))
}

// tally is the counter of one key's window.
type tally struct {
	counter Counter
	key     string
	end     int64 // Unix ns
	ttl     time.Duration
}

// take adds n and returns the sum, which is at least n.
func (w *tally) take(ctx context.Context, n int64) (int64, error) {
	sum, err := w.add(ctx, n)
	if err != nil || sum >= n {
		return sum, err
	}
	// The count was below zero: units were given back to a key that had been lost. Whoever takes first after that sees
	// it here, since sums rise from there. Two who put it right at once only refuse more.
	if debt := n - sum; debt > 0 && n > 0 {
		if sum, err = w.add(ctx, debt); err != nil {
			return 0, err
		}
	}
	return max(sum, n), nil
}

func (w *tally) add(ctx context.Context, n int64) (int64, error) {
	sum, err := w.counter.IncrBy(ctx, w.key, n, w.ttl)
	switch {
	case err == nil && sum < math.MinInt64/2:
		return 0, fmt.Errorf("%w: counter: a sum of %d", ErrUnavailable, sum)
	case err == nil:
		return sum, nil
	case ctx.Err() != nil:
		// Somebody who has left says nothing about the store.
		return 0, ctx.Err()
	}
	return 0, fmt.Errorf("%w: counter: %w", ErrUnavailable, err)
}

// giveBack undoes a refused take, if it can.
func (w *tally) giveBack(ctx context.Context, n int64) {
	if time.Now().UnixNano() >= w.end {
		return // nobody counts there any more, and the key may be gone
	}
	// The caller may leave; the units must not be lost with it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if sum, err := w.add(ctx, -n); err == nil && sum < 0 {
		// The key was lost in between. Left below zero it would admit somebody twice.
		_, _ = w.add(ctx, min(n, -sum))
	}
}

var (
	_ Limiter = (*Counting)(nil)
	_ Counter = CounterFunc(nil)
)
