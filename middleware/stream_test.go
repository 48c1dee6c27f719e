package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// streamed are guards that do not wrap the writer, wrap it to learn the status, and record.
func streamed(t *testing.T) map[string]*middleware.Guard {
	rec := recording{skips, func(w http.ResponseWriter, _ *http.Request) (http.ResponseWriter, func(bool)) {
		return w, func(bool) {}
	}}
	return map[string]*middleware.Guard{
		"plain":     guardOf(t, policy{Name: "a", Limit: perMinute, Headers: response.Both}),
		"in flight": guardOf(t, policy{Name: "a", Limit: perMinute, InFlight: 3}),
		"refund":    guardOf(t, policy{Name: "a", Limit: perMinute, Refund: failed}),
		"recorder":  guardOf(t, policy{Name: "a", Limit: perMinute, Degrade: rec, Refund: failed}),
	}
}

// server serves next behind the guard, with HTTP/2 if asked.
func server(t *testing.T, g *middleware.Guard, h2 bool, next http.HandlerFunc) (*httptest.Server, *http.Client) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.Serve(w, r, next) }))
	if s.EnableHTTP2 = h2; h2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, s.Client()
}

// each runs f for every guard and version of HTTP.
func each(t *testing.T, versions []bool, f func(t *testing.T, g *middleware.Guard, h2 bool)) {
	for name, g := range streamed(t) {
		for _, h2 := range versions {
			t.Run(fmt.Sprintf("%s/h2=%v", name, h2), func(t *testing.T) { f(t, g, h2) })
		}
	}
}

var both = []bool{false, true}

// The first event of a stream arrives while the handler is still at work.
func TestFirstEventAtOnce(t *testing.T) {
	each(t, both, func(t *testing.T, g *middleware.Guard, h2 bool) {
		seen := make(chan struct{})
		s, client := server(t, g, h2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			if _, ok := w.(http.Flusher); !ok {
				t.Error("no Flusher")
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-seen
			_, _ = io.WriteString(w, "data: 2\n\n")
		})
		res, err := client.Get(s.URL)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		require.Equal(t, h2, res.ProtoMajor == 2)
		lines := bufio.NewReader(res.Body)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "data: 1\n", line)
		close(seen)
		rest, err := io.ReadAll(lines)
		require.NoError(t, err)
		require.Equal(t, "\ndata: 2\n\n", string(rest))
	})
}

func TestResponseController(t *testing.T) {
	each(t, both, func(t *testing.T, g *middleware.Guard, h2 bool) {
		s, client := server(t, g, h2, func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			for name, err := range map[string]error{
				"read":  c.SetReadDeadline(time.Now().Add(time.Minute)),
				"write": c.SetWriteDeadline(time.Now().Add(time.Minute)),
				"flush": c.Flush(),
			} {
				if err != nil {
					t.Error(name, err)
				}
			}
			if err := c.EnableFullDuplex(); err != nil && !h2 {
				t.Error(err)
			}
		})
		res, err := client.Get(s.URL)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body) // until the handler has returned
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, 200, res.StatusCode)
	})
}

// An upgrade goes through, and what the handler hijacks stays charged.
func TestUpgrade(t *testing.T) {
	each(t, []bool{false}, func(t *testing.T, g *middleware.Guard, _ bool) {
		s, _ := server(t, g, false, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			line, _ := rw.ReadString('\n')
			_, _ = rw.WriteString("echo " + line)
			_ = rw.Flush()
		})
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		require.NoError(t, err)
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		require.Equal(t, 101, res.StatusCode)
		_, err = io.WriteString(conn, "hello\n")
		require.NoError(t, err)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "echo hello\n", line)
		r := request("GET", "/")
		r.RemoteAddr = conn.LocalAddr().String()
		require.Equal(t, 9, left(t, g, r, "a"))
	})
}

// An upgrade over the limit is refused like any request, before the handler sees it.
func TestUpgradeRefused(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.DenyAll})
	s, client := server(t, g, false, func(http.ResponseWriter, *http.Request) { t.Error("upgraded") })
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
	require.NoError(t, err)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	res, err := client.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 429, res.StatusCode)
}

// readerFrom is a writer that can send files.
type readerFrom struct {
	http.ResponseWriter
	used int
}

func (w *readerFrom) ReadFrom(r io.Reader) (int64, error) {
	w.used++
	return io.Copy(w.ResponseWriter, r)
}

// io.Copy reaches the writer's own ReadFrom, as sending files without copying needs.
func TestReadFrom(t *testing.T) {
	for name, g := range streamed(t) {
		w := &readerFrom{ResponseWriter: httptest.NewRecorder()}
		g.Serve(w, request("GET", "/"), inline(func(w http.ResponseWriter) {
			_, err := io.Copy(w, struct{ io.Reader }{strings.NewReader("body")})
			require.NoError(t, err)
		}))
		require.Equal(t, 1, w.used, name)
	}
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	each(t, both, func(t *testing.T, g *middleware.Guard, h2 bool) {
		s, client := server(t, g, h2, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
		res, err := client.Get(s.URL)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.EqualValues(t, 1<<20, n)
	})
}

// A writer gains no ability that the one below it does not have.
func TestNoMoreThanTheWriterCan(t *testing.T) {
	type plain struct{ http.ResponseWriter }
	for name, g := range streamed(t) {
		g.Serve(plain{httptest.NewRecorder()}, request("GET", "/"), inline(func(w http.ResponseWriter) {
			_, flushes := w.(http.Flusher)
			_, hijacks := w.(http.Hijacker)
			_, pushes := w.(http.Pusher)
			_, reads := w.(io.ReaderFrom)
			require.False(t, flushes || hijacks || pushes || reads, name)
		}))
	}
}

// Trailers and the length of a response are the handler's.
func TestTrailers(t *testing.T) {
	each(t, both, func(t *testing.T, g *middleware.Guard, h2 bool) {
		s, client := server(t, g, h2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Sum", "4")
		})
		res, err := client.Get(s.URL)
		require.NoError(t, err)
		_, err = io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.Header{"X-Sum": {"4"}}, res.Trailer)
		require.NotEmpty(t, res.Header.Get("X-RateLimit-Limit"))
	})
}

// A client that goes away cancels the request in the handler, and the place it held is free again.
func TestClientGoesAway(t *testing.T) {
	g := guardOf(t, policy{Name: "b", InFlight: 1, Key: keyfunc.Global()})
	started, ended := make(chan struct{}), make(chan struct{})
	s, client := server(t, g, false, func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	require.NoError(t, err)
	_, err = client.Do(r) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, context.Canceled)
	<-ended
	s.Close() // waits for the handler
	free(t, g, 1)
}
