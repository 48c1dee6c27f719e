package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

const crowd = 64

var (
	alice = limiter.Key{Space: "api", ID: "user=alice"}
	bob   = limiter.Key{Space: "api", ID: "user=bob"}
)

// calls are what may be asked of a limiter.
func calls(l *redislimit.Limiter) map[string]func(context.Context) error {
	limit := limiter.PerHour(1000)
	return map[string]func(context.Context) error{
		"Allow": func(ctx context.Context) error {
			_, err := l.Allow(ctx, alice, limit, 1)
			return err
		},
		"AllowAll": func(ctx context.Context) error {
			_, err := l.AllowAll(ctx, time.Time{}, []limiter.Take{{Key: alice, Limit: limit, N: 1}, {Key: bob, Limit: limit, N: 1}})
			return err
		},
		"Refund": func(ctx context.Context) error {
			return l.Refund(ctx, time.Time{}, &limiter.Take{Key: alice, Limit: limit, N: 1, Decision: limiter.Decision{Mark: 1}})
		},
		"Reset": func(ctx context.Context) error { return l.Reset(ctx, alice) },
	}
}

// soon is when who may wait for 50 ms has his answer even on a busy machine. By itself go-redis would take seconds.
const soon = 50*time.Millisecond + time.Second

// deaths are ways in which a server does not answer. What hangs does so until the test is over.
func deaths(t *testing.T) map[string]func(context.Context, string, string) (net.Conn, error) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	return map[string]func(context.Context, string, string) (net.Conn, error){
		"silent": func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return client, nil
		},
		"refused": func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		},
		"hanging dialer": func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-over:
				return nil, errors.New("over")
			}
		},
		"dialer that heeds nothing": func(context.Context, string, string) (net.Conn, error) {
			<-over
			return nil, errors.New("over")
		},
	}
}

// Whatever the server does not do, whoever asks has his answer when the default time-out of 50 ms is over, counted from his own
// arrival: as the first, in the line, as one of many. (TestLine has the exact times, without go-redis.)
func TestEverybodyIsAnsweredInTime(t *testing.T) {
	for death, dial := range deaths(t) {
		for kind, client := range map[string]func() redis.UniversalClient{
			"plain": func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: "10.0.0.1:1", Dialer: dial}) },
			"pool of one": func() redis.UniversalClient {
				return redis.NewClient(&redis.Options{Addr: "10.0.0.1:1", Dialer: dial, PoolSize: 1})
			},
			"cluster": func() redis.UniversalClient {
				return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"10.0.0.1:1", "10.0.0.2:1"}, Dialer: dial})
			},
			"ring": func() redis.UniversalClient {
				return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "10.0.0.1:1", "b": "10.0.0.2:1"}, Dialer: dial})
			},
		} {
			for _, alone := range []bool{false, true} {
				name := fmt.Sprintf("%s, %s, NoSharing: %v", death, kind, alone)
				rdb := client()
				l, err := redislimit.New(redislimit.Config{Client: rdb, NoSharing: alone})
				require.NoError(t, err)
				var wg sync.WaitGroup
				for what, call := range calls(l) {
					for range crowd / 4 {
						wg.Go(func() { askInVain(t, context.Background(), call, name+", "+what) })
						wg.Go(func() {
							ctx, cancel := context.WithCancel(t.Context())
							defer time.AfterFunc(20*time.Millisecond, cancel).Stop()
							askInVain(t, ctx, call, name+", "+what)
						})
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
							defer cancel()
							askInVain(t, ctx, call, name+", "+what)
						})
					}
				}
				wg.Wait()
				require.NoError(t, l.Close())
				require.NoError(t, rdb.Close())
			}
		}
	}
}

