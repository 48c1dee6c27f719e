package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/middleware"
)

type (
	config = middleware.Config
	policy = middleware.Policy
	match  = middleware.Match
)

// request is a request of the client 192.0.2.7.
func request(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = "192.0.2.7:1234"
	return r
}

// newGuard fills in a model as limiter and a logger that says nothing.
func newGuard(tb testing.TB, cfg config) *middleware.Guard {
	tb.Helper()
	if cfg.Limiter == nil {
		cfg.Limiter = limitertest.NewModel()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	g, err := middleware.New(cfg)
	require.NoError(tb, err)
	return g
}

// guardOf is a guard of policies, with keyfunc.IP where they have no key.
func guardOf(tb testing.TB, policies ...policy) *middleware.Guard {
	tb.Helper()
	return newGuard(tb, config{Policies: byIP(policies...)})
}

func byIP(policies ...policy) []policy {
	for k := range policies {
		if policies[k].Key == nil {
			policies[k].Key = keyfunc.IP()
		}
	}
	return policies
}

// answer is a handler that answers with a status.
func answer(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

var ok = answer(http.StatusOK)

// inline is a handler that is called on the test's own goroutine, and so may fail it.
func inline(f func(w http.ResponseWriter)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { f(w) })
}

// serve serves one request and returns the response.
func serve(g *middleware.Guard, r *http.Request, next http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	g.Serve(w, r, next)
	return w
}

// get serves GET / of a client.
func get(g *middleware.Guard, client string) *httptest.ResponseRecorder {
	r := request("GET", "/")
	r.RemoteAddr = client + ":1234"
	return serve(g, r, ok)
}

// left is what a policy has left for a request, seen by Peek.
func left(tb testing.TB, g *middleware.Guard, r *http.Request, name string) int {
	tb.Helper()
	v, err := g.Peek(r, middleware.Entry{})
	require.NoError(tb, err)
	for _, s := range v.Policies {
		if s.Policy == name {
			return s.Decision.Remaining
		}
	}
	require.Fail(tb, "no policy "+name)
	return 0
}

// fake is a model that can be made to fail.
type fake struct {
	model *limitertest.Model
	local bool
	hook  func(op string) error // asked before everything; may also panic or sleep
	down  atomic.Pointer[error] // what every call fails with
	calls atomic.Int64
}

func newFake() *fake { return &fake{model: limitertest.NewModel()} }

func (f *fake) fail(err error) {
	if err == nil {
		f.down.Store(nil)
	} else {
		f.down.Store(&err)
	}
}

func (f *fake) before(ctx context.Context, op string) error {
	f.calls.Add(1)
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.hook != nil {
		if err := f.hook(op); err != nil {
			return err
		}
	}
	if err := f.down.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *fake) Local() bool { return f.local }

func (f *fake) Allow(ctx context.Context, k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	if err := f.before(ctx, "allow"); err != nil {
		return limiter.Decision{}, err
	}
	return f.model.Allow(ctx, k, l, n)
}

func (f *fake) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if len(takes) == 0 {
		return true, nil
	}
	if err := f.before(ctx, "allow_all"); err != nil {
		return false, err
	}
	return f.model.AllowAll(ctx, at, takes)
}

func (f *fake) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	if err := f.before(ctx, "refund"); err != nil {
		return err
	}
	return f.model.Refund(ctx, at, t)
}

// single is a limiter that decides one take at a time and cannot give back.
type single struct{ f *fake }

func (s single) Allow(ctx context.Context, k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	return s.f.Allow(ctx, k, l, n)
}

// noRefund decides several takes as one and cannot give back.
type noRefund struct{ f *fake }

func (s noRefund) Allow(ctx context.Context, k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	return s.f.Allow(ctx, k, l, n)
}

func (s noRefund) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	return s.f.AllowAll(ctx, at, takes)
}

// recorder is an observer that remembers.
type recorder struct {
	mu     sync.Mutex
	events []limiter.Event
}

func (o *recorder) Observe(e limiter.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// take returns the events so far as short texts, and forgets them.
func (o *recorder) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for _, e := range o.events {
		switch e.Kind {
		case limiter.EventDecision:
			out = append(out, e.Policy+" "+e.Outcome.String())
		case limiter.EventRejected:
			out = append(out, e.Policy+" rejected "+e.Reason)
		case limiter.EventDegraded:
			out = append(out, e.Policy+" degraded "+e.Mode)
		case limiter.EventError:
			out = append(out, e.Policy+" error "+e.Reason)
		case limiter.EventStoreState:
			out = append(out, e.Policy+" state "+string('0'+rune(e.State)))
		case limiter.EventPanic:
			out = append(out, e.Policy+" panic "+e.Name)
		default:
			out = append(out, "?")
		}
	}
	o.events = nil
	return out
}

// logged is a logger whose lines can be read.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// take returns what was logged so far, and forgets it.
func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.buf.String()
	l.buf.Reset()
	return s
}

// choosy decides no sliding log.
type choosy struct{ *fake }

func (c *choosy) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	for _, t := range takes {
		if t.Limit.Algorithm == limiter.SlidingLog {
			return false, errors.ErrUnsupported
		}
	}
	return c.fake.AllowAll(ctx, at, takes)
}

func contextOf(tb testing.TB) (context.Context, context.CancelFunc) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	return ctx, cancel
}

// spy tells the keys it is asked for.
type spy struct {
	*fake
	see func(limiter.Key)
}

func (s spy) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	for _, t := range takes {
		s.see(t.Key)
	}
	return s.fake.AllowAll(ctx, at, takes)
}
