package adapters_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

const (
	// No request waits longer for a store with the time-out of 50 ms than this, on a machine that is busy with other
	// things too. A client of go-redis as it is waits 3 s and tries again.
	longestWait = 50*time.Millisecond + 2500*time.Millisecond

	tight = 40 // units a day
	share = tight / 2
)

// outages are ways in which a Redis goes away and comes back.
var outages = []struct {
	name  string
	begin func(*redistest.Server, *redistest.Proxy)
	end   func(*redistest.Server, *redistest.Proxy)
	proxy bool
}{
	{
		name:  "killed and started again",
		begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
		end:   func(s *redistest.Server, _ *redistest.Proxy) { s.Restart() },
	},
	{
		name:  "stopped and resumed",
		begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Pause() },
		end:   func(s *redistest.Server, _ *redistest.Proxy) { s.Resume() },
	},
	{
		name:  "silent",
		begin: func(_ *redistest.Server, p *redistest.Proxy) { p.Silent() },
		end:   func(_ *redistest.Server, p *redistest.Proxy) { p.Pass() },
		proxy: true,
	},
}

// Under load a Redis goes away twice and comes back twice, behind all adapters at once. Nobody waits for it, nobody is
// refused on account of it, and no limit lets more through than it promises.
func TestRedisGoesAndComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			t.Run("load", func(t *testing.T) { // whose cleanups end it all
				// What is booked outlives the process, as of a Redis that limits are trusted to.
				server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no")
				addr, proxy := server.Addr(), (*redistest.Proxy)(nil)
				if o.proxy {
					proxy = redistest.StartProxy(t, addr)
					addr = proxy.Addr()
				}
				var loads []*load
				stop := make(chan struct{})
				var running sync.WaitGroup
				defer running.Wait()
				defer close(stop)
				eachAdapter(t, func(_ *testing.T, m mount) {
					l := newLoad(t, m, addr)
					loads = append(loads, l)
					l.start(&running, stop)
				})
				all := func(f func(*load) bool) func() bool {
					return func() bool {
						for _, l := range loads {
							if !f(l) {
								return false
							}
						}
						return true
					}
				}
				rounds := func(n int64) {
					for _, l := range loads {
						l.begin()
					}
					until(t, "rounds", all(func(l *load) bool { return l.rounds() >= n }))
				}

				until(t, "the first key is spent", all(func(l *load) bool { return l.key("early").deniedByStore }))
				rounds(2) // until those before it are counted too
				early := make([]int, len(loads))
				for k, l := range loads {
					early[k] = l.key("early").ok
				}
				for cycle := range 2 {
					o.begin(server, proxy)
					for _, l := range loads {
						l.add(fmt.Sprintf("outage %d", cycle))
					}
					rounds(10)
					until(t, "the breaker is open", all((*load).open))
					o.end(server, proxy)
					for _, l := range loads {
						l.begin()
					}
					until(t, "all are decided by the store", all((*load).recovered))
					rounds(6)
					until(t, "the breaker is closed", all(func(l *load) bool { return !l.open() }))
				}
				for k, l := range loads {
					l.check(t, early[k])
				}
			})
		})
	}
}

// load is clients of one site, each of which asks again and again.
type load struct {
	name    string
	handler http.Handler
	breaker *witness
	guard   *witness
	clients []*client

	mu      sync.Mutex
	keys    []string // of the tight limit
	tallies map[string]*tally
	longest time.Duration
}

type client struct {
	path, key string
	done      atomic.Int64 // rounds since begin
	stored    atomic.Bool  // was decided by the store since
}

// tally is what became of the requests of one key.
type tally struct {
	ok, limited, other int
	via                [5]int // of those that passed
	deniedByStore      bool
}

func newLoad(t *testing.T, m mount, addr string) *load {
	t.Helper()
	l := &load{name: m.name, breaker: new(witness), guard: new(witness), keys: []string{"early"}, tallies: map[string]*tally{}}
	safe, err := fallback.New(fallback.Config{
		Primary:  onRedis(t, addr, redislimit.Config{Prefix: strings.ReplaceAll(m.name, "/", "-")}),
		Replicas: 2, Cooldown: 100 * time.Millisecond, Observer: l.breaker,
	})
	require.NoError(t, err)
	t.Cleanup(safe.Close)
	client := keyfunc.Header("X-Client")
	guard, err := spillway.New(spillway.Config{
		Limiter: safe, Logger: slog.New(slog.DiscardHandler), Observer: l,
		Policies: []spillway.Policy{
			{Name: "wide", Match: spillway.Match{Routes: []string{"GET /items/{id}"}}, Key: client, Limit: limiter.PerMinute(100_000)},
			{Name: "burst", Match: spillway.Match{Routes: []string{"GET /items/both"}}, Key: client, Limit: limiter.PerSecond(10_000).With(limiter.SlidingWindow)},
			{Name: "tight", Match: spillway.Match{Routes: []string{"GET /users/{id}"}}, Key: client, Limit: limiter.PerDay(tight)},
		},
	})
	require.NoError(t, err)
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }
	l.handler = m.build(&app{guard: guard, routes: map[string]http.HandlerFunc{
		"GET /items/{id}": answer, "GET /items/both": answer, "GET /users/{id}": answer,
	}})
	return l
}

