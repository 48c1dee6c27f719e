package live_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/live"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // of servers that tests kill
	goleak.VerifyTestMain(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func newPage(t *testing.T, c live.Config) *live.Page {
	t.Helper()
	p, err := live.New(c)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func newGuard(t *testing.T, o limiter.Observer, store limiter.Limiter, policies ...middleware.Policy) *middleware.Guard {
	t.Helper()
	if store == nil {
		m, err := memory.New(memory.Config{})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		store = m
	}
	for k := range policies {
		if policies[k].Key == nil {
			policies[k].Key = keyfunc.IP()
		}
	}
	g, err := middleware.New(middleware.Config{Limiter: store, Observer: o, Policies: policies, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return g
}

// send sends n requests.
func send(g *middleware.Guard, path string, n int) {
	for range n {
		g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "ok")
		}))
	}
}

// local is a request from this machine.
func local(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:1234", "localhost:8080"
	return r
}

// wire is a connection in a bubble: what is written is kept, and it can be stopped.
type wire struct {
	mu       sync.Mutex
	header   http.Header
	status   int
	sent     bytes.Buffer
	stopped  chan struct{} // not nil: writes wait for its end
	deadline time.Time
	patient  bool // knows no deadlines
}

func newWire() *wire { return &wire{header: make(http.Header)} }

func (w *wire) Header() http.Header    { return w.header }
func (w *wire) WriteHeader(status int) { w.status = status }
func (w *wire) FlushError() error      { return nil }

func (w *wire) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.patient {
		return http.ErrNotSupported
	}
	w.deadline = t
	return nil
}

func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	stopped, deadline, patient := w.stopped, w.deadline, w.patient
	w.mu.Unlock()
	if stopped != nil {
		var late <-chan time.Time
		if !patient {
			late = time.After(time.Until(deadline))
		}
		select {
		case <-stopped:
		case <-late:
			return 0, os.ErrDeadlineExceeded
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.Write(b)
}

// forgetDeadlines makes it a writer that knows none.
func (w *wire) forgetDeadlines() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patient = true
}

// stop makes writes wait until what it returns is called.
func (w *wire) stop() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stopped := make(chan struct{})
	w.stopped = stopped
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = nil
		close(stopped)
	}
}

func (w *wire) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.String()
}

// event is one of a stream.
type event struct {
	id, name, data string
}

// events are those that were sent so far; comments and retry are left out.
func (w *wire) events(t *testing.T) (all []event) {
	t.Helper()
	for block := range strings.SplitSeq(w.text(), "\n\n") {
		var e event
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				require.Empty(t, e.data, "one line of data")
				e.data = value
			case "", ":", "retry":
			default:
				require.Fail(t, "no field of an event", line)
			}
		}
		if e.name != "" {
			all = append(all, e)
		}
	}
	return all
}

// told is what matters of an event's data.
type told struct {
	Now      int64
	Total    []float64
	Policies []struct {
		About   about
		Row     row
		History [][]float64
	}
	Rows  []row
	About []about
	Gone  []int
	State *struct {
		Word  string
		Notes []string
	}
	Stores   []map[string]any
	Document *struct {
		Source, Hash, Error string
		Changes, Warnings   []string
		Applied, Refused    int
	}
	Top *[]struct {
		Policy, Key, Reason string
		Count               float64
	}
}

type row struct {
	I int
	R []float64
	S []uint64
	F int
	L []int
	M int
	O float64
	B float64
	K int
}

type about struct {
	I                    int
	Name, Stage, Limiter string
	Limit, Effective     string
	Why, Via, Reasons    []string
	Shadow, Undecided    bool
	Promise              string
	Adaptive, Leases     string
}

func (e event) told(t *testing.T) (out told) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(e.data), &out), "%s", e.data)
	return out
}

// seen is what a viewer knows who has followed a stream.
type seen struct {
	about map[string]about
	rows  map[string]row
	state string
	last  told
}

func follow(t *testing.T, all []event) seen {
	t.Helper()
	names := make(map[int]string)
	s := seen{about: make(map[string]about), rows: make(map[string]row)}
	for _, e := range all {
		x := e.told(t)
		if e.name == "full" {
			clear(s.about)
			clear(s.rows)
		}
		for _, p := range x.Policies {
			names[p.About.I], s.about[p.About.Name], s.rows[p.About.Name] = p.About.Name, p.About, p.Row
		}
		for _, id := range x.Gone {
			delete(s.about, names[id])
			delete(s.rows, names[id])
		}
		for _, a := range x.About {
			names[a.I], s.about[a.Name] = a.Name, a
		}
		for _, r := range x.Rows {
			s.rows[names[r.I]] = r
		}
		if x.State != nil {
			s.state = x.State.Word
		}
		s.last = x
	}
	return s
}
