package observe_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe"
)

// answer is an error of a Redis server.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// telling is an error of somebody's that tells a key.
type telling struct{ key string }

func (e telling) Error() string { return "no tenant " + e.key }

// slow is a time-out with a text.
type slow struct{ telling }

func (slow) Timeout() bool { return true }

// endless is its own cause.
type endless struct{ telling }

func (e endless) Unwrap() error { return e }

func TestErrorText(t *testing.T) {
	dial := &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6379},
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
	for want, err := range map[string]error{
		"": nil,
		"limiter: store unavailable: dial: connection refused": fmt.Errorf("%w: redis: %w", limiter.ErrUnavailable, dial),
		"limiter: store unavailable":                           fmt.Errorf("%w: of alice", limiter.ErrUnavailable),
		"limiter: store unavailable: limiter: invalid":         errors.Join(limiter.ErrUnavailable, limiter.ErrInvalid, limiter.ErrUnavailable),
		"keyfunc: no key: keyfunc: too few forwarded hops":     fmt.Errorf("%w: %w", keyfunc.ErrNoKey, keyfunc.ErrTooFewHops),
		"redis: OOM":                 answer("OOM command not allowed when used memory > 'maxmemory'"),
		"redis: ERR":                 answer("ERR of alice"),
		"redis: ERR unknown command": answer("ERR unknown command 'evalsha', with args beginning with: 'x' '1' 'login:{ip=alice}:tb'"),
		"redis: an answer":           answer("alice"),
		"lookup: no such host":       &net.DNSError{Err: "no such host", Name: "alice", IsNotFound: true},
		"lookup: timeout":            &net.DNSError{Err: "alice", Name: "alice", IsTimeout: true},
		"read: EOF":                  &net.OpError{Op: "read", Err: io.EOF},
		"i/o timeout":                fmt.Errorf("alice: %w", os.ErrDeadlineExceeded),
		"*net.OpError":               &net.OpError{Op: "alice"},
		"observe_test.telling":       telling{"alice"},
		"timeout":                    slow{telling{"alice"}},
		"context deadline exceeded":  fmt.Errorf("alice: %w", context.DeadlineExceeded),
		"text withheld":              errors.New("alice"),
	} {
		require.Equal(t, want, observe.ErrorText(err))
	}
	require.NotContains(t, observe.ErrorText(endless{telling{"alice"}}), "alice")
}

// TestConstantsAreTheTexts holds the texts that are spelled in the package, as it does not import where they come from.
func TestConstantsAreTheTexts(t *testing.T) {
	for _, err := range []error{
		limiter.ErrUnavailable, limiter.ErrInvalid, limiter.ErrClosed, limiter.ErrNever,
		keyfunc.ErrNoKey, keyfunc.ErrSkip, keyfunc.ErrNoPeer, keyfunc.ErrNoClientIP, keyfunc.ErrInvalidForwarded, keyfunc.ErrTooFewHops,
		redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted,
		context.Canceled, context.DeadlineExceeded, errors.ErrUnsupported, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded,
	} {
		require.Equal(t, err.Error(), observe.ErrorText(fmt.Errorf("alice: %w", err)))
	}
}

// mark is in every key of a test, and nowhere else.
const mark = "KEYMARK"

