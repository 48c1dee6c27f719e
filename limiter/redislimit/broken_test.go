package redislimit_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

func proxyClient(t *testing.T, p *redistest.Proxy) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// left is what a look at a key shows.
func left(t *testing.T, l *redislimit.Limiter, limit limiter.Limit) int {
	t.Helper()
	d, err := l.Allow(t.Context(), who, limit, 0)
	require.NoError(t, err)
	return d.Remaining
}

// What went wrong in other programs when Redis did.
func TestCasesOfRedis(t *testing.T) {
	hour := limiter.Per(100, limiter.MaxPeriod)
	t.Run("RACE-01 fifty at once in a queue of one", func(t *testing.T) {
		require.Equal(t, int64(1), together(t, open(t, redislimit.Config{}), limiter.Per(1, time.Hour).With(limiter.LeakyBucket), 50))
	})
	t.Run("RACE-05 ten at once in a log of five", func(t *testing.T) {
		require.Equal(t, int64(5), together(t, open(t, redislimit.Config{}), limiter.Per(5, time.Hour).With(limiter.SlidingLog), 10))
	})
	t.Run("RACE-07 contention is no error", func(t *testing.T) {
		require.Equal(t, int64(200), together(t, open(t, redislimit.Config{}), limiter.PerSecond(1000), 200))
	})
	t.Run("NOS-01 NOS-05 a server that lost its scripts", func(t *testing.T) {
		server := redistest.Start(t)
		l := open(t, redislimit.Config{Client: server.Client()})
		for k := range 3 {
			d, err := l.Allow(t.Context(), who, hour, 1)
			require.NoError(t, err)
			require.Equal(t, 99-k, d.Remaining)
			require.NoError(t, server.Client().ScriptFlush(t.Context()).Err())
		}
		server.Restart()
		require.Eventually(t, func() bool { // the connections there were are closed
			_, err := l.Allow(t.Context(), who, hour, 0)
			return err == nil
		}, 10*time.Second, 10*time.Millisecond)
		d, err := l.Allow(t.Context(), who, hour, 1)
		require.NoError(t, err)
		require.Equal(t, 99, d.Remaining, "Redis has lost its data too")
	})
	t.Run("RO-01 RO-02 a master that became a replica", func(t *testing.T) {
		server, master := redistest.Start(t), redistest.Start(t)
		l, admin := open(t, redislimit.Config{Client: server.Client(), DenyCache: -1}), server.Client()
		_, err := l.Allow(t.Context(), who, hour, 1)
		require.NoError(t, err)
		require.NoError(t, admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", master.Port()).Err())
		_, err = l.Allow(t.Context(), who, hour, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Contains(t, []string{"readonly", "loading", "master_down"}, rediscall.Cause(err))
		require.NoError(t, admin.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
		d, err := l.Allow(t.Context(), who, hour, 1)
		require.NoError(t, err, "without a restart")
		require.True(t, d.Allowed)
	})
	t.Run("RED-01 a full memory", func(t *testing.T) {
		for policy, want := range map[string]string{"noeviction": "oom", "allkeys-lru": ""} {
			server := redistest.Start(t)
			admin := server.Client()
			var events []limiter.Event
			l := open(t, redislimit.Config{
				Client: server.Client(), DenyCache: -1,
				Observer: limiter.ObserverFunc(func(e limiter.Event) { events = append(events, e) }),
			})
			_, err := l.Allow(t.Context(), who, hour, 1)
			require.NoError(t, err)
			used := memoryUsed(t, admin)
			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
			for k := range 200 {
				require.NoError(t, admin.Set(t.Context(), "junk"+string(rune('A'+k)), strings.Repeat("x", 10_000), 0).Err())
			}
			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(used+1_000_000)).Err())
			d, err := l.Allow(t.Context(), who, hour, 1)
			if want == "" {
				require.NoError(t, err)
				require.True(t, d.Allowed)
				continue
			}
			require.ErrorIs(t, err, limiter.ErrUnavailable)
			require.Equal(t, want, rediscall.Cause(err))
			require.Equal(t, want, events[len(events)-1].Reason)
			require.Equal(t, 99, left(t, l, hour), "nothing was taken, and looking needs no memory")
			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
			_, err = l.Allow(t.Context(), who, hour, 1)
			require.NoError(t, err)
		}
	})
	t.Run("RED-03 a slow reply is not asked for again", func(t *testing.T) {
		proxy := redistest.StartProxy(t, redistest.Shared(t).Addr())
		l := open(t, redislimit.Config{Client: proxyClient(t, proxy), Timeout: 300 * time.Millisecond, DenyCache: -1, Prefix: "red03"})
		require.Equal(t, 100, left(t, l, hour))
		proxy.Delay(600 * time.Millisecond)
		_, err := l.Allow(t.Context(), who, hour, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Equal(t, "timeout", rediscall.Cause(err))
		direct := open(t, redislimit.Config{Prefix: "red03"})
		require.Eventually(t, func() bool { return left(t, direct, hour) == 99 }, 10*time.Second, 10*time.Millisecond)
		require.Equal(t, 99, left(t, direct, hour))
	})
	t.Run("RED-04 a lost reply is not asked for again", func(t *testing.T) {
		proxy := redistest.StartProxy(t, redistest.Shared(t).Addr())
		l := open(t, redislimit.Config{Client: proxyClient(t, proxy), DenyCache: -1, Prefix: "red04"})
		require.Equal(t, 100, left(t, l, hour))
		proxy.DropReplies(1)
		_, err := l.Allow(t.Context(), who, hour, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.NotErrorIs(t, err, context.Canceled)
		require.Equal(t, 99, left(t, l, hour), "counted once")
	})
}

func memoryUsed(t *testing.T, c *redis.Client) int {
	t.Helper()
	n, err := c.InfoMap(t.Context(), "memory").Result()
	require.NoError(t, err)
	used := 0
	for _, digit := range n["Memory"]["used_memory"] {
		used = used*10 + int(digit-'0')
	}
	return used
}
