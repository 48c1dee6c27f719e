package etcdtest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to one server, or does not. Its switches may be called from any goroutine.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu     sync.Mutex
	silent bool
	closed bool
	conns  map[net.Conn]bool // of clients and to the server
	stop   chan struct{}     // closed when silent: what is sent on is swallowed from then on
}

// StartProxy returns a proxy on a port of its own. It ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("etcdtest: %v", err)
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]bool{}, stop: make(chan struct{})}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		p.Cut()
		_ = l.Close()
		p.running.Wait()
	})
	return p
}

// Addr returns the address to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections, and new ones as soon as they are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Silent swallows what comes on the connections there are and on new ones, for ever.
func (p *Proxy) Silent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.silent {
		p.silent = true
		close(p.stop)
	}
}

// Pass forwards new connections again.
func (p *Proxy) Pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = false
	if p.silent {
		p.silent, p.stop = false, make(chan struct{})
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		if !p.add(client) {
			_ = client.Close()
			continue
		}
		p.running.Go(func() { p.forward(client) })
	}
}

func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = true
	}
	return !p.closed
}

func (p *Proxy) remove(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) forward(client net.Conn) {
	defer p.remove(client)
	server, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		return
	}
	if !p.add(server) {
		_ = server.Close()
		return
	}
	defer p.remove(server)
	p.mu.Lock()
	stop := p.stop
	p.mu.Unlock()
	var both sync.WaitGroup
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(muted{to, stop}, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { pipe(server, client) })
	pipe(client, server)
	both.Wait()
}

// muted swallows what is written after stop.
type muted struct {
	io.Writer
	stop chan struct{}
}

func (m muted) Write(b []byte) (int, error) {
	select {
	case <-m.stop:
		return len(b), nil
	default:
		return m.Writer.Write(b)
	}
}
