package limitertest

import (
	"errors"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var batchRules = []rule{
	{"batch-empty", "a call without takes says that batches are supported and passes", needBatch, checkBatchEmpty},
	{"batch-all-or-nothing", "if one take is refused nothing is booked for any of them, and each answer is that take's own", needBatch, checkBatchAtomic},
	{"batch-every-algorithm", "takes of all algorithms are decided together, at one instant", needBatch | needExact, checkBatchAlgorithms},
	{"batch-equal-keys", "takes of one key count together, and their sum is what fits or does not", needBatch | needExact, checkBatchEqual},
	{"batch-two-limits", "two limits for one key in one call are invalid, and nothing is booked", needBatch | needRelimit, checkBatchTwoLimits},
	{"batch-two-queues", "two real LeakyBucket takes cannot leave at one instant: invalid, and nothing is booked", needBatch, checkBatchTwoQueues},
	{"batch-invalid", "one malformed take makes the whole call invalid, and nothing is booked", needBatch, checkBatchInvalid},
	{"batch-never", "one take that can never fit refuses the group, which waits for nothing and changes nothing", needBatch, checkBatchNever},
	{"batch-retry-after", "a refused group passes after the longest wait of its takes, and not one tick earlier", needBatch | needTime | needExact, checkBatchRetry},
	{"batch-queue", "a group waits in its queue, takes its place only if all pass, and gives it to others if not", needBatch | needTime | needExact, checkBatchQueue},
	{"batch-learns", "a refused group stores the new limits of its takes, unless it can never pass", needBatch | needRelimit | needTime | needExact, checkBatchLearns},
	{"batch-shadow", "a shadow take decides and never refuses; it is booked only if it and all real takes pass", needBatch | needExact, checkBatchShadow},
	{"batch-peek", "a look in a batch is no obstacle and books nothing", needBatch | needExact, checkBatchPeek},
}

func take(k limiter.Key, l limiter.Limit, n int) limiter.Take {
	return limiter.Take{Key: k, Limit: l, N: n, MaxDelay: forever}
}

func shadow(k limiter.Key, l limiter.Limit, n int) limiter.Take {
	return limiter.Take{Key: k, Limit: l, N: n, MaxDelay: forever, Shadow: true}
}

func checkBatchEmpty(c *check) {
	for _, takes := range [][]limiter.Take{nil, {}} {
		ok, err := c.batch(takes)
		c.require(ok && err == nil, "a call without takes: %v, %v", ok, err)
	}
}

func checkBatchAtomic(c *check) {
	a := c.first()
	wide, narrow := c.calm(a, 20), c.calm(a, 3)
	shared, user := c.key(), c.key()
	passed := 0
	for range 10 {
		ok, takes := c.all(take(shared, wide, 1), take(user, narrow, 1))
		if ok {
			passed++
			continue
		}
		c.require(!takes[1].Decision.Allowed || c.p.Bounds != nil, "the narrow limit is the cause: %v", show(takes[1].Decision))
		c.require(c.p.Bounds != nil || takes[0].Decision.Allowed && takes[0].Decision.RetryAfter == 0, "the wide limit is not the cause: %v", show(takes[0].Decision))
		c.left(takes[0].Decision, 20-passed, "the untouched state of the take that would have passed")
	}
	c.require(float64(passed) <= c.p.most(3) && passed >= c.p.least(3), "of groups limited to 3, %d passed", passed)
	d := c.peek(shared, wide)
	c.left(d, 20-passed, "the wide limit after refused groups")
	c.require(c.p.Bounds == nil || d.Remaining >= c.p.least(20)-passed, "refused groups were charged to the wide limit: %v", show(d))
	if c.p.Bounds == nil {
		// The other order: the cause comes first.
		ok, takes := c.all(take(user, narrow, 1), take(shared, wide, 1))
		c.require(!ok && !takes[0].Decision.Allowed && takes[1].Decision.Allowed, "the order of takes matters")
		c.left(c.peek(shared, wide), 20-passed, "the wide limit after refused groups")
	}
}

func checkBatchAlgorithms(c *check) {
	k := c.key()
	var takes []limiter.Take
	c.each(func(c *check, a limiter.Algorithm) { takes = append(takes, take(k, c.calm(a, 5), 2)) })
	ok, got := c.all(takes...)
	c.require(ok, "two of five under every algorithm")
	for _, t := range got {
		c.sane(t.Decision, t.Limit, 2)
		c.left(t.Decision, 3, t.Limit.Algorithm.String())
	}
	last := len(takes) - 1
	takes[last].N = 4
	ok, got = c.all(takes...)
	c.require(!ok, "four of three in one of them")
	for i, t := range got {
		c.require(t.Decision.Allowed == (i != last), "take %d of a refused group: %v", i, show(t.Decision))
		c.left(t.Decision, 3, "a refused group")
		c.left(c.peek(k, t.Limit), 3, "a refused group")
	}
}

func checkBatchEqual(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		if a == limiter.LeakyBucket {
			return
		}
		l, k := c.calm(a, 5), c.key()
		ok, got := c.all(take(k, l, 2), take(k, l, 2))
		c.require(ok, "two and two of five")
		for _, t := range got {
			c.left(t.Decision, 1, "two and two of five")
		}
		ok, got = c.all(take(k, l, 1), take(k, l, 1))
		c.require(!ok && !got[0].Decision.Allowed && !got[1].Decision.Allowed, "one and one with one left: each fits alone, together they do not")
		c.left(c.peek(k, l), 1, "a refused group")
		ok, got = c.all(take(c.key(), l, 3), take(k, l, 6))
		c.require(!ok && got[1].Decision.RetryAfter == limiter.Never, "more than the quota")
		k = c.key()
		_, got = c.all(take(k, l, 3), take(k, l, 3))
		c.require(got[0].Decision.RetryAfter == limiter.Never, "three and three of five can never pass: %v", show(got[0].Decision))
	})
}

