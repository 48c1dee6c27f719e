package limitertest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var errorRules = []rule{
	{"invalid-n", "a negative n is ErrInvalid: no decision, nothing taken, nothing given", 0, checkInvalidN},
	{"invalid-limit", "a limit outside its ranges is ErrInvalid and never a decision, the forgotten (zero) limit first of all", 0, checkInvalidLimit},
	{"other-algorithms", "an algorithm the limiter does not support is an error and never a decision", 0, checkUnsupported},
	{"cancelled", "a context that has ended is the context's error, never ErrUnavailable, and nothing is taken", 0, checkCancelled},
	{"interfaces", "the limiter has the methods its profile promises", 0, checkInterfaces},
	{"closed", "after Close every call is ErrClosed, and closing again is harmless", needClose, checkClosed},
}

// undecided checks that an error came without a decision.
func (c *check) undecided(d limiter.Decision, err, want error, when string) {
	c.require(errors.Is(err, want), "%s: the error is %v, want %v", when, err, want)
	c.require(d == limiter.Decision{}, "%s: an error with a decision: %v", when, show(d))
}

func checkInvalidN(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := c.calm(a, 5), c.key()
		c.take(k, l, 2)
		for _, n := range []int{-1, -5, math.MinInt32, math.MinInt} {
			d, err := c.l.Allow(c.ctx, k, l, n)
			c.undecided(d, err, limiter.ErrInvalid, "a negative n")
		}
		c.left(c.peek(k, l), 3, "a negative n")
	})
	for _, l := range []limiter.Limit{limiter.Unlimited, limiter.DenyAll} {
		d, err := c.l.Allow(c.ctx, c.key(), l, -1)
		c.undecided(d, err, limiter.ErrInvalid, "a negative n of a limit that counts nothing")
	}
}

func checkInvalidLimit(c *check) {
	bad := map[string]limiter.Limit{
		"the zero limit":                 {},
		"rate 0":                         limiter.PerSecond(0),
		"rate 0 with a burst":            limiter.PerSecond(0).WithBurst(1),
		"a negative rate":                limiter.PerSecond(-1),
		"a rate over the range":          limiter.PerSecond(limiter.MaxRate + 1),
		"period 0":                       limiter.Per(1, 0),
		"a negative period":              limiter.Per(1, -time.Second),
		"a period under a microsecond":   limiter.Per(1, 999),
		"a period over 366 days":         limiter.Per(1, limiter.MaxPeriod+1),
		"a negative burst":               limiter.PerSecond(1).WithBurst(-1),
		"a burst over the range":         limiter.PerSecond(1).WithBurst(limiter.MaxRate + 1),
		"an unknown algorithm":           limiter.PerSecond(1).With(77),
		"a log over the range":           limiter.PerSecond(limiter.MaxLogRate + 1).With(limiter.SlidingLog),
		"cells of no sliding window":     {Rate: 1, Period: time.Second, Cells: 2},
		"too many cells":                 limiter.PerSecond(1).WithCells(101),
		"cells of no whole microseconds": limiter.Per(1, time.Microsecond).WithCells(2),
		"an unknown zone":                limiter.PerSecond(1).Aligned(limiter.Day, "Nowhere/Never"),
		"the machine's zone":             limiter.PerSecond(1).Aligned(limiter.Day, "Local"),
		"Unlimited with a rate":          func() limiter.Limit { l := limiter.Unlimited; l.Rate = 1; return l }(),
	}
	for what, l := range bad {
		for _, n := range []int{0, 1} {
			d, err := c.l.Allow(c.ctx, c.key(), l, n)
			c.undecided(d, err, limiter.ErrInvalid, what)
		}
	}
	a := c.first()
	l, k := c.calm(a, 5), c.key()
	c.take(k, l, 2)
	wrong := l
	wrong.Rate = -1
	d, err := c.l.Allow(c.ctx, k, wrong, 1)
	c.undecided(d, err, limiter.ErrInvalid, "a used key")
	c.left(c.peek(k, l), 3, "a used key after an invalid limit")
}

