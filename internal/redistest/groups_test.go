package redistest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	var pids []int
	t.Run("group", func(t *testing.T) {
		s := redistest.StartSentinel(t)
		for _, server := range append(s.Servers(), s.Sentinels()...) {
			pids = append(pids, server.PID())
		}
		c, ctx, old := s.Client(), t.Context(), s.Master()
		require.Same(t, s.Servers()[0], old)
		require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
		for _, server := range s.Servers() {
			require.Eventually(t, func() bool { return server.Client().Get(ctx, "k").Val() == "v" }, soon, tick)
		}
		if testing.Short() {
			t.Skip("a fail-over takes seconds")
		}
		s.Sentinels()[0].Kill() // two are enough
		old.Kill()
		require.Eventually(t, func() bool { return c.Set(ctx, "k", "w", 0).Err() == nil }, soon, tick)
		require.NotSame(t, old, s.Master())
		require.Equal(t, "w", s.Master().Client().Get(ctx, "k").Val())
	})
	require.Len(t, pids, 6)
	for _, pid := range pids {
		requireGone(t, pid)
	}
}

func TestClusterFailOver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a fail-over takes seconds")
	}
	var pids []int
	t.Run("cluster", func(t *testing.T) {
		s := redistest.StartCluster(t)
		for _, server := range s.Servers() {
			pids = append(pids, server.PID())
		}
		c, ctx := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs(), ClusterStateReloadInterval: 100 * time.Millisecond}), t.Context()
		defer func() { _ = c.Close() }()
		require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(s.Servers()[3:], func(r *redistest.Server) bool { return r.Client().DBSize(ctx).Val() == 1 })
		}, soon, tick, "a replica has it")
		byDefault := s.Client()
		require.NoError(t, byDefault.Get(ctx, "k").Err())
		old := s.KillMaster("k")
		require.Eventually(t, func() bool { return c.Set(ctx, "k", "w", 0).Err() == nil }, soon, tick)
		s.Wait()
		successor := s.MasterOf("k")
		require.NotSame(t, old, successor)
		require.Contains(t, s.Servers()[3:], successor, "a replica")
		require.Equal(t, "w", c.Get(ctx, "k").Val())
		byDefault.ReloadState(ctx)
		require.Eventually(t, func() bool { return byDefault.Set(ctx, "k", "x", 0).Err() == nil }, soon, tick)
		old.Restart()
		s.Wait()
		require.Same(t, successor, s.MasterOf("k"))
		require.Equal(t, "slave", role(ctx, old))
	})
	require.Len(t, pids, 6)
	for _, pid := range pids {
		requireGone(t, pid)
	}
}

func role(ctx context.Context, s *redistest.Server) string {
	first, _ := s.Client().Do(ctx, "ROLE").Slice()
	name, _ := first[0].(string)
	return name
}

func TestMoveOfSlot(t *testing.T) {
	t.Parallel()
	s := redistest.StartCluster(t)
	c, ctx := s.Client(), t.Context()
	old, next := s.MasterOf("{x}"), s.OtherMaster("{x}")
	require.NoError(t, c.Set(ctx, "{x}old", "v", 0).Err())
	one := old.Client() // follows nobody
	asks := func(key string) {
		t.Helper()
		err := one.Get(ctx, key).Err()
		require.ErrorContains(t, err, "ASK ")
		require.True(t, strings.HasSuffix(err.Error(), next.Addr()), err)
	}

	// Somebody writes all the time, to a key that is there before the move.
	require.NoError(t, c.Incr(ctx, "{x}count").Err())
	stop, counted := make(chan struct{}), make(chan int64)
	var failure error
	go func() {
		n := int64(1)
		defer func() { counted <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if failure = c.Incr(ctx, "{x}count").Err(); failure != nil {
				return
			}
			n++
		}
	}()
	require.Eventually(t, func() bool { n, _ := c.Get(ctx, "{x}count").Int(); return n > 2 }, soon, tick)

	move := s.BeginMove(s.Slot("{x}"), next)
	require.Equal(t, "v", one.Get(ctx, "{x}old").Val(), "a key that is there is still answered")
	asks("{x}new")
	require.NoError(t, c.Set(ctx, "{x}new", "v", 0).Err())
	move.Keys()
	asks("{x}old")
	require.Equal(t, "v", c.Get(ctx, "{x}old").Val())
	move.Finish()
	require.ErrorContains(t, one.Get(ctx, "{x}old").Err(), "MOVED ")
	require.Same(t, next, s.MasterOf("{x}"))

	close(stop)
	n := <-counted
	require.NoError(t, failure, "a client does not notice")
	require.Equal(t, n, must(c.Get(ctx, "{x}count").Int64())(t))

	s.MoveSlot(s.Slot("{x}"), old)
	require.Same(t, old, s.MasterOf("{x}"))
	require.Equal(t, []any{"v", "v"}, c.MGet(ctx, "{x}old", "{x}new").Val())
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}
