package degrade_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// The next turn is when the decision about the one before says, as well as it can.
func TestQueueNextTurn(t *testing.T) {
	l := limiter.Per(10, time.Second)
	leaky, window, fixed, log := l.With(limiter.LeakyBucket).WithBurst(5), l.WithCells(2), l.With(limiter.FixedWindow), l.With(limiter.SlidingLog)
	for name, c := range map[string]struct {
		d    limiter.Decision
		cost int
		want time.Duration
	}{
		"token bucket":              {limiter.Decision{Limit: l, NextAfter: 30 * ms, ResetAfter: time.Second}, 1, 30 * ms},
		"token bucket, costly":      {limiter.Decision{Limit: l, NextAfter: 30 * ms, ResetAfter: time.Second}, 3, 230 * ms},
		"token bucket, some left":   {limiter.Decision{Limit: l, Remaining: 2, NextAfter: 30 * ms, ResetAfter: time.Second}, 4, 130 * ms},
		"token bucket, enough":      {limiter.Decision{Limit: l, Remaining: 4, NextAfter: 30 * ms, ResetAfter: time.Second}, 4, 0},
		"leaky bucket":              {limiter.Decision{Limit: leaky, Remaining: 4, NextAfter: 30 * ms, ResetAfter: 300 * ms}, 1, 300 * ms},
		"fixed window":              {limiter.Decision{Limit: fixed, Remaining: 2, NextAfter: 300 * ms, ResetAfter: 300 * ms}, 4, 300 * ms},
		"fixed window, enough":      {limiter.Decision{Limit: fixed, Remaining: 4, NextAfter: 300 * ms, ResetAfter: 300 * ms}, 4, 0},
		"sliding window":            {limiter.Decision{Limit: window, NextAfter: 30 * ms, ResetAfter: time.Second}, 2, 130 * ms},
		"sliding window, end first": {limiter.Decision{Limit: window, NextAfter: 30 * ms, ResetAfter: 60 * ms}, 2, 60 * ms},
		"sliding log":               {limiter.Decision{Limit: log, NextAfter: 30 * ms, ResetAfter: time.Second}, 1, 30 * ms},
		"sliding log, end first":    {limiter.Decision{Limit: log, NextAfter: 30 * ms, ResetAfter: 60 * ms}, 5, 60 * ms},
		"the quota has shrunk":      {limiter.Decision{Limit: l.WithBurst(2)}, 3, -1},
		"the rate has shrunk":       {limiter.Decision{Limit: limiter.PerHour(10), NextAfter: ms}, 2, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := degrade.Queue(degrade.QueueConfig{})
				mine := new(keyfunc.Request)
				first, second := make(chan degrade.Outcome), make(chan time.Duration)
				go func() {
					d := degrade.Denial{Request: mine, Decision: limiter.Decision{Limit: l}}
					out, _ := deny(t.Context(), h, d, 50*ms)
					first <- out
				}()
				synctest.Wait()
				go func() {
					d := degrade.Denial{Cost: c.cost, Request: new(keyfunc.Request), Decision: limiter.Decision{Limit: l}}
					out, _ := deny(t.Context(), h, d, 50*ms)
					if begin := time.Now(); out == degrade.Again {
						second <- time.Duration(begin.UnixNano())
					}
					second <- -1
				}()
				require.Equal(t, degrade.Again, <-first)
				begin := time.Duration(time.Now().UnixNano())
				c.d.Allowed = true
				h.(degrade.Gate).After(&degrade.Subject{Request: mine, Key: keyOf("a"), Cost: 1}, degrade.Verdict{Passed: true, Decision: c.d})
				if c.want < 0 {
					require.Equal(t, time.Duration(-1), <-second)
					require.Equal(t, begin, time.Duration(time.Now().UnixNano()), "it is told at once")
					return
				}
				require.Equal(t, c.want, <-second-begin)
				<-second
			})
		})
	}
}

// What a newcomer is told is its turn behind all the others, as the algorithm spaces them.
func TestQueueExpectedWait(t *testing.T) {
	l := limiter.Per(10, time.Second)
	for name, c := range map[string]struct {
		limit limiter.Limit
		costs []int // of those that wait, the first for 50 ms
		cost  int
		want  time.Duration
	}{
		"token bucket":             {l, []int{1, 1, 1}, 1, 350 * ms},
		"token bucket, costs":      {l, []int{3, 2}, 4, 650 * ms},
		"leaky bucket":             {l.With(limiter.LeakyBucket).WithBurst(5), []int{1, 1, 1}, 1, 350 * ms},
		"leaky bucket, costs":      {l.With(limiter.LeakyBucket).WithBurst(5), []int{3, 2}, 4, 550 * ms},
		"fixed window, room":       {l.With(limiter.FixedWindow), []int{3, 4}, 3, 50 * ms},
		"fixed window, next":       {l.With(limiter.FixedWindow), []int{3, 4}, 4, 1050 * ms},
		"fixed window, after next": {l.With(limiter.FixedWindow), []int{10, 10}, 1, 2050 * ms},
		"calendar window":          {l.Aligned(limiter.Month, ""), []int{10}, 1, 28*24*time.Hour + 50*ms},
		"sliding log":              {l.With(limiter.SlidingLog), []int{1, 1}, 2, 350 * ms},
		"rounded":                  {limiter.PerSecond(3), []int{1}, 2, 50*ms + 666_666_667},
		"far":                      {limiter.Per(1000, limiter.MaxPeriod), []int{1}, 1000, 50*ms + limiter.MaxPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := degrade.Queue(degrade.QueueConfig{MaxWait: time.Minute})
				ctx, cancel := context.WithCancel(t.Context())
				for k, cost := range c.costs {
					d := &degrade.Denial{Key: keyOf("a"), Cost: cost, Decision: limiter.Decision{Limit: c.limit}}
					if k == 0 {
						d.RetryAfter, d.Decision.RetryAfter = 50*ms, 50*ms
					}
					go h.Degrade(nil, request(ctx), d)
					synctest.Wait()
				}
				_, waiting := degrade.QueueSize(h)
				require.Equal(t, len(c.costs), waiting)
				hint := h.(degrade.Gate).Before(&degrade.Subject{Key: keyOf("a"), Cost: c.cost})
				require.Equal(t, c.want, hint.Wait)
				cancel()
			})
		})
	}
}

// A newcomer that was to stay behind others, which have all gone meanwhile, waits for units of its own. A window tells
// nothing of when that is.
func TestQueueFindsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for l, want := range map[limiter.Limit]time.Duration{
			limiter.PerSecond(10): 200 * ms, limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(2): 200 * ms,
			limiter.PerSecond(10).With(limiter.SlidingLog): 200 * ms, limiter.PerSecond(10).With(limiter.FixedWindow): 0,
		} {
			begin := time.Now()
			d := &degrade.Denial{Key: keyOf("a"), Cost: 2, Decision: limiter.Decision{Limit: l}, RetryAfter: ms}
			require.Equal(t, degrade.Again, degrade.Queue(degrade.QueueConfig{}).Degrade(nil, request(t.Context()), d))
			require.Equal(t, want, time.Since(begin))
		}
	})
}
