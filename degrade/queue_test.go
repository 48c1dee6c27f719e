package degrade_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

const ms = time.Millisecond

var oneIn100ms = limiter.Per(1, 100*ms)

// Requests leave in the order they came, each at the instant a unit is there for it.
func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(17*time.Second + 3*time.Nanosecond)
		g := newDesk(t, degrade.QueueConfig{}, oneIn100ms)
		for id := range 6 {
			g.start(t.Context(), visit{id: id, key: keyOf("a"), cost: 1})
			time.Sleep(7 * ms)
		}
		g.waiting(t, 1, 5)
		time.Sleep(time.Second)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, g.ids())
		begin := g.of(t, 0).came
		for id := range 6 {
			v := g.of(t, id)
			require.Equal(t, time.Duration(id)*100*ms, v.ended.Sub(begin), id)
			require.Equal(t, id > 1, v.shut, id)
			require.LessOrEqual(t, v.asked, 2, "nobody polls")
		}
		g.waiting(t, 0, 0)
	})
}

// Each waiter has a slot of its own, and none loses it to another one.
func TestQueueSlots(t *testing.T) {
	l := limiter.Per(1, 200*ms)
	for name, l := range map[string]limiter.Limit{
		"token bucket":          l,
		"token bucket, burst":   l.WithBurst(7),
		"leaky bucket":          limiter.PerMinute(300).With(limiter.LeakyBucket),
		"leaky bucket, places":  limiter.PerMinute(300).With(limiter.LeakyBucket).WithBurst(4),
		"fixed window":          limiter.PerSecond(5).With(limiter.FixedWindow),
		"sliding window":        limiter.PerSecond(5).With(limiter.SlidingWindow),
		"sliding window, cells": limiter.PerSecond(5).WithCells(4),
		"sliding log":           limiter.PerSecond(5).With(limiter.SlidingLog),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(17*time.Second + 123*ms)
				g := newDesk(t, degrade.QueueConfig{PerKey: 100, MaxWait: time.Minute}, l)
				for id := range 100 {
					g.start(t.Context(), visit{id: id, key: keyOf("a"), cost: 1})
				}
				time.Sleep(time.Minute)
				require.Len(t, g.ids(), 100)
				for k, id := range g.ids() {
					require.Equal(t, k, id)
					require.NotContains(t, g.of(t, id).outs, degrade.Skip)
				}
				g.waiting(t, 0, 0)
				// One client that takes each unit as soon as it is there is no faster.
				time.Sleep(20*time.Minute - time.Duration(time.Now().UnixNano())%(20*time.Minute) + 17*time.Second + 123*ms)
				begin := time.Now()
				for range 100 {
					_, err := limiter.Wait(t.Context(), g.store, keyOf("b"), g.limit, 1)
					require.NoError(t, err)
				}
				require.Equal(t, time.Since(begin), g.of(t, 99).waited())
			})
		})
	}
}

// A costly request gets its turn, however many cheap ones come after it.
func TestQueueCostly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newDesk(t, degrade.QueueConfig{PerKey: 30}, limiter.PerSecond(10))
		g.spend(t, "a", 10)
		g.start(t.Context(), visit{id: 100, key: keyOf("a"), cost: 8})
		for id := range 20 {
			g.start(t.Context(), visit{id: id, key: keyOf("a"), cost: 1})
			time.Sleep(100 * ms)
		}
		time.Sleep(5 * time.Second)
		require.Equal(t, 800*ms, g.of(t, 100).waited())
		require.Equal(t, 100, g.ids()[0])
		require.Len(t, g.ids(), 21)
		require.Equal(t, 900*ms, g.of(t, 0).waited())
		require.Equal(t, 900*ms, g.of(t, 19).waited())
		g.waiting(t, 0, 0)
	})
}

