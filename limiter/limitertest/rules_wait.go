package limitertest

import (
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var waitRules = []rule{
	{"retry-after", "waiting RetryAfter is enough, and one tick of the deciding clock less is not", needTime | needExact, checkRetryAfter},
	{"reset-after", "ResetAfter is when the whole quota is back, to the tick", needTime | needExact, checkResetAfter},
	{"next-after", "NextAfter is the RetryAfter of a take of Remaining + 1, to the tick", needTime | needExact, checkNextAfter},
	{"comes-back", "the quota comes back: a client that waits as it is told is served", needTime, checkComesBack},
	{"steady-rate", "over a long time a limit lets its whole rate pass, fractions of units and of ticks included", needTime | needExact, checkSteadyRate},
	{"denial-storm", "clients that retry at once, thousands of times, neither starve themselves nor get more", needTime | needExact, checkStorm},
	{"idle", "idling is no refill: a key is as full as the time that passed, and as new only when its quota is back", needTime | needExact, checkIdle},
	{"fixed-window-edges", "fixed windows are multiples of the period since the epoch; what is left in one is lost at its end", needTime | needExact, checkFixedEdges},
	{"calendar-windows", "aligned windows are days, weeks from Monday and months of their zone", needTime | needExact | needAlign, checkCalendar},
	{"queue-spacing", "a LeakyBucket lets its requests leave one interval apart and never in a bunch; a full queue refuses", needTime | needExact | needBatch, checkSpacing},
	{"queue-max-delay", "a place in the queue later than MaxDelay is refused until it is near enough, to the tick", needTime | needExact | needBatch, checkMaxDelay},
	{"queue-allow", "Allow never allows a place in the queue that would have to wait", needTime | needExact, checkQueueAllow},
	{"own-clock", "Allow reads the limiter's own clock: waits it names come true on it", needOwnClock | needExact, checkOwnClock},
}

func checkRetryAfter(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l := quick(a)
		for n := 1; n <= 5; n++ {
			k := c.key()
			c.passes(k, l, 2, "a new key")
			c.advance(130 * time.Millisecond)
			c.passes(k, l, 3, "a part of the quota later")
			c.drain(func() bool { return c.take(k, l, 1).Allowed })
			d := c.refuses(k, l, n, "an empty key")
			c.require(d.RetryAfter <= 2*time.Second, "a wait of %v under 5 per second", d.RetryAfter)
			c.notBefore(d.RetryAfter, func() bool { return c.take(k, l, n).Allowed }, "RetryAfter", n)
		}
	})
}

// drain takes what came back meanwhile.
func (c *check) drain(one func() bool) {
	for range 100 {
		if !one() {
			return
		}
	}
	c.fatalf("a hundred units passed at one instant under 5 per second")
}

// notBefore moves time to the end of a wait and checks that something comes true then and not one tick earlier. The
// profile's rounding is allowed for.
func (c *check) notBefore(wait time.Duration, happens func() bool, what string, n int) {
	early := wait - c.p.Late - c.p.tick()
	if early >= 0 {
		c.advance(early)
		c.require(!happens(), "%s of %v (n = %d): it comes true a tick earlier", what, wait, n)
		c.advance(wait - early)
	} else {
		c.advance(wait)
	}
	c.require(happens(), "%s of %v (n = %d): waiting so long is not enough", what, wait, n)
}

func checkResetAfter(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l := quick(a)
		for n := 1; n <= 5; n++ {
			k := c.key()
			c.advance(70 * time.Millisecond)
			d := c.passes(k, l, n, "a new key")
			full := func() bool {
				d := c.peek(k, l)
				return d.Remaining == 5 && d.ResetAfter == 0 && d.NextAfter == 0
			}
			c.notBefore(d.ResetAfter, full, "ResetAfter", n)
			c.passes(k, l, 5, "the whole quota once it is back")
		}
	})
}

func checkNextAfter(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l := quick(a)
		for n := 1; n <= 5; n++ {
			k := c.key()
			c.advance(70 * time.Millisecond)
			c.passes(k, l, n, "a new key")
			c.advance(30 * time.Millisecond)
			d := c.peek(k, l)
			more := d.Remaining + 1
			c.require(d.Remaining < 5, "%d of 5 are used: %v", n, show(d))
			r := c.refuses(k, l, more, "one more than is left")
			c.waits("NextAfter", d.NextAfter, r.RetryAfter, "one more than is left")
			c.notBefore(d.NextAfter, func() bool { return c.take(k, l, more).Allowed }, "NextAfter", n)
		}
	})
}

func checkComesBack(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := quick(a), c.key()
		passed := 0
		for range 60 {
			d := c.take(k, l, 1)
			if d.Allowed {
				passed++
				continue
			}
			c.require(d.RetryAfter != limiter.Never && d.RetryAfter < time.Minute, "5 per second: %v", show(d))
			c.advance(d.RetryAfter)
		}
		c.require(passed >= 15, "of 60 tries that waited as they were told %d passed", passed)
	})
}

