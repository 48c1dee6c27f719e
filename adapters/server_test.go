package adapters_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// reasons to wrap the writer: none, or a policy that settles by the status, or one that records.
var reasons = map[string]func(*spillway.Policy){
	"plain":    func(*spillway.Policy) {},
	"settled":  func(p *spillway.Policy) { p.Refund = func(status int) bool { return status >= 500 } },
	"recorded": func(p *spillway.Policy) { p.Degrade = new(tape) },
	"both":     func(p *spillway.Policy) { p.Degrade = new(tape); p.Refund = func(int) bool { return false } },
}

// served runs f against every mount behind a real server, for every reason to wrap.
func served(t *testing.T, h http.HandlerFunc, http2 bool, f func(t *testing.T, s *httptest.Server)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	each(t, func(t *testing.T, m mount) {
		for name, reason := range reasons {
			t.Run(name, func(t *testing.T) {
				p := spillway.Policy{Name: "default", Key: keyfunc.IP(), Limit: limiter.PerHour(100)}
				reason(&p)
				guard := spillway.Must(spillway.New(spillway.Config{Policies: []spillway.Policy{p}}))
				s := httptest.NewUnstartedServer(m.build(&app{guard: guard, routes: map[string]http.HandlerFunc{"GET /users/{id}": h}}))
				s.EnableHTTP2 = http2
				if http2 {
					s.StartTLS()
				} else {
					s.Start()
				}
				defer s.Close()
				f(t, s)
			})
		}
	})
}

// STR-01 STR-02: an event arrives while the handler is still at work.
func TestEventsArriveAtOnce(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			goOn := make(chan bool)
			served(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				rc := http.NewResponseController(w)
				_ = rc.SetWriteDeadline(time.Now().Add(time.Minute))
				for range 2 {
					_, _ = io.WriteString(w, "data: x\n\n")
					if err := rc.Flush(); err != nil {
						t.Error(err)
					}
					select {
					case <-goOn:
					case <-r.Context().Done():
					}
				}
				w.WriteHeader(http.StatusInternalServerError) // too late, and must do no harm
			}, http2, func(t *testing.T, s *httptest.Server) {
				res, err := s.Client().Get(s.URL + "/users/1")
				require.NoError(t, err)
				defer func() { _ = res.Body.Close() }()
				require.Equal(t, http2, res.ProtoMajor == 2)
				require.Equal(t, http.StatusOK, res.StatusCode)
				require.Equal(t, "99", res.Header.Get("X-RateLimit-Remaining"))
				lines := bufio.NewReader(res.Body)
				for range 2 {
					line, err := lines.ReadString('\n')
					require.NoError(t, err)
					require.Equal(t, "data: x\n", line)
					_, _ = lines.ReadString('\n')
					goOn <- true
				}
				_, err = lines.ReadByte()
				require.Equal(t, io.EOF, err)
			})
		})
	}
}

// STR-03: an upgraded connection speaks another protocol.
func TestUpgrade(t *testing.T) {
	served(t, func(w http.ResponseWriter, _ *http.Request) {
		hijack := http.NewResponseController(w).Hijack
		hijacker, asserted := w.(http.Hijacker) // as older libraries do
		if asserted {
			hijack = hijacker.Hijack
		}
		conn, rw, err := hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\n")
		_, _ = fmt.Fprintf(rw, "Asserted: %v\r\n\r\n", asserted)
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString(strings.ToUpper(line))
		_ = rw.Flush()
	}, false, func(t *testing.T, s *httptest.Server) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "GET /users/1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
		if !strings.Contains(t.Name(), "std/raw") { // which hides it from a guard or none alike
			require.Equal(t, "true", res.Header.Get("Asserted"))
		}
		_, _ = io.WriteString(conn, "hello\n")
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "HELLO\n", line)
	})
}

// A large upload is read by the handler alone, and a chunked answer arrives whole.
func TestBodies(t *testing.T) {
	served(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if len(body) != 1<<17 || err != nil {
			t.Error(len(body), err)
		}
		_, _ = w.Write(body[:1<<16])
		_, _ = w.Write(body[1<<16:])
	}, false, func(t *testing.T, s *httptest.Server) {
		req, err := http.NewRequest(http.MethodGet, s.URL+"/users/1", strings.NewReader(strings.Repeat("x", 1<<17)))
		require.NoError(t, err)
		res, err := s.Client().Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Len(t, body, 1<<17)
		require.Equal(t, []string{"chunked"}, res.TransferEncoding)
	})
}

// What the response controller can do, it can do behind a guard.
func TestResponseController(t *testing.T) {
	served(t, func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(w)
		at := time.Now().Add(time.Minute)
		for name, err := range map[string]error{
			"read": rc.SetReadDeadline(at), "write": rc.SetWriteDeadline(at), "duplex": rc.EnableFullDuplex(), "flush": rc.Flush(),
		} {
			if err != nil {
				t.Error(name, err)
			}
		}
	}, false, func(t *testing.T, s *httptest.Server) {
		res, err := s.Client().Get(s.URL + "/users/1")
		require.NoError(t, err)
		_ = res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
	})
}
