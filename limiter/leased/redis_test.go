package leased_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/leased"
)

var alice = limiter.Key{Space: "api", ID: "user=alice"}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Ten processes and a network that stops in the middle and comes back: all they admit is at most what one bucket would have
// admitted in that time, and in one round trip.
func TestTenNodesAndANetworkThatStops(t *testing.T) {
	server := redistest.Shared(t)
	proxy := redistest.StartProxy(t, server.Addr())
	limit := limiter.PerSecond(2000).WithBurst(400)
	prefix := fmt.Sprintf("ten%d", time.Now().UnixNano())
	var nodes []*leased.Limiter
	for range 10 {
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		l, err := leased.New(leased.Config{Client: rdb, Prefix: prefix, Logger: discard(), Timeout: 100 * time.Millisecond})
		require.NoError(t, err)
		nodes = append(nodes, l)
		t.Cleanup(func() {
			require.NoError(t, l.Close())
			require.NoError(t, rdb.Close())
		})
	}
	var passed, failed atomic.Int64
	var slowest atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	begin := time.Now()
	for _, l := range nodes {
		for range 2 {
			wg.Go(func() {
				pause := time.NewTicker(2 * time.Millisecond)
				defer pause.Stop()
				for ctx.Err() == nil {
					asked := time.Now()
					d, err := l.Allow(context.Background(), alice, limit, 1)
					switch {
					case err != nil && !errors.Is(err, limiter.ErrUnavailable):
						t.Error(err)
					case err != nil:
						failed.Add(1)
					case d.Allowed:
						passed.Add(1)
						took := int64(time.Since(asked))
						for was := slowest.Load(); took > was && !slowest.CompareAndSwap(was, took); was = slowest.Load() {
						}
					}
					<-pause.C
				}
			})
		}
	}
	<-time.After(700 * time.Millisecond)
	proxy.Silent()
	<-time.After(400 * time.Millisecond)
	proxy.CutAll()
	proxy.Pass()
	<-time.After(900 * time.Millisecond)
	stop()
	wg.Wait()
	took := time.Since(begin)
	most := 400 + 2000*took.Seconds() + 2000*time.Duration(slowest.Load()).Seconds() + 1
	t.Logf("%d passed in %v, at most %.0f may; %d could not be decided", passed.Load(), took, most, failed.Load())
	require.LessOrEqual(t, float64(passed.Load()), most)
	require.Positive(t, passed.Load())
	require.Positive(t, failed.Load(), "the network did stop")
}

// A plain client, and nothing of this package is left when it is closed: no goroutine, and nothing held on Redis.
func TestNothingIsLeft(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	before := goleak.IgnoreCurrent()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	prefix := fmt.Sprintf("left%d", time.Now().UnixNano())
	l, err := leased.New(leased.Config{Client: rdb, Prefix: prefix, Timeout: 500 * time.Millisecond, Sync: 10 * time.Second})
	require.NoError(t, err)
	limit := limiter.PerSecond(1_000_000)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 200 {
				d, err := l.Allow(t.Context(), alice, limit, 1)
				if err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, l.Stats().Local)
	key := alice.Render(prefix, "lease")
	ttl := rdb.PTTL(t.Context(), key).Val()
	require.Greater(t, ttl, 50*time.Second, "as long as leases live")
	require.LessOrEqual(t, ttl, 53*time.Second)
	require.NoError(t, l.Close())
	require.Equal(t, []string{"h"}, rdb.HKeys(t.Context(), key).Val(), "every record is gone")
	require.NoError(t, rdb.Ping(t.Context()).Err(), "the client stays the user's")
	require.NoError(t, rdb.Close())
	goleak.VerifyNone(t, before)
}