// With as many coming as going, nobody waits longer than the rest.
func TestQueueSteady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newDesk(t, degrade.QueueConfig{MaxWait: time.Minute}, limiter.PerSecond(1))
		g.spend(t, "a", 1)
		for id := range 10 {
			g.start(t.Context(), visit{id: id, key: keyOf("a"), cost: 1})
		}
		for id := range 50 {
			time.Sleep(time.Second)
			g.start(t.Context(), visit{id: 10 + id, key: keyOf("a"), cost: 1})
		}
		time.Sleep(time.Minute)
		for id := range 60 {
			require.Equal(t, id, g.ids()[id])
			require.LessOrEqual(t, g.of(t, id).waited(), 11*time.Second)
		}
	})
}

// The gate is shut for newcomers of the key alone, and for as long as somebody waits or is being decided.
func TestQueueGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := degrade.Queue(degrade.QueueConfig{})
		gate := h.(degrade.Gate)
		before := func(id string, cost int) degrade.Hint {
			return gate.Before(&degrade.Subject{Key: keyOf(id), Cost: cost, Now: time.Now()})
		}
		require.Zero(t, before("a", 1))
		outs := make(chan degrade.Outcome)
		go func() {
			out, _ := deny(t.Context(), h, degrade.Denial{}, 400*ms)
			outs <- out
		}()
		synctest.Wait()
		require.Equal(t, degrade.Hint{Shut: true, Cause: degrade.Quota, Wait: 1400 * ms}, before("a", 1))
		require.Equal(t, 2400*ms, before("a", 2).Wait)
		require.Zero(t, before("b", 1))
		require.Zero(t, before("a", 0), "it takes nothing")
		require.Equal(t, degrade.Again, <-outs)
		require.Equal(t, degrade.Hint{Shut: true, Cause: degrade.Quota, Wait: time.Second}, before("a", 1), "the first is being decided")
		gate.After(&degrade.Subject{Key: keyOf("b"), Cost: 1}, degrade.Verdict{Passed: true, Decision: limiter.Decision{Allowed: true, Limit: limiter.PerSecond(1)}})
		require.True(t, before("a", 1).Shut)
		gate.After(&degrade.Subject{Key: keyOf("a"), Cost: 1}, degrade.Verdict{Passed: true, Decision: limiter.Decision{Allowed: true, Limit: limiter.PerSecond(1)}})
		require.Zero(t, before("a", 1))
	})
}

// What a queue cannot help is not held.
func TestQueueSkips(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	quota := limiter.Decision{Limit: limiter.PerSecond(1), RetryAfter: ms}
	for name, c := range map[string]struct {
		ctx context.Context
		d   degrade.Denial
	}{
		"never":             {nil, degrade.Denial{Cost: 5, Decision: limiter.Decision{Limit: limiter.PerSecond(1), RetryAfter: limiter.Never}, RetryAfter: limiter.Never}},
		"never by another":  {nil, degrade.Denial{Cost: 1, Decision: quota, RetryAfter: limiter.Never}},
		"above the quota":   {nil, degrade.Denial{Cost: 2, Decision: limiter.Decision{Limit: limiter.PerSecond(1)}}},
		"deny all":          {nil, degrade.Denial{Cost: 1, Decision: limiter.Decision{Limit: limiter.DenyAll}}},
		"of the service":    {nil, degrade.Denial{Cost: 1, Cause: degrade.Capacity, Decision: quota, RetryAfter: ms}},
		"in flight":         {nil, degrade.Denial{Decision: limiter.Decision{Limit: limiter.Limit{Burst: 3}}}},
		"asked again":       {nil, degrade.Denial{Cost: 1, Decision: quota, RetryAfter: ms, Asked: 2}},
		"gone":              {ended, degrade.Denial{Cost: 1, Decision: quota, RetryAfter: ms}},
		"no place at guard": {nil, degrade.Denial{Cost: 1, Decision: quota, RetryAfter: ms, Place: func() (func(), bool) { return nil, false }}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := degrade.Queue(degrade.QueueConfig{})
				ctx := c.ctx
				if ctx == nil {
					ctx = t.Context()
				}
				d := c.d
				d.Key = keyOf("a")
				begin := time.Now()
				out := h.Degrade(nil, request(ctx), &d)
				require.Equal(t, degrade.Skip, out)
				require.Zero(t, time.Since(begin))
				lines, waiting := degrade.QueueSize(h)
				require.Zero(t, lines)
				require.Zero(t, waiting)
			})
		})
	}
}

