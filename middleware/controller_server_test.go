package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// listening is the controller of package adaptive, and what it was told of requests by their route.
type listening struct {
	*adaptive.Controller
	taken, freed atomic.Int64
	results      chan limiter.Result
}

func (s *listening) Acquire(now time.Time, reserve float64) (n, bound int, ok bool) {
	if n, bound, ok = s.Controller.Acquire(now, reserve); ok {
		s.taken.Add(1)
	}
	return n, bound, ok
}

func (s *listening) Release(now, began time.Time, r limiter.Result) {
	s.freed.Add(1)
	s.Controller.Release(now, began, r)
	select {
	case s.results <- r:
	default: // nobody asks
	}
}

// hosts is a server behind a guard with a controller, and the requests that are in it.
type hosts struct {
	*httptest.Server
	c       *listening
	in      sync.WaitGroup // of requests, guard included
	most    atomic.Int64
	serving atomic.Int64
	ids     atomic.Int64
	leave   sync.Map // id → what makes the client of a request leave
}

// newHosts serves routes that end in all the ways there are.
func newHosts(t *testing.T, bound int, http2 bool) *hosts {
	t.Helper()
	c, err := adaptive.New(adaptive.Config{
		Name: "a", Max: float64(bound), Fixed: float64(bound), CPUSource: func() (float64, bool) { return 0.1, true },
	})
	require.NoError(t, err)
	h := &hosts{c: &listening{Controller: c, results: make(chan limiter.Result, 1)}}
	g := guardOf(t, policy{Name: "a", Adaptive: h.c})
	mux := http.NewServeMux()
	mux.HandleFunc("/plain", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain\n") })
	mux.HandleFunc("/fails", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	mux.HandleFunc("/panics", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/breaks", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/leaves", func(_ http.ResponseWriter, r *http.Request) {
		leave, _ := h.leave.Load(r.FormValue("id"))
		leave.(context.CancelFunc)() // it is here, so its client may go
		<-r.Context().Done()
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.FormValue("type"))
		_, _ = io.WriteString(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	})
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := h.serving.Add(1)
		defer h.serving.Add(-1)
		for most := h.most.Load(); n > most && !h.most.CompareAndSwap(most, n); most = h.most.Load() {
		}
		mux.ServeHTTP(w, r)
	})
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.in.Add(1)
		defer h.in.Done()
		g.Serve(w, r, counted)
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	if http2 {
		h.EnableHTTP2 = true
		h.StartTLS()
	} else {
		h.Start()
	}
	t.Cleanup(func() {
		h.Close()
		h.in.Wait()
		require.Zero(t, c.InFlight())
		require.Equal(t, h.c.taken.Load(), h.c.freed.Load())
		require.LessOrEqual(t, h.most.Load(), int64(bound))
		require.NoError(t, c.Close())
	})
	return h
}

// get asks, reads what comes first and leaves.
func (h *hosts) get(ctx context.Context, path string) (status int) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if path == "/leaves" {
		id := strconv.FormatInt(h.ids.Add(1), 10)
		h.leave.Store(id, leave)
		path += "?id=" + id
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, http.NoBody)
	if err != nil {
		panic(err)
	}
	res, err := h.Client().Do(r)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = res.Body.Read(make([]byte, 4))
	return res.StatusCode
}

// upgrade asks for another protocol, says something in it and leaves.
func (h *hosts) upgrade() (string, error) {
	conn, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	lines := bufio.NewReader(conn)
	res, err := http.ReadResponse(lines, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		return "", err
	}
	fmt.Fprintln(conn, "hello")
	return lines.ReadString('\n')
}

// On a real server requests end in many ways, and each is told to the controller as what it is.
func TestControllerOnServers(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newHosts(t, 4, http2)
		for path, want := range map[string]limiter.Result{
			"/plain": limiter.ResultSucceeded, "/fails": limiter.ResultFailed, "/panics": limiter.ResultFailed,
			"/leaves": limiter.ResultUnmeasured, "/none": limiter.ResultSucceeded,
			"/events?type=text/event-stream": limiter.ResultDetached, "/events?type=Text/Event-Stream%3Bcharset=utf-8": limiter.ResultDetached,
			"/events?type=text/plain": limiter.ResultUnmeasured, "/events?type=text/event-streams": limiter.ResultUnmeasured,
		} {
			h.get(t.Context(), path)
			require.Equal(t, want, <-h.c.results, "%s, HTTP/2 %v", path, http2)
		}
		if !http2 {
			said, err := h.upgrade()
			require.NoError(t, err)
			require.Equal(t, "hello\n", said)
			require.Equal(t, limiter.ResultDetached, <-h.c.results)
		}
	}
}

// Whatever many clients do at once, never more than the bound are served, and nobody keeps a place.
func TestControllerUnderLoad(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newHosts(t, 8, http2)
		paths := []string{"/plain", "/panics", "/breaks", "/leaves", "/events?type=text/event-stream", "/fails", "/upgrade"}
		var statuses [600]atomic.Int64
		var clients sync.WaitGroup
		for n := range 32 {
			clients.Go(func() {
				for k := range 30 {
					path := paths[(n+k)%len(paths)]
					if path == "/upgrade" && !http2 {
						_, _ = h.upgrade()
						continue
					}
					statuses[h.get(t.Context(), path)].Add(1)
				}
			})
		}
		clients.Wait()
		require.Positive(t, statuses[200].Load())
		require.Positive(t, statuses[503].Load(), "32 clients, and 8 places")
	}
}