// Processes that differ in Sync share a key, and it lives as long as the longest lease of it whoever asked last.
func TestKeysOutliveLeasesOfAnySync(t *testing.T) {
	c := redistest.Shared(t).Client()
	prefix := fmt.Sprintf("sync%d", time.Now().UnixNano())
	long := open(t, leased.Config{Prefix: prefix, Timeout: 500 * time.Millisecond, Sync: 10 * time.Second})
	short := open(t, leased.Config{Prefix: prefix, Timeout: 500 * time.Millisecond, Sync: 10 * time.Millisecond})
	limit := limiter.PerSecond(1_000_000)
	take := func(l *leased.Limiter) {
		d, err := l.Allow(t.Context(), alice, limit, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	for long.Stats().Held == 0 {
		take(long)
	}
	key := alice.Render(prefix, "lease")
	before := c.PTTL(t.Context(), key).Val()
	require.Greater(t, before, 50*time.Second)
	for range 3 {
		take(short)
		require.Greater(t, c.PTTL(t.Context(), key).Val(), 45*time.Second)
	}
	require.Positive(t, long.Stats().Held)
	require.NoError(t, long.Close())
}

func TestServerForgetsTheScript(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	l := open(t, leased.Config{Client: c})
	limit := limiter.Per(100, time.Hour)
	for i := range 10 {
		require.NoError(t, c.ScriptFlush(t.Context()).Err())
		d, err := l.Allow(t.Context(), alice, limit, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, 99-i, d.Remaining)
	}
}

// A server that is a replica now is away, not wrong; and it counts nothing.
func TestReadOnlyReplica(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	var lines strings.Builder
	l := open(t, leased.Config{Client: c, Name: "shared", Logger: slog.New(slog.NewTextHandler(&lines, nil)), Sync: 10 * time.Millisecond})
	limit := limiter.Per(100, time.Hour)
	_, err := l.Allow(t.Context(), alice, limit, 1)
	require.NoError(t, err)
	require.NoError(t, c.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	for range 3 {
		_, err = l.Allow(t.Context(), alice, limit, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
	}
	require.NoError(t, c.Do(t.Context(), "replicaof", "no", "one").Err())
	require.Eventually(t, func() bool {
		d, err := l.Allow(t.Context(), alice, limit, 1)
		return err == nil && d.Allowed && d.Remaining == 98
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Close())
	require.Equal(t, 1, strings.Count(lines.String(), "does not answer"), lines.String())
	require.Equal(t, 1, strings.Count(lines.String(), "answers again"), lines.String())
}

// A flush gives one more burst, and that once.
func TestFlushOfAServer(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	l := open(t, leased.Config{Client: c, Sync: 10 * time.Millisecond})
	limit := limiter.Per(50, time.Hour)
	passed := 0
	take := func() bool {
		d, err := l.Allow(t.Context(), alice, limit, 1)
		if err == nil && d.Allowed {
			passed++
		}
		return err == nil && d.Allowed
	}
	for range 150 {
		take()
	}
	require.LessOrEqual(t, passed, 50)
	require.NoError(t, c.FlushAll(t.Context()).Err())
	require.Eventually(t, take, 10*time.Second, time.Millisecond, "when the wait that is remembered is over")
	for range 150 {
		take()
	}
	require.LessOrEqual(t, passed, 100)
	require.Greater(t, passed, 50)
}

// A reply that is lost costs what was to be spent when it arrives, and nothing twice: go-redis does not send again.
func TestLostReplyOnTheWire(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Shared(t).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: 5})
	defer func() { _ = rdb.Close() }()
	l := open(t, leased.Config{Client: rdb, Logger: discard(), Sync: 10 * time.Millisecond})
	limit := limiter.Per(1000, 1000*time.Hour)
	passed, lost := 0, 0
	take := func() (d limiter.Decision, err error) {
		if d, err = l.Allow(t.Context(), alice, limit, 1); err == nil {
			passed++
		}
		return d, err
	}
	for range 5 {
		require.Eventually(t, func() bool { // once it is not away any more
			_, err := take()
			return err == nil
		}, 10*time.Second, time.Millisecond)
		proxy.DropReplies(1)
		lost++
		require.Eventually(t, func() bool { // what is leased is spent first
			_, err := take()
			return errors.Is(err, limiter.ErrUnavailable)
		}, 10*time.Second, time.Millisecond)
	}
	require.Eventually(t, func() bool {
		d, err := take()
		return err == nil && d.Remaining >= 1000-passed-lost
	}, 10*time.Second, time.Millisecond, "all that was not spent is there, once what was leased is given back")
}

// What another program left in a key is refused and stays as it is.
func TestKeyOfAnotherProgram(t *testing.T) {
	c := redistest.Shared(t).Client()
	for name, put := range map[string]func(key string) error{
		"text":          func(key string) error { return c.Set(t.Context(), key, "hello", 0).Err() },
		"a list":        func(key string) error { return c.RPush(t.Context(), key, "h", "b").Err() },
		"another hash":  func(key string) error { return c.HSet(t.Context(), key, "h", "17").Err() },
		"a long hash":   func(key string) error { return c.HSet(t.Context(), key, "h", strings.Repeat("x", 89)).Err() },
		"no bucket yet": func(key string) error { return c.HSet(t.Context(), key, "other", "1").Err() },
	} {
		prefix := fmt.Sprintf("foreign%d", time.Now().UnixNano())
		l := open(t, leased.Config{Prefix: prefix, Logger: discard()})
		key := alice.Render(prefix, "lease")
		require.NoError(t, put(key), name)
		was := c.Dump(t.Context(), key).Val()
		_, err := l.Allow(t.Context(), alice, limiter.PerSecond(5), 1)
		if name == "no bucket yet" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, limiter.ErrInvalid, name)
		require.Equal(t, was, c.Dump(t.Context(), key).Val(), name)
		require.NoError(t, l.Reset(t.Context(), alice))
	}
}

// The script runs on every Redis from 6.2 on, makes no global variable, and names its key.
func TestScriptIsPortable(t *testing.T) {
	code := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(leased.Source, "")
	known := map[string]string{"HMGET": "2.0.0", "TIME": "2.6.0", "HGETALL": "2.0.0", "HDEL": "2.4.0", "HSET": "4.0.0", "PEXPIRE": "2.6.0"}
	for _, m := range regexp.MustCompile(`\bcall\('(\w+)'(?:, (\w+))?`).FindAllStringSubmatch(code, -1) {
		require.Contains(t, known, m[1])
		require.Contains(t, []string{"key", ""}, m[2])
	}
	require.Len(t, regexp.MustCompile(`\bredis\.\w+`).FindAllString(code, -1), 1)
	require.NotRegexp(t, `math\.random|replicate_commands|loadstring|setmetatable|_G\b|tostring|\.\. `, code)
	require.Len(t, regexp.MustCompile(`string\.format`).FindAllString(code, -1), 1, "numbers are packed, but for one")
	require.NotContains(t, code, "%d")
}

// events are what an observer saw.
type events struct {
	mu  sync.Mutex
	all []limiter.Event
}

func (o *events) Observe(e limiter.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, e)
	panic("an observer's fault is not the decision's")
}

func TestObserver(t *testing.T) {
	o := &events{}
	l := open(t, leased.Config{Observer: o, Name: "shared", Sync: 10 * time.Millisecond})
	limit := limiter.PerSecond(100_000)
	require.Eventually(t, func() bool {
		for range 200 {
			if d, err := l.Allow(t.Context(), alice, limit, 1); err != nil || !d.Allowed {
				return false
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		held, calls := false, 0
		for _, e := range o.all {
			switch e.Kind {
			case limiter.EventStore:
				calls++
			case limiter.EventLease:
				held = held || e.Keys == 1
			}
		}
		return held && calls > 1
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Close())
	for _, e := range o.all {
		require.Equal(t, "shared", e.Name)
		if e.Kind == limiter.EventStore {
			require.Contains(t, []string{"lease", "return"}, e.Op)
			require.Positive(t, e.Duration)
		} else {
			require.Equal(t, "api", e.Policy)
		}
	}
}

// New names everything wrong with its settings at once.
func TestInvalidSettings(t *testing.T) {
	_, err := leased.New(leased.Config{Prefix: "a b", Sync: time.Millisecond, Timeout: time.Hour, MaxKeys: -1})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	for _, what := range []string{"prefix", "sync", "time-out", "keys", "Client"} {
		require.ErrorContains(t, err, what)
	}
	l := open(t, leased.Config{})
	require.NoError(t, l.Serves(limiter.PerSecond(5)))
	require.NoError(t, l.Serves(limiter.Unlimited))
	require.ErrorIs(t, l.Serves(limiter.PerSecond(5).With(limiter.FixedWindow)), limiter.ErrInvalid)
	require.ErrorIs(t, l.Serves(limiter.Limit{}), limiter.ErrInvalid)
}
