package limitertest

import (
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var changeRules = []rule{
	{"relimit-acts-at-once", "a changed limit acts on the next take; what was used stays used", needRelimit | needExact, checkRelimit},
	{"relimit-wait", "nobody waits longer than the new limit alone could make him wait", needRelimit | needTime | needExact, checkRelimitWait},
	{"relimit-refused-take", "a refused take makes the change of the limit as well: the wait it names comes true; a peek does not", needRelimit | needTime | needExact, checkRelimitRefused},
	{"relimit-back-and-forth", "limits that take turns mint nothing", needRelimit, checkRelimitTurns},
	{"relimit-full-key", "a key that is full under the old limit is full under the new one", needRelimit | needTime | needExact, checkRelimitFull},
	{"refund", "units given back can be taken again, and no more than those", needRefund | needExact, checkRefund},
	{"refund-over-quota", "a refund never lifts a key over its quota: not twice, not of more than was taken, not of a new key, not once time has given it back", needRefund, checkRefundOver},
	{"refund-window-over", "a refund of a take whose window or cell is over gives nothing to the one that is charged now", needRefund | needTime | needExact, checkRefundEdge},
	{"refund-nothing", "a refund of a take that booked nothing, or of no units, gives nothing", needRefund | needExact, checkRefundNothing},
	{"refund-queue", "a departure promised is spent: a LeakyBucket gives nothing back", needRefund | needExact | needBatch, checkRefundQueue},
	{"reset", "after a reset a key is as if never seen, under every algorithm, and other keys are not", needReset, checkReset},
}

func checkRelimit(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		resize := func(l limiter.Limit, n int) limiter.Limit {
			if a == limiter.TokenBucket || a == limiter.LeakyBucket {
				l.Burst = n
			} else {
				l.Rate = n
			}
			return l
		}
		l, k := c.calm(a, 10), c.key()
		c.passes(k, l, 6, "six of ten")
		d := c.peek(k, resize(l, 4))
		c.require(d.Remaining >= 0 && d.Remaining <= 4, "lowered under its use: %v", show(d))
		lower := resize(l, 7)
		if a == limiter.TokenBucket { // tokens stay: four are left, and four fit
			c.passes(k, lower, 4, "lowered")
			c.refuses(k, lower, 1, "lowered and used up")
		} else { // six are used of seven now
			c.left(c.passes(k, lower, 1, "lowered"), 0, "lowered")
			c.refuses(k, lower, 1, "lowered and used up")
		}
		raised := resize(l, 20)
		d = c.peek(k, raised)
		want := 13
		if a == limiter.TokenBucket {
			want = 0 // a raised burst is filled at its rate
		}
		c.left(d, want, "raised")
		c.require(d.Limit == raised, "raised: Limit is %+v", d.Limit)
	})
}

func checkRelimitWait(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		slow, fast := limiter.PerHour(1).With(a), limiter.PerSecond(1).With(a)
		if a == limiter.TokenBucket || a == limiter.LeakyBucket {
			slow.Burst, fast.Burst = 10, 10
		} else {
			slow.Rate, fast.Rate = 10, 10
		}
		k := c.key()
		c.passes(k, slow, 10, "ten an hour")
		c.advance(time.Second)
		for n := 1; n <= 10; n++ {
			longest := time.Second // fixed window and log: one period
			switch a {
			case limiter.TokenBucket, limiter.LeakyBucket:
				longest = time.Duration(n) * time.Second
			case limiter.SlidingWindow:
				longest += time.Duration(n) * 100 * time.Millisecond
			}
			d := c.take(k, fast, n)
			c.require(d.RetryAfter <= c.p.roundUp(longest)+c.p.Late, "changed from 10 an hour: a take of %d waits %v, the new limit alone %v at most", n, d.RetryAfter, longest)
		}
		c.advance(10 * time.Second)
		c.passes(k, fast, 1, "after the longest wait of the new limit")
	})
}

func checkRelimitRefused(c *check) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
		if !c.p.supports(a) || a == limiter.LeakyBucket && c.p.NoBatch {
			continue
		}
		slow, fast := limiter.PerHour(1).WithBurst(10).With(a), limiter.PerSecond(1).WithBurst(10).With(a)
		k := c.key()
		c.passes(k, slow, 10, "a new key")
		c.advance(30 * time.Minute)
		d := c.refuses(k, fast, 1, "half a unit has come back at the old rate")
		c.waits("RetryAfter", d.RetryAfter, 500*time.Millisecond, a.String()+": half a unit comes back at the new rate")
		c.notBefore(d.RetryAfter, func() bool { return c.take(k, fast, 1).Allowed }, a.String()+": RetryAfter after a change", 1)

		k = c.key()
		c.passes(k, slow, 10, "a new key")
		c.advance(time.Minute)
		c.peek(k, fast)
		c.advance(5 * time.Second)
		c.left(c.peek(k, fast), 0, a.String()+": a look does not start the new rate")
	}
}

func checkRelimitTurns(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		one, other := c.calm(a, 10), c.calm(a, 10)
		other.Period /= 2
		switch a {
		case limiter.TokenBucket:
			other.Burst = 7
		case limiter.LeakyBucket: // fewer places forget those beyond, so that nobody waits longer than the queue is long
		default:
			other.Rate = 7
		}
		k, passed := c.key(), 0
		for range 50 {
			for _, l := range []limiter.Limit{one, other} {
				if c.take(k, l, 1).Allowed {
					passed++
				}
			}
		}
		// Counts of sliding cells are rounded up when the grid changes, so fewer than ten may pass.
		c.require(float64(passed) <= c.p.most(10), "limits of 10 and 7 in turns: %d units passed", passed)
	})
}

