package redislimit_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// BenchmarkAllow measures one decision at some concurrency, beside a script that does nothing.
func BenchmarkAllow(b *testing.B) {
	rdb := redistest.Start(b).Client()
	keys := make([]limiter.Key, 10_000)
	for i := range keys {
		keys[i] = limiter.Key{Space: "bench", ID: "user=" + strconv.Itoa(i)}
	}
	limit := limiter.PerSecond(1000).WithBurst(100_000)
	for _, workers := range []int{1, 64} {
		run := func(name string, decide func(limiter.Key) error) {
			b.Run(name+"/c="+strconv.Itoa(workers), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(max(1, workers/2))
				var next atomic.Uint32
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := decide(keys[next.Add(1)*7919%uint32(len(keys))]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
		trivial, err := rdb.ScriptLoad(context.Background(), "return 1").Result()
		require.NoError(b, err)
		run("trivial", func(k limiter.Key) error {
			return rdb.EvalSha(context.Background(), trivial, []string{k.ID}, 1).Err()
		})
		for name, c := range map[string]redislimit.Config{"own": {NoSharing: true}, "shared": {}} {
			c.Client, c.Timeout = rdb, 10*time.Second
			l, err := redislimit.New(c)
			require.NoError(b, err)
			run(name, func(k limiter.Key) error {
				_, err := l.Allow(context.Background(), k, limit, 1)
				return err
			})
		}
	}
}
