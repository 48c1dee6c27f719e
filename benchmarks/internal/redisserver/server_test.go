package redisserver_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/benchmarks/internal/redisserver"
)

func TestServers(t *testing.T) {
	if redisserver.Missing() {
		t.Skip("redis-server is not installed")
	}
	ctx := context.Background()
	for _, masters := range []int{1, 3} {
		s, err := redisserver.Start(ctx, masters)
		require.NoError(t, err)
		t.Cleanup(s.Stop)
		require.Len(t, s.Addrs, masters)

		rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: s.Addrs, Protocol: 2})
		for _, key := range []string{"a", "b", "c", "d", "e"} { // slots of all three
			require.NoError(t, rdb.Set(ctx, key, 1, 0).Err())
		}
		require.NoError(t, s.Flush(ctx))
		require.ErrorIs(t, rdb.Get(ctx, "a").Err(), redis.Nil)

		cpu, err := s.CPU(ctx)
		require.NoError(t, err)
		require.Positive(t, cpu)
		require.NoError(t, rdb.Close())
	}
}
