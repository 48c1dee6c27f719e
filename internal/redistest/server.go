package redistest

import (
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is one redis-server process on a private port.
type Server struct {
	t      testing.TB
	p      *process
	shared bool
	admin  *redis.Client // answers soon or fails soon
}

// Start starts a redis-server with no data, which keeps none on disk, and returns when it answers. args are options of
// its command line, such as "--maxmemory", "1mb". The server is killed when the test ends.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return run(t, data(t, t.TempDir(), args...))
}

// data returns the command of a server that holds data. What it must write goes to folder.
func data(t testing.TB, folder string, args ...string) []string {
	t.Helper()
	return append([]string{
		binary(t), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no",
		"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", // a replica has its data at once
	}, args...)
}

// binary returns the path of redis-server, or ends the test.
func binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("redistest: %v", err)
		}
		t.Skipf("redistest: %v", err)
	}
	return path
}

func run(t testing.TB, command []string) *Server {
	t.Helper()
	p, err := launch(command)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(p.kill)
	return handle(t, p, false)
}

// runAll starts servers at the same time.
func runAll(t testing.TB, commands ...[]string) []*Server {
	t.Helper()
	processes, errs := make([]*process, len(commands)), make([]error, len(commands))
	var wg sync.WaitGroup
	for i, command := range commands {
		wg.Go(func() { processes[i], errs[i] = launch(command) })
	}
	wg.Wait()
	var servers []*Server
	for _, p := range processes {
		if p != nil {
			t.Cleanup(p.kill)
			servers = append(servers, handle(t, p, false))
		}
	}
	for _, err := range errs {
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
	}
	return servers
}

// handle returns p as the server of one test.
func handle(t testing.TB, p *process, shared bool) *Server {
	s := &Server{t: t, p: p, shared: shared, admin: redis.NewClient(&redis.Options{
		Addr: address(p.port), Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 500 * time.Millisecond, ReadTimeout: time.Second, WriteTimeout: time.Second,
	})}
	t.Cleanup(func() { _ = s.admin.Close() })
	return s
}

// Addr returns the address, host and port.
func (s *Server) Addr() string { return address(s.p.port) }

// Port returns the port.
func (s *Server) Port() int { return s.p.port }

// PID returns the id of the process: another one after Restart, 0 after Kill.
func (s *Server) PID() int { return s.p.pid() }

// Client returns a client with the default options. It is closed when the test ends.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Kill ends the process with SIGKILL and returns when it has ended. Connections to it are closed, new ones refused.
func (s *Server) Kill() {
	if s.mayBreak() {
		s.p.kill()
	}
}

// Pause stops the process with SIGSTOP: the kernel still accepts connections and what is sent on them, nobody answers.
func (s *Server) Pause() { s.signal(true) }

// Resume lets a paused process go on. It answers all that was sent to it meanwhile.
func (s *Server) Resume() { s.signal(false) }

func (s *Server) signal(stopped bool) {
	if !s.mayBreak() {
		return
	}
	if err := s.p.pause(stopped); err != nil {
		s.t.Errorf("redistest: %v", err)
	}
}

// Restart kills the process if it runs, starts it again on the same port, and returns when it answers. Its data are gone;
// a node of a cluster and a sentinel still know the others.
func (s *Server) Restart() {
	s.t.Helper()
	if !s.mayBreak() {
		return
	}
	s.p.kill()
	if err := s.p.start(); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}

// mayBreak reports whether the server is this test's alone.
func (s *Server) mayBreak() bool {
	s.t.Helper()
	if s.shared {
		s.t.Errorf("redistest: other tests use this server too: Start one")
	}
	return !s.shared
}

// until waits until f returns nil, and ends the test if it never does.
func until(t testing.TB, what string, f func() error) {
	t.Helper()
	if err := poll(f); err != nil {
		t.Fatalf("redistest: waited %v for %s: %v", patience, what, err)
	}
}

var common struct {
	sync.Mutex
	p *process
}

// Shared returns the server that all tests of this process share, one after the other and at the same time: each uses
// keys of its own, see [Prefix], and none may flush, kill or configure it. It lasts as long as the test process, with a
// goroutine; for goleak that is IgnoreAnyFunction("…/internal/redistest.(*process).start.func1").
func Shared(t testing.TB) *Server {
	t.Helper()
	if !diesWithUs {
		return Start(t)
	}
	common.Lock()
	defer common.Unlock()
	if common.p == nil {
		p, err := launch(data(t, os.TempDir())) // it writes nothing
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		common.p = p
	}
	return handle(t, common.p, true)
}

var prefixes atomic.Int64

// Prefix returns a beginning for keys that nobody else in this test process has, not even another run of the same test.
func Prefix(t testing.TB) string {
	return t.Name() + ":" + strconv.FormatInt(prefixes.Add(1), 10) + ":"
}
