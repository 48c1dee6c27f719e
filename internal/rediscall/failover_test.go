package rediscall_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// A master of a Cluster that is gone tells nobody who has its place, so a failure makes the client ask the others, however
// many calls fail no more often than four times a second, and without a call that waits for it.
func TestDeadMastersSuccessorIsFound(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(time.Hour)
			const lost, next = "10.0.0.1:1", "10.0.0.1:2"
			var asked, counted atomic.Int64
			var master atomic.Value
			master.Store(lost)
			alive := piped(&fake{}, false)
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{lost}, ContextTimeoutEnabled: heeds,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if addr == lost {
						return alive(ctx, network, addr) // takes what is sent and says nothing
					}
					client, server := net.Pipe()
					go (&fake{}).serve(server, false, func([]string) string { counted.Add(1); return bulk("1") })
					return client, nil
				},
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					asked.Add(1)
					return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: master.Load().(string)}}}}, nil
				},
			})
			defer func() { _ = rdb.Close() }()
			c, err := rediscall.Bound(rdb, bit)
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()

			start := time.Now()
			for time.Since(start) < 3*time.Second {
				before := time.Now()
				require.ErrorIs(t, run2(c, t.Context()), limiter.ErrUnavailable)
				require.LessOrEqual(t, time.Since(before), bit)
			}
			require.LessOrEqual(t, asked.Load(), int64(1+3*4))
			master.Store(next)
			for run2(c, t.Context()) != nil {
				require.Less(t, time.Since(start), 3*time.Second+500*time.Millisecond)
			}
			require.Positive(t, counted.Load())

			// A caller that leaves is no failure of the master.
			before := asked.Load()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, run2(c, ctx), context.Canceled)
			time.Sleep(time.Second)
			require.Equal(t, before, asked.Load())
		})
	}
}
