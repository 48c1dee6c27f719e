package redistest_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

// behind returns a server, a proxy in front of it, and a client of the proxy that neither waits long nor tries again.
func behind(t *testing.T) (*redistest.Server, *redistest.Proxy, *redis.Client) {
	t.Helper()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	return s, p, impatient(t, p)
}

func impatient(t *testing.T, p *redistest.Proxy) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: 200 * time.Millisecond, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestProxyPasses(t *testing.T) {
	s, p, c := behind(t)
	ctx := t.Context()
	require.NoError(t, c.Set(ctx, "k", "v\r\n$1\r\n", 0).Err())
	require.Equal(t, "v\r\n$1\r\n", c.Get(ctx, "k").Val())
	require.Equal(t, 2, p.Requests())

	// Every shape of reply, on RESP3 and RESP2.
	resp2 := redis.NewClient(&redis.Options{Addr: p.Addr(), Protocol: 2})
	defer func() { _ = resp2.Close() }()
	for _, c := range []*redis.Client{c, resp2} {
		require.NoError(t, c.HSet(ctx, "hash", "a", 1, "b", 2).Err())
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, c.HGetAll(ctx, "hash").Val())
		require.Equal(t, redis.Nil, c.Get(ctx, "none").Err())
		require.ErrorContains(t, c.Incr(ctx, "hash").Err(), "WRONGTYPE")
		require.Equal(t, []any{int64(1), "two", nil, []any{}}, c.Eval(ctx, "return {1, 'two', false, {}}", nil).Val())
		var get *redis.StringCmd
		_, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "tx", 1, 0)
			get = pipe.Get(ctx, "tx")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "1", get.Val())

		sub := c.Subscribe(ctx, "news")
		_, err = sub.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Client().Publish(ctx, "news", "x").Err())
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "x", m.Payload)
		require.NoError(t, sub.Close())
	}
}

func TestSilentProxy(t *testing.T) {
	s, p, c := behind(t)
	ctx := t.Context()
	require.NoError(t, c.Ping(ctx).Err())
	p.Silent()
	require.ErrorContains(t, c.Incr(ctx, "n").Err(), "timeout", "on the connection there was")
	require.ErrorContains(t, c.Incr(ctx, "n").Err(), "timeout", "on a new one")
	require.Equal(t, redis.Nil, s.Client().Get(ctx, "n").Err(), "nothing was forwarded")
	s.Kill()
	require.ErrorContains(t, c.Incr(ctx, "n").Err(), "timeout", "it needs no server to be silent")
	s.Restart()
	p.Pass()
	require.NoError(t, c.Incr(ctx, "n").Err())
}

// What was swallowed is never made good, or later replies would answer earlier requests.
func TestConnectionThatLostARequestStaysSilent(t *testing.T) {
	_, p, c := behind(t)
	ctx := t.Context()
	conn := c.Conn()
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.Ping(ctx).Err())
	p.Silent()
	require.Error(t, conn.Ping(ctx).Err())
	p.Pass()
	require.NoError(t, c.Ping(ctx).Err())
	require.Equal(t, 2, p.Requests())
}

func TestProxyDropsReplies(t *testing.T) {
	s, p, c := behind(t)
	ctx := t.Context()
	direct := s.Client()
	p.DropReply()
	for n := 1; n <= 3; n++ {
		require.ErrorContains(t, c.Incr(ctx, "n").Err(), "EOF")
		require.Equal(t, n, intOf(t, direct, "n"), "it was carried out")
	}
	p.Pass()
	require.Equal(t, int64(4), c.Incr(ctx, "n").Val())

	p.DropReplies(2)
	require.Error(t, c.Incr(ctx, "n").Err())
	require.Error(t, c.Incr(ctx, "n").Err())
	require.Equal(t, int64(7), c.Incr(ctx, "n").Val())

	// A client that tries again does it twice without knowing.
	retrying := redis.NewClient(&redis.Options{Addr: p.Addr()})
	defer func() { _ = retrying.Close() }()
	require.Equal(t, int64(8), retrying.Incr(ctx, "n").Val())
	p.DropReplies(1)
	require.Equal(t, int64(10), retrying.Incr(ctx, "n").Val())
}

func TestProxyCutsInTheMiddleOfAReply(t *testing.T) {
	s, p, c := behind(t)
	ctx := t.Context()
	direct := s.Client()
	require.NoError(t, direct.Set(ctx, "n", 122, 0).Err())
	p.CutReply()
	for n := 123; n <= 125; n++ {
		require.ErrorContains(t, c.Incr(ctx, "n").Err(), "EOF")
		require.Equal(t, n, intOf(t, direct, "n"), "it was carried out")
	}
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n")
	require.NoError(t, err)
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, ":12", string(got), "half of :126 and its line end")
	p.Pass()
	require.Equal(t, int64(127), c.Incr(ctx, "n").Val())
}

func intOf(t *testing.T, c *redis.Client, key string) int {
	t.Helper()
	n, err := c.Get(t.Context(), key).Int()
	require.NoError(t, err)
	return n
}

func TestProxyDelaysReplies(t *testing.T) {
	s, p, c := behind(t)
	ctx := t.Context()
	p.Delay(time.Hour)
	require.ErrorContains(t, c.Incr(ctx, "n").Err(), "timeout")
	require.Equal(t, 1, intOf(t, s.Client(), "n"), "requests are not delayed")
	p.Delay(20 * time.Millisecond)
	patient := redis.NewClient(&redis.Options{Addr: p.Addr()})
	defer func() { _ = patient.Close() }()
	began := time.Now()
	require.NoError(t, patient.Ping(ctx).Err())
	require.GreaterOrEqual(t, time.Since(began), 20*time.Millisecond)
	p.Pass()
	require.NoError(t, c.Ping(ctx).Err())
}

func TestProxyRefusesAndCuts(t *testing.T) {
	_, p, c := behind(t)
	ctx := t.Context()
	conn := c.Conn()
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.Ping(ctx).Err())
	p.CutAll()
	require.Error(t, conn.Ping(ctx).Err())
	require.NoError(t, c.Ping(ctx).Err(), "new connections pass")

	p.Refuse()
	require.Error(t, c.Ping(ctx).Err())
	require.Error(t, impatient(t, p).Ping(ctx).Err())
	p.Pass()
	require.NoError(t, c.Ping(ctx).Err())
}

func TestProxyWithoutServer(t *testing.T) {
	s, _, c := behind(t)
	require.NoError(t, c.Ping(context.Background()).Err())
	s.Kill()
	require.Error(t, c.Ping(context.Background()).Err())
	s.Restart()
	require.NoError(t, c.Ping(context.Background()).Err())
}
