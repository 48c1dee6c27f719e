package rediscall_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

func TestScript(t *testing.T) {
	s := rediscall.NewScript("return 1")
	sum := sha1.Sum([]byte("return 1"))
	require.Equal(t, hex.EncodeToString(sum[:]), s.SHA())
}

// The first run brings the source, later ones only its SHA-1; a server that forgets is told again.
func TestRun(t *testing.T) {
	rdb := plain(t, server(t))
	c := bound(t, rdb, generous)
	ctx := context.Background()
	for i := 1; i <= 3; i++ {
		got, err := c.Run(ctx, count, []string{"run"})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), got)
	}
	require.NoError(t, rdb.ScriptFlush(ctx).Err())
	got, err := c.Run(ctx, count, []string{"run"})
	require.NoError(t, err)
	require.Equal(t, "4", got)

	got, err = c.Run(ctx, echo, nil, "a\r\n\x00b")
	require.NoError(t, err)
	require.Equal(t, "a\r\n\x00b", got)
	require.False(t, c.Sharded())
	require.Equal(t, generous, c.Timeout())
}

func TestReplyIsNoBulkString(t *testing.T) {
	c := bound(t, plain(t, server(t)), generous)
	for _, source := range []string{`return nil`, `return false`, `return {1, 2}`} {
		_, err := c.Run(context.Background(), rediscall.NewScript(source), nil)
		require.ErrorIs(t, err, limiter.ErrInvalid, source)
		require.Equal(t, "script", rediscall.Cause(err), source)
	}
	_, err := c.Run(context.Background(), echo, nil, "still there")
	require.NoError(t, err)
}

func TestDo(t *testing.T) {
	c := bound(t, plain(t, server(t)), generous)
	ctx := context.Background()
	v, err := c.Do(ctx, "SET", "k", 5)
	require.NoError(t, err)
	require.Equal(t, "OK", v)
	v, err = c.Do(ctx, "GET", "k")
	require.NoError(t, err)
	require.Equal(t, "5", v)
	v, err = c.Do(ctx, "DEL", "k", "l")
	require.NoError(t, err)
	require.Equal(t, int64(1), v)
	v, err = c.Do(ctx, "GET", "k")
	require.NoError(t, err)
	require.Nil(t, v)
	_, err = c.Do(ctx, "NOSUCH")
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.Equal(t, "command", rediscall.Cause(err))
	_, err = c.Do(ctx)
	require.ErrorIs(t, err, limiter.ErrInvalid)
}

// Every call has its own reply or error, and whoever was not known by its SHA-1 runs once all the same.
func TestRunEach(t *testing.T) {
	rdb := plain(t, server(t))
	c := bound(t, rdb, generous)
	ctx := context.Background()
	require.NoError(t, rdb.Set(ctx, "text", "no number", 0).Err())
	for round := 1; round <= 2; round++ { // with the source, then without
		calls := []rediscall.Call{
			{Keys: []string{"a"}, Reply: "stale"},
			{Keys: []string{"text"}, Reply: "stale"},
			{Keys: []string{"b"}},
			{Keys: []string{"a"}, Args: []any{"unused", 1}},
		}
		c.RunEach(ctx, count, calls)
		require.NoError(t, calls[0].Err)
		require.Equal(t, fmt.Sprint(2*round-1), calls[0].Reply)
		require.ErrorIs(t, calls[1].Err, limiter.ErrInvalid)
		require.Empty(t, calls[1].Reply)
		require.Equal(t, fmt.Sprint(round), calls[2].Reply)
		require.Equal(t, fmt.Sprint(2*round), calls[3].Reply)
	}
	c.RunEach(ctx, count, nil)
	one := []rediscall.Call{{Keys: []string{"a"}}}
	c.RunEach(ctx, count, one)
	require.NoError(t, one[0].Err)
	require.Equal(t, "5", one[0].Reply)
}

// Only calls that a server answered NOSCRIPT are sent again.
func TestRunEachRepeatsOnlyWhatDidNotRun(t *testing.T) {
	ran := map[string]int{}
	f := newFake(t, false, func(args []string) string {
		key := args[3]
		if args[0] == "evalsha" && key == "unknown" {
			return "-NOSCRIPT No matching script.\r\n"
		}
		ran[args[0]+" "+key]++
		if key == "busy" {
			return "-BUSY Redis is busy running a script.\r\n"
		}
		return bulk("done")
	})
	calls := []rediscall.Call{{Keys: []string{"known"}}, {Keys: []string{"unknown"}}, {Keys: []string{"busy"}}}
	bound(t, plain(t, f.addr), generous).RunEach(context.Background(), count, calls)
	require.Equal(t, "done", calls[0].Reply)
	require.Equal(t, "done", calls[1].Reply)
	require.ErrorIs(t, calls[2].Err, limiter.ErrUnavailable)
	require.Equal(t, map[string]int{"evalsha known": 1, "eval unknown": 1, "evalsha busy": 1}, ran)
}

