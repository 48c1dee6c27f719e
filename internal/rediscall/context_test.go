package rediscall_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

type watcher struct{ seen func(context.Context) }

func (w watcher) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w watcher) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.seen(ctx)
		return next(ctx, cmd)
	}
}

func (w watcher) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type name struct{}

// A hook sees a context like any other: with the caller's values, a deadline, and an end that comes with the call.
func TestContextOfACall(t *testing.T) {
	f := newFake(t, false, func([]string) string { return bulk("done") })
	rdb := plain(t, f.addr, func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = true, generous })
	var kept context.Context
	var done <-chan struct{}
	rdb.AddHook(watcher{func(ctx context.Context) {
		kept, done = ctx, ctx.Done()
		require.Equal(t, "value", ctx.Value(name{}))
		require.NoError(t, ctx.Err())
		d, ok := ctx.Deadline()
		require.True(t, ok)
		require.LessOrEqual(t, time.Until(d), generous)
		select {
		case <-done:
			t.Error("over before it began")
		default:
		}
	}})
	require.NoError(t, run2(bound(t, rdb, generous), context.WithValue(context.Background(), name{}, "value")))
	<-kept.Done()
	require.ErrorIs(t, kept.Err(), context.Canceled)
}

func run2(c *rediscall.Client, ctx context.Context) error { //nolint:revive // as in ways
	_, err := c.Run(ctx, count, []string{"k"})
	return err
}

// Timers are handed from call to call: none rings for a call that it was not set for, and each rings for its own.
func TestTimersOfCallsAreTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Hour)
		var mu sync.Mutex
		delay := time.Duration(0)
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			mu.Lock()
			d := delay
			mu.Unlock()
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			client, server := net.Pipe()
			go (&fake{}).serve(server, false, func([]string) string { return bulk("done") })
			return client, nil
		}, MaxIdleConns: -1, ConnMaxIdleTime: time.Nanosecond, DisableIdentity: true})
		defer func() { _ = rdb.Close() }()
		c, err := rediscall.Bound(rdb, bit)
		require.NoError(t, err)
		for i := range 200 {
			mu.Lock()
			delay = bit * time.Duration(i*7%13) / 6 // 0 … 2·bit
			d := delay
			mu.Unlock()
			start := time.Now()
			err := run2(c, t.Context())
			if d < bit {
				require.NoError(t, err)
				require.Equal(t, d, time.Since(start))
			} else if err != nil { // a connection that somebody else dialed may have come
				require.ErrorIs(t, err, limiter.ErrUnavailable)
				require.Equal(t, bit, time.Since(start))
			}
			time.Sleep(3 * bit) // connections and dials are over
		}
	})
}

func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Hour)
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: piped(&fake{}, false)})
		defer func() { _ = rdb.Close() }()
		c, err := rediscall.Bound(rdb, bit)
		require.NoError(t, err)
		start := time.Now()
		err = run2(c, rediscall.Since(t.Context(), start.Add(-bit/5)))
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Equal(t, bit-bit/5, time.Since(start))

		start = time.Now()
		err = run2(c, rediscall.Since(t.Context(), start.Add(-bit)))
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, time.Since(start))
	})
}

// A function that finds slots and ignores its context delays no call beyond its bound, runs once at a time, and may panic.
func TestSlotsByAFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Hour)
		var asked atomic.Int64
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go (&fake{}).serve(server, false, func([]string) string { return bulk("done") })
				return client, nil
			},
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				if asked.Add(1) == 1 {
					panic("no slots")
				}
				time.Sleep(3 * bit)
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
			},
		})
		defer func() { _ = rdb.Close() }()
		c, err := rediscall.Bound(rdb, bit)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		require.ErrorIs(t, run2(c, t.Context()), limiter.ErrUnavailable)
		for range 2 {
			start := time.Now()
			require.ErrorIs(t, run2(c, t.Context()), limiter.ErrUnavailable)
			require.Equal(t, bit, time.Since(start))
		}
		require.Equal(t, int64(2), asked.Load())
		time.Sleep(bit / 2)
		require.NoError(t, run2(c, t.Context())) // waits for the rest of that lookup
		require.Equal(t, int64(2), asked.Load())
	})
}