// askInVain asks a limiter that cannot decide. An error is the caller's own only if he has left.
func askInVain(t *testing.T, ctx context.Context, call func(context.Context) error, what string) { //nolint:revive // t first
	start := time.Now()
	err := call(ctx)
	if took := time.Since(start); took > soon {
		t.Errorf("%s took %v", what, took)
	}
	own, away := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded), errors.Is(err, limiter.ErrUnavailable)
	if d, ok := ctx.Deadline(); own == away || own && ctx.Err() == nil && !(ok && time.Now().After(d)) {
		t.Errorf("%s: %v, and the context: %v", what, err, ctx.Err())
	}
}

// The same with real sockets.
func TestRealServersThatDoNotAnswer(t *testing.T) {
	silent := redistest.StartProxy(t, "127.0.0.1:1")
	silent.Silent()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refused := free.Addr().String()
	require.NoError(t, free.Close())
	exhausted := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), PoolSize: 1})
	held := exhausted.Conn()
	require.NoError(t, held.Ping(t.Context()).Err())
	defer func() { _ = held.Close() }()
	for name, rdb := range map[string]*redis.Client{
		"silent":    redis.NewClient(&redis.Options{Addr: silent.Addr()}),
		"refused":   redis.NewClient(&redis.Options{Addr: refused}),
		"exhausted": exhausted,
	} {
		l, err := redislimit.New(redislimit.Config{Client: rdb})
		require.NoError(t, err)
		for what, call := range calls(l) {
			var wg sync.WaitGroup
			for range crowd {
				wg.Go(func() { askInVain(t, context.Background(), call, name+", "+what) })
			}
			wg.Wait()
		}
		require.NoError(t, l.Close())
		require.NoError(t, rdb.Close())
	}
}

// The client as everybody builds it, and nothing of this package is left when it is closed.
func TestPlainClientWorks(t *testing.T) {
	addr, prefix := redistest.Shared(t).Addr(), fmt.Sprint("p", time.Now().UnixNano())
	before := goleak.IgnoreCurrent()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	l, err := redislimit.New(redislimit.Config{Client: rdb, Prefix: prefix, Timeout: busy})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range crowd {
		wg.Go(func() {
			for what, call := range calls(l) {
				require.NoError(t, call(t.Context()), what)
			}
		})
	}
	wg.Wait()
	require.NoError(t, l.Close())
	require.NoError(t, rdb.Ping(t.Context()).Err(), "it stays the user's")
	require.NoError(t, rdb.Close())
	goleak.VerifyNone(t, before)
}

const busy = 20 * time.Second // a time-out for what is to succeed on a busy machine