// markedError is any error that may tell a key.
func markedError() *rapid.Generator[error] {
	text := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "ip=", "ERR ", "no tenant "}).Draw(t, "before") + mark +
			rapid.SampledFrom([]string{"", "\x00", " ", "|x"}).Draw(t, "after")
	})
	leaf := rapid.Custom(func(t *rapid.T) error {
		s := text.Draw(t, "text")
		return rapid.SampledFrom([]error{
			errors.New(s),
			telling{s},
			slow{telling{s}},
			answer(s), limiter.ErrUnavailable,
			keyfunc.ErrNoKey, context.Canceled, syscall.ECONNREFUSED,
			&net.DNSError{Err: s, Name: s, Server: s}, &net.AddrError{Err: s, Addr: s}, &os.PathError{Op: s, Path: s, Err: errors.New(s)},
			net.UnknownNetworkError(s), &strconv.NumError{Func: s, Num: s, Err: errors.New(s)},
		}).Draw(t, "leaf")
	})
	var tree func(depth int) *rapid.Generator[error]
	tree = func(depth int) *rapid.Generator[error] {
		if depth == 0 {
			return leaf
		}
		return rapid.Custom(func(t *rapid.T) error {
			inner := tree(depth - 1)
			switch rapid.IntRange(0, 5).Draw(t, "node") {
			case 0:
				return fmt.Errorf("%s: %w", text.Draw(t, "text"), inner.Draw(t, "inner"))
			case 1:
				return fmt.Errorf("%w: %s: %w", inner.Draw(t, "first"), text.Draw(t, "text"), inner.Draw(t, "second"))
			case 2:
				return errors.Join(inner.Draw(t, "first"), inner.Draw(t, "second"))
			case 3:
				s := text.Draw(t, "text")
				return &net.OpError{Op: s, Net: s, Addr: &net.UnixAddr{Name: s, Net: s}, Err: inner.Draw(t, "inner")}
			case 4:
				return os.NewSyscallError(text.Draw(t, "text"), inner.Draw(t, "inner"))
			}
			return leaf.Draw(t, "leaf")
		})
	}
	return tree(3)
}

func TestNoLineHoldsAKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text bytes.Buffer
		l, err := observe.NewLog(observe.LogConfig{
			Logger:    slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Decisions: 1000,
		})
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 50).Draw(t, "events")
		for range n {
			e := limiter.Event{
				Kind:    limiter.EventKind(rapid.IntRange(1, 14).Draw(t, "kind")),
				Outcome: limiter.Outcome(rapid.IntRange(0, 3).Draw(t, "outcome")),
				State:   uint8(rapid.IntRange(0, 3).Draw(t, "state")),
				Policy:  rapid.SampledFrom([]string{"", "login"}).Draw(t, "policy"),
				Name:    rapid.SampledFrom([]string{"", "redis"}).Draw(t, "name"),
				Key: limiter.Key{
					Space: rapid.SampledFrom([]string{"", mark}).Draw(t, "space"),
					ID:    rapid.SampledFrom([]string{"", mark, "ip=" + mark}).Draw(t, "id"),
				},
				Reason:   rapid.SampledFrom([]string{"", "ok", limiter.ReasonQuota, limiter.ReasonCanceled, limiter.ReasonNoKey}).Draw(t, "reason"),
				Overflow: int64(rapid.IntRange(0, 3).Draw(t, "overflow")),
			}
			if rapid.Bool().Draw(t, "failed") {
				e.Err = markedError().Draw(t, "err")
			}
			l.Observe(e)
		}
		if strings.Contains(text.String(), mark) {
			t.Fatalf("a line holds a key:\n%s", text.String())
		}
	})
}

func TestErrorTextOfOnesOwn(t *testing.T) {
	l, p := newLog(t, slog.LevelInfo, observe.LogConfig{ErrorText: func(e limiter.Event) string {
		if e.Kind == limiter.EventReload {
			return e.Err.Error()
		}
		return observe.ErrorText(e.Err)
	}})
	l.Observe(limiter.Event{Kind: limiter.EventReload, Reason: "invalid", Err: telling{"7"}})
	l.Observe(limiter.Event{Kind: limiter.EventError, Reason: limiter.ReasonInvalid, Err: telling{"8"}})
	lines := p.lines(t)
	require.Equal(t, "no tenant 7", lines[0]["error"])
	require.Equal(t, "observe_test.telling", lines[1]["error"])
}