func checkSteadyRate(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		// Seven units in three seconds: no tick divides the interval.
		l := limiter.Per(7, 3*time.Second).With(a)
		if a == limiter.LeakyBucket {
			l.Burst = 7
		}
		k, passed, begin := c.key(), 0, c.now()
		for range 700 {
			d := c.take(k, l, 1)
			if d.Allowed {
				passed++
				continue
			}
			c.advance(d.RetryAfter)
		}
		took := c.now().Sub(begin)
		exact := 7 * float64(took) / float64(3*time.Second)
		low, high := exact-7, exact+7.001
		switch a {
		case limiter.SlidingWindow: // see denial-storm
			low = 0.6 * exact
		case limiter.FixedWindow: // a part of a window at either end
			high += 7
		}
		c.require(float64(passed) <= high && float64(passed) >= low, "in %v %d passed, the rate allows %.1f", took, passed, exact)
	})
}

func checkStorm(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l, k := quick(a), c.key()
		calm := c.key()
		stormy, quiet := 0, 0
		for step := range 2000 {
			if c.take(k, l, 1).Allowed {
				stormy++
			}
			if step%40 == 0 { // as often as the limit allows
				if c.take(calm, l, 1).Allowed {
					quiet++
				}
			}
			c.advance(5 * time.Millisecond)
		}
		// Ten seconds at five a second, and the burst.
		c.require(stormy <= 56, "in 10 s under 5 per second a storm got %d through", stormy)
		c.require(stormy >= 40, "in 10 s under 5 per second a storm got only %d through: refusals are charged", stormy)
		// A sliding window weighs the cell before as if it had been even, which costs some of the rate at its own pace.
		c.require(quiet == 50 || a == limiter.SlidingWindow && quiet >= 40, "a client that keeps to the rate was refused: %d of 50 passed", quiet)
	})
}

func checkIdle(c *check) {
	c.each(func(c *check, a limiter.Algorithm) {
		l := limiter.PerHour(4).With(a)
		if a == limiter.LeakyBucket {
			l.Burst = 4
		}
		c.edge(time.Hour)
		k := c.key()
		c.passes(k, l, 4, "a new key")
		c.advance(14 * time.Minute)
		c.refuses(k, l, 1, "a quarter of an hour has not passed")
		c.advance(45 * time.Minute)
		d := c.peek(k, l)
		c.require(d.Remaining < 4, "59 of 60 minutes cannot bring back 4 per hour: %v", show(d))
		c.refuses(k, l, 4, "59 of 60 minutes")
		c.advance(2 * time.Hour)
		d = c.peek(k, l)
		c.left(d, 4, "a key that idled for three hours")
		c.require(d.ResetAfter == 0, "a key that idled for three hours is as new: %v", show(d))
		c.passes(k, l, 4, "a key that idled for three hours")
		c.advance(100 * 24 * time.Hour)
		c.left(c.passes(k, l, 1, "after a hundred days"), 3, "idling saves nothing up")
	})
}

func checkFixedEdges(c *check) {
	if !c.p.supports(limiter.FixedWindow) {
		return
	}
	for _, period := range []time.Duration{time.Second, time.Minute, 7 * time.Second, 24 * time.Hour} {
		l, k := limiter.Per(5, period).With(limiter.FixedWindow), c.key()
		c.edge(period)
		c.advance(period - period/10)
		d := c.passes(k, l, 5, "the end of a window")
		c.waits("ResetAfter", d.ResetAfter, period/10, "the end of a window")
		d = c.refuses(k, l, 1, "the end of a window")
		c.waits("RetryAfter", d.RetryAfter, period/10, "a window ends at a multiple of its length")
		c.advance(period / 10)
		d = c.passes(k, l, 5, "the start of the next window")
		c.waits("ResetAfter", d.ResetAfter, period, "the start of a window")
		c.advance(period / 2)
		c.waits("RetryAfter", c.refuses(k, l, 1, "a used window").RetryAfter, period-period/2, "the middle of a window")
		c.advance(period - period/2)
		c.left(c.passes(k, l, 2, "a new window"), 3, "a new window")
		c.advance(period)
		c.left(c.peek(k, l), 5, "what was left is lost at the end of a window")
	}
}

func checkCalendar(c *check) {
	zone, err := time.LoadLocation("America/Sao_Paulo")
	c.require(err == nil, "zone: %v", err)
	for _, u := range []limiter.Unit{limiter.Day, limiter.Week, limiter.Month} {
		l, k := limiter.Limit{Rate: 3}.Aligned(u, zone.String()), c.key()
		y, m, d := c.now().In(zone).Date()
		var end time.Time
		switch u {
		case limiter.Day:
			end = time.Date(y, m, d+1, 0, 0, 0, 0, zone)
		case limiter.Week:
			end = time.Date(y, m, d+7-(int(c.now().In(zone).Weekday())+6)%7, 0, 0, 0, 0, zone)
		case limiter.Month:
			end = time.Date(y, m+1, 1, 0, 0, 0, 0, zone)
		}
		c.passes(k, l, 3, "a new window")
		got := c.refuses(k, l, 1, "a used window")
		c.waits("RetryAfter", got.RetryAfter, end.Sub(c.now()), u.String())
		c.notBefore(got.RetryAfter, func() bool { return c.take(k, l, 1).Allowed }, "the end of the "+u.String(), 1)
	}
}

