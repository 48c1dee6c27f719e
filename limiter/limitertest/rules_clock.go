package limitertest

import (
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var clockRules = []rule{
	{"late-reading", "an instant older than the key's earns nothing, however old: alternating clocks mint nothing", needInstants, checkAlternating},
	{"late-reading-waits", "a late reading moves nothing back, and its waits are longer by what it is late", needInstants | needExact, checkLateWaits},
	{"late-over-an-edge", "a take that read its clock before an edge and is decided behind it counts in the newer window", needInstants | needExact, checkLateEdge},
	{"late-refund", "a refund with an old reading moves nothing back", needInstants | needRefund | needExact, checkLateRefund},
}

func checkAlternating(c *check) {
	for _, back := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
		c.each(func(c *check, a limiter.Algorithm) {
			l := limiter.PerSecond(1).With(a)
			k := c.key()
			// Both clocks stand: whatever they show in turns, no time passes.
			c.edge(time.Second)
			c.advance(back.Truncate(time.Second) + 2*time.Second)
			fast, slow := c.at, c.at.Add(-back)
			passed := 0
			for range 100 {
				for _, c.at = range []time.Time{fast, slow} {
					if c.take(k, l, 1).Allowed {
						passed++
					}
				}
			}
			c.at = fast
			c.require(float64(passed) <= c.p.most(1), "two clocks %v apart, 1 per second: %d of 200 takes passed", back, passed)
		})
	}
}

func checkLateWaits(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		for _, late := range []time.Duration{200 * time.Millisecond, time.Second, time.Minute} {
			l, k := quick(a), c.key()
			c.edge(time.Second)
			c.advance(100 * time.Millisecond)
			c.passes(k, l, 5, "a new key")
			d := c.refuses(k, l, 2, "an empty key")
			newest := c.at
			c.at = c.at.Add(-late)
			for range 3 {
				behind := c.refuses(k, l, 2, "an empty key, read late")
				c.waits("RetryAfter", behind.RetryAfter, d.RetryAfter+late, "counted on a clock that is behind")
				c.waits("ResetAfter", behind.ResetAfter, d.ResetAfter+late, "counted on a clock that is behind")
			}
			c.at = newest
			again := c.refuses(k, l, 2, "an empty key after late readings")
			c.waits("RetryAfter", again.RetryAfter, d.RetryAfter, "late readings move nothing back")
			c.advance(d.RetryAfter)
			c.passes(k, l, 2, "the wait named before the late readings")
		}
	})
}

func checkLateEdge(c *check) {
	if !c.p.supports(limiter.FixedWindow) {
		return
	}
	l, k := limiter.PerSecond(3).With(limiter.FixedWindow), c.key()
	c.edge(time.Second)
	c.advance(900 * time.Millisecond)
	c.passes(k, l, 3, "the window before")
	c.advance(100 * time.Millisecond)
	c.passes(k, l, 2, "the window after")
	c.advance(-time.Millisecond)
	d := c.passes(k, l, 1, "read before the edge, decided behind it")
	c.left(d, 0, "the newer window")
	c.waits("ResetAfter", d.ResetAfter, time.Second+time.Millisecond, "the newer window's end on the older clock")
	c.refuses(k, l, 1, "read before the edge, decided behind it")
	c.advance(500 * time.Millisecond)
	c.refuses(k, l, 1, "the window that was filled before")
}

func checkLateRefund(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		if a == limiter.LeakyBucket {
			return
		}
		l, k := quick(a), c.key()
		c.edge(time.Second)
		c.advance(500 * time.Millisecond)
		d := c.passes(k, l, 5, "a new key")
		newest := c.at
		c.advance(-300 * time.Millisecond)
		c.refund(k, l, 1, d)
		c.at = newest
		c.left(c.peek(k, l), 1, "one unit given back")
		c.passes(k, l, 1, "the unit given back")
		c.refuses(k, l, 1, "no more than was given back")
	})
}
