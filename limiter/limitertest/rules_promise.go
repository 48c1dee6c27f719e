package limitertest

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var promiseRules = []rule{
	{"promise-token-bucket", "in every interval of length t at most Burst + Rate·t/Period units pass, and none is refused that would fit", needTime, promise(limiter.TokenBucket, tokenBucketPromise)},
	{"promise-leaky-bucket", "departures are at least Period/Rate apart per unit, nobody waits longer than the queue is long, and the queue never idles while somebody waits", needTime | needBatch, promise(limiter.LeakyBucket, leakyBucketPromise)},
	{"promise-fixed-window", "at most Rate units pass in each window, and none is refused that would fit", needTime, promise(limiter.FixedWindow, fixedWindowPromise)},
	{"promise-sliding-window", "at most Rate units pass in any interval a cell shorter than Period, and at most twice Rate in any Period", needTime, promise(limiter.SlidingWindow, slidingWindowPromise)},
	{"promise-sliding-log", "at most Rate units pass in every interval of length Period, and none is refused that would fit", needTime, promise(limiter.SlidingLog, slidingLogPromise)},
}

// hit is one take as its caller saw it: the promises are checked from outside, against nothing but these.
type hit struct {
	at, delay int64
	n         int64
	allowed   bool
}

// promise makes random traces of one algorithm and has them checked.
func promise(a limiter.Algorithm, keeps func(c *check, l limiter.Limit, hits []hit)) func(*check) {
	return func(c *check) {
		if !c.p.supports(a) {
			return
		}
		rng := rand.New(rand.NewPCG(uint64(a), 1))
		for range 40 {
			l := randomLimit(rng, a, max(c.p.tick(), time.Microsecond))
			k := c.key()
			var hits []hit
			for range 60 {
				n := int64(1 + rng.IntN(max(1, min(l.Quota(), 4))))
				if rng.IntN(8) == 0 {
					n = int64(1 + rng.IntN(l.Quota()))
				}
				d := c.take(k, l, int(n))
				hits = append(hits, hit{c.now().UnixNano(), int64(d.Delay), n, d.Allowed})
				c.advance(randomPause(rng, l, d, c.p.tick()))
			}
			keeps(c, l, hits)
		}
	}
}

// randomLimit returns a limit whose products fit 64 bits with room, as the checkers here compute with plain integers.
func randomLimit(rng *rand.Rand, a limiter.Algorithm, unit time.Duration) limiter.Limit {
	rates := []int{1, 2, 3, 5, 7, 10, 60, 97}
	periods := []time.Duration{10 * unit, 997 * unit, time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute, time.Hour}
	l := limiter.Per(rates[rng.IntN(len(rates))], periods[rng.IntN(len(periods))]).With(a)
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		l.Burst = 1 + rng.IntN(12)
	case limiter.SlidingWindow:
		cells := []int{1, 2, 4, 5, 10}[rng.IntN(5)]
		if l.Period%(time.Duration(cells)*unit) == 0 {
			l.Cells = cells
		}
	}
	return l
}

// randomPause returns a time to the next take, whole ticks: none, short, what the decision named or a tick off it.
func randomPause(rng *rand.Rand, l limiter.Limit, d limiter.Decision, tick time.Duration) time.Duration {
	wait := d.RetryAfter
	if d.Allowed || wait == limiter.Never {
		wait = d.NextAfter
	}
	if l.Period > 0 {
		wait = min(wait, 4*l.Period*time.Duration(max(1, l.Quota()/l.Rate)))
	}
	switch rng.IntN(9) {
	case 0, 1, 2:
		wait = 0
	case 3:
		wait = tick
	case 4:
		wait -= tick
	case 5:
		wait = time.Duration(rng.Int64N(int64(max(l.Period, time.Microsecond)/8) + 1))
	case 6:
		wait = min(d.ResetAfter, time.Duration(rng.Int64N(int64(3*max(l.Period, time.Microsecond)))))
	}
	return max(0, wait-wait%tick)
}

// tooMany checks units passed against the most an exact limiter would let pass.
func (c *check) tooMany(l limiter.Limit, passed int64, exact float64, what string) {
	c.require(float64(passed) <= c.p.most(exact)+1e-9, "%+v: %d units passed in %s, at most %.3f may", l, passed, what, exact)
}

// eachInterval calls f with the units passed in every closed interval that starts and ends with a take.
func eachInterval(hits []hit, f func(from, to hit, units int64)) {
	for i, from := range hits {
		var sum int64
		for _, to := range hits[i:] {
			if to.allowed {
				sum += to.n
				f(from, to, sum)
			}
		}
	}
}