// ignorant is a server that speaks Redis's protocol and knows no command: it quotes what it was sent, as Redis does.
func ignorant(t *testing.T) (addr string, quoted func() bool) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		has   bool
		conns []net.Conn
	)
	serve := func(c net.Conn) {
		r := bufio.NewReader(c)
		number := func() (n int) {
			s, _ := r.ReadString('\n')
			n, _ = strconv.Atoi(strings.Trim(s, "*$\r\n"))
			return n
		}
		for {
			n := number()
			if n <= 0 {
				return
			}
			var args []string
			for range n {
				arg := make([]byte, number()+2)
				if _, err := io.ReadFull(r, arg); err != nil {
					return
				}
				args = append(args, string(arg[:len(arg)-2]))
			}
			text := fmt.Sprintf("ERR unknown command '%s', with args beginning with: %q", args[0], args[1:])
			mu.Lock()
			has = has || strings.Contains(text, mark)
			mu.Unlock()
			_, _ = io.WriteString(c, "-"+text+"\r\n")
		}
	}
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return listener.Addr().String(), func() bool {
		mu.Lock()
		defer mu.Unlock()
		return has
	}
}

// TestNoErrorOfAGuardTellsAKey lets whatever can fail in a guard fail with the key in its text.
func TestNoErrorOfAGuardTellsAKey(t *testing.T) {
	addr, quoted := ignorant(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = gone.Close() })

	l, p := newLog(t, slog.LevelDebug, observe.LogConfig{Decisions: 1000})
	var errs []string
	watch := observe.Tee(l, limiter.ObserverFunc(func(e limiter.Event) {
		if e.Err != nil {
			errs = append(errs, e.Err.Error())
		}
	}))
	quiet := slog.New(slog.DiscardHandler)
	stores := map[string]limiter.Limiter{}
	for name, client := range map[string]*redis.Client{"ignorant": rdb, "gone": gone} {
		s, err := redislimit.New(redislimit.Config{Client: client, Observer: watch, Name: name, Timeout: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		stores[name] = s
	}
	safe, err := fallback.New(fallback.Config{Primary: stores["gone"], Failures: 1, Observer: watch, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(safe.Close)
	stores["safe"] = safe
	own, err := memory.New(memory.Config{Observer: watch})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	stores["memory"] = own

	user := keyfunc.User(func(r *keyfunc.Request) string { return mark })
	for name, policy := range map[string]middleware.Policy{
		"ignorant": {Limiter: stores["ignorant"], Key: user},
		"gone":     {Limiter: stores["gone"], Key: user},
		"safe":     {Limiter: stores["safe"], Key: user},
		"key":      {Limiter: own, Key: func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, telling{mark} }},
		"panic":    {Limiter: own, Key: func(*keyfunc.Request) (keyfunc.Key, error) { panic(telling{mark}) }},
		"no_key": {Limiter: own, Key: func(*keyfunc.Request) (keyfunc.Key, error) {
			return keyfunc.Key{}, fmt.Errorf("%w: of %s", keyfunc.ErrNoKey, mark)
		}},
		"cost": {Limiter: own, Key: user, Cost: func(*keyfunc.Request) int { panic(mark) }},
	} {
		policy.Name, policy.Limit = name, limiter.PerMinute(1)
		guard, err := middleware.New(middleware.Config{Policies: []middleware.Policy{policy}, Observer: watch, Logger: quiet})
		require.NoError(t, err, name)
		h := stdhttp.Middleware(guard)(http.NotFoundHandler())
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
	}
	require.True(t, quoted(), "the server saw the key")
	require.Contains(t, strings.Join(errs, "\n"), "args beginning with", "and quotes it")
	require.Contains(t, strings.Join(errs, "\n"), mark, "errors do tell keys")
	lines := p.lines(t)
	require.NotEmpty(t, lines)
	all := fmt.Sprint(lines)
	require.NotContains(t, all, mark)
	require.Contains(t, all, l.Hash("user="+mark))
	for _, told := range []string{
		"redis: ERR unknown command", "dial: connection refused", "observe_test.telling", "keyfunc: no key", "middleware: a callback panicked",
	} {
		require.Contains(t, all, told)
	}
}
