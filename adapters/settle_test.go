package adapters_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// wire is a recorder whose connection can be taken over.
type wire struct {
	*httptest.ResponseRecorder
	far net.Conn
}

func (w *wire) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	near, far := net.Pipe()
	w.far = far
	return near, bufio.NewReadWriter(bufio.NewReader(near), bufio.NewWriter(near)), nil
}

// serve sends one request, and reports what the handler panicked with.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (panicked any) {
	defer func() { panicked = recover() }()
	h.ServeHTTP(w, r)
	return nil
}

var endings = []struct {
	name    string
	handler http.HandlerFunc
	settled []int // the statuses that Refund is asked about; none: unknown

	upgrades bool // the request asks for that
}{
	{"written", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, []int{200}, false},
	{"nothing written", func(http.ResponseWriter, *http.Request) {}, []int{200}, false},
	{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, []int{204}, false},
	{"not found", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, []int{404}, false},
	{"own failure", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", 500) }, []int{500}, false},
	{"flushed", func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, []int{200}, false},
	{"copied", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, bytes.NewReader([]byte("x"))) }, []int{200}, false},
	{"panic", func(http.ResponseWriter, *http.Request) { panic("broken") }, []int{500}, false},
	{"panic after a status", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "x")
		panic("broken")
	}, []int{201}, false},
	{"aborted", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, []int{500}, false},
	{"STR-03 taken over", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}, nil, true},
	{"switched", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, nil, true},
	{"not upgraded", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, []int{400}, true},
}

func TestSettledByTheRealStatus(t *testing.T) {
	for _, tc := range endings {
		t.Run(tc.name, func(t *testing.T) {
			each(t, func(t *testing.T, m mount) {
				var settled []int
				guard, err := spillway.New(spillway.Config{Policies: []spillway.Policy{{
					Name: "default", Key: keyfunc.IP(), Limit: limiter.PerHour(3),
					Refund: func(status int) bool {
						settled = append(settled, status)
						return true
					},
				}}})
				require.NoError(t, err)
				h := m.build(&app{guard: guard, routes: map[string]http.HandlerFunc{"GET /users/{id}": tc.handler}})
				w := &wire{ResponseRecorder: httptest.NewRecorder()}
				r := httptest.NewRequest(http.MethodGet, "/users/1", nil)
				if tc.upgrades {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", "websocket")
				}
				serve(h, w, r)
				require.Equal(t, tc.settled, settled)
				require.Equal(t, "2", w.Header().Get("X-RateLimit-Remaining"))
				next := httptest.NewRecorder()
				serve(h, next, httptest.NewRequest(http.MethodGet, "/users/1", nil))
				want := "1"
				if tc.settled != nil {
					want = "2" // given back
				}
				require.Equal(t, want, next.Header().Get("X-RateLimit-Remaining"))
			})
		})
	}
}

// A place in flight is taken while the handler runs, whatever its end.
func TestInFlight(t *testing.T) {
	each(t, func(t *testing.T, m mount) {
		synctest.Test(t, func(t *testing.T) {
			guard, err := spillway.New(spillway.Config{Policies: []spillway.Policy{{Name: "default", Key: keyfunc.IP(), InFlight: 1}}})
			require.NoError(t, err)
			release := make(chan bool)
			h := m.build(&app{guard: guard, routes: map[string]http.HandlerFunc{"GET /users/{id}": func(http.ResponseWriter, *http.Request) {
				if <-release {
					panic("broken")
				}
			}}})
			send := func() *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				serve(h, w, httptest.NewRequest(http.MethodGet, "/users/1", nil))
				return w
			}
			for _, panics := range []bool{false, true, false} {
				go send()
				synctest.Wait()
				w := send()
				require.Equal(t, http.StatusServiceUnavailable, w.Code)
				require.Equal(t, "1", w.Header().Get("X-RateLimit-Limit"))
				release <- panics
				synctest.Wait()
			}
		})
	})
}

