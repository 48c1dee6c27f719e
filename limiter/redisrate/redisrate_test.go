package redisrate_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redisrate"
	"github.com/spillway-go/spillway/middleware"
)

// slow gives nothing back while a test runs.
var slow = limiter.PerHour(1).WithBurst(5)

func TestNew(t *testing.T) {
	_, err := redisrate.New(redisrate.Config{})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	_, err = redisrate.New(redisrate.Config{Client: redis.NewClient(&redis.Options{}), Timeout: -1, Prefix: "{shop}"})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.ErrorContains(t, err, "braces")
	require.ErrorContains(t, err, "time-out")
}

// The counters of a running redis_rate go on, in both directions and through a guard with Policy.StoreKey.
func TestSharesTheCountersOfRedisRate(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Shared(t).Client()
	l, old := newLimiter(t, redisrate.Config{Client: rdb, Prefix: "shop", Timeout: patient}), redis_rate.NewLimiter(rdb)
	id := redistest.Prefix(t) + "user:1"
	limit := redis_rate.Limit{Rate: 1, Period: time.Hour, Burst: 5}
	allow := func() int {
		d, err := l.Allow(ctx, limiter.Key{ID: id}, slow, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		return d.Remaining
	}
	oldAllow := func() int {
		r, err := old.Allow(ctx, id, limit)
		require.NoError(t, err)
		require.Equal(t, 1, r.Allowed)
		return r.Remaining
	}
	require.Equal(t, 4, oldAllow())
	require.Equal(t, 3, allow())
	require.Equal(t, 2, oldAllow())
	require.Equal(t, 1, allow())
	require.Equal(t, 0, oldAllow())
	d, err := l.Allow(ctx, limiter.Key{ID: id}, slow, 1)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	r, err := old.Allow(ctx, id, limit)
	require.NoError(t, err)
	require.Zero(t, r.Allowed)

	guard, err := middleware.New(middleware.Config{Limiter: l, Policies: []middleware.Policy{{
		Name: "user", Stage: middleware.StageManual, Limit: slow,
		StoreKey: func(k limiter.Key) string { return id[:len(id)-1] + strings.TrimPrefix(k.ID, "key=") },
	}}})
	require.NoError(t, err)
	d, err = guard.Take(ctx, "user", "1", 1)
	require.NoError(t, err)
	require.False(t, d.Allowed)

	require.NoError(t, l.Reset(ctx, limiter.Key{ID: id}))
	require.Equal(t, 4, oldAllow())
	d, err = guard.Take(ctx, "user", "1", 1)
	require.NoError(t, err)
	require.Equal(t, 3, d.Remaining)
}

func TestKeys(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Start(t).Client()
	l := newLimiter(t, redisrate.Config{Client: rdb, Prefix: "shop", Timeout: patient})
	for _, k := range []limiter.Key{{Space: "login", ID: "user=1"}, {ID: "user:1"}} {
		_, err := l.Allow(ctx, k, slow, 1)
		require.NoError(t, err)
	}
	keys, err := rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"rate:shop:login:{user=1}", "rate:user:1"}, keys)
}

// A look, a take that can never pass and one that is refused write nothing, not even a new time to live.
func TestWritesOnlyWhatItTakes(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Start(t).Client()
	l := newLimiter(t, redisrate.Config{Client: rdb, Timeout: patient})
	fresh, used := limiter.Key{Space: "s", ID: "fresh"}, limiter.Key{Space: "s", ID: "used"}
	_, err := l.Allow(ctx, used, slow, 3)
	require.NoError(t, err)
	ttl, err := rdb.PTTL(ctx, "rate:s:{used}").Result()
	require.NoError(t, err)
	require.InDelta(t, 3*time.Hour, ttl, float64(time.Minute))
	require.NoError(t, rdb.Persist(ctx, "rate:s:{used}").Err()) // a write would bring the time to live back
	value, err := rdb.Get(ctx, "rate:s:{used}").Result()
	require.NoError(t, err)
	for _, n := range []int{0, 3, 5, 6, math.MaxInt} {
		d, err := l.Allow(ctx, used, slow, n)
		require.NoError(t, err)
		require.Equal(t, n == 0, d.Allowed)
		require.Equal(t, 2, d.Remaining)
		require.Equal(t, n > 5, d.RetryAfter == limiter.Never)
	}
	for _, n := range []int{0, 6} {
		d, err := l.Allow(ctx, fresh, slow, n)
		require.NoError(t, err)
		require.Equal(t, 5, d.Remaining)
		require.Zero(t, d.ResetAfter)
	}
	_, err = l.Allow(ctx, used, slow, -1)
	require.ErrorIs(t, err, limiter.ErrInvalid)
	after, err := rdb.Get(ctx, "rate:s:{used}").Result()
	require.NoError(t, err)
	require.Equal(t, value, after)
	ttl, err = rdb.PTTL(ctx, "rate:s:{used}").Result()
	require.NoError(t, err)
	require.Negative(t, ttl)
	n, err := rdb.Exists(ctx, "rate:s:{fresh}").Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

// Unlimited and DenyAll need no Redis; what is out of redis_rate's range is refused without asking it.
func TestRange(t *testing.T) {
	nowhere := newLimiter(t, redisrate.Config{Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})})
	ctx, key := context.Background(), limiter.Key{Space: "s", ID: "x"}
	for _, l := range []limiter.Limit{limiter.Unlimited, limiter.DenyAll} {
		d, err := nowhere.Allow(ctx, key, l, 1)
		require.NoError(t, err)
		require.Equal(t, l == limiter.Unlimited, d.Allowed)
	}
	for text, l := range map[string]limiter.Limit{
		"leaky_bucket": limiter.PerSecond(1).With(limiter.LeakyBucket),
		"100µs":        limiter.PerSecond(10_001),
		"285 years":    limiter.Per(1, limiter.MaxPeriod).WithBurst(300),
		"years":        limiter.Per(1, limiter.MaxPeriod).WithBurst(limiter.MaxRate),
	} {
		_, err := nowhere.Allow(ctx, key, l, 1)
		require.ErrorIs(t, err, limiter.ErrInvalid, text)
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "redislimit")
	}
	l := newLimiter(t, redisrate.Config{Client: redistest.Shared(t).Client(), Prefix: redistest.Prefix(t), Timeout: patient})
	for _, limit := range []limiter.Limit{
		limiter.PerSecond(10_000), limiter.PerSecond(10_000).WithBurst(1), limiter.Per(1, 100*time.Microsecond), limiter.PerSecond(1).WithBurst(limiter.MaxRate),
		limiter.Per(limiter.MaxRate, limiter.MaxPeriod).WithBurst(limiter.MaxRate),
		limiter.Per(1, limiter.MaxPeriod).WithBurst(1), limiter.Per(1, limiter.MaxPeriod).WithBurst(284),
	} {
		key := limiter.Key{Space: "range", ID: fmt.Sprint(limit)}
		d, err := l.Allow(ctx, key, limit, limit.Quota())
		require.NoError(t, err)
		require.True(t, d.Allowed, "%v", limit)
		require.Zero(t, d.Remaining)
		d, err = l.Allow(ctx, key, limit, limit.Quota()+1)
		require.NoError(t, err)
		require.Equal(t, limiter.Never, d.RetryAfter)
	}
}