func checkSpacing(c *check) {
	if !c.p.supports(limiter.LeakyBucket) {
		return
	}
	l, k := limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(5), c.key()
	for turn := range 3 {
		for place := range 5 {
			d := c.passes(k, l, 1, "a queue with places")
			c.waits("Delay", d.Delay, time.Duration(place)*100*time.Millisecond, "one interval after the request before")
		}
		d := c.refuses(k, l, 1, "a full queue")
		c.waits("RetryAfter", d.RetryAfter, 100*time.Millisecond, "a full queue")
		c.advance(time.Hour)
		c.require(turn < 3, "unreachable")
	}
	k = c.key() // a take of several units holds as many intervals
	l = l.WithBurst(10)
	c.waits("Delay", c.passes(k, l, 4, "units leave together").Delay, 0, "an empty queue")
	c.waits("Delay", c.passes(k, l, 3, "behind four units").Delay, 400*time.Millisecond, "behind four units")
	c.waits("RetryAfter", c.refuses(k, l, 4, "three places").RetryAfter, 100*time.Millisecond, "three places")
	c.waits("Delay", c.passes(k, l, 3, "three places").Delay, 700*time.Millisecond, "behind seven units")

	// The default is strict spacing: nobody waits, whoever is early is refused.
	k, l = c.key(), limiter.PerSecond(10).With(limiter.LeakyBucket)
	c.waits("Delay", c.passes(k, l, 1, "strict spacing").Delay, 0, "strict spacing")
	d := c.refuses(k, l, 1, "strict spacing")
	c.notBefore(d.RetryAfter, func() bool { return c.take(k, l, 1).Allowed }, "strict spacing", 1)
}

func checkMaxDelay(c *check) {
	if !c.p.supports(limiter.LeakyBucket) {
		return
	}
	l := limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(5)
	for _, most := range []time.Duration{0, 100 * time.Millisecond, 250 * time.Millisecond, 300 * time.Millisecond} {
		k := c.key()
		ask := func() limiter.Decision {
			_, takes := c.all(limiter.Take{Key: k, Limit: l, N: 1, MaxDelay: most})
			return takes[0].Decision
		}
		for place := 0; time.Duration(place)*100*time.Millisecond <= most; place++ {
			d := ask()
			c.require(d.Allowed, "place %d with MaxDelay %v was refused: %v", place, most, show(d))
			c.waits("Delay", d.Delay, time.Duration(place)*100*time.Millisecond, "a place near enough")
		}
		d := ask()
		c.require(!d.Allowed, "MaxDelay %v: a later place was allowed: %v", most, show(d))
		next := (most/(100*time.Millisecond) + 1) * 100 * time.Millisecond
		c.waits("RetryAfter", d.RetryAfter, next-most, "until the place is near enough")
		c.notBefore(d.RetryAfter, func() bool { return ask().Allowed }, "RetryAfter under MaxDelay", 1)
	}
}

func checkQueueAllow(c *check) {
	if !c.p.supports(limiter.LeakyBucket) {
		return
	}
	l := limiter.Per(1, 200*24*time.Hour).With(limiter.LeakyBucket).WithBurst(5)
	k := c.key()
	d, err := c.l.Allow(c.ctx, k, l, 1)
	c.require(err == nil && d.Allowed && d.Delay == 0, "an empty queue: %v, %v", show(d), err)
	d, err = c.l.Allow(c.ctx, k, l, 1)
	c.require(err == nil && !d.Allowed && d.Delay == 0 && d.RetryAfter > 0, "a place that would have to wait: %v, %v", show(d), err)
	c.left(d, 4, "a place that would have to wait")
}

func checkOwnClock(c *check) {
	for _, a := range limiter.Algorithms() {
		if !c.p.supports(a) {
			continue
		}
		l, k := quick(a), c.key()
		c.advance(17*time.Second + 330*time.Millisecond)
		allow := func(n int) limiter.Decision {
			d, err := c.l.Allow(c.ctx, k, l, n)
			c.require(err == nil, "%v: Allow: %v", a, err)
			c.sane(d, l, n)
			return d
		}
		d := allow(5)
		c.require(d.Allowed, "%v: a new key: %v", a, show(d))
		for n := 1; n <= 5; n++ {
			c.drain(func() bool { return allow(1).Allowed })
			d = allow(n)
			c.require(!d.Allowed, "%v: an empty key: %v", a, show(d))
			c.notBefore(d.RetryAfter, func() bool { return allow(n).Allowed }, a.String()+": RetryAfter", n)
		}
		c.notBefore(allow(0).ResetAfter, func() bool { return allow(0).ResetAfter == 0 }, a.String()+": ResetAfter", 0)
	}
}
