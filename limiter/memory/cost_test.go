package memory_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := newLimiter(t, memory.Config{})
	none := func(name string, f func()) {
		t.Helper()
		f()
		require.Zero(t, testing.AllocsPerRun(500, f), name)
	}
	limits := []limiter.Limit{limiter.PerSecond(1e6).WithCells(10)}
	for _, a := range limiter.Algorithms() {
		limits = append(limits, limiter.PerSecond(100_000).With(a))
	}
	takes := make([]limiter.Take, 0, 8)
	for i, limit := range limits {
		for range 4000 { // a log grows until it holds a period's takes
			allow(t, l, id(i), limit, 1)
		}
		k := id(i)
		none(limit.String(), func() { allow(t, l, k, limit, 1) })
		none(limit.String()+" looked at", func() { allow(t, l, k, limit, 0) })
		none(limit.String()+" refused", func() { allow(t, l, k, limit, 1e9) })
		if limit.Algorithm != limiter.LeakyBucket {
			takes = append(takes, limiter.Take{Key: id(i), Limit: limit, N: 1})
		}
	}
	all := func(takes []limiter.Take) func() {
		return func() {
			if _, err := l.AllowAll(ctx, time.Time{}, takes); err != nil {
				panic(err)
			}
		}
	}
	for k := range takes {
		none(takes[k].Limit.String()+" in a call of one", all(takes[k:k+1]))
	}
	none("three takes", all(takes[:3]))
	for len(takes) < 8 {
		takes = append(takes, limiter.Take{Key: id(100 + len(takes)), Limit: limits[1], N: 1, Shadow: true})
	}
	none("eight takes", all(takes))
	none("refund", func() {
		require.NoError(t, l.Refund(ctx, time.Time{}, &takes[0]))
	})
	k := id(0)
	none("reset", func() { require.NoError(t, l.Reset(ctx, k)) })
	none("no state", func() { allow(t, l, k, limiter.Unlimited, 1) })
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestMemoryPerKey(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has its own memory")
	}
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	for _, limit := range []limiter.Limit{limiter.PerHour(10), limiter.PerHour(10).With(limiter.SlidingWindow)} {
		before := heap()
		l := newLimiter(t, memory.Config{MaxKeys: n})
		for i := range n {
			allow(t, l, id(i), limit, 1)
		}
		per := float64(heap()-before) / float64(n)
		start := time.Now()
		runtime.GC()
		t.Logf("%v: %.1f bytes a key, a collection takes %v", limit, per, time.Since(start))
		require.LessOrEqual(t, per, 96.0)
		require.Equal(t, n, l.Len())
		require.Zero(t, l.Overflow())
		verify(t, l)
		// All are full again: what is left is next to nothing.
		l.Tend(time.Now().Add(24 * time.Hour))
		left := float64(heap()-before) / float64(n)
		t.Logf("%.1f bytes a key left", left)
		require.LessOrEqual(t, left, per/10)
		require.Zero(t, l.Len())
		verify(t, l)
	}
}