func checkRelimitFull(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		small, large := quick(a), quick(a)
		if a == limiter.TokenBucket || a == limiter.LeakyBucket {
			large.Burst = 20
		} else {
			large.Rate = 20
		}
		k := c.key()
		d := c.passes(k, small, 5, "a new key")
		c.advance(d.ResetAfter)
		c.left(c.peek(k, large), 20, "full under the old limit")
		c.passes(k, large, 20, "full under the old limit")
	})
}

func checkRefund(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		if a == limiter.LeakyBucket {
			return
		}
		l, k := c.calm(a, 10), c.key()
		first := c.passes(k, l, 4, "a new key")
		c.require(first.Mark != 0, "a booking has a Mark to be found by")
		second := c.passes(k, l, 6, "the rest")
		c.refuses(k, l, 1, "an empty key")
		c.refund(k, l, 4, first)
		c.left(c.peek(k, l), 4, "four units given back")
		c.refund(k, l, 1, second)
		c.left(c.peek(k, l), 5, "one unit more given back")
		c.passes(k, l, 5, "units given back")
		c.refuses(k, l, 1, "no more than was given back")
	})
}

func checkRefundOver(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l := c.calm(a, 5)
		over := func(k limiter.Key, when string) {
			passed := 0
			for range 12 {
				if c.take(k, l, 1).Allowed {
					passed++
				}
			}
			c.require(float64(passed) <= c.p.most(5), "%s: %d of 5 units passed", when, passed)
		}
		k := c.key()
		c.refund(k, l, 3, limiter.Decision{Allowed: true, Limit: l, Mark: c.now().UnixNano()})
		over(k, "a refund of a key never used")

		k = c.key()
		d := c.take(k, l, 2)
		for range 4 {
			c.refund(k, l, 2, d)
		}
		over(k, "the same refund four times")

		k = c.key()
		d = c.take(k, l, 2)
		c.refund(k, l, 1000, d)
		over(k, "a refund of more than was taken")
	})
}

func checkRefundEdge(c *check) {
	for _, a := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow, limiter.SlidingLog} {
		if !c.p.supports(a) {
			continue
		}
		l, k := quick(a), c.key()
		c.edge(time.Second)
		c.advance(900 * time.Millisecond)
		old := c.passes(k, l, 2, "the window before")
		if a != limiter.FixedWindow {
			c.advance(1200 * time.Millisecond) // out of the cell that is still partly inside
		}
		c.advance(100 * time.Millisecond)
		c.passes(k, l, 5, "the window after")
		c.refund(k, l, 2, old)
		c.left(c.peek(k, l), 0, a.String()+": a refund into a window that is over")
		c.refuses(k, l, 1, a.String()+": a refund into a window that is over")
	}
	if c.p.supports(limiter.TokenBucket) { // what came back meanwhile is not given twice
		l, k := quick(limiter.TokenBucket), c.key()
		old := c.passes(k, l, 2, "a new key")
		c.advance(time.Second)
		c.passes(k, l, 1, "a key that is full again")
		c.refund(k, l, 2, old)
		c.left(c.peek(k, l), 5, "a refund once time has given it back")
		c.passes(k, l, 5, "the quota")
		c.refuses(k, l, 1, "one unit over the quota")
	}
}

func checkRefundNothing(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := c.calm(a, 5), c.key()
		c.passes(k, l, 4, "a new key")
		d := c.refuses(k, l, 3, "three with one left")
		c.refund(k, l, 3, d)
		c.left(c.peek(k, l), 1, "a refund of a refused take")
		c.refund(k, l, 1, c.peek(k, l))
		c.left(c.peek(k, l), 1, "a refund of a look")
		d = c.passes(k, l, 1, "the last unit")
		c.refund(k, l, 0, d)
		c.refund(k, l, -3, d)
		c.left(c.peek(k, l), 0, "a refund of no units")
	})
}

func checkRefundQueue(c *check) {
	if !c.p.supports(limiter.LeakyBucket) {
		return
	}
	l, k := c.calm(limiter.LeakyBucket, 5), c.key()
	first := c.passes(k, l, 1, "an empty queue")
	second := c.passes(k, l, 2, "a queue")
	c.refund(k, l, 1, first)
	c.left(c.peek(k, l), 2, "a refund of the request that has left")
	c.require(c.passes(k, l, 1, "a queue").Delay > second.Delay, "a refund let a request overtake one that was promised its place")
}

func checkReset(c *check) {
	other := c.key()
	c.each(func(c *check, a limiter.Algorithm) { c.take(other, c.calm(a, 5), 2) })
	k := c.key()
	c.each(func(c *check, a limiter.Algorithm) { c.take(k, c.calm(a, 5), 5) })
	c.reset(k)
	c.each(func(c *check, a limiter.Algorithm) {
		d := c.peek(k, c.calm(a, 5))
		c.left(d, 5, "a key after its reset")
		c.require(c.p.Bounds != nil || d.ResetAfter == 0 && d.NextAfter == 0, "a key after its reset is full: %v", show(d))
		c.worth(k, c.calm(a, 5), 5, "a key after its reset")
		c.left(c.peek(other, c.calm(a, 5)), 3, "another key after the reset")
	})
	c.reset(c.key()) // a key never seen
}
