package rediscall_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/internal/redistest"
)

// generous is a time-out for calls that are to succeed, on a machine that is busy.
const generous = 20 * time.Second

// server starts a redis-server of the test's own and returns its address.
func server(t testing.TB, args ...string) string {
	t.Helper()
	return redistest.Start(t, args...).Addr()
}

// What a fake server does instead of replying.
const (
	silent = "silent"
	cut    = "cut"
)

// fake is a server whose replies the test makes. Connections are set up without it, unless deaf. It ends with the test.
type fake struct {
	addr  string
	pace  time.Duration // before each answer, those to the handshake included
	calls atomic.Int64  // commands that reply was asked for
}

func newFake(t testing.TB, deaf bool, reply func(args []string) string) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fake{addr: l.Addr().String()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { f.serve(c, deaf, reply) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return f
}

func (f *fake) serve(c net.Conn, deaf bool, reply func([]string) string) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		args, err := command(r)
		if err != nil {
			return
		}
		var out string
		switch name := strings.ToLower(args[0]); {
		case deaf:
			out = silent
		case name == "hello":
			out = "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
		case name == "client", name == "asking", name == "readonly":
			out = "+OK\r\n"
		default:
			f.calls.Add(1)
			out = reply(args)
		}
		if f.pace > 0 {
			<-time.After(f.pace)
		}
		switch out {
		case cut:
			return
		case silent:
			continue
		}
		if _, err := io.WriteString(c, out); err != nil {
			return
		}
	}
}

// command reads an array of bulk strings.
func command(r *bufio.Reader) ([]string, error) {
	n, err := length(r, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := length(r, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func length(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, io.ErrUnexpectedEOF
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

func bulk(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }

// slots is the answer of a Cluster of one node.
func slots(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + bulk(host) + ":" + port + "\r\n"
}

// plain returns a client with default options but what set changes.
func plain(t testing.TB, addr string, set ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: addr}
	for _, f := range set {
		f(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func bound(t testing.TB, c redis.UniversalClient, timeout time.Duration) *rediscall.Client {
	t.Helper()
	b, err := rediscall.Bound(c, timeout)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

var (
	echo  = rediscall.NewScript(`return ARGV[1]`)
	count = rediscall.NewScript(`return tostring(redis.call('INCR', KEYS[1]))`)
)

func run(c *rediscall.Client, key string) error {
	_, err := c.Run(context.Background(), count, []string{key})
	return err
}
