package redissource_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	redissource "github.com/spillway-go/spillway/config/source/redis"
	"github.com/spillway-go/spillway/config/source/sourcetest"
	"github.com/spillway-go/spillway/internal/redistest"
)

func TestContract(t *testing.T) {
	run := func(name string, client func(t *testing.T) redis.UniversalClient) {
		t.Run(name, func(t *testing.T) {
			rdb := client(t)
			sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
				key := redistest.Prefix(t) + "policies"
				// Without polling, so that messages alone have to do.
				src := newSource(t, redissource.Config{Client: rdb, Key: key, Poll: -1})
				return src, func(doc []byte) { put(t, rdb, key, doc) }
			})
		})
	}
	plain := func(o redis.Options) func(*testing.T) redis.UniversalClient {
		return func(t *testing.T) redis.UniversalClient {
			o.Addr = redistest.Shared(t).Addr()
			c := redis.NewClient(&o)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
	}
	run("as it comes", plain(redis.Options{}))
	run("RESP2", plain(redis.Options{Protocol: 2}))
	run("another database, time-outs off", plain(redis.Options{DB: 3, ReadTimeout: -1, WriteTimeout: -2, ContextTimeoutEnabled: true}))
	run("Ring", func(t *testing.T) redis.UniversalClient { return ring(t) })
	run("Cluster", func(t *testing.T) redis.UniversalClient {
		if testing.Short() {
			t.Skip("a Cluster takes seconds")
		}
		return redistest.StartCluster(t).Client()
	})
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	_, err := redissource.New(redissource.Config{Poll: time.Millisecond, Timeout: -1})
	require.ErrorContains(t, err, "Client is missing")
	require.ErrorContains(t, err, "Key is missing")
	require.ErrorContains(t, err, "Poll 1ms is below 1s")
	require.ErrorContains(t, err, "Timeout -1ns is negative")
	var none *redis.Client
	_, err = redissource.New(redissource.Config{Client: none, Key: "k"})
	require.ErrorContains(t, err, "redissource: ")
	require.ErrorContains(t, err, "nil")
}

func TestNewDoesNoIO(t *testing.T) {
	noLeaks(t)
	c := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialed")
		return nil, net.ErrClosed
	}})
	t.Cleanup(func() { _ = c.Close() })
	src := newSource(t, redissource.Config{Client: c, Key: "shop:policies"})
	require.Equal(t, "redis:shop:policies", src.String())
}

func TestWrongType(t *testing.T) {
	c, key := redistest.Shared(t).Client(), redistest.Prefix(t)
	require.NoError(t, c.RPush(t.Context(), key, "version: 1").Err())
	_, err := newSource(t, redissource.Config{Client: c, Key: key}).Load(t.Context())
	require.ErrorContains(t, err, "redissource: ")
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NotErrorIs(t, err, config.ErrIncomplete)
}

// counter counts what is read.
type counter struct {
	net.Conn
	n *atomic.Int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Of a key that somebody filled by mistake, no more is read than a document may have.
func TestHugeKey(t *testing.T) {
	server, key := redistest.Shared(t), redistest.Prefix(t)
	var n atomic.Int64
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return counter{conn, &n}, err
	}})
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetRange(t.Context(), key, 32<<20, "x").Err())
	_, err := newSource(t, redissource.Config{Client: c, Key: key}).Load(t.Context())
	require.ErrorContains(t, err, "above 1048576 bytes")
	require.Less(t, n.Load(), int64(config.MaxDocument+64<<10))
}

func TestPublish(t *testing.T) {
	for name, c := range map[string]redis.UniversalClient{"one server": redistest.Shared(t).Client(), "Ring": ring(t)} {
		t.Run(name, func(t *testing.T) {
			src := newSource(t, redissource.Config{Client: c, Key: redistest.Prefix(t), Channel: redistest.Prefix(t), Poll: -1})
			w := watch(t, src)
			w.called()
			require.NoError(t, src.Publish(t.Context(), []byte("version: 1")))
			w.becomes("version: 1")
			require.NoError(t, src.Publish(t.Context(), []byte("version: 2")))
			w.becomes("version: 2")
			require.Error(t, src.Publish(t.Context(), nil))
			require.Error(t, src.Publish(t.Context(), make([]byte, config.MaxDocument+1)))
		})
	}
}

// A message that was never sent is made up for.
func TestPoll(t *testing.T) {
	c, key := redistest.Shared(t).Client(), redistest.Prefix(t)
	w := watch(t, newSource(t, redissource.Config{Client: c, Key: key, Poll: time.Second}))
	w.called()
	for _, doc := range []string{"version: 1", "version: 2"} {
		require.NoError(t, c.Set(t.Context(), key, doc, 0).Err())
		w.becomes(doc)
	}
}

func TestAwayFromTheStart(t *testing.T) {
	noLeaks(t)
	server := redistest.Start(t)
	require.NoError(t, server.Client().ConfigSet(t.Context(), "requirepass", "another").Err())
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "s3cr3t"})
	t.Cleanup(func() { _ = c.Close() })
	src := newSource(t, redissource.Config{Client: c, Key: "k"})
	refused := func(what string, err error) {
		require.ErrorContains(t, err, "redissource: ", what)
		require.NotContains(t, err.Error(), "s3cr3t", what)
	}
	_, err := src.Load(t.Context())
	refused("Load, wrong password", err)
	refused("Watch, wrong password", watch(t, src).ended())
	server.Kill() // dials are refused
	_, err = src.Load(t.Context())
	refused("Load", err)
	require.NotErrorIs(t, err, config.ErrIncomplete)
	refused("Watch", watch(t, src).ended())
	refused("Publish", src.Publish(t.Context(), []byte("x")))
}

func TestRights(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client()
	user := func(name string, rules ...string) *redis.Client {
		args := []any{"acl", "setuser", name, "on", ">pass"}
		for _, r := range rules {
			args = append(args, r)
		}
		require.NoError(t, admin.Do(t.Context(), args...).Err())
		c := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: name, Password: "pass"})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	// The rights that the package documents are enough.
	enough := strings.Fields("~shop:policies &shop:policies:changed +getrange +strlen +subscribe +ping")
	src := newSource(t, redissource.Config{Client: user("reader", enough...), Key: "shop:policies", Poll: -1})
	src.SetBeat(50 * time.Millisecond) // so that it needs its right to ping
	w := watch(t, src)
	w.called()
	put(t, admin, "shop:policies", []byte("version: 1"))
	w.becomes("version: 1")
	require.ErrorContains(t, src.Publish(t.Context(), []byte("version: 2")), "NOPERM")

	deaf := newSource(t, redissource.Config{Client: user("deaf", "~*", "+getrange", "+subscribe", "resetchannels"), Key: "shop:policies"})
	require.ErrorContains(t, watch(t, deaf).ended(), "NOPERM")
	blind := newSource(t, redissource.Config{Client: user("blind", "&*", "+getrange", "+subscribe"), Key: "shop:policies"})
	_, err := blind.Load(t.Context())
	require.ErrorContains(t, err, "NOPERM")
}

func TestClosed(t *testing.T) {
	src, err := redissource.New(redissource.Config{Client: redistest.Shared(t).Client(), Key: redistest.Prefix(t)})
	require.NoError(t, err)
	require.NoError(t, src.Close())
	require.NoError(t, src.Close())
	_, err = src.Load(t.Context())
	require.ErrorContains(t, err, "closed")
}
