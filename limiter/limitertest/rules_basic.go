package limitertest

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var basicRules = []rule{
	{"first-take", "a key never seen holds its full quota, and the first take leaves quota − n", 0, checkFirst},
	{"whole-quota", "at one instant exactly the quota passes, one by one or all at once: not one less, not one more", 0, checkWholeQuota},
	{"refusal-takes-nothing", "a take that is refused leaves the key as it was, however often it is tried, and reports what is left: a smaller take then passes", 0, checkRefusal},
	{"peek-writes-nothing", "n = 0 is allowed, waits for nothing and changes nothing", 0, checkPeek},
	{"remaining-passes", "a take of Remaining passes and one of Remaining + 1 does not", needExact, checkRemaining},
	{"never", "a take over the quota is refused with RetryAfter Never and the key's true numbers; a take of the whole quota from a used key has a finite wait", 0, checkNever},
	{"unlimited", "Unlimited lets everything pass and keeps no account", 0, checkUnlimited},
	{"deny-all", "DenyAll refuses every take for good, and allows a peek", 0, checkDenyAll},
	{"long-waits", "waits of 285 years or more saturate: they never wrap round and are never mistaken for Never", needExact, checkLongWaits},
	{"extreme-limits", "the largest and the smallest rates, periods and bursts count right", needExact, checkExtremes},
}

func checkFirst(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := c.calm(a, 5), c.key()
		d := c.peek(k, l)
		if c.p.Bounds != nil {
			c.worth(k, l, 5, "a new key")
			return
		}
		c.left(d, 5, "a look at a new key")
		c.require(d.ResetAfter == 0 && d.NextAfter == 0, "a new key is full, so nothing is to be waited for: %v", show(d))
		d = c.passes(k, l, 1, "the first take")
		c.left(d, 4, "the first take")
		c.require(d.ResetAfter > 0 && d.NextAfter > 0, "a used key is full again later: %v", show(d))
		c.left(c.passes(k, l, 3, "the second take"), 1, "the second take")
	})
}

func checkWholeQuota(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		const quota = 40
		l, k := c.calm(a, quota), c.key()
		c.worth(k, l, quota, "a new key")
		if c.p.Bounds != nil {
			return
		}
		k = c.key()
		c.passes(k, l, quota, "the whole quota of a new key")
		c.refuses(k, l, 1, "one unit more than the quota")
		k = c.key()
		c.passes(k, l, quota-3, "most of the quota")
		c.left(c.passes(k, l, 3, "the rest of the quota"), 0, "the rest of the quota")
		c.refuses(k, l, 1, "one unit more than the quota")
	})
}

// worth takes single units until no more pass and checks their number against a quota.
func (c *check) worth(k limiter.Key, l limiter.Limit, quota int, when string) {
	passed := 0
	for range 3 * quota {
		if c.take(k, l, 1).Allowed {
			passed++
		}
	}
	c.require(float64(passed) <= c.p.most(float64(quota)), "%s: of %d single units %d passed", when, quota, passed)
	c.require(passed >= c.p.least(quota), "%s: of %d single units only %d passed", when, quota, passed)
}

func checkRefusal(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := c.calm(a, 5), c.key()
		if c.p.Bounds != nil {
			for range 50 {
				c.take(k, l, 6)
			}
			c.worth(k, l, 5, "after refusals that took nothing")
			return
		}
		c.passes(k, l, 3, "three of five")
		before := c.peek(k, l)
		for range 50 {
			d := c.refuses(k, l, 3, "three more of five")
			c.left(d, 2, "a refusal with two left")
			c.require(d.Mark == 0, "a refusal booked nothing, so it has no Mark: %d", d.Mark)
		}
		c.sameNumbers(before, c.peek(k, l), "a look after refusals")
		c.left(c.passes(k, l, 2, "what is left after refusals"), 0, "what is left after refusals")
		before = c.peek(k, l)
		for range 50 {
			c.refuses(k, l, 1, "an empty key")
		}
		c.sameNumbers(before, c.peek(k, l), "a look after refusals of an empty key")
	})
}

// sameNumbers compares two looks at one key between which nothing may have changed. Only a foreign clock moves on
// between them.
func (c *check) sameNumbers(want, got limiter.Decision, when string) {
	if c.p.Bounds != nil {
		return
	}
	slack := c.p.Late + c.p.tick() - 1
	if c.own && c.p.ForeignClock {
		slack += time.Minute
	}
	near := func(a, b time.Duration) bool { return max(a, b)-min(a, b) <= slack }
	same := got.Allowed == want.Allowed && got.Remaining == want.Remaining && near(got.ResetAfter, want.ResetAfter) &&
		near(got.NextAfter, want.NextAfter) && near(got.RetryAfter, want.RetryAfter)
	c.require(same, "%s: %v, want %v", when, show(got), show(want))
}