// A reply that is lost never makes a take count twice.
func TestLostReplyCountsOnce(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Shared(t).Addr())
	limit := limiter.Per(1000, 1000*time.Hour)
	for _, alone := range []bool{true, false} {
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: 5})
		l := open(t, redislimit.Config{Client: rdb, NoSharing: alone, Timeout: busy})
		proxy.Pass()
		d, err := l.Allow(t.Context(), alice, limit, 1) // the script is known now
		require.NoError(t, err)
		require.Equal(t, 999, d.Remaining)
		for i := range 10 {
			proxy.DropReplies(1)
			_, err = l.Allow(t.Context(), alice, limit, 1)
			require.ErrorIs(t, err, limiter.ErrUnavailable)
			d, err = l.Allow(t.Context(), alice, limit, 0)
			require.NoError(t, err)
			require.Equal(t, 998-i, d.Remaining)
		}
		// Many share a trip whose reply is lost: some get an answer, and nobody counts twice.
		proxy.DropReplies(2)
		var wg sync.WaitGroup
		var mu sync.Mutex
		passed := 0
		for range crowd {
			wg.Go(func() {
				d, err := l.Allow(t.Context(), bob, limit, 1)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && d.Allowed {
					passed++
				} else if !errors.Is(err, limiter.ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		d, err = l.Allow(t.Context(), bob, limit, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, 1000-d.Remaining, crowd)
		require.GreaterOrEqual(t, 1000-d.Remaining, passed)
		require.NoError(t, rdb.Close())
	}
}

// Who leaves while a trip that others make is under way gets his units back.
func TestLeaversGetTheirUnitsBack(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Shared(t).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer func() { _ = rdb.Close() }()
	for _, a := range limiter.Algorithms() {
		if a == limiter.LeakyBucket {
			continue // a departure once promised is spent
		}
		l := open(t, redislimit.Config{Client: rdb, Timeout: busy})
		limit := limiter.Per(1000, 1000*time.Hour).With(a)
		proxy.Delay(100 * time.Millisecond)
		sent := proxy.Requests()
		underway := func(n int) {
			require.Eventually(t, func() bool { return proxy.Requests() >= sent+n }, busy, time.Millisecond)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		passed, gone := 0, 0
		ask := func(ctx context.Context) {
			d, err := l.Allow(ctx, alice, limit, 1)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && d.Allowed:
				passed++
			case errors.Is(err, context.Canceled):
				gone++
			default:
				t.Errorf("%+v, %v", d, err)
			}
		}
		wg.Go(func() { ask(t.Context()) })
		underway(1)
		for i := range crowd {
			wg.Go(func() {
				if i%4 == 0 {
					ask(t.Context())
				} else {
					ask(ctx)
				}
			})
		}
		underway(2)
		cancel()
		wg.Wait()
		proxy.Delay(0)
		require.Equal(t, 1+crowd, passed+gone)
		require.Eventually(t, func() bool {
			d, err := l.Allow(t.Context(), alice, limit, 0)
			return err == nil && d.Remaining == 1000-passed
		}, busy, 5*time.Millisecond, "%v: %d passed", a, passed)
	}
}

// bomb is a hook and an observer that panics on request.
type bomb struct {
	mu  sync.Mutex
	lit bool
}

func (b *bomb) light(lit bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lit = lit
}

func (b *bomb) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lit {
		panic("boom")
	}
}

func (b *bomb) Observe(limiter.Event) { b.tick() }

func (b *bomb) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *bomb) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.tick()
		return next(ctx, cmd)
	}
}

func (b *bomb) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.tick()
		return next(ctx, cmds)
	}
}

// A panic of a hook of the client is an error of those whose call it was, one of an observer is dropped. Nobody hangs, and
// afterwards all goes on.
func TestPanicsAreContained(t *testing.T) {
	hook, observer := &bomb{}, &bomb{}
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), ContextTimeoutEnabled: true, ReadTimeout: busy})
	defer func() { _ = rdb.Close() }()
	rdb.AddHook(hook)
	for _, b := range []*bomb{hook, observer} {
		l := open(t, redislimit.Config{Client: rdb, Observer: observer, Timeout: busy})
		for _, lit := range []bool{true, false} {
			b.light(lit)
			var wg sync.WaitGroup
			for range crowd {
				wg.Go(func() {
					for what, call := range calls(l) {
						if err := call(t.Context()); lit && b == hook {
							require.ErrorIs(t, err, limiter.ErrInvalid, what)
						} else {
							require.NoError(t, err, what)
						}
					}
				})
			}
			wg.Wait()
		}
	}
}

// What is booked for a caller whose deadline came first is given back, also where nobody shares the trip.
func TestDeadlinesCostNothing(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	for _, noSharing := range []bool{false, true} {
		l := open(t, redislimit.Config{
			Client: redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, ReadTimeout: busy}),
			Prefix: fmt.Sprint("deadline", noSharing), Timeout: busy, NoSharing: noSharing, DenyCache: -1,
		})
		key := limiter.Key{Space: "s", ID: "all=-"}
		_, err := l.Allow(t.Context(), key, limiter.PerDay(5), 0) // connected
		require.NoError(t, err)
		proxy.Delay(100 * time.Millisecond)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := l.Allow(ctx, key, limiter.PerDay(5), 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		proxy.Delay(0)
		require.Eventually(t, func() bool {
			d, err := l.Allow(t.Context(), key, limiter.PerDay(5), 0)
			return err == nil && d.Remaining == 5
		}, busy, 10*time.Millisecond)
	}
}
