package browser_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe"
	"github.com/spillway-go/spillway/observe/live"
)

// scene is a guarded service with a page.
type scene struct {
	t     *testing.T
	page  *live.Page
	guard *middleware.Guard
	watch limiter.Observer
	store limiter.Limiter
	url   string
	addr  string
	http  http.Handler
	kill  func() // ends the server

	mu     sync.Mutex
	status live.Status
}

// set changes what the page is told of the document.
func (s *scene) set(change func(*live.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// newScene serves a page of policies. A limiter may be made with the observer; nil: memory.
func newScene(t *testing.T, makeStore func(limiter.Observer) limiter.Limiter, policies ...middleware.Policy) *scene {
	t.Helper()
	s := &scene{t: t, status: live.Status{Source: "file:policies.yaml", Hash: "1f2e3d4c5b6a", Loaded: time.Now()}}
	top, err := observe.NewTop(observe.TopConfig{})
	require.NoError(t, err)
	s.page, err = live.New(live.Config{Title: "shop", Top: top})
	require.NoError(t, err)
	t.Cleanup(s.page.Close)
	s.watch = observe.Tee(s.page, top)
	if makeStore == nil {
		makeStore = func(o limiter.Observer) limiter.Limiter {
			m, err := memory.New(memory.Config{Observer: o})
			require.NoError(t, err)
			t.Cleanup(m.Close)
			return m
		}
	}
	s.store = makeStore(s.watch)
	s.guard, err = middleware.New(middleware.Config{
		Limiter: s.store, Observer: s.watch, Policies: policies, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	s.page.Watch(s.guard, func() live.Status {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.status
	})
	mux := http.NewServeMux()
	mux.Handle("/live/", s.page)
	s.http = mux
	s.serveAt("127.0.0.1:0")
	return s
}

// serveAt serves the page at an address.
func (s *scene) serveAt(addr string) {
	l, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", addr)
	require.NoError(s.t, err)
	server := &http.Server{Handler: s.http, ReadHeaderTimeout: patience}
	server.RegisterOnShutdown(s.page.Close)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	s.kill = sync.OnceFunc(func() {
		_ = server.Close()
		<-ended
	})
	s.t.Cleanup(s.kill)
	s.addr = l.Addr().String()
	s.url = "http://" + s.addr
}

// send sends n requests of a client to a path, one after the other.
func (s *scene) send(path, client string, n int) {
	for range n {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = client + ":1234"
		s.guard.Serve(httptest.NewRecorder(), r, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	}
}

// load sends n requests of each path in every 50 ms, of some clients, until the test is over.
func (s *scene) load(paths map[string]int) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() {
		beat := time.NewTicker(50 * time.Millisecond)
		defer beat.Stop()
		for k := 0; ; k++ {
			for path, n := range paths {
				for j := range n {
					s.send(path, "203.0.113."+strconv.Itoa((k+j)%7), 1)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			}
		}
	})
}

func route(pattern string) middleware.Match { return middleware.Match{Routes: []string{pattern}} }

var errAway = errors.New("away")

// away is a shared store that can be taken away.
type away struct {
	limiter.Limiter
	watch limiter.Observer
	mu    sync.Mutex
	gone  bool
}

func (a *away) take(gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = gone
}

func (a *away) Allow(ctx context.Context, key limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	a.mu.Lock()
	gone := a.gone
	a.mu.Unlock()
	e := limiter.Event{Kind: limiter.EventStore, Name: "redis", Op: "allow", N: 1, Time: time.Now(), Duration: 1200 * time.Microsecond}
	if gone {
		e.Err, e.Reason, e.Duration = errAway, "refused", 300*time.Microsecond
		a.watch.Observe(e)
		return limiter.Decision{}, errors.Join(limiter.ErrUnavailable, errAway)
	}
	a.watch.Observe(e)
	d, err := a.Limiter.Allow(ctx, key, l, n)
	d.Via = limiter.ViaStore
	return d, err
}

func (a *away) String() string { return "redis" }

func byIP(name, pattern string, l limiter.Limit) middleware.Policy {
	return middleware.Policy{Name: name, Match: route(pattern), Key: keyfunc.IP(), Limit: l}
}