func checkBatchTwoLimits(c *check) {
	a := c.first()
	k, other := c.key(), c.key()
	ok, err := c.batch([]limiter.Take{take(other, c.calm(a, 5), 1), take(k, c.calm(a, 5), 1), take(k, c.calm(a, 6), 1)})
	c.require(!ok && errors.Is(err, limiter.ErrInvalid), "two limits for one key: %v, %v", ok, err)
	c.left(c.peek(other, c.calm(a, 5)), 5, "an invalid call")
	c.left(c.peek(k, c.calm(a, 5)), 5, "an invalid call")
}

func checkBatchTwoQueues(c *check) {
	if !c.p.supports(limiter.LeakyBucket) {
		return
	}
	l := c.calm(limiter.LeakyBucket, 5)
	one, two := c.key(), c.key()
	ok, err := c.batch([]limiter.Take{take(one, l, 1), take(two, l, 1)})
	c.require(!ok && errors.Is(err, limiter.ErrInvalid), "two queues: %v, %v", ok, err)
	c.left(c.peek(one, l), 5, "an invalid call")
	ok, _ = c.all(take(one, l, 1), take(two, l, 0))
	c.require(ok, "a look at a second queue is no second queue")
	ok, _ = c.all(take(one, l, 1), shadow(two, l, 1))
	c.require(ok, "a shadow queue never delays, so it is no second queue")
}

func checkBatchInvalid(c *check) {
	a := c.first()
	l, k := c.calm(a, 5), c.key()
	for _, bad := range []limiter.Take{take(c.key(), l, -1), take(c.key(), limiter.Limit{}, 1), take(c.key(), limiter.Per(0, time.Second), 1)} {
		for _, takes := range [][]limiter.Take{{take(k, l, 1), bad}, {bad, take(k, l, 1)}} {
			ok, err := c.batch(takes)
			c.require(!ok && errors.Is(err, limiter.ErrInvalid), "a malformed take: %v, %v", ok, err)
			c.left(c.peek(k, l), 5, "an invalid call")
		}
	}
}

func checkBatchNever(c *check) {
	a := c.first()
	l, k, other := c.calm(a, 5), c.key(), c.key()
	for range 3 {
		ok, got := c.all(take(k, l, 6), take(other, l, 1))
		c.require(!ok && got[0].Decision.RetryAfter == limiter.Never, "six of five: %v", show(got[0].Decision))
		c.require(got[1].Decision.Allowed && got[1].Decision.RetryAfter == 0, "the other take is not the cause: %v", show(got[1].Decision))
		c.left(got[0].Decision, 5, "an untouched key")
		c.left(got[1].Decision, 5, "an untouched key")
	}
	ok, got := c.all(take(k, limiter.DenyAll, 1), take(other, l, 1))
	c.require(!ok && got[0].Decision.RetryAfter == limiter.Never, "a group with DenyAll: %v", show(got[0].Decision))
	c.left(c.peek(other, l), 5, "an untouched key")
	ok, _ = c.all(take(k, limiter.Unlimited, 1), take(other, l, 1))
	c.require(ok || c.p.least(5) < 1, "a group with Unlimited was refused")
}

func checkBatchRetry(c *check) {
	if !c.p.supports(limiter.TokenBucket) {
		return
	}
	short, long := limiter.Per(1, time.Second), limiter.Per(1, 5*time.Second)
	a, b := c.key(), c.key()
	for _, flip := range []bool{false, true} {
		group := func() (bool, time.Duration) {
			takes := []limiter.Take{take(a, short, 1), take(b, long, 1)}
			if flip {
				takes[0], takes[1] = takes[1], takes[0]
			}
			ok, got := c.all(takes...)
			return ok, max(got[0].Decision.RetryAfter, got[1].Decision.RetryAfter)
		}
		ok, _ := group()
		c.require(ok, "two full keys")
		ok, wait := group()
		c.require(!ok, "two empty keys")
		c.waits("RetryAfter", wait, 5*time.Second, "the longest wait")
		c.notBefore(wait, func() bool { ok, _ := group(); return ok }, "the group's RetryAfter", 1)
		c.advance(10 * time.Second)
	}
}

