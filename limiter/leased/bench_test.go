package leased_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// plenty is never spent, so that every decision of a warm key is one from its lease.
var plenty = limiter.PerSecond(limiter.MaxRate)

func newBench(b testing.TB, c leased.Config) *leased.Limiter {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(b).Addr()})
	c.Client, c.Prefix = rdb, fmt.Sprintf("bench%d", time.Now().UnixNano())
	c.Timeout = 500 * time.Millisecond
	l, err := leased.New(c)
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, l.Close())
		require.NoError(b, rdb.Close())
	})
	return l
}

// hot is a key with demand enough for leases of a hundred thousand.
func hot(b testing.TB, l *leased.Limiter) {
	for l.Stats().Held < 100_000 {
		for range 1000 {
			_, err := l.Allow(b.Context(), alice, plenty, 100)
			require.NoError(b, err)
		}
	}
}

// A decision from a lease, beside one of the memory limiter, which has no store to share.
func BenchmarkAllow(b *testing.B) {
	ctx := context.Background()
	l := newBench(b, leased.Config{})
	m, err := memory.New(memory.Config{})
	require.NoError(b, err)
	defer m.Close()
	for name, lim := range map[string]limiter.Limiter{"leased": l, "memory": m} {
		if name == "leased" {
			hot(b, l)
		}
		b.Run(name+"/one goroutine", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = lim.Allow(ctx, alice, plenty, 1)
			}
		})
		b.Run(name+"/all", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = lim.Allow(ctx, alice, plenty, 1)
				}
			})
		})
	}
}

// A group of three takes from leases.
func BenchmarkAllowAll(b *testing.B) {
	l := newBench(b, leased.Config{})
	takes := make([]limiter.Take, 3)
	for k := range takes {
		takes[k] = limiter.Take{Key: limiter.Key{Space: fmt.Sprint(k), ID: "user=alice"}, Limit: plenty, N: 1}
	}
	for held := int64(0); held < 100_000; held = l.Stats().Held / 3 {
		for range 1000 {
			for _, t := range takes {
				_, err := l.Allow(b.Context(), t.Key, t.Limit, 100)
				require.NoError(b, err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = l.AllowAll(context.Background(), time.Time{}, takes)
	}
}

// A key that is asked for seldom costs a call, here and with redislimit.
func BenchmarkCold(b *testing.B) {
	ctx := context.Background()
	limit := limiter.PerSecond(1)
	l := newBench(b, leased.Config{})
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(b).Addr()})
	defer func() { _ = rdb.Close() }()
	r, err := redislimit.New(redislimit.Config{Client: rdb, Prefix: fmt.Sprintf("cold%d", time.Now().UnixNano()), Timeout: time.Second})
	require.NoError(b, err)
	defer func() { _ = r.Close() }()
	for name, lim := range map[string]limiter.Limiter{"leased": l, "redislimit": r} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				_, err := lim.Allow(ctx, limiter.Key{Space: "cold", ID: fmt.Sprint(i)}, limit, 1)
				require.NoError(b, err)
			}
		})
	}
}

// How many calls a thousand decisions cost, for ten processes on one key at twice its rate. A central limiter makes a thousand
// of them, or fewer where it remembers denials. The simulator has them for more nodes and for the classic design.
func BenchmarkCallsPerThousand(b *testing.B) {
	limit := limiter.PerSecond(5000)
	var nodes []*leased.Limiter
	prefix := fmt.Sprintf("calls%d", time.Now().UnixNano())
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(b).Addr()})
	defer func() { _ = rdb.Close() }()
	for range 10 {
		l, err := leased.New(leased.Config{Client: rdb, Prefix: prefix, Timeout: 500 * time.Millisecond})
		require.NoError(b, err)
		defer func() { _ = l.Close() }()
		nodes = append(nodes, l)
	}
	var wg sync.WaitGroup
	each := b.N/10 + 1
	for _, l := range nodes {
		wg.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for i := range each {
				if i%10 == 0 {
					<-pace.C
				}
				if _, err := l.Allow(context.Background(), alice, limit, 1); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var calls uint64
	for _, l := range nodes {
		calls += l.Stats().Calls
	}
	b.ReportMetric(1000*float64(calls)/float64(10*each), "calls/1000")
}

// A decision from a lease allocates nothing.
func TestDecisionsFromALeaseDoNotAllocate(t *testing.T) {
	if leased.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	l := newBench(t, leased.Config{})
	hot(t, l)
	ctx := context.Background()
	low := 1.0
	for range 20 { // a background call now and then does allocate
		low = min(low, testing.AllocsPerRun(10, func() { _, _ = l.Allow(ctx, alice, plenty, 1) }))
	}
	require.Zero(t, low)
}