// REF-08: a client that leaves while it waits for its turn is not served, and its answer is no success.
func TestLeavingTheQueue(t *testing.T) {
	for cause, status := range map[string]int{"left": 499, "late": http.StatusGatewayTimeout} {
		t.Run(cause, func(t *testing.T) {
			each(t, func(t *testing.T, m mount) {
				synctest.Test(t, func(t *testing.T) {
					guard, err := spillway.New(spillway.Config{Policies: perIP(limiter.PerMinute(1).WithBurst(3).With(limiter.LeakyBucket))})
					require.NoError(t, err)
					served := 0
					h := m.build(&app{guard: guard, routes: map[string]http.HandlerFunc{
						"GET /users/{id}": func(http.ResponseWriter, *http.Request) { served++ },
					}})
					send(h, "/users/1")
					ctx, cancel := context.WithCancelCause(t.Context())
					if cause == "late" {
						// Told too late for the guard to see it coming.
						ctx = lateContext{ctx}
					}
					go func() {
						time.Sleep(time.Second)
						cancel(nil)
					}()
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/users/1", nil).WithContext(ctx))
					require.Equal(t, status, w.Code)
					require.Empty(t, w.Body.String())
					require.Equal(t, 1, served)
				})
			})
		})
	}
}

// lateContext calls its end a deadline that it had not announced.
type lateContext struct{ context.Context }

func (c lateContext) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// tape is a degrade handler that records.
type tape struct {
	status  int
	fields  http.Header
	body    bytes.Buffer
	flushes int
	ended   []bool
}

func (*tape) Degrade(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome {
	return degrade.Skip
}

func (x *tape) Record(w http.ResponseWriter, _ *keyfunc.Request, _, _ string) (http.ResponseWriter, func(bool)) {
	return &taped{w, x}, func(ok bool) { x.ended = append(x.ended, ok) }
}

type taped struct {
	http.ResponseWriter
	*tape
}

func (w *taped) WriteHeader(code int) {
	if w.status == 0 {
		w.status, w.fields = code, w.ResponseWriter.Header().Clone()
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *taped) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status, w.fields = http.StatusOK, w.ResponseWriter.Header().Clone()
	}
	w.body.Write(b)
	return w.ResponseWriter.Write(b)
}

func (w *taped) Flush() {
	w.flushes++
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *taped) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *taped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A recorder sees what the client sees: the status, all fields, the body, and that it was streamed.
func TestRecordersSeeTheWholeResponse(t *testing.T) {
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		status  int
		body    string
		flushes int
		ok      bool
	}{
		{"plain", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x")
			_, _ = io.WriteString(w, "all")
			_, _ = w.Write([]byte(" of it"))
		}, 200, "all of it", 0, true},
		{"with a status", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x")
			w.WriteHeader(203)
			_, _ = io.WriteString(w, "all of it")
		}, 203, "all of it", 0, true},
		{"failed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x")
			w.WriteHeader(500)
		}, 500, "", 0, false},
		{"streamed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x")
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "b")
		}, 200, "ab", 1, true},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x")
			_, _ = io.WriteString(w, "half of")
			panic("broken")
		}, 200, "half of", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, func(t *testing.T, m mount) {
				for _, refunds := range []bool{false, true} {
					x := new(tape)
					p := spillway.Policy{Name: "default", Key: keyfunc.IP(), Limit: limiter.PerHour(3), Degrade: x}
					if refunds {
						p.Refund = func(int) bool { return false }
					}
					guard, err := spillway.New(spillway.Config{Policies: []spillway.Policy{p}})
					require.NoError(t, err)
					h := m.build(&app{guard: guard, routes: map[string]http.HandlerFunc{"GET /users/{id}": tc.handler}})
					w := httptest.NewRecorder()
					serve(h, w, httptest.NewRequest(http.MethodGet, "/users/1", nil))
					require.Equal(t, tc.status, x.status)
					require.Equal(t, tc.body, x.body.String())
					require.Equal(t, tc.body, w.Body.String())
					require.Equal(t, "text/x", x.fields.Get("Content-Type"))
					require.Equal(t, tc.flushes, x.flushes)
					require.Len(t, x.ended, 1)
					if x.status != http.StatusInternalServerError { // which it sees by itself
						require.Equal(t, tc.ok, x.ended[0], "refunds %v", refunds)
					}
				}
			})
		})
	}
}
