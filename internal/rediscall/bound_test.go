package rediscall_test

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

const bit = 50 * time.Millisecond

type dialer = func(context.Context, string, string) (net.Conn, error)

// piped connects to a fake server without a network, so that time can be a bubble's.
func piped(f *fake, deaf bool) dialer {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go f.serve(server, deaf, func([]string) string { return silent })
		return client, nil
	}
}

// Ways in which a server does not answer. Nothing here answers a command.
func deaths() map[string]dialer {
	return map[string]dialer{
		"refused": func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		},
		"no answer to the SYN": func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		},
		"silent":                  piped(&fake{}, true),
		"silent after HELLO":      piped(&fake{}, false),
		"slow, and slow in total": piped(&fake{pace: bit * 2 / 5}, false),
	}
}

// clients are built as users build them, but for the dialer.
func clients(d dialer) map[string]func() redis.UniversalClient {
	return map[string]func() redis.UniversalClient{
		"plain": func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: d}) },
		"no limit": func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: d, ReadTimeout: -2, WriteTimeout: -2})
		},
		"heeds contexts": func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: d, ContextTimeoutEnabled: true})
		},
		"cluster without a limit": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: d, ContextTimeoutEnabled: true, ReadTimeout: -2, WriteTimeout: -2})
		},
		"ring that shares": func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, Dialer: d, ContextTimeoutEnabled: true})
		},
		"ring without a limit": func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, Dialer: d, ContextTimeoutEnabled: true, ReadTimeout: -2, WriteTimeout: -2})
		},
		"cluster": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.2:1"}, Dialer: d})
		},
		"cluster that reads replicas": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: d, ReadOnly: true, ContextTimeoutEnabled: true})
		},
		"cluster that shares": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: d, ContextTimeoutEnabled: true})
		},
		"cluster of one": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Dialer: d, ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
			}})
		},
		"ring": func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.2:1"}, Dialer: d})
		},
	}
}

func each(c *rediscall.Client, ctx context.Context) error { //nolint:revive // as a method expression
	calls := []rediscall.Call{{Keys: []string{"a"}}, {Keys: []string{"b"}}}
	c.RunEach(ctx, count, calls)
	return calls[1].Err
}

var ways = map[string]func(*rediscall.Client, context.Context) error{
	"Run": func(c *rediscall.Client, ctx context.Context) error {
		_, err := c.Run(ctx, count, []string{"k"})
		return err
	},
	"RunEach": each,
	"Do": func(c *rediscall.Client, ctx context.Context) error {
		_, err := c.Do(ctx, "GET", "k")
		return err
	},
}

// Whatever the server does not do, and whichever client it is, a call takes no longer than the time-out in all, and says so.
func TestEveryCallEndsInTime(t *testing.T) {
	for death, d := range deaths() {
		for kind, build := range clients(d) {
			for way, call := range ways {
				t.Run(death+"/"+kind+"/"+way, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						defer time.Sleep(time.Hour) // dials of go-redis that nobody waits for end by themselves
						rdb := build()
						defer func() { _ = rdb.Close() }()
						c, err := rediscall.Bound(rdb, bit)
						require.NoError(t, err)
						defer func() { require.NoError(t, c.Close()) }()
						for range 3 {
							start := time.Now()
							err = call(c, t.Context())
							require.LessOrEqual(t, time.Since(start), bit)
							require.ErrorIs(t, err, limiter.ErrUnavailable)
							require.NotErrorIs(t, err, context.DeadlineExceeded)
							require.NotErrorIs(t, err, context.Canceled)
							require.NotErrorIs(t, err, limiter.ErrInvalid)
						}
					})
				})
			}
		}
	}
}

