package adapters_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/middleware"
)

// What tests of guards on a real Redis share.

// The client of Redis would log every dial that an outage refuses.
func init() { logging.Disable() }

// eachAdapter runs f through one mount of each adapter.
func eachAdapter(t *testing.T, f func(t *testing.T, m mount)) {
	t.Helper()
	for _, m := range mounts {
		if slices.Contains([]string{"std/mux", "gin/use", "echo/use"}, m.name) {
			t.Run(m.name, func(t *testing.T) { f(t, m) })
		}
	}
}

// patient is a time-out that no machine is too busy for: of stores that are there.
const patient = 20 * time.Second

// onRedis is a limiter on the Redis at addr. Its client is as go-redis makes it.
func onRedis(t *testing.T, addr string, c redislimit.Config) *redislimit.Limiter {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return onClient(t, rdb, c)
}

// onQuick is a limiter with a time-out that nothing reaches. A connection that is refused is refused at once, and the next
// request tries again: by default the client would dial five times, and not at all for a second after some failures.
func onQuick(t *testing.T, addr string) *redislimit.Limiter {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1, MaxRetries: -1, PoolSize: 1000})
	t.Cleanup(func() { _ = rdb.Close() })
	return onClient(t, rdb, redislimit.Config{Timeout: patient})
}

func onClient(t *testing.T, rdb redis.UniversalClient, c redislimit.Config) *redislimit.Limiter {
	t.Helper()
	c.Client = rdb
	l, err := redislimit.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// site is an application with a guard, behind one mount.
type site struct {
	*witness
	http.Handler
	guard *spillway.Guard
	log   *lines

	mu        sync.Mutex
	served    int
	undecided []string // what the last handler was told of
}

// newSite answers GET /users/{id} with 200 and the id, if the guard lets it.
func newSite(t *testing.T, m mount, c spillway.Config) *site {
	t.Helper()
	s := &site{witness: new(witness), log: new(lines)}
	c.Observer, c.Logger = s.witness, slog.New(slog.NewTextHandler(s.log, nil))
	guard, err := spillway.New(c)
	require.NoError(t, err)
	s.guard = guard
	s.Handler = m.build(&app{guard: guard, routes: map[string]http.HandlerFunc{
		"GET /users/{id}": func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.served++
			s.undecided = middleware.Undecided(r.Context())
			s.mu.Unlock()
			_, _ = io.WriteString(w, r.URL.Path)
		},
	}})
	return s
}

func (s *site) get(ctx context.Context) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/users/1", nil).WithContext(ctx))
	return w
}

// status is that of one request more.
func (s *site) status(t *testing.T) int { return s.get(t.Context()).Code }

// lines is a log that can be read.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// witness remembers events.
type witness struct {
	mu     sync.Mutex
	events []limiter.Event
}

func (w *witness) Observe(e limiter.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// of returns the events of a kind so far.
func (w *witness) of(kind limiter.EventKind) (out []limiter.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Kind == kind && (kind != limiter.EventBreaker || e.Reason == "") { // a breaker that is new has not changed
			out = append(out, e)
		}
	}
	return out
}

func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil
}

// errors are the policies that could not decide, with the cause.
func (w *witness) errors() (out []string) {
	for _, e := range w.of(limiter.EventError) {
		out = append(out, e.Policy+" "+e.Reason)
	}
	return out
}

// states are the changes of policies that begin or end to fail.
func (w *witness) states() (out []string) {
	for _, e := range w.of(limiter.EventStoreState) {
		out = append(out, e.Policy+" "+strconv.Itoa(int(e.State)))
	}
	return out
}

// vias says where each policy was decided, by its last decision.
func (w *witness) vias() map[string]limiter.Via {
	out := map[string]limiter.Via{}
	for _, e := range w.of(limiter.EventDecision) {
		out[e.Policy] = e.Decision.Via
	}
	return out
}

// until waits for what only the wall clock brings.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline, tick := time.NewTimer(time.Minute), time.NewTicker(time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.Fail(t, "waited in vain", what)
		}
	}
}

var callsOf = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// commands counts what f makes a server do.
func commands(t *testing.T, admin *redis.Client, f func()) map[string]int {
	t.Helper()
	require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
	f()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	out := map[string]int{}
	for _, m := range callsOf.FindAllStringSubmatch(info, -1) {
		out[m[1]], _ = strconv.Atoi(m[2])
	}
	return out
}

// trips are the calls of scripts among commands.
func trips(t *testing.T, s *redistest.Server, f func()) int {
	t.Helper()
	got := commands(t, s.Client(), f)
	require.Zero(t, got["eval"]+got["script|load"], "the script is there already")
	return got["evalsha"]
}
