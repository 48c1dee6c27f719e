package rediscall_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

func TestRunAny(t *testing.T) {
	ctx, server := context.Background(), redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: 5})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	c, err := rediscall.Bound(rdb, generous)
	require.NoError(t, err)
	for source, want := range map[string]any{
		`return {KEYS[1], ARGV[1], 3}`: []any{"k", "a", int64(3)},
		`return false`:                 nil,
		`return 7`:                     int64(7),
	} {
		s := rediscall.NewScript(source)
		for _, trips := range []int{2, 1} { // by its source, by its hash
			before := proxy.Requests()
			got, err := c.RunAny(ctx, s, []string{"k"}, "a")
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, trips, proxy.Requests()-before)
		}
	}
	_, err = c.RunAny(ctx, rediscall.NewScript(`return redis.call("LPUSH")`), nil)
	require.ErrorIs(t, err, limiter.ErrInvalid)

	// It may have run, so it is not repeated.
	count := rediscall.NewScript(`return redis.call("INCR", KEYS[1])`)
	_, err = c.RunAny(ctx, count, []string{"n"})
	require.NoError(t, err)
	proxy.DropReplies(1)
	_, err = c.RunAny(ctx, count, []string{"n"})
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	got, err := c.RunAny(ctx, count, []string{"n"})
	require.NoError(t, err)
	require.Equal(t, int64(3), got)
}
