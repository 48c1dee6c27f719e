package apollosource_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	apollosource "github.com/spillway-go/spillway/config/source/apollo"
)

const secret = "df23df3f59884980844ff3dada30fa97"

var document = []byte("version: 1\n")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server of the loopback interface and returns its URL.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func newSource(t *testing.T, c apollosource.Config) *apollosource.Source {
	t.Helper()
	if c.AppID == "" {
		c.AppID = "shop"
	}
	if c.Namespace == "" {
		c.Namespace = "limits.yaml"
	}
	if c.AccessKey == "" {
		c.AccessKey = secret
	}
	src, err := apollosource.New(c)
	require.NoError(t, err)
	return src
}

// network is one of a bubble: hosts that answer by pipes, and everything else does not exist.
type network struct {
	mu    sync.Mutex
	hosts map[string]*listener
	dials map[string]int
}

func newNetwork() *network { return &network{hosts: map[string]*listener{}, dials: map[string]int{}} }

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

// serve answers for a host until the end of the test, or until the function it returns is called.
func (n *network) serve(t *testing.T, host string, h http.Handler) (stop func()) {
	l := &listener{accept: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	n.mu.Lock()
	n.hosts[host+":80"] = l
	n.mu.Unlock()
	stop = sync.OnceFunc(func() {
		n.mu.Lock()
		delete(n.hosts, host+":80")
		n.mu.Unlock()
		_ = srv.Close()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.hosts[addr]
	n.dials[addr]++
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

// transport keeps no connections, so that none is left in a bubble.
func (n *network) transport() http.RoundTripper {
	return &http.Transport{DialContext: n.dial, DisableKeepAlives: true}
}

// watched is a Watch that runs until the end of the test.
type watched struct {
	changed chan time.Time // has room for many
	result  chan error
	cancel  context.CancelFunc
}

func watch(t *testing.T, src *apollosource.Source) *watched {
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
