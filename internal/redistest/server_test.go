package redistest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/internal/redistest"
)

const (
	soon = 20 * time.Second // it is there in a fraction; a busy machine may take longer
	tick = 5 * time.Millisecond
)

func TestServer(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "7mb")
	require.Equal(t, "127.0.0.1:"+strconv.Itoa(s.Port()), s.Addr())
	c, ctx := s.Client(), t.Context()
	require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
	require.Equal(t, "v", c.Get(ctx, "k").Val())
	require.Equal(t, map[string]string{"maxmemory": "7340032"}, c.ConfigGet(ctx, "maxmemory").Val())
	require.Equal(t, map[string]string{"save": ""}, c.ConfigGet(ctx, "save").Val())

	first := s.PID()
	s.Kill()
	require.Error(t, c.Ping(ctx).Err())
	require.Zero(t, s.PID())
	requireGone(t, first)
	s.Kill() // does nothing
	s.Restart()
	require.NotEqual(t, first, s.PID())
	require.Equal(t, redis.Nil, c.Get(ctx, "k").Err(), "the same port, no data")

	second := s.PID()
	s.Restart() // of one that runs
	requireGone(t, second)
	require.NoError(t, c.Ping(ctx).Err())
}

func TestPausedServerIsSilent(t *testing.T) {
	s := redistest.Start(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: 20 * time.Millisecond, MaxRetries: -1})
	defer func() { _ = c.Close() }()
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Pause()
	require.ErrorContains(t, c.Ping(t.Context()).Err(), "timeout")
	s.Resume()
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, soon, tick)
	s.Pause()
	s.Restart()
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, soon, tick)
}

func TestManyServersAtOnce(t *testing.T) {
	pids := make(chan int, 8)
	t.Run("servers", func(t *testing.T) {
		for i := range cap(pids) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				pids <- s.PID()
				require.NoError(t, s.Client().Set(t.Context(), "k", i, 0).Err())
				require.Equal(t, strconv.Itoa(i), s.Client().Get(t.Context(), "k").Val())
			})
		}
	})
	for range cap(pids) {
		requireGone(t, <-pids)
	}
}

func TestShared(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere each test has its own")
	}
	s := redistest.Shared(t)
	var other string
	t.Run("another test", func(t *testing.T) {
		require.Equal(t, s.PID(), redistest.Shared(t).PID())
		other = redistest.Prefix(t)
		require.NotEmpty(t, other)
		again := redistest.Prefix(t)
		require.NotEqual(t, other, again, "another run of the same test")
		require.NoError(t, redistest.Shared(t).Client().Set(t.Context(), other+"k", 1, 0).Err())
	})
	require.Equal(t, "1", s.Client().Get(t.Context(), other+"k").Val(), "it outlives a test")

	for name, breakIt := range map[string]func(*redistest.Server){
		"kill": (*redistest.Server).Kill, "pause": (*redistest.Server).Pause, "restart": (*redistest.Server).Restart,
	} {
		said := run(func(fake testing.TB) { breakIt(redistest.Shared(fake)) })
		require.Equal(t, "error: redistest: other tests use this server too: Start one", said.text(), name)
	}
	require.NoError(t, s.Client().Ping(t.Context()).Err())
}

func TestWithoutRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for ci, what := range map[string]string{"": "skip", "true": "fatal"} {
		t.Setenv("CI", ci)
		said := run(func(fake testing.TB) { redistest.Start(fake) })
		require.Regexp(t, "^"+what+": redistest: .*redis-server", said.text())
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	said := run(func(fake testing.TB) { redistest.Start(fake, "--no-such-option", "1") })
	require.Regexp(t, `(?s)^fatal: .*no-such-option`, said.text())
}

func TestNoGoroutineOutlivesItsTest(t *testing.T) {
	before := goleak.IgnoreCurrent()
	said := run(func(fake testing.TB) {
		s := redistest.Start(fake)
		p := redistest.StartProxy(fake, s.Addr())
		for _, addr := range []string{s.Addr(), p.Addr()} {
			c := redis.NewClient(&redis.Options{Addr: addr})
			fake.Cleanup(func() { _ = c.Close() })
			if err := c.Ping(t.Context()).Err(); err != nil {
				fake.Errorf("%v", err)
			}
		}
		s.Kill()
		s.Restart()
	})
	require.Empty(t, said.text())
	require.NoError(t, goleak.Find(before))
}

// A test process that is killed runs no cleanup.
func TestNothingOutlivesTheTestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("see the package comment")
	}
	child := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	child.Env = append(os.Environ(), "REDISTEST_CHILD=1")
	in, err := child.StdinPipe() // open as long as we are
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	var pids []string
	for pids == nil && lines.Scan() {
		if list, ok := strings.CutPrefix(lines.Text(), "pids "); ok {
			pids = strings.Fields(list)
		}
	}
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	require.Len(t, pids, 2)
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Positive(t, pid)
		requireGone(t, pid)
	}
}

// TestChild is the test process that is killed.
func TestChild(t *testing.T) {
	if os.Getenv("REDISTEST_CHILD") == "" {
		t.Skip("run by another test")
	}
	own, shared := redistest.Start(t), redistest.Shared(t)
	_, _ = fmt.Fprintf(os.Stdout, "\npids %d %d\n", own.PID(), shared.PID())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// requireGone waits until no process has pid, or only its exit status is left.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, after, _ := bytes.Cut(stat, []byte(") "))
		return os.IsNotExist(err) || bytes.HasPrefix(after, []byte("Z"))
	}, soon, tick, "process %d is still there", pid)
}

// fakeTB is a test that only notes what it is told.
type fakeTB struct {
	testing.TB
	said     []string
	cleanups []func()
}

// run runs f as the test fake, up to its end or failure, and its cleanups.
func run(f func(fake testing.TB)) *fakeTB {
	fake := &fakeTB{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(fake)
	}()
	<-done
	for i := range fake.cleanups {
		fake.cleanups[len(fake.cleanups)-1-i]()
	}
	return fake
}

func (f *fakeTB) text() string { return strings.Join(f.said, "\n") }

func (f *fakeTB) note(what, format string, args []any) {
	f.said = append(f.said, what+": "+fmt.Sprintf(format, args...))
}

func (f *fakeTB) end(what, format string, args []any) {
	f.note(what, format, args)
	runtime.Goexit()
}

func (f *fakeTB) Helper()                           {}
func (f *fakeTB) TempDir() string                   { return os.TempDir() }
func (f *fakeTB) Cleanup(g func())                  { f.cleanups = append(f.cleanups, g) }
func (f *fakeTB) Errorf(format string, args ...any) { f.note("error", format, args) }
func (f *fakeTB) Fatalf(format string, args ...any) { f.end("fatal", format, args) }
func (f *fakeTB) Skipf(format string, args ...any)  { f.end("skip", format, args) }