// start lets 32 clients ask: 20 with one policy, 6 with two, and 6 for each key of the tight one.
func (l *load) start(running *sync.WaitGroup, stop <-chan struct{}) {
	for k := range 32 {
		c := &client{path: "/items/1", key: fmt.Sprintf("client %d", k)}
		switch {
		case k >= 26:
			c.path, c.key = "/users/1", ""
		case k >= 20:
			c.path = "/items/both"
		}
		l.clients = append(l.clients, c)
		running.Go(func() {
			tick := time.NewTicker(60 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				for _, key := range l.keysOf(c) {
					l.ask(c, key)
				}
				c.done.Add(1)
			}
		})
	}
}

func (l *load) keysOf(c *client) []string {
	if c.key != "" {
		return []string{c.key}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[:len(l.keys):len(l.keys)]
}

// decided is what the observer saw of one request.
type decided struct{ vias []limiter.Via }

type decidedKey struct{}

// Observe notes with the request where it was decided.
func (l *load) Observe(e limiter.Event) {
	if e.Kind != limiter.EventDecision {
		l.guard.Observe(e)
		return
	}
	d := e.Context.Value(decidedKey{}).(*decided)
	d.vias = append(d.vias, e.Decision.Via)
}

func (l *load) ask(c *client, key string) {
	var d decided
	r := httptest.NewRequest(http.MethodGet, c.path, nil)
	r = r.WithContext(context.WithValue(r.Context(), decidedKey{}, &d))
	r.Header.Set("X-Client", key)
	w := httptest.NewRecorder()
	began := time.Now()
	l.handler.ServeHTTP(w, r)
	took := time.Since(began)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, took)
	t := l.tallies[key]
	if t == nil {
		t = new(tally)
		l.tallies[key] = t
	}
	if len(d.vias) == 0 {
		t.other++
		return
	}
	via := d.vias[0]
	for _, v := range d.vias { // one decision
		if v != via {
			t.other++
		}
	}
	if via == limiter.ViaStore {
		c.stored.Store(true)
	}
	switch w.Code {
	case http.StatusOK:
		t.ok++
		t.via[via]++
	case http.StatusTooManyRequests:
		t.limited++
		t.deniedByStore = t.deniedByStore || via == limiter.ViaStore
	default:
		t.other++
	}
}

func (l *load) key(key string) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tallies[key]; t != nil {
		return *t
	}
	return tally{}
}

func (l *load) add(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = append(l.keys, key)
}

// begin begins to count rounds.
func (l *load) begin() {
	for _, c := range l.clients {
		c.done.Store(0)
		c.stored.Store(false)
	}
}

// rounds are those that every client has made.
func (l *load) rounds() int64 {
	least := l.clients[0].done.Load()
	for _, c := range l.clients {
		least = min(least, c.done.Load())
	}
	return least
}

// recovered reports whether the store has decided for every client; one with spent keys alone is answered from memory.
func (l *load) recovered() bool {
	for _, c := range l.clients {
		if c.key != "" && !c.stored.Load() {
			return false
		}
	}
	return true
}

// open reports whether the breaker is not closed.
func (l *load) open() bool {
	changes := l.breaker.of(limiter.EventBreaker)
	return len(changes) > 0 && changes[len(changes)-1].State != 0
}

// check compares what happened with what is promised. Of the first key early units had passed before the first outage.
func (l *load) check(t *testing.T, early int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Less(t, l.longest, longestWait, l.name)
	passed := 0
	for key, tally := range l.tallies {
		require.Zero(t, tally.other, "%s, %s: neither passed nor limited", l.name, key)
		if strings.HasPrefix(key, "client") {
			require.Zero(t, tally.limited, "%s, %s: refused within its limit", l.name, key)
			passed += tally.ok
		}
	}
	for _, key := range l.keys {
		got := l.tallies[key]
		t.Logf("%s: %q: %d passed: %d of %d by the store, %d of %d by the share; %d refused", l.name, key, got.ok,
			got.via[limiter.ViaStore], tight, got.via[limiter.ViaFallback], share, got.limited)
		require.LessOrEqual(t, got.via[limiter.ViaStore], tight, l.name)
		require.LessOrEqual(t, got.via[limiter.ViaFallback], share, l.name)
		require.Equal(t, got.ok, got.via[limiter.ViaStore]+got.via[limiter.ViaFallback], l.name)
	}
	require.Equal(t, early, l.tallies["early"].ok, "%s: what was spent before the outages is spent in them and after them", l.name)
	require.Empty(t, l.guard.errors(), "%s: the guard knows of no outage", l.name)
	require.Empty(t, l.guard.states(), l.name)

	// closed → open → half open → open or closed: each change once.
	var before uint8
	opened, told := 0, []uint8{}
	next := map[uint8][]uint8{0: {2}, 2: {1}, 1: {0, 2}}
	for _, e := range l.breaker.of(limiter.EventBreaker) {
		require.Contains(t, next[before], e.State, "%s: after %v", l.name, told)
		if before == 0 {
			opened++
		}
		before = e.State
		told = append(told, e.State)
	}
	require.GreaterOrEqual(t, opened, 2, l.name)
	t.Logf("%s: longest wait %v of %v; %d passed the wide limits; breaker opened %d times: %v", l.name,
		l.longest.Round(time.Millisecond), longestWait, passed, opened, told)
}
