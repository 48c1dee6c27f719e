package redistest

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to one server, and breaks them on request. Its switches work at once, for the connections
// there are and for new ones, and may be called from any goroutine.
//
// It reads requests and replies, so it breaks connections between them. What a client sends to set up a connection is
// neither counted nor has its reply dropped or delayed: HELLO, AUTH, CLIENT, SELECT, READONLY, CLUSTER, COMMAND. The same
// is so for subscriptions and what comes by them.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu       sync.Mutex
	mode     mode
	drop     int // requests whose reply is dropped
	delay    time.Duration
	requests int
	links    map[*link]bool
}

type mode int

const (
	pass mode = iota
	silent
	dropReply
	cutReply
	refuse
)

// StartProxy returns a proxy on a port of its own that forwards everything to target. It ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	p := &Proxy{t: t, listener: listener, target: target, links: map[*link]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Refuse() // a connection that was accepted just now as well
		p.running.Wait()
	})
	return p
}

// Addr returns the address to connect to, host and port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Pass forwards everything again, without delay.
func (p *Proxy) Pass() { p.set(func() { p.mode, p.drop, p.delay = pass, 0, 0 }) }

// Silent accepts connections and what is sent on them, but forwards nothing and answers nothing: replies on their way are
// lost too. A connection that has lost something stays silent after Pass, since its replies would answer the wrong
// requests.
func (p *Proxy) Silent() { p.set(func() { p.mode = silent }) }

// DropReply forwards requests, and closes their connection when the reply arrives: the client cannot know that they were
// carried out.
func (p *Proxy) DropReply() { p.set(func() { p.mode = dropReply }) }

// DropReplies does what DropReply does to the next n requests, and passes what follows. The retry of a client counts as
// a request.
func (p *Proxy) DropReplies(n int) { p.set(func() { p.mode, p.drop = pass, n }) }

// CutReply does what DropReply does after the first half of the reply.
func (p *Proxy) CutReply() { p.set(func() { p.mode = cutReply }) }

// Delay forwards every reply d later; those that come together are delayed together. It works beside the modes.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Refuse closes all connections, and new ones as soon as they are accepted.
func (p *Proxy) Refuse() {
	p.set(func() { p.mode = refuse })
	p.CutAll()
}

// CutAll closes the connections there are.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Requests returns how many requests were forwarded so far, without those that set up connections.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		l := &link{proxy: p, client: client, closed: make(chan struct{})}
		if !p.add(l) {
			l.close()
			continue
		}
		p.running.Go(func() {
			l.forwardRequests()
			l.close()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.links, l)
		})
	}
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode != refuse {
		p.links[l] = true
	}
	return p.mode != refuse
}

// link is one connection of a client, and that to the target which belongs to it.
type link struct {
	proxy  *Proxy
	client net.Conn
	once   sync.Once
	closed chan struct{}

	mu      sync.Mutex
	server  net.Conn // nil before the first request
	lost    bool     // something was swallowed
	pending []fate   // of every request that waits for its reply
}

// fate is what happens to the reply of a request.
type fate struct{ dropped, cut, delayed bool }

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		_ = l.client.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// connect dials the target with the first request, so that a silent proxy needs no target.
func (l *link) connect() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		return l.server, nil
	}
	server, err := net.DialTimeout("tcp", l.proxy.target, time.Second)
	if err != nil {
		return nil, err
	}
	select {
	case <-l.closed: // nobody else would close it
		_ = server.Close()
		return nil, net.ErrClosed
	default:
	}
	l.server = server
	l.proxy.running.Go(func() {
		l.forwardReplies(server)
		l.close()
	})
	return server, nil
}

func (l *link) forwardRequests() {
	from := bufio.NewReader(l.client)
	for {
		m, err := readMessage(from)
		if err != nil {
			return
		}
		if l.isLost() {
			continue
		}
		to, err := l.connect()
		if err != nil {
			return
		}
		l.expect(m, l.proxy.judge(m))
		if _, err = to.Write(m.raw); err != nil {
			return
		}
	}
}

var (
	setUp         = []string{"HELLO", "AUTH", "CLIENT", "SELECT", "READONLY", "CLUSTER", "COMMAND"}
	subscriptions = []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"}
)

// judge counts a request that is forwarded, and says what happens to its reply.
func (p *Proxy) judge(m message) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(setUp, m.name) {
		return fate{}
	}
	p.requests++
	if p.drop > 0 {
		p.drop--
		return fate{dropped: true}
	}
	return fate{dropped: p.mode == dropReply, cut: p.mode == cutReply, delayed: true}
}

// expect remembers what happens to the reply of a request.
func (l *link) expect(m message, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(subscriptions, m.name) { // their replies are pushes
		l.pending = append(l.pending, f)
	}
}

// isLost reports whether what comes now is swallowed.
func (l *link) isLost() bool {
	mode, _ := l.proxy.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = l.lost || mode == silent
	return l.lost
}

func (l *link) forwardReplies(server net.Conn) {
	from := bufio.NewReader(server)
	for {
		together := from.Buffered() > 0
		m, err := readMessage(from)
		if err != nil {
			return
		}
		_, delay := l.proxy.now()
		swallowed, f := l.isLost(), l.fateOf(m)
		switch {
		case swallowed:
			continue
		case f.dropped:
			return
		case f.delayed && delay > 0 && !together && !l.wait(delay):
			return
		case f.cut:
			_, _ = l.client.Write(m.raw[:len(m.raw)/2]) // the end is near in any case
			return
		}
		if _, err = l.client.Write(m.raw); err != nil {
			return
		}
	}
}

// fateOf returns what was meant to happen to a reply.
func (l *link) fateOf(m message) (f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !m.isPush() && len(l.pending) > 0 {
		f, l.pending = l.pending[0], l.pending[1:]
	}
	return f
}

func (p *Proxy) now() (mode, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.delay
}

// wait reports whether the link is still open after d.
func (l *link) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}