// A script that ran and whose reply was lost is not run again, though the client would retry three times.
func TestNothingRunsTwice(t *testing.T) {
	addr := server(t)
	direct := plain(t, addr)
	ctx := context.Background()
	require.NoError(t, direct.ScriptLoad(ctx, `return tostring(redis.call('INCR', KEYS[1]))`).Err())
	var self *fake
	lossy := newFake(t, false, func(args []string) string {
		if args[0] == "cluster" {
			return slots(self.addr)
		}
		sent := make([]any, len(args))
		for i, a := range args {
			sent[i] = a
		}
		direct.Do(ctx, sent...)
		return cut
	})
	self = lossy
	retries := func(o *redis.Options) { o.MaxRetries = 3 }
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{lossy.addr}, MaxRetries: 3})
	shared := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{lossy.addr}, MaxRetries: 3, ContextTimeoutEnabled: true, ReadTimeout: generous,
	})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": lossy.addr}})
	t.Cleanup(func() { _, _, _ = cluster.Close(), shared.Close(), ring.Close() })
	for name, rdb := range map[string]redis.UniversalClient{
		"plain": plain(t, lossy.addr, retries), "cluster": cluster, "cluster that shares": shared, "ring": ring,
	} {
		t.Run(name, func(t *testing.T) {
			c := bound(t, rdb, generous)
			require.Equal(t, name != "plain", c.Sharded())
			err := run(c, name)
			require.ErrorIs(t, err, limiter.ErrUnavailable)
			require.Equal(t, "reset", rediscall.Cause(err))
			require.Equal(t, "1", direct.Get(ctx, name).Val())

			calls := []rediscall.Call{{Keys: []string{name}}, {Keys: []string{"other " + name}}}
			c.RunEach(ctx, count, calls)
			require.ErrorIs(t, calls[0].Err, limiter.ErrUnavailable)
			require.ErrorIs(t, calls[1].Err, limiter.ErrUnavailable)
			require.Equal(t, "2", direct.Get(ctx, name).Val())

			_, err = c.Do(ctx, "incr", name)
			require.ErrorIs(t, err, limiter.ErrUnavailable)
			require.Equal(t, "3", direct.Get(ctx, name).Val())
		})
	}
}

// A replica refuses at once and go-redis closes that connection, so the next may reach the master: once.
func TestReadOnlyIsTriedOnceMore(t *testing.T) {
	for answers, want := range map[int]error{1: nil, 2: limiter.ErrUnavailable} {
		n := 0
		f := newFake(t, false, func([]string) string {
			if n++; n <= answers {
				return "-READONLY You can't write against a read only replica.\r\n"
			}
			return bulk("done")
		})
		err := run(bound(t, plain(t, f.addr), generous), "k")
		require.ErrorIs(t, err, want)
		require.Equal(t, int64(2), f.calls.Load())
		if want != nil {
			require.Equal(t, "readonly", rediscall.Cause(err))
		}
	}
}

// While some keys of a call are on their way to another node, the call waits for them, unless others would wait with it. The
// new node may not know the script.
func TestKeysOnTheirWayAreWaitedFor(t *testing.T) {
	for way, call := range ways {
		n, ran := 0, 0
		f := newFake(t, false, func(args []string) string {
			switch n++; {
			case n <= 3:
				return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
			case args[0] == "evalsha":
				return "-NOSCRIPT No matching script.\r\n"
			}
			ran++
			return bulk("done")
		})
		err := call(bound(t, plain(t, f.addr), generous), context.Background())
		if way == "RunEach" {
			require.Equal(t, "try_again", rediscall.Cause(err))
			require.Zero(t, ran)
			continue
		}
		require.NoError(t, err, way)
		require.Equal(t, 1, ran, way)
	}
}

// A Cluster's redirections are followed; a plain client cannot, and says what is needed.
func TestMoved(t *testing.T) {
	var self *fake
	first := map[string]bool{}
	f := newFake(t, false, func(args []string) string {
		if args[0] == "cluster" {
			return slots(self.addr)
		}
		key := args[3]
		if kind, _, ok := strings.Cut(key, " "); ok && !first[key] {
			first[key] = true
			return "-" + kind + " 1 " + self.addr + "\r\n"
		}
		return bulk("done")
	})
	self = f
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{f.addr}})
	t.Cleanup(func() { _ = cluster.Close() })
	c := bound(t, cluster, generous)
	require.NoError(t, run(c, "MOVED a"))
	require.NoError(t, run(c, "ASK b"))
	calls := []rediscall.Call{{Keys: []string{"MOVED c"}}, {Keys: []string{"d"}}, {Keys: []string{"ASK e"}}}
	c.RunEach(context.Background(), count, calls)
	for _, call := range calls {
		require.NoError(t, call.Err)
		require.Equal(t, "done", call.Reply)
	}

	err := run(bound(t, plain(t, f.addr), generous), "MOVED f")
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.ErrorContains(t, err, "ClusterClient")
	require.Equal(t, "moved", rediscall.Cause(err))
}
