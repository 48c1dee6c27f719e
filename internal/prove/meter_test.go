package prove_test

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// meter is told of every request that a handler sees, by all guards, before the client is answered. It knows nothing of how
// they were decided. It is told of refunds that failed as well.
type meter struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	passes map[string][]pass // by what is counted
	via    map[string]map[string]int
}

func newMeter(t *testing.T) *meter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &meter{listener: l, passes: map[string][]pass{}, via: map[string]map[string]int{}}
	m.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.running.Go(func() { m.listen(conn) })
		}
	})
	t.Cleanup(func() { // the guards have ended before
		_ = l.Close()
		m.running.Wait()
	})
	return m
}

func (m *meter) address() string { return m.listener.Addr().String() }

// listen reads lines until the guard ends, and says back that it has each.
func (m *meter) listen(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var name, via string
		var p pass
		if _, err := fmt.Sscan(lines.Text(), &name, &p.began, &p.at, &via); err != nil {
			panic(fmt.Sprintf("%q: %v", lines.Text(), err)) // a guard that is killed writes a line whole or not at all
		}
		m.mu.Lock()
		m.passes[name] = append(m.passes[name], p)
		if m.via[name] == nil {
			m.via[name] = map[string]int{}
		}
		m.via[name][via]++
		m.mu.Unlock()
		if _, err := conn.Write([]byte{'\n'}); err != nil {
			return
		}
	}
}

// of returns the passes of a name.
func (m *meter) of(name string) []pass {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.passes[name][:len(m.passes[name]):len(m.passes[name])]
}

// stamps tell a meter what passes. The zero pointer tells nobody.
type stamps struct {
	mu   sync.Mutex
	conn net.Conn
	back *bufio.Reader
}

func newStamps(address string) (*stamps, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &stamps{conn: conn, back: bufio.NewReader(conn)}, nil
}

// note returns when the meter knows, or cannot know any more.
func (s *stamps) note(name string, began, at time.Time, via string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintln(s.conn, name, began.UnixNano(), at.UnixNano(), via); err == nil {
		_, _ = s.back.ReadByte()
	}
}

func (s *stamps) close() { _ = s.conn.Close() }