func checkPeek(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := c.calm(a, 5), c.key()
		fresh := c.peek(k, l)
		for range 20 {
			c.sameNumbers(fresh, c.peek(k, l), "a look at a new key")
		}
		if c.p.Bounds != nil {
			c.worth(k, l, 5, "after looking")
		} else {
			c.left(c.passes(k, l, 2, "after looking"), 3, "after looking")
		}
		used := c.peek(k, l)
		for range 20 {
			d := c.peek(k, l)
			c.require(d.Allowed && d.RetryAfter == 0 && d.Delay == 0 && d.Mark == 0, "a look at a used key: %v, mark %d", show(d), d.Mark)
			c.sameNumbers(used, d, "a look at a used key")
		}
		if c.p.Bounds != nil {
			return
		}
		c.passes(k, l, 3, "the rest after looking")
		d := c.peek(k, l)
		c.left(d, 0, "a look at an empty key")
		c.require(d.NextAfter > 0, "a look at an empty key: %v", show(d))
	})
}

func checkRemaining(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l := c.calm(a, 11)
		for used := range 12 {
			k := c.key()
			c.passes(k, l, used, "a part of the quota")
			left := c.peek(k, l).Remaining
			c.require(left <= 11-used && left >= 11-used-c.p.FewerLeft, "%d of 11 used, Remaining is %d", used, left)
			c.refuses(k, l, 11-used+1, "one more than is left")
			c.passes(k, l, left, "what is left")
		}
	})
}

func checkNever(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := c.calm(a, 5), c.key()
		for _, n := range []int{6, 1000, math.MaxInt32, math.MaxInt} {
			d := c.refuses(k, l, n, "more than the quota of a new key")
			c.require(d.RetryAfter == limiter.Never, "a take of %d of 5 can never pass: %v", n, show(d))
			c.left(d, 5, "a new key")
			c.require(c.p.Bounds != nil || d.ResetAfter == 0, "a new key is full: %v", show(d))
		}
		if c.p.Bounds != nil {
			return
		}
		c.passes(k, l, 2, "a take after one that can never pass")
		before := c.peek(k, l)
		for _, n := range []int{6, math.MaxInt} {
			d := c.refuses(k, l, n, "more than the quota of a used key")
			c.require(d.RetryAfter == limiter.Never, "a take of %d of 5 can never pass: %v", n, show(d))
			c.left(d, 3, "a used key")
			d.Allowed, d.RetryAfter = true, 0
			c.sameNumbers(before, d, "a refusal for good shows the true numbers")
		}
		c.sameNumbers(before, c.peek(k, l), "a look after refusals for good")
		d := c.refuses(k, l, 5, "the quota of a used key")
		c.require(d.RetryAfter < saturated, "the whole quota comes back: %v", show(d))
	})
}

func checkUnlimited(c *check) {
	k := c.key()
	for _, n := range []int{0, 1, 1_000_000, math.MaxInt} {
		for range 3 {
			d := c.passes(k, limiter.Unlimited, n, "unlimited")
			c.require(d.Remaining == math.MaxInt && d.ResetAfter == 0 && d.NextAfter == 0, "unlimited: %v", show(d))
		}
	}
}

func checkDenyAll(c *check) {
	k := c.key()
	for _, n := range []int{1, 2, math.MaxInt} {
		d := c.refuses(k, limiter.DenyAll, n, "deny all")
		c.require(d.RetryAfter == limiter.Never && d.Remaining == 0, "deny all: %v", show(d))
	}
	c.require(c.peek(k, limiter.DenyAll).Remaining == 0, "deny all has nothing left")
}

func checkLongWaits(c *check) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
		if !c.p.supports(a) || a == limiter.LeakyBucket && c.p.NoBatch {
			continue
		}
		l, k := limiter.Per(1, limiter.MaxPeriod).WithBurst(1_000_000_000).With(a), c.key()
		d := c.passes(k, l, 1_000_000_000, "a burst of a billion")
		c.require(d.ResetAfter >= saturated-time.Second && d.ResetAfter != limiter.Never, "%v: a billion years to full: %v", a, show(d))
		d = c.refuses(k, l, 900_000_000, "nearly the burst again")
		c.require(d.RetryAfter >= saturated-time.Second && d.RetryAfter != limiter.Never, "%v: 900 million years: %v", a, show(d))
		d = c.refuses(k, l, 1, "one unit")
		c.require(d.RetryAfter <= limiter.MaxPeriod && d.RetryAfter > limiter.MaxPeriod-time.Hour, "%v: one unit comes in 366 days: %v", a, show(d))
	}
}

func checkExtremes(c *check) {
	tick := max(c.p.tick(), limiter.MinPeriod)
	c.each(func(c *check, a limiter.Algorithm) {
		most := limiter.MaxRate
		if a == limiter.SlidingLog {
			most = limiter.MaxLogRate
		}
		limits := []limiter.Limit{
			limiter.Per(1, tick).WithBurst(1).With(a),
			limiter.Per(most, tick).With(a),
			limiter.Per(most, limiter.MaxPeriod).With(a),
			limiter.Per(1, limiter.MaxPeriod).WithBurst(1).With(a),
		}
		for _, l := range limits {
			if a == limiter.LeakyBucket {
				l.Burst = l.Rate
			}
			quota := l.Quota()
			k := c.key()
			c.left(c.peek(k, l), quota, "a new key")
			d := c.passes(k, l, quota, "the whole quota")
			c.left(d, 0, "the whole quota")
			c.require(d.ResetAfter <= 2*l.Period+c.p.tick()+c.p.Late, "full after two periods at most: %v", show(d))
			d = c.take(k, l, quota+1)
			c.require(d.RetryAfter == limiter.Never, "over the quota: %v", show(d))
		}
	})
}
