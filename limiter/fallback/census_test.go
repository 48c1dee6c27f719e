package fallback_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

// reports answers a census as a test says.
type reports struct {
	mu    sync.Mutex
	count int
	err   error
	at    []time.Time
	left  int
}

func (r *reports) report(ctx context.Context, leave bool) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if leave {
		r.left++
		return r.count - 1, r.err
	}
	r.at = append(r.at, time.Now())
	return r.count, r.err
}

func (r *reports) say(count int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count, r.err = count, err
}

func TestCensusRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []limiter.Event
		r := &reports{count: 3}
		c := fallback.CensusOf(r.report, 2*time.Second, limiter.ObserverFunc(func(e limiter.Event) {
			events = append(events, e)
			panic("odd observer")
		}))
		require.Zero(t, c.Count())
		c.Start()
		c.Start()
		synctest.Wait()
		require.Equal(t, 3, c.Count(), "the first report is made at once")
		require.Equal(t, limiter.EventStore, events[0].Kind)
		require.Equal(t, "census", events[0].Op)

		r.say(5, nil)
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, 5, c.Count(), "more count at once")

		r.say(0, errGone)
		time.Sleep(time.Hour)
		require.Equal(t, 5, c.Count(), "an outage leaves the number")

		// Redis is back and empty, and hears from one replica after the other.
		for n := range 4 {
			r.say(n+1, nil)
			time.Sleep(time.Second)
			require.Equal(t, 5, c.Count())
		}
		time.Sleep(10 * time.Second)
		require.Equal(t, 4, c.Count(), "fewer count when three intervals say so")

		r.say(1, nil)
		time.Sleep(5 * time.Second)
		r.say(4, nil)
		time.Sleep(2500 * time.Millisecond)
		r.say(1, nil)
		time.Sleep(5 * time.Second)
		require.Equal(t, 4, c.Count(), "not in a row")

		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.Equal(t, 1, r.left)
		made := len(r.at)
		c.Start()
		time.Sleep(time.Minute)
		require.Len(t, r.at, made, "reports after Close")
		require.Equal(t, 4, c.Count())
		for i := range r.at[1:] {
			pause := r.at[i+1].Sub(r.at[i])
			require.GreaterOrEqual(t, pause, 1500*time.Millisecond)
			require.LessOrEqual(t, pause, 2500*time.Millisecond)
		}
	})
}

func TestCensusThatNeverBegan(t *testing.T) {
	r := &reports{count: 3}
	c := fallback.CensusOf(r.report, time.Second, nil)
	require.NoError(t, c.Close())
	require.Zero(t, r.left)
}

// The number of replicas changes while the store is away: shares change at once, and the keys keep what they have.
func TestSharesFollowTheCensus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reports{count: 2}
		c := fallback.CensusOf(r.report, 2*time.Second, nil)
		defer func() { _ = c.Close() }()
		s := newStore(t)
		l := newLimiter(t, fallback.Config{Primary: s, Replicas: 1, Census: c, Cooldown: time.Hour})
		require.Equal(t, 1, l.Replicas())
		c.Start()
		synctest.Wait()
		require.Equal(t, 2, l.Replicas())
		trip(t, l, s)
		limit := limiter.PerDay(100)
		require.Equal(t, 40, take(t, l, limit, 10).Remaining)
		r.say(10, nil)
		time.Sleep(3 * time.Second)
		require.Equal(t, 9, take(t, l, limit, 1).Remaining, "of 10 each, not of 50")
	})
}

func TestCensusOnRedis(t *testing.T) {
	server := redistest.Shared(t)
	rdb := server.Client()
	prefix := redistest.Prefix(t)
	newCensus := func() *fallback.Census {
		c, err := fallback.NewCensus(fallback.CensusConfig{Client: rdb, Prefix: prefix, Timeout: 5 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	three := []*fallback.Census{newCensus(), newCensus(), newCensus()}
	for round := range 2 {
		for i, c := range three {
			n, err := c.Report(ctx, false)
			require.NoError(t, err)
			if round == 0 {
				require.Equal(t, i+1, n)
			} else {
				require.Equal(t, 3, n, "a replica that reports again is the same one")
			}
		}
	}
	found := prefix + ":replicas"
	ttl, err := rdb.PTTL(ctx, found).Result()
	require.NoError(t, err)
	require.Greater(t, ttl, time.Second)
	require.LessOrEqual(t, ttl, 6*time.Second)

	now, err := rdb.Time(ctx).Result()
	require.NoError(t, err)
	entries, err := rdb.ZRangeWithScores(ctx, found, 0, -1).Result()
	require.NoError(t, err)
	for _, e := range entries {
		require.InDelta(t, now.UnixMilli(), e.Score, 60_000)
	}
	stale := redis.Z{Member: "dead", Score: float64(now.UnixMilli() - 1)}
	require.NoError(t, rdb.ZAdd(ctx, found, stale).Err())
	n, err := three[0].Report(ctx, false)
	require.NoError(t, err)
	require.Equal(t, 3, n, "who has not reported for three intervals is gone")

	n, err = three[2].Report(ctx, true)
	require.NoError(t, err)
	require.Equal(t, 2, n, "who leaves is gone at once")
}

// Replicas that differ in their interval, as while it is rolled out, count each other: each by its own.
func TestCensusOfDifferentIntervals(t *testing.T) {
	server := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	of := func(interval time.Duration) *fallback.Census {
		c, err := fallback.NewCensus(fallback.CensusConfig{
			Client: server.Client(), Prefix: prefix, Timeout: 5 * time.Second, Interval: interval,
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	rare, often := of(time.Hour), of(10*time.Millisecond)
	_, err := rare.Report(ctx, false)
	require.NoError(t, err)
	// The hour passes for nobody but the reports: as if made 10 s ago, they are late for one and not for the other.
	found := prefix + ":replicas"
	members, err := server.Client().ZRange(ctx, found, 0, -1).Result()
	require.NoError(t, err)
	require.NoError(t, server.Client().ZIncrBy(ctx, found, -10_000, members[0]).Err())

	n, err := often.Report(ctx, false)
	require.NoError(t, err)
	require.Equal(t, 2, n, "who reports rarely is alive for who reports often")
	ttl, err := server.Client().PTTL(ctx, found).Result()
	require.NoError(t, err)
	require.Greater(t, ttl, 2*time.Hour, "the key lives as long as the longest report")
}

// A census that is started counts itself, and takes itself out when it is closed.
func TestCensusFromStartToClose(t *testing.T) {
	server := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	learned := make(chan error, 100)
	c, err := fallback.NewCensus(fallback.CensusConfig{
		Client: server.Client(), Prefix: prefix, Timeout: 5 * time.Second,
		Observer: limiter.ObserverFunc(func(e limiter.Event) { learned <- e.Err }),
	})
	require.NoError(t, err)
	c.Start()
	require.NoError(t, <-learned)
	require.NoError(t, c.Close())
	require.Equal(t, 1, c.Count())
	n, err := server.Client().Exists(ctx, prefix+":replicas").Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestCensusWithoutRedis(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := fallback.NewCensus(fallback.CensusConfig{Client: rdb, Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	_, err = c.Report(ctx, false)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.NoError(t, c.Close())
}