func TestContention(t *testing.T) {
	l := newLimiter(t, redisrate.Config{Client: redistest.Shared(t).Client(), Prefix: redistest.Prefix(t), Timeout: patient})
	limit, key := limiter.PerDay(1).WithBurst(300), limiter.Key{Space: "contention"}
	var passed atomic.Int64
	t.Run("together", func(t *testing.T) {
		for k := range 20 {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				t.Parallel()
				for range 50 {
					d, err := l.Allow(context.Background(), key, limit, 1)
					require.NoError(t, err)
					if d.Allowed {
						passed.Add(1)
					}
				}
			})
		}
	})
	require.Equal(t, int64(300), passed.Load())
}

func TestObserver(t *testing.T) {
	var seen []limiter.Event
	server := redistest.Start(t)
	l := newLimiter(t, redisrate.Config{Client: server.Client(), Name: "shop", Timeout: patient, Observer: limiter.ObserverFunc(func(e limiter.Event) {
		seen = append(seen, e)
		panic("an observer's fault")
	})})
	ctx, key := context.Background(), limiter.Key{Space: "s", ID: "x"}
	_, err := l.Allow(ctx, key, slow, 2)
	require.NoError(t, err)
	require.NoError(t, l.Reset(ctx, key))
	_, err = l.Allow(ctx, key, limiter.Unlimited, 1)
	require.NoError(t, err)
	server.Kill()
	_, err = l.Allow(ctx, key, slow, 1)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.Len(t, seen, 3)
	for k, op := range []string{"allow", "reset", "allow"} {
		e := seen[k]
		require.Equal(t, limiter.EventStore, e.Kind)
		require.Equal(t, op, e.Op)
		require.Equal(t, "shop", e.Name)
		require.Equal(t, 1, e.N)
		require.Equal(t, k == 2, e.Err != nil)
	}
}

// A guard says at once that policies which are enforced together need a limiter that can decide them together.
func TestSeveralPoliciesInAStage(t *testing.T) {
	l := newLimiter(t, redisrate.Config{Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})})
	two := []middleware.Policy{
		{Name: "a", Key: fixed, Limit: slow},
		{Name: "b", Key: fixed, Limit: slow},
	}
	_, err := middleware.New(middleware.Config{Limiter: l, Policies: two})
	require.ErrorContains(t, err, "no limiter.Batcher")
	two[1].Shadow = true
	_, err = middleware.New(middleware.Config{Limiter: l, Policies: two})
	require.NoError(t, err)
	two[1].Shadow, two[1].Refund = false, func(int) bool { return true }
	_, err = middleware.New(middleware.Config{Limiter: l, Policies: two[1:]})
	require.ErrorContains(t, err, "no limiter.Refunder")
}

func TestServes(t *testing.T) {
	l, err := redisrate.New(redisrate.Config{Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})})
	require.NoError(t, err)
	for limit, serves := range map[limiter.Limit]bool{
		limiter.PerMinute(10):                           true,
		limiter.Unlimited:                               true,
		limiter.PerMinute(10).With(limiter.SlidingLog):  false,
		limiter.PerMinute(10).With(limiter.LeakyBucket): false,
		limiter.PerSecond(1_000_000):                    false,
		{}:                                              false,
	} {
		if err := l.Serves(limit); serves {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, limiter.ErrInvalid, "%v", limit)
		}
	}
}