// A caller's deadline that comes first is kept, and its error is the caller's. A cancellation is answered as one.
func TestCallersContextEnds(t *testing.T) {
	for death, d := range deaths() {
		for kind, build := range clients(d) {
			for way, call := range ways {
				t.Run(death+"/"+kind+"/"+way, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						defer time.Sleep(time.Hour) // dials of go-redis that nobody waits for end by themselves
						rdb := build()
						defer func() { _ = rdb.Close() }()
						c, err := rediscall.Bound(rdb, bit)
						require.NoError(t, err)
						defer func() { require.NoError(t, c.Close()) }()

						ctx, cancel := context.WithTimeout(t.Context(), bit/2)
						start := time.Now()
						err = call(c, ctx)
						require.LessOrEqual(t, time.Since(start), bit/2)
						if time.Since(start) == bit/2 { // otherwise the server was quicker in refusing
							require.ErrorIs(t, err, context.DeadlineExceeded)
							require.NotErrorIs(t, err, limiter.ErrUnavailable)
							require.Equal(t, "deadline", rediscall.Cause(err))
						}
						cancel()

						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(bit/5, cancel)
						start = time.Now()
						err = call(c, ctx)
						require.LessOrEqual(t, time.Since(start), bit)
						if time.Since(start) >= bit/5 {
							require.ErrorIs(t, err, context.Canceled)
							require.NotErrorIs(t, err, limiter.ErrUnavailable)
							require.Equal(t, "canceled", rediscall.Cause(err))
						}

						cancel()
						start = time.Now()
						require.ErrorIs(t, call(c, ctx), context.Canceled)
						require.Zero(t, time.Since(start))
					})
				})
			}
		}
	}
}

// While others hold all connections, a call waits for one no longer than it may.
func TestExhaustedPool(t *testing.T) {
	rdb := plain(t, server(t), func(o *redis.Options) { o.PoolSize, o.PipelinePoolSize = 1, -1 })
	held := rdb.Conn()
	require.NoError(t, held.Ping(context.Background()).Err())
	c := bound(t, rdb, bit)
	for _, call := range ways {
		start := time.Now()
		err := call(c, context.Background())
		require.Less(t, time.Since(start), bit+time.Second, "go-redis alone waits for seconds")
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "pool", rediscall.Cause(err))
	}
	require.NoError(t, held.Close())
	require.NoError(t, run(bound(t, rdb, generous), "k"))
}

// Fail-over clients look for their master under a lock, which stops a bubble's clock, so this is by the wall clock.
func TestFailoverEndsInTime(t *testing.T) {
	for death, d := range deaths() {
		o := &redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.3:1"}, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(t.Context(), cancel)()
			conn, err := d(ctx, network, addr)
			if err == nil {
				context.AfterFunc(t.Context(), func() { _ = conn.Close() })
			}
			return conn, err
		}}
		for kind, rdb := range map[string]redis.UniversalClient{
			"client": redis.NewFailoverClient(o), "cluster": redis.NewFailoverClusterClient(o),
		} {
			c := bound(t, rdb, bit)
			start := time.Now()
			err := run(c, "k")
			require.Less(t, time.Since(start), bit+time.Second, death+" "+kind)
			require.ErrorIs(t, err, limiter.ErrUnavailable, death+" "+kind)
			require.NotErrorIs(t, err, context.DeadlineExceeded, death+" "+kind)
			t.Cleanup(func() { _ = rdb.Close() })
		}
	}
}

// The same over TCP, with a client as it is.
func TestRealSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refused := l.Addr().String()
	require.NoError(t, l.Close())
	for name, addr := range map[string]string{
		"refused":            refused,
		"silent":             newFake(t, true, nil).addr,
		"silent after HELLO": newFake(t, false, func([]string) string { return silent }).addr,
	} {
		c := bound(t, plain(t, addr), bit)
		start := time.Now()
		err := run(c, "k")
		require.Less(t, time.Since(start), bit+time.Second, name)
		require.ErrorIs(t, err, limiter.ErrUnavailable, name)
		require.NotErrorIs(t, err, context.DeadlineExceeded, name)
		require.Contains(t, []string{"timeout", "refused"}, rediscall.Cause(err), name)
	}
}

type wrapped struct{ *redis.Client }