// A place at the guard is held for as long as the wait, and given back whatever its end.
func TestQueuePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newDesk(t, degrade.QueueConfig{}, oneIn100ms)
		var held atomic.Int64
		g.place = func() (func(), bool) {
			return func() { held.Add(-1) }, held.Add(1) <= 2
		}
		g.spend(t, "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		g.start(ctx, visit{id: 1, key: keyOf("a"), cost: 1})
		g.start(t.Context(), visit{id: 2, key: keyOf("a"), cost: 1})
		require.EqualValues(t, 2, held.Load())
		g.start(t.Context(), visit{id: 3, key: keyOf("a"), cost: 1})
		require.Equal(t, []degrade.Outcome{degrade.Skip}, g.of(t, 3).outs)
		require.Equal(t, 300*ms, g.of(t, 3).told)
		held.Add(-1) // the place it did not get
		cancel()
		synctest.Wait()
		require.EqualValues(t, 1, held.Load())
		time.Sleep(time.Second)
		require.Zero(t, held.Load())
		require.Equal(t, []int{2}, g.ids())
		g.spend(t, "b", 1)
		g.place = func() (func(), bool) { panic("boom") }
		require.Panics(t, func() { g.serve(t.Context(), visit{id: 4, key: keyOf("b"), cost: 1}) })
		g.waiting(t, 0, 0)
	})
}

// Who leaves takes nothing along: those behind move up, and the next one has the turn.
func TestQueueLeaves(t *testing.T) {
	for name, leaves := range map[string]int{"first": 1, "middle": 2, "last": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newDesk(t, degrade.QueueConfig{}, oneIn100ms)
				g.spend(t, "a", 1)
				ctx, cancel := context.WithCancel(t.Context())
				for id := 1; id <= 3; id++ {
					if c := t.Context(); id == leaves {
						g.start(ctx, visit{id: id, key: keyOf("a"), cost: 1})
					} else {
						g.start(c, visit{id: id, key: keyOf("a"), cost: 1})
					}
				}
				time.Sleep(50 * ms)
				cancel()
				synctest.Wait()
				gone := g.of(t, leaves)
				require.True(t, gone.gone)
				require.Equal(t, []degrade.Outcome{degrade.Skip}, gone.outs)
				require.Equal(t, 50*ms, gone.waited())
				time.Sleep(time.Second)
				require.Len(t, g.ids(), 2)
				for k, id := range g.ids() {
					require.Equal(t, time.Duration(k+1)*100*ms, g.of(t, id).waited())
				}
				g.waiting(t, 0, 0)
			})
		})
	}
}

// A cheaper request behind one that leaves goes earlier, a costlier one later: when its own units are there.
func TestQueueInheritsTurn(t *testing.T) {
	for name, c := range map[string]struct {
		rate, first, second int
		want                time.Duration
	}{
		"cheaper":                    {10, 5, 2, 200 * ms},
		"costlier":                   {10, 2, 5, 500 * ms},
		"cheaper than what is there": {10, 5, 1, 150 * ms},
		"cheaper, rounded":           {3, 3, 1, 333_333_334},
		"costlier, rounded":          {3, 1, 2, 666_666_668}, // which is 1 ns later than need be
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newDesk(t, degrade.QueueConfig{}, limiter.PerSecond(c.rate))
				g.spend(t, "a", c.rate)
				ctx, cancel := context.WithCancel(t.Context())
				g.start(ctx, visit{id: 1, key: keyOf("a"), cost: c.first})
				g.start(t.Context(), visit{id: 2, key: keyOf("a"), cost: c.second})
				time.Sleep(150 * ms)
				cancel()
				time.Sleep(time.Second)
				require.Equal(t, []int{2}, g.ids())
				require.Equal(t, c.want, g.of(t, 2).waited())
			})
		})
	}
}