func checkBatchQueue(c *check) {
	if !c.p.supports(limiter.LeakyBucket) || !c.p.supports(limiter.TokenBucket) {
		return
	}
	queue, bucket := limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(3), limiter.PerSecond(1).WithBurst(2)
	for _, queueFirst := range []bool{true, false} {
		q, b := c.key(), c.key()
		group := func() (bool, limiter.Decision, limiter.Decision) {
			takes := []limiter.Take{take(q, queue, 1), take(b, bucket, 1)}
			if !queueFirst {
				takes[0], takes[1] = takes[1], takes[0]
			}
			ok, got := c.all(takes...)
			if !queueFirst {
				return ok, got[1].Decision, got[0].Decision
			}
			return ok, got[0].Decision, got[1].Decision
		}
		for place := range 2 {
			ok, inQueue, _ := group()
			c.require(ok, "group %d", place)
			c.waits("Delay", inQueue.Delay, time.Duration(place)*100*time.Millisecond, "the queue delays the group")
		}
		ok, inQueue, inBucket := group()
		c.require(!ok && inQueue.Allowed && inQueue.Delay == 0 && !inBucket.Allowed, "the bucket is empty: queue %v, bucket %v", show(inQueue), show(inBucket))
		c.waits("RetryAfter", inBucket.RetryAfter, time.Second, "the bucket")
		c.left(inQueue, 1, "the queue gives the place to others")
		c.left(c.peek(q, queue), 1, "the queue gives the place to others")
		c.waits("Delay", c.passes(q, queue, 1, "another request").Delay, 200*time.Millisecond, "another request")
	}
}

func checkBatchLearns(c *check) {
	if !c.p.supports(limiter.TokenBucket) || !c.p.supports(limiter.FixedWindow) {
		return
	}
	slow, fast := limiter.PerHour(1).WithBurst(2), limiter.PerSecond(1).WithBurst(2)
	empty := limiter.Per(1, 24*time.Hour).With(limiter.FixedWindow)
	c.edge(24 * time.Hour)
	for _, never := range []bool{false, true} {
		k, full := c.key(), c.key()
		c.passes(k, slow, 2, "a new key")
		c.passes(full, empty, 1, "a new window")
		c.advance(time.Second)
		n := 1
		if never {
			n = 2 // of one: never
		}
		ok, _ := c.all(take(k, fast, 1), take(full, empty, n))
		c.require(!ok, "both keys are used up")
		c.advance(time.Second)
		d := c.peek(k, fast)
		if never {
			c.left(d, 0, "a group that can never pass changes nothing: the old rate goes on")
		} else {
			c.left(d, 1, "the new rate counts from the refused group on")
		}
	}
}

func checkBatchShadow(c *check) {
	a := c.first()
	l, real, dark, none := c.calm(a, 5), c.key(), c.key(), c.key()

	ok, got := c.all(take(real, l, 1), shadow(dark, l, 2))
	c.require(ok && got[1].Decision.Allowed, "both fit")
	c.left(c.peek(dark, l), 3, "a shadow take that passes with the real ones is booked")

	ok, got = c.all(take(real, l, 1), shadow(dark, l, 4))
	c.require(ok, "a shadow take refused the call")
	c.require(!got[1].Decision.Allowed && got[1].Decision.RetryAfter > 0, "a shadow take shows that it would have refused: %v", show(got[1].Decision))
	c.left(c.peek(dark, l), 3, "a shadow take that does not fit is not booked")
	c.left(c.peek(real, l), 3, "the real take is booked all the same")

	ok, got = c.all(take(real, l, 4), shadow(dark, l, 1))
	c.require(!ok && got[1].Decision.Allowed, "the real take does not fit, the shadow take would have")
	c.left(c.peek(dark, l), 3, "a shadow take beside a refused one is not booked")

	ok, got = c.all(shadow(none, limiter.DenyAll, 1), shadow(dark, l, 1), take(real, l, 1))
	c.require(ok && !got[0].Decision.Allowed, "a shadow of DenyAll shows and refuses nothing")
	c.left(c.peek(real, l), 2, "a real take beside shadows")

	ok, _ = c.all(shadow(dark, l, 1000))
	c.require(ok, "a call of shadows alone passes")
}

func checkBatchPeek(c *check) {
	a := c.first()
	l, empty, k := c.calm(a, 5), c.key(), c.key()
	c.passes(empty, l, 5, "a new key")
	ok, got := c.all(take(empty, l, 0), take(k, l, 1))
	c.require(ok && got[0].Decision.Allowed, "a look at an empty key refused the call")
	c.left(got[0].Decision, 0, "a look at an empty key")
	c.left(got[1].Decision, 4, "the take beside a look")
	ok, _ = c.all(take(k, l, 0), take(empty, l, 1))
	c.require(!ok, "the empty key refuses")
	c.left(c.peek(k, l), 4, "a look beside a refused take")
}
