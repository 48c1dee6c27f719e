// Package etcdtest exists so that the source on etcd is tested against real etcd: it starts servers on private ports, breaks
// them on request, and leaves no process behind.
//
// Everything listens on 127.0.0.1 alone, keeps its data in folders of the test, and ends with the test that started it. On
// Linux it ends as well when the test process is killed or panics. Without etcd in PATH the test is skipped, or fails where
// the environment says CI=true.
package etcdtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Server is one etcd process.
type Server struct {
	t            testing.TB
	client, peer int // ports
	command      []string

	mu    sync.Mutex
	cmd   *exec.Cmd     // nil: it does not run
	ended chan struct{} // closed when cmd has ended and was waited for
}

// Start starts an etcd of one member and returns when it answers. It is killed when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartCluster(t, 1)[0]
}

// StartCluster starts the members of one etcd, which elect a leader within a second.
func StartCluster(t testing.TB, n int) []*Server {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("etcdtest: %v", err)
		}
		t.Skipf("etcdtest: %v", err)
	}
	for range 5 {
		servers := members(t, path, n)
		for _, s := range servers {
			if err = s.start(); err != nil {
				break
			}
		}
		if err == nil {
			for _, s := range servers {
				s.answers()
			}
			return servers
		}
	}
	t.Fatalf("etcdtest: %v", err)
	return nil
}

func members(t testing.TB, path string, n int) []*Server {
	t.Helper()
	servers, all := make([]*Server, n), make([]string, n)
	ports := freePorts(t, 2*n)
	for i := range servers {
		servers[i] = &Server{t: t, client: ports[2*i], peer: ports[2*i+1]}
		all[i] = fmt.Sprintf("m%d=http://%s", i, address(servers[i].peer))
	}
	for i, s := range servers {
		peer, client := "http://"+address(s.peer), "http://"+address(s.client)
		s.command = []string{
			path, "--name", fmt.Sprintf("m%d", i), "--data-dir", t.TempDir(),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "new", "--initial-cluster-token", t.Name(),
			"--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error", "--unsafe-no-fsync",
		}
		t.Cleanup(s.Kill)
	}
	return servers
}

// start runs the process.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.SysProcAttr = attributes()
	// The kernel ends a child when the thread that made it ends, not the process. So this thread stays, and does nothing else.
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed: the error says nothing
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.ended = cmd, ended
	return nil
}

// answers returns when the server does.
func (s *Server) answers() {
	s.t.Helper()
	c := s.Client(clientv3.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		within, done := context.WithTimeout(ctx, time.Second)
		_, err := c.Get(within, "is anybody there?")
		done()
		switch {
		case err == nil || strings.Contains(err.Error(), "user name is empty"): // it asks who is there
			return
		case ctx.Err() != nil:
			s.t.Fatalf("etcdtest: %s does not answer: %v", s.Addr(), err)
		}
	}
}

const patience = 20 * time.Second

// Addr returns the address for clients, host and port.
func (s *Server) Addr() string { return address(s.client) }

// Client returns a client of the server, or of the Endpoints in c, that logs nothing. It is closed when the test ends.
func (s *Server) Client(c clientv3.Config) *clientv3.Client {
	s.t.Helper()
	if c.Endpoints == nil {
		c.Endpoints = []string{s.Addr()}
	}
	c.Logger = zap.NewNop()
	client, err := clientv3.New(c)
	if err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Kill ends the process with SIGKILL and returns when it has ended.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // fails if it has ended already
	<-s.ended
	s.cmd = nil
}

// Restart kills the process if it runs, starts it again with its data on the same ports, and returns when it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
	s.answers()
}
