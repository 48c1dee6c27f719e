package redisrate_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redisrate"
)

var fixed = keyfunc.Global()

// A take whose reply is lost may have been counted, so it is an error, and it is not sent again.
func TestLostReplyCountsOnce(t *testing.T) {
	ctx, server := context.Background(), redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	l := newLimiter(t, redisrate.Config{Client: redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: 5}), Timeout: patient})
	key := limiter.Key{Space: "s", ID: "x"}
	left := func() int {
		d, err := l.Allow(ctx, key, slow, 0)
		require.NoError(t, err)
		return d.Remaining
	}
	require.Equal(t, 5, left()) // the server knows the script now
	for want := 4; want >= 2; want-- {
		proxy.DropReplies(1)
		before := proxy.Requests()
		_, err := l.Allow(ctx, key, slow, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Equal(t, 1, proxy.Requests()-before)
		require.Equal(t, want, left())
	}
}

func TestScriptForgottenByTheServer(t *testing.T) {
	ctx, server := context.Background(), redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	l := newLimiter(t, redisrate.Config{Client: redis.NewClient(&redis.Options{Addr: proxy.Addr()}), Timeout: patient})
	key := limiter.Key{Space: "s", ID: "x"}
	for want, trips := range []int{2, 1, 2, 1} { // by its source, by its hash
		if want == 2 {
			require.NoError(t, server.Client().ScriptFlush(ctx).Err())
		}
		before := proxy.Requests()
		d, err := l.Allow(ctx, key, slow, 1)
		require.NoError(t, err)
		require.Equal(t, 4-want, d.Remaining)
		require.Equal(t, trips, proxy.Requests()-before)
	}
}

func TestSilentServer(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	l := newLimiter(t, redisrate.Config{Client: redis.NewClient(&redis.Options{Addr: proxy.Addr()}), Timeout: 20 * time.Millisecond})
	proxy.Silent()
	key := limiter.Key{Space: "s", ID: "x"}
	_, err := l.Allow(context.Background(), key, slow, 1)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded) // no deadline of the caller's
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = l.Allow(ctx, key, slow, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, l.Reset(context.Background(), key), limiter.ErrUnavailable)
}

// A nan is less than nothing and more than nothing: redis_rate's script would let everything pass, for ever.
func TestNotANumber(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Start(t).Client()
	l := newLimiter(t, redisrate.Config{Client: rdb, Timeout: patient})
	key := limiter.Key{ID: "x"}
	for _, value := range []string{"nan", "-nan", "NaN"} {
		require.NoError(t, rdb.Set(ctx, "rate:x", value, 0).Err())
		for _, n := range []int{0, 1, 5, 6} {
			d, err := l.Allow(ctx, key, slow, n)
			require.ErrorIs(t, err, limiter.ErrInvalid, "%s, %d units", value, n)
			require.NotErrorIs(t, err, limiter.ErrUnavailable)
			require.Zero(t, d)
		}
		left, err := rdb.Get(ctx, "rate:x").Result()
		require.NoError(t, err)
		require.Equal(t, value, left, "the key is left alone")
	}
	require.NoError(t, l.Reset(ctx, key))
	d, err := l.Allow(ctx, key, slow, 1)
	require.NoError(t, err)
	require.Equal(t, 4, d.Remaining)
}

// What somebody else has put under a key opens no gate.
func TestForeignValues(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Start(t).Client()
	l := newLimiter(t, redisrate.Config{Client: rdb, Timeout: patient})
	key := limiter.Key{ID: "x"}
	for _, value := range []string{"text", ""} {
		require.NoError(t, rdb.Set(ctx, "rate:x", value, 0).Err())
		_, err := l.Allow(ctx, key, slow, 1)
		require.ErrorIs(t, err, limiter.ErrInvalid, value)
	}
	require.NoError(t, rdb.Del(ctx, "rate:x").Err())
	require.NoError(t, rdb.LPush(ctx, "rate:x", 1).Err())
	_, err := l.Allow(ctx, key, slow, 1)
	require.ErrorIs(t, err, limiter.ErrInvalid)
	for _, value := range []string{"1e300", "inf", "1e10"} {
		require.NoError(t, rdb.Set(ctx, "rate:x", value, 0).Err())
		for _, n := range []int{0, 1, 5, 6} {
			d, err := l.Allow(ctx, key, slow, n)
			require.NoError(t, err)
			require.Equal(t, n == 0, d.Allowed)
			require.Zero(t, d.Remaining)
			require.GreaterOrEqual(t, d.ResetAfter, 285*365*24*time.Hour)
			require.GreaterOrEqual(t, d.RetryAfter, time.Duration(0))
			require.LessOrEqual(t, d.NextAfter, d.ResetAfter)
		}
	}
	require.NoError(t, rdb.Set(ctx, "rate:x", "-1e300", 0).Err()) // long ago
	d, err := l.Allow(ctx, key, slow, 1)
	require.NoError(t, err)
	require.Equal(t, 4, d.Remaining)
}

func TestClosed(t *testing.T) {
	l, err := redisrate.New(redisrate.Config{Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err = l.Allow(context.Background(), limiter.Key{}, limiter.Unlimited, 1)
	require.ErrorIs(t, err, limiter.ErrClosed)
	require.ErrorIs(t, l.Reset(context.Background(), limiter.Key{}), limiter.ErrClosed)
}

// On a Cluster every key is asked for where it lives.
func TestCluster(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, redisrate.Config{Client: redistest.StartCluster(t).Client(), Prefix: "shop", Timeout: patient})
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		key := limiter.Key{Space: "s", ID: id}
		for want := 4; want >= 3; want-- {
			d, err := l.Allow(ctx, key, slow, 1)
			require.NoError(t, err)
			require.Equal(t, want, d.Remaining)
		}
		require.NoError(t, l.Reset(ctx, key))
		d, err := l.Allow(ctx, key, slow, 0)
		require.NoError(t, err)
		require.Equal(t, 5, d.Remaining)
	}
}