func checkUnsupported(c *check) {
	for _, a := range limiter.Algorithms() {
		if c.p.supports(a) {
			continue
		}
		l := quick(a)
		d, err := c.l.Allow(c.ctx, c.key(), l, 1)
		c.require(errors.Is(err, limiter.ErrInvalid) || errors.Is(err, errors.ErrUnsupported), "%v: the error is %v", a, err)
		c.require(d == limiter.Decision{}, "%v: an error with a decision: %v", a, show(d))
	}
}

func checkCancelled(c *check) {
	cancelled, cancel := context.WithCancel(c.ctx)
	cancel()
	late, stop := context.WithDeadline(c.ctx, time.Now().Add(-time.Second))
	defer stop()
	cause, end := context.WithCancelCause(c.ctx)
	end(errors.New("the client left"))
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := c.calm(a, 5), c.key()
		booked := c.take(k, l, 2)
		for ctx, want := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded, cause: context.Canceled} {
			over := func(d limiter.Decision, err error, when string) {
				c.undecided(d, err, want, when)
				c.require(!errors.Is(err, limiter.ErrUnavailable), "%s: a client that left is no failure of the store: %v", when, err)
			}
			for range 5 {
				d, err := c.l.Allow(ctx, k, l, 1)
				over(d, err, "Allow")
			}
			if b, ok := c.l.(limiter.Batcher); ok && !c.p.NoBatch {
				passed, err := b.AllowAll(ctx, c.at, []limiter.Take{take(k, l, 1)})
				c.require(!passed, "AllowAll passed under a context that has ended")
				over(limiter.Decision{}, err, "AllowAll")
			}
			if r, ok := c.l.(limiter.Refunder); ok && !c.p.NoRefund {
				over(limiter.Decision{}, r.Refund(ctx, c.at, &limiter.Take{Key: k, Limit: l, N: 1, Decision: booked}), "Refund")
			}
			if r, ok := c.l.(limiter.Resetter); ok && !c.p.NoReset {
				over(limiter.Decision{}, r.Reset(ctx, k), "Reset")
			}
		}
		c.left(c.peek(k, l), 3, "calls under contexts that have ended")
		if c.p.Bounds == nil {
			c.passes(k, l, 3, "what is left after calls under contexts that have ended")
		}
	})
}

func checkInterfaces(c *check) {
	has := func(what string, promised, ok bool) {
		c.require(!promised || ok, "the profile promises %s, but %T has no such method", what, c.l)
	}
	_, ok := c.l.(limiter.Batcher)
	has("batches", !c.p.NoBatch, ok)
	_, ok = c.l.(limiter.Refunder)
	has("refunds", !c.p.NoRefund, ok)
	_, ok = c.l.(limiter.Resetter)
	has("a reset", !c.p.NoReset, ok)
	if b, ok := c.l.(limiter.Batcher); ok && c.p.NoBatch {
		_, err := b.AllowAll(c.ctx, time.Time{}, nil)
		c.require(err == nil || errors.Is(err, errors.ErrUnsupported), "asked whether it batches, AllowAll says %v and not errors.ErrUnsupported", err)
	}
}

func checkClosed(c *check) {
	a := c.first()
	l, k := c.calm(a, 5), c.key()
	c.take(k, l, 1)
	shut := closer(c.l)
	c.require(shut() == nil, "closing failed")
	for _, n := range []int{0, 1, 6} {
		d, err := c.l.Allow(context.Background(), k, l, n)
		c.undecided(d, err, limiter.ErrClosed, "Allow after Close")
	}
	if b, ok := c.l.(limiter.Batcher); ok && !c.p.NoBatch {
		passed, err := b.AllowAll(context.Background(), c.at, []limiter.Take{take(k, l, 1)})
		c.require(!passed, "AllowAll passed after Close")
		c.undecided(limiter.Decision{}, err, limiter.ErrClosed, "AllowAll after Close")
	}
	if r, ok := c.l.(limiter.Refunder); ok && !c.p.NoRefund {
		err := r.Refund(context.Background(), c.at, &limiter.Take{Key: k, Limit: l, N: 1, Decision: limiter.Decision{Allowed: true, Mark: 1}})
		c.undecided(limiter.Decision{}, err, limiter.ErrClosed, "Refund after Close")
	}
	_ = shut() // may say what it likes, but not panic
}