// notIdle checks refusals, from refused take the units passed since each earlier take: a refusal is right only if its own
// units on top would have broken the promise for one of these intervals.
func (c *check) notIdle(l limiter.Limit, hits []hit, breaks func(from, to hit, units int64) bool) {
	if c.p.Bounds != nil {
		return
	}
	for j, refused := range hits {
		if refused.allowed {
			continue
		}
		right := breaks(refused, refused, refused.n)
		sum := refused.n
		for i := j - 1; i >= 0 && !right; i-- {
			if hits[i].allowed {
				sum += hits[i].n
				right = breaks(hits[i], refused, sum)
			}
		}
		c.require(right || c.p.Margin > 0, "%+v: take %d of %d units was refused though it would have kept the promise", l, j, refused.n)
	}
}

func tokenBucketPromise(c *check, l limiter.Limit, hits []hit) {
	breaks := func(from, to hit, units int64) bool {
		return (units-int64(l.Burst))*int64(l.Period) > int64(l.Rate)*(to.at-from.at)
	}
	eachInterval(hits, func(from, to hit, units int64) {
		if breaks(from, to, units) {
			c.tooMany(l, units, float64(l.Burst)+float64(l.Rate)*float64(to.at-from.at)/float64(l.Period), time.Duration(to.at-from.at).String())
		}
	})
	c.notIdle(l, hits, breaks)
}

func leakyBucketPromise(c *check, l limiter.Limit, hits []hit) {
	// It admits what a token bucket admits.
	tokenBucketPromise(c, l, hits)
	if c.p.Bounds != nil {
		return
	}
	tick := int64(c.p.tick())
	var last *hit
	for i := range hits {
		h := &hits[i]
		if !h.allowed {
			continue
		}
		// Reported delays are rounded up, so departures may be up to a tick less than the interval apart, or that and
		// the profile's lateness more.
		if last != nil {
			apart, gap := h.at+h.delay-last.at-last.delay, last.n*int64(l.Period)
			c.require(apart >= 0 && (apart+tick+int64(c.p.Late))*int64(l.Rate) > gap, "%+v: departures %v apart after %d units", l, time.Duration(apart), last.n)
			c.require(h.delay == 0 || (apart-tick-int64(c.p.Late))*int64(l.Rate) < gap, "%+v: the queue idles: departures %v apart after %d units", l, time.Duration(apart), last.n)
		} else {
			c.require(h.delay == 0, "%+v: the first request waits %v", l, time.Duration(h.delay))
		}
		c.require((h.delay-tick-int64(c.p.Late))*int64(l.Rate) < (int64(l.Burst)-h.n)*int64(l.Period), "%+v: a delay of %v is longer than the queue", l, time.Duration(h.delay))
		last = h
	}
}

func fixedWindowPromise(c *check, l limiter.Limit, hits []hit) {
	window := func(h hit) int64 { return h.at - floorMod(h.at, int64(l.Period)) }
	breaks := func(from, to hit, units int64) bool { return window(from) == window(to) && units > int64(l.Rate) }
	eachInterval(hits, func(from, to hit, units int64) {
		if breaks(from, to, units) {
			c.tooMany(l, units, float64(l.Rate), "one window")
		}
	})
	c.notIdle(l, hits, breaks)
}

func slidingLogPromise(c *check, l limiter.Limit, hits []hit) {
	breaks := func(from, to hit, units int64) bool { return to.at-from.at < int64(l.Period) && units > int64(l.Rate) }
	eachInterval(hits, func(from, to hit, units int64) {
		if breaks(from, to, units) {
			c.tooMany(l, units, float64(l.Rate), "one period")
		}
	})
	c.notIdle(l, hits, breaks)
}

func slidingWindowPromise(c *check, l limiter.Limit, hits []hit) {
	cell := int64(l.Period) / int64(max(l.Cells, 1))
	eachInterval(hits, func(from, to hit, units int64) {
		switch length := to.at - from.at; {
		case length <= int64(l.Period)-cell && units > int64(l.Rate):
			c.tooMany(l, units, float64(l.Rate), "a cell less than one period")
		case length < int64(l.Period) && floorMod(from.at, cell) == 0 && units > int64(l.Rate):
			c.tooMany(l, units, float64(l.Rate), "one period from an edge")
		case length < int64(l.Period) && units > 2*int64(l.Rate):
			c.tooMany(l, units, 2*float64(l.Rate), "one period")
		}
	})
	// Units stop counting when they are a cell over the period old at the latest.
	c.notIdle(l, hits, func(from, to hit, units int64) bool {
		return to.at-from.at < int64(l.Period)+cell && units > int64(l.Rate)
	})
}