func TestBoundRefuses(t *testing.T) {
	rdb := plain(t, "127.0.0.1:1")
	for name, f := range map[string]func() (*rediscall.Client, error){
		"nil":         func() (*rediscall.Client, error) { return rediscall.Bound(nil, time.Second) },
		"nil client":  func() (*rediscall.Client, error) { return rediscall.Bound((*redis.Client)(nil), time.Second) },
		"nil cluster": func() (*rediscall.Client, error) { return rediscall.Bound((*redis.ClusterClient)(nil), time.Second) },
		"nil ring":    func() (*rediscall.Client, error) { return rediscall.Bound((*redis.Ring)(nil), time.Second) },
		"no time":     func() (*rediscall.Client, error) { return rediscall.Bound(rdb, 0) },
		"wrapped":     func() (*rediscall.Client, error) { return rediscall.Bound(wrapped{rdb}, time.Second) },
	} {
		c, err := f()
		require.ErrorIs(t, err, limiter.ErrInvalid, name)
		require.Nil(t, c, name)
	}
	_, err := rediscall.Bound(wrapped{rdb}, time.Second)
	require.ErrorContains(t, err, "rediscall_test.wrapped")
}

// The user's client stays as it was, and open.
func TestUsersClientIsLeftAlone(t *testing.T) {
	rdb := plain(t, server(t))
	before := *rdb.Options()
	c, err := rediscall.Bound(rdb, bit)
	require.NoError(t, err)
	require.Equal(t, before.ReadTimeout, rdb.Options().ReadTimeout)
	require.False(t, rdb.Options().ContextTimeoutEnabled)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.NoError(t, rdb.Ping(context.Background()).Err())

	err = run(c, "k")
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.Equal(t, "closed", rediscall.Cause(err))
	calls := make([]rediscall.Call, 2)
	c.RunEach(context.Background(), echo, calls)
	require.ErrorIs(t, calls[1].Err, limiter.ErrUnavailable)

	c = bound(t, rdb, generous)
	require.NoError(t, rdb.Close())
	err = run(c, "k")
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.Equal(t, "closed", rediscall.Cause(err))
}

// A plain client's connections are shared. Its hooks see the calls if it heeds contexts.
func TestPlainClientIsShared(t *testing.T) {
	addr := server(t)
	for _, enabled := range []bool{false, true} {
		rdb := plain(t, addr, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled, o.ReadTimeout = 1, enabled, generous })
		require.NoError(t, rdb.Ping(context.Background()).Err())
		seen := 0
		rdb.AddHook(hook(func() { seen++ }))
		c := bound(t, rdb, generous)
		_, err := c.Do(context.Background(), "GET", "k")
		require.NoError(t, err)
		require.Equal(t, enabled, seen == 1)
		require.Equal(t, uint32(1), rdb.PoolStats().TotalConns)
	}
}

type hook func()

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h()
		// A hook may derive contexts; they must end with the call's.
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(errors.New("over"))
		return next(ctx, cmd)
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Nothing goes on after Close.
func TestCloseLeavesNothing(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	var self *fake
	f := newFake(t, false, func(args []string) string {
		if args[0] == "cluster" {
			return slots(self.addr)
		}
		return bulk("done")
	})
	self = f
	for _, build := range []func() redis.UniversalClient{
		func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: f.addr}) },
		func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{f.addr}})
		},
		func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": f.addr}})
		},
	} {
		ignoreServer := goleak.IgnoreAnyFunction("github.com/spillway-go/spillway/internal/rediscall_test.(*fake).serve")
		rdb := build()
		c, err := rediscall.Bound(rdb, generous)
		require.NoError(t, err)
		for _, call := range ways {
			require.NoError(t, call(c, context.Background()))
		}
		require.NoError(t, c.Close())
		require.NoError(t, rdb.Close())
		goleak.VerifyNone(t, ignore, ignoreServer, goleak.IgnoreAnyFunction(
			"github.com/spillway-go/spillway/internal/rediscall_test.newFake.func1"))
	}
}
