package nacossource_test

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	nacossource "github.com/spillway-go/spillway/config/source/nacos"
)

const hush = "a secret that nobody says"

var document = []byte("version: 1\n")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts the fake on the loopback interface and returns a configuration that reaches it.
func serve(t *testing.T, f *fake, opts ...grpc.ServerOption) nacossource.Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := f.server(opts...)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	web := httptest.NewServer(f)
	t.Cleanup(web.Close)
	return nacossource.Config{Servers: []string{web.URL}, GRPCPort: l.Addr().(*net.TCPAddr).Port, DataID: f.dataID}
}

func newSource(t *testing.T, c nacossource.Config) *nacossource.Source {
	t.Helper()
	src, err := nacossource.New(c)
	require.NoError(t, err)
	return src
}

// network is one of a bubble: servers that answer by pipes, and everything else does not exist.
type network struct {
	mu    sync.Mutex
	hosts map[string]*listener
}

type listener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// serve has f answer at host:9848 until the end of the test, or until the function it returns is called.
func (n *network) serve(t *testing.T, host string, f *fake) (stop func()) {
	l := &listener{accept: make(chan net.Conn), closed: make(chan struct{})}
	srv := f.server()
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	n.mu.Lock()
	n.hosts[host+":9848"] = l
	n.mu.Unlock()
	stop = sync.OnceFunc(func() {
		n.mu.Lock()
		delete(n.hosts, host+":9848")
		n.mu.Unlock()
		srv.Stop()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

// silence has host accept connections and say nothing.
func (n *network) silence(t *testing.T, host string) {
	l := &listener{accept: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	n.hosts[host+":9848"] = l
	n.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 1<<10)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
}

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.hosts[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	select {
	case l.accept <- there:
		return here, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// source returns one that reaches hosts of n.
func (n *network) source(t *testing.T, hosts ...string) *nacossource.Source {
	c := nacossource.Config{DataID: "limits.yaml"}
	for _, host := range hosts {
		c.Servers = append(c.Servers, "http://"+host)
	}
	src := newSource(t, c)
	src.SetDial(n.dial)
	return src
}

// watched is a Watch that runs until the end of the test.
type watched struct {
	changed chan time.Time // has room for many
	result  chan error
	cancel  context.CancelFunc
}

func watch(t *testing.T, src *nacossource.Source) *watched {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{changed: make(chan time.Time, 1000), result: make(chan error, 1), cancel: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.result <- src.Watch(ctx, func() { w.changed <- time.Now() })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// calls empties the channel and returns how often changed was called.
func (w *watched) calls() (n int) {
	for {
		select {
		case <-w.changed:
			n++
		default:
			return n
		}
	}
}
