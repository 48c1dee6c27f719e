package browser_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// tunnel forwards connections, as a NAT does.
type tunnel struct {
	to     string
	mu     sync.Mutex
	ends   []net.Conn
	silent map[net.Conn]bool
	closed bool
	run    sync.WaitGroup
}

// newTunnel returns the address of a tunnel to an address.
func newTunnel(t *testing.T, to string) (*tunnel, string) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &tunnel{to: to, silent: make(map[net.Conn]bool)}
	n.run.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.accept(c)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		n.mu.Lock()
		n.closed = true
		for _, c := range n.ends {
			_ = c.Close()
		}
		n.mu.Unlock()
		n.run.Wait()
	})
	return n, l.Addr().String()
}

func (n *tunnel) accept(near net.Conn) {
	far, err := (&net.Dialer{}).Dial("tcp", n.to)
	if err != nil {
		_ = near.Close()
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends = append(n.ends, near, far)
	if n.closed {
		_ = near.Close()
		_ = far.Close()
	}
	n.run.Go(func() { n.pump(near, far) })
	n.run.Go(func() { n.pump(far, near) })
}

func (n *tunnel) pump(to, from net.Conn) {
	_, _ = io.Copy(writer{n, to}, from)
	if !n.isSilent(to) {
		_ = to.Close()
		_ = from.Close()
	}
}

func (n *tunnel) isSilent(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent[c] && !n.closed
}

// lose makes the connections so far carry nothing more, and end never.
func (n *tunnel) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.ends {
		n.silent[c] = true
	}
}

type writer struct {
	n  *tunnel
	to net.Conn
}

func (w writer) Write(b []byte) (int, error) {
	if w.n.isSilent(w.to) {
		return len(b), nil
	}
	return w.to.Write(b)
}

// A connection that goes silent without an end, as after sleep or behind a NAT that forgot it: the page comes again by another
// one, and again.
func TestSilentConnection(t *testing.T) {
	s := newScene(t, nil, shop()...)
	s.load(paths)
	n, addr := newTunnel(t, s.addr)
	s.url = "http://" + addr
	b := s.look(t, 1280, 900, "light")
	for range 2 {
		b.until(`document.getElementById("link").textContent.startsWith("live")`)
		n.lose()
		b.until(`document.getElementById("link").textContent.startsWith("Connection lost")`)
		b.until(`document.getElementById("link").textContent.startsWith("live")`)
	}
}
