package limitertest

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// start is the first instant of a check: off every window edge, so that no rule leans on one.
var start = time.Date(2026, 3, 4, 5, 6, 7, 300_000_000, time.UTC)

// forever is a MaxDelay that accepts every place in a queue.
const forever = time.Duration(math.MaxInt64)

// check is one rule being checked on one limiter. Where the suite chooses the instants, at is the time; else the
// limiter's own clock is, which stands still or is moved by sleeping in a bubble.
type check struct {
	ctx  context.Context
	l    limiter.Limiter
	p    Profile
	rule string
	own  bool
	at   time.Time
}

func (c *check) now() time.Time {
	if c.own {
		return time.Now()
	}
	return c.at
}

// advance moves time. In a bubble no time passes by itself.
func (c *check) advance(d time.Duration) {
	if c.own {
		time.Sleep(d)
		return
	}
	c.at = c.at.Add(d)
}

// edge moves time to just behind an edge of windows of length d.
func (c *check) edge(d time.Duration) {
	c.advance(d - time.Duration(floorMod(c.now().UnixNano(), int64(d))))
}

var (
	keySpace = "limitertest-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	keyCount atomic.Int64
)

// key returns a key nobody has used, also not in a store shared with other checks.
func (c *check) key() limiter.Key {
	return limiter.Key{Space: keySpace, ID: "k" + strconv.FormatInt(keyCount.Add(1), 10)}
}

// take takes n units and expects a decision.
func (c *check) take(k limiter.Key, l limiter.Limit, n int) limiter.Decision {
	d, err := c.try(k, l, n)
	c.require(err == nil, "take of %d under %+v: %v", n, l, err)
	c.sane(d, l, n)
	return d
}

// peek looks at a key.
func (c *check) peek(k limiter.Key, l limiter.Limit) limiter.Decision { return c.take(k, l, 0) }

// try takes n units at the check's time. A place in a queue may be as late as it likes.
func (c *check) try(k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	if c.p.NoBatch {
		return c.l.Allow(c.ctx, k, l, n)
	}
	takes := []limiter.Take{{Key: k, Limit: l, N: n, MaxDelay: forever}}
	all, err := c.batch(takes)
	if err != nil {
		return limiter.Decision{}, err
	}
	d := takes[0].Decision
	c.require(all == d.Allowed, "AllowAll says %v where its only take says %v", all, d)
	return d, nil
}

// batch decides takes at the check's time.
func (c *check) batch(takes []limiter.Take) (bool, error) {
	b, ok := c.l.(limiter.Batcher)
	c.require(ok, "the profile promises batches, but %T is no Batcher", c.l)
	var at time.Time
	if !c.own {
		at = c.at
	}
	return b.AllowAll(c.ctx, at, takes)
}

// all decides takes together and expects decisions.
func (c *check) all(takes ...limiter.Take) (bool, []limiter.Take) {
	ok, err := c.batch(takes)
	c.require(err == nil, "AllowAll: %v", err)
	for _, t := range takes {
		c.sane(t.Decision, t.Limit, t.N)
		c.require(!ok || t.Shadow || t.Decision.Allowed, "AllowAll passed, but a real take says %v", t.Decision)
	}
	return ok, takes
}

// refund gives back n units of a decision.
func (c *check) refund(k limiter.Key, l limiter.Limit, n int, d limiter.Decision) {
	r, ok := c.l.(limiter.Refunder)
	c.require(ok, "the profile promises refunds, but %T is no Refunder", c.l)
	var at time.Time
	if !c.own {
		at = c.at
	}
	err := r.Refund(c.ctx, at, &limiter.Take{Key: k, Limit: l, N: n, Decision: d})
	c.require(err == nil, "refund of %d: %v", n, err)
}

func (c *check) reset(k limiter.Key) {
	r, ok := c.l.(limiter.Resetter)
	c.require(ok, "the profile promises a reset, but %T is no Resetter", c.l)
	c.require(r.Reset(c.ctx, k) == nil, "reset failed")
}

