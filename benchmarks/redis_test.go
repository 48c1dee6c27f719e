package benchmarks

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/benchmarks/internal/redisserver"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

// BenchmarkRedis is one decision on Redis, for its allocations: cmd/redisload has the times. Names are
// concurrency/limiter.
func BenchmarkRedis(b *testing.B) {
	if redisserver.Missing() {
		b.Skip("redis-server is not installed")
	}
	s, err := redisserver.Start(context.Background(), 1)
	require.NoError(b, err)
	b.Cleanup(s.Stop)
	scenario := peer.RedisScenarios[0]
	for _, conc := range []int{1, 64} {
		for _, r := range peer.Redises() {
			if !r.In(scenario) {
				continue
			}
			b.Run(fmt.Sprintf("c%d/%s", conc, r.Name), func(b *testing.B) {
				d, stop, err := r.New(s.Addrs, scenario.Profile, scenario.Policies)
				require.NoError(b, err)
				defer stop()
				benchRedis(b, d, peer.Keys(1000), conc)
			})
		}
	}
}

func benchRedis(b *testing.B, d peer.Decider, keys []string, conc int) {
	ctx := context.Background()
	var warm sync.WaitGroup
	for range conc { // connections and scripts are not the decision's
		warm.Go(func() {
			for _, key := range keys[:20] {
				_, _ = d.Allow(ctx, key)
			}
		})
	}
	warm.Wait()
	b.ReportAllocs()
	if conc == 1 {
		i := 0
		for b.Loop() {
			i++
			if ok, err := d.Allow(ctx, keys[i%len(keys)]); !ok || err != nil {
				b.Fatalf("allowed %v, error %v", ok, err)
			}
		}
		return
	}
	var next, wrong atomic.Int64
	b.SetParallelism((conc + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if ok, err := d.Allow(ctx, keys[int(next.Add(1))%len(keys)]); !ok || err != nil {
				wrong.Add(1)
			}
		}
	})
	if n := wrong.Load(); n > 0 {
		b.Fatalf("%d wrong decisions", n)
	}
}
