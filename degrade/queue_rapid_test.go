package degrade_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

// arrival is one request of a random course.
type arrival struct {
	after  time.Duration // the one before
	key    string
	cost   int
	leaves time.Duration // 0: it stays
	within time.Duration // of a deadline; 0: none
}

type course struct {
	set      degrade.QueueConfig
	limit    limiter.Limit
	dumb     bool
	arrivals []arrival
}

func drawCourse(t *rapid.T) (c course) {
	c.limit = limiter.Per(rapid.IntRange(1, 7).Draw(t, "rate"), time.Duration(rapid.IntRange(1, 10).Draw(t, "period"))*100*ms)
	c.limit = c.limit.With(rapid.SampledFrom(limiter.Algorithms()).Draw(t, "algorithm"))
	switch c.limit.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		c.limit.Burst = rapid.IntRange(1, 5).Draw(t, "burst")
	case limiter.SlidingWindow:
		c.limit.Cells = rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "cells")
	}
	c.set = degrade.QueueConfig{
		Total:       rapid.IntRange(1, 12).Draw(t, "total"),
		MaxWait:     time.Duration(rapid.IntRange(1, 30).Draw(t, "wait")) * 100 * ms,
		NewestFirst: rapid.IntRange(0, 4).Draw(t, "newest") == 0,
	}
	c.set.PerKey = rapid.IntRange(1, c.set.Total).Draw(t, "per key")
	c.dumb = rapid.IntRange(0, 4).Draw(t, "dumb") == 0
	costly := rapid.Bool().Draw(t, "costly")
	c.arrivals = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) (a arrival) {
		a.after = time.Duration(rapid.IntRange(1, 300_000).Draw(t, "after")) * time.Microsecond
		a.key = rapid.SampledFrom([]string{"a", "a", "a", "b", "c"}).Draw(t, "key")
		if a.cost = 1; costly {
			a.cost = rapid.IntRange(1, 5).Draw(t, "cost")
		}
		if rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
			a.leaves = time.Duration(rapid.IntRange(0, 1_000_000).Draw(t, "leaves after")) * time.Microsecond
		}
		if rapid.IntRange(0, 5).Draw(t, "hurries") == 0 {
			a.within = time.Duration(rapid.IntRange(1, 2_000_000).Draw(t, "within")) * time.Microsecond
		}
		return a
	}), 1, 60).Draw(t, "arrivals")
	return c
}

// run lets all requests come, and returns once all have ended. most is how many have waited at once.
func (c *course) run(t *testing.T, g *desk) (most int64) {
	var waiting, peak atomic.Int64
	g.dumb = c.dumb
	g.place = func() (func(), bool) {
		for n := waiting.Add(1); ; {
			if p := peak.Load(); n <= p || peak.CompareAndSwap(p, n) {
				return func() { waiting.Add(-1) }, true
			}
		}
	}
	for id, a := range c.arrivals {
		time.Sleep(a.after)
		ctx, cancel := context.WithCancel(t.Context())
		if a.within > 0 {
			ctx, cancel = context.WithTimeout(t.Context(), a.within)
		}
		if a.leaves > 0 {
			time.AfterFunc(a.leaves, cancel)
		}
		go func() {
			defer cancel()
			g.serve(ctx, visit{id: id, key: keyOf(a.key), cost: a.cost})
		}()
	}
	time.Sleep(2*c.set.MaxWait + time.Second)
	g.waiting(t, 0, 0)
	return peak.Load()
}

// Whatever comes, goes and costs: every request ends, within its bounds; the policy lets no more through than its limit;
// they pass in the order they came; and whoever has waited for its turn is not refused in favour of another.
func TestQueueProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCourse(rt)
		var g *desk
		var most int64
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(17*time.Second + 3*ms)
			g = newDesk(t, c.set, c.limit)
			most = c.run(t, g)
		})
		require.Len(rt, g.seen, len(c.arrivals), "every request ends")
		require.LessOrEqual(rt, most, int64(c.set.Total))
		inTime(rt, &c, g)
		inOrder(rt, &c, g)
		inVain(rt, &c, g)
		withinLimit(rt, c.limit, g.passed)
	})
}

func inTime(t *rapid.T, c *course, g *desk) {
	for _, v := range g.seen {
		most := c.set.MaxWait
		if within := c.arrivals[v.id].within; within > 0 {
			most = max(0, min(most, within-100*ms))
		}
		require.LessOrEqual(t, v.waited(), most, v.id)
		require.LessOrEqual(t, v.asked, 2, v.id)
		require.True(t, v.passed || v.gone || len(v.outs) > 0 && v.outs[len(v.outs)-1] == degrade.Skip, "%d was refused and knows it", v.id)
	}
}

func inOrder(t *rapid.T, c *course, g *desk) {
	if c.set.NewestFirst {
		return
	}
	last := make(map[limiter.Key]int)
	for _, p := range g.passed {
		require.GreaterOrEqual(t, p.id, last[p.key], "%v: %d came later than %d", p.key, last[p.key], p.id)
		last[p.key] = p.id
	}
}

// inVain checks that no turn came too early. Where costs differ, the turns of windows are estimates; a desk that tells
// nothing of its decisions leaves estimates alone.
func inVain(t *rapid.T, c *course, g *desk) {
	exact := c.limit.Algorithm == limiter.TokenBucket || c.limit.Algorithm == limiter.LeakyBucket
	for _, v := range g.seen {
		if v.cost > 1 && !exact || c.dumb {
			return
		}
	}
	for _, v := range g.seen {
		require.False(t, !v.passed && !v.gone && len(v.outs) > 1, "%d: %v after %v", v.id, v.outs, v.waited())
	}
}

// withinLimit checks what has passed against the limit, by the limit's words and not by a limiter.
func withinLimit(t *rapid.T, l limiter.Limit, passed []pass) {
	for k, from := range passed {
		sum := 0
		for _, p := range passed[k:] {
			if p.key != from.key {
				continue
			}
			sum += p.cost
			took, period := p.at.Sub(from.at), l.Period
			most := l.Rate
			switch l.Algorithm {
			case limiter.TokenBucket, limiter.LeakyBucket:
				most = l.Quota() + int(took*time.Duration(l.Rate)/period)
			case limiter.FixedWindow:
				if from.at.UnixNano()/int64(period) != p.at.UnixNano()/int64(period) {
					continue
				}
			case limiter.SlidingLog:
				if took >= period {
					continue
				}
			default:
				continue // its estimate is its own
			}
			require.LessOrEqual(t, sum, most, "from %d to %d in %v", from.id, p.id, took)
		}
	}
}