// sane checks what holds of every decision of a bounded limiter too.
func (c *check) sane(d limiter.Decision, l limiter.Limit, n int) {
	bad := func(what string) { c.fatalf("take of %d under %+v: %s: %v", n, l, what, show(d)) }
	switch {
	case d.Limit != l && c.p.Bounds == nil:
		bad("Limit is not the one applied")
	case d.Allowed && d.RetryAfter != 0:
		bad("allowed with a RetryAfter")
	case !d.Allowed && d.RetryAfter <= 0:
		bad("refused without a RetryAfter")
	case !d.Allowed && d.Delay != 0:
		bad("refused with a Delay")
	case !d.Allowed && n == 0:
		bad("a peek was refused")
	case d.Remaining < 0 || d.Remaining > l.Quota() && c.p.Bounds == nil:
		bad("Remaining is outside 0…quota")
	case d.ResetAfter < 0 || d.NextAfter < 0 || d.Delay < 0:
		bad("a wait is negative")
	case d.Delay > 0 && l.Algorithm != limiter.LeakyBucket:
		bad("only a queue delays")
	case d.Allowed && n > l.Quota() && c.p.Bounds == nil:
		bad("more than the quota passed")
	case c.p.Bounds == nil && d.NextAfter > d.ResetAfter:
		bad("the next unit comes after the last")
	}
}

// number checks a reported Remaining.
func (c *check) left(d limiter.Decision, want int, when string) {
	c.require(d.Remaining <= want && d.Remaining >= want-c.p.FewerLeft || c.p.Bounds != nil,
		"%s: Remaining is %d, want %d: %v", when, d.Remaining, want, show(d))
}

// passes takes n units that must pass; refuses takes n that must not.
func (c *check) passes(k limiter.Key, l limiter.Limit, n int, when string) limiter.Decision {
	d := c.take(k, l, n)
	c.require(d.Allowed, "%s: a take of %d was refused: %v", when, n, show(d))
	return d
}

func (c *check) refuses(k limiter.Key, l limiter.Limit, n int, when string) limiter.Decision {
	d := c.take(k, l, n)
	c.require(!d.Allowed, "%s: a take of %d passed: %v", when, n, show(d))
	return d
}

// waits checks a reported wait against the exact one.
func (c *check) waits(what string, got, exact time.Duration, when string) {
	c.require(c.p.sameWait(exact, got, 0), "%s: %s is %v, want %v", when, what, got, exact)
}

// show prints a decision on one line.
func show(d limiter.Decision) string {
	retry := d.RetryAfter.String()
	if d.RetryAfter == limiter.Never {
		retry = "never"
	}
	return fmt.Sprintf("{allowed %v, remaining %d, retry %s, reset %v, next %v, delay %v}",
		d.Allowed, d.Remaining, retry, d.ResetAfter, d.NextAfter, d.Delay)
}

// quick is a limit of five units a second that the rules about time use. Its numbers are whole microseconds.
func quick(a limiter.Algorithm) limiter.Limit {
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		return limiter.PerSecond(5).WithBurst(5).With(a)
	case limiter.SlidingWindow:
		return limiter.PerSecond(5).WithCells(4)
	}
	return limiter.PerSecond(5).With(a)
}

// calm is a limit of n units that gives nothing back while a check runs, whatever the clock: its period is of hundreds
// of days, and no window of it ends soon.
func (c *check) calm(a limiter.Algorithm, n int) limiter.Limit {
	period := limiter.MaxPeriod
	for floorMod(c.now().UnixNano(), int64(period)) > int64(period)-int64(period)/8 {
		period -= 55 * 24 * time.Hour
	}
	l := limiter.Per(n, period).With(a)
	if a == limiter.TokenBucket || a == limiter.LeakyBucket {
		l.Burst = n
		// Many units in a long period still come back fast one by one.
		l.Rate = 1
	}
	return l
}

func floorMod(a, m int64) int64 {
	if a %= m; a < 0 {
		a += m
	}
	return a
}
