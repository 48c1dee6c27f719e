package prove_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/middleware"
)

// What limits are kept by.
const (
	central    = "central"
	leases     = "leased"
	byFallback = "fallback"

	alone = "memory" // by each guard alone: what no fleet should do
)

var modes = []string{central, leases, byFallback}

// setup is what a guard process is told.
type setup struct {
	Mode, Adapter string
	Kind          string // of store: single, sentinel, cluster
	Addrs         []string
	Master        string
	Guards        int // that share the limits
	Meter         string
}

func (s setup) client() redis.UniversalClient {
	switch s.Kind {
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Master, SentinelAddrs: s.Addrs})
	case "cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs})
	}
	return redis.NewClient(&redis.Options{Addr: s.Addrs[0]})
}

const prefix = "prove"

// limiter makes the limiter of a mode, as a user would, and what ends it.
func (s setup) limiter(mode string, client redis.UniversalClient, o limiter.Observer) (l limiter.Limiter, end func(), err error) {
	quiet := slog.New(slog.DiscardHandler)
	switch mode {
	case alone:
		l := shares()
		return l, l.Close, nil
	case leases:
		l, err := leased.New(leased.Config{Client: client, Prefix: prefix, Observer: o, Logger: quiet, MaxKeys: maxKeys})
		return l, func() { _ = l.Close() }, err
	}
	shared, err := redislimit.New(redislimit.Config{Client: client, Prefix: prefix, Observer: o})
	if err != nil || mode == central {
		return shared, func() { _ = shared.Close() }, err
	}
	secondary := shares()
	safe, err := fallback.New(fallback.Config{Primary: shared, Secondary: secondary, Replicas: s.Guards, Observer: o, Logger: quiet})
	return safe, func() {
		safe.Close() // leaves alone what it was given
		_ = shared.Close()
		secondary.Close()
	}, err
}

// The counts. Each is a route of that name, and a policy; both is under two policies at once, of different identities.
const (
	busy   = "busy"   // twice as much is asked for as there is, by each of eight clients
	calm   = "calm"   // so little that every share has room for it
	open   = "open"   // the same, of a policy that fails open
	early  = "early"  // no refill to speak of: what is spent before the fault stays spent
	late   = "late"   // the same, first asked for just before the fault: spent in part, and leased in part
	both   = "both"   // several slots in a call
	all    = "all"    // the second policy of both
	refund = "refund" // every request is given back, but for those that drain it at the end
	drain  = "drain"  // what passes of refund and is not given back

	unbooked = "unbooked" // refunds that failed
	giveBack = "back"     // asks a soak for an answer whose units are given back
)

var limits = map[string]limiter.Limit{
	busy: limiter.PerSecond(200).WithBurst(100), calm: limiter.PerSecond(400).WithBurst(200), open: limiter.PerSecond(400).WithBurst(200),
	early: limiter.PerDay(40), late: limiter.PerDay(40),
	both: limiter.PerSecond(60).WithBurst(30), all: limiter.PerSecond(50).WithBurst(30),
	refund: limiter.PerDay(30),
}

func policies() (out []spillway.Policy) {
	client := keyfunc.Header("X-Client")
	for _, name := range []string{busy, calm, open, early, late, both, all, refund} {
		p := spillway.Policy{Name: name, Key: client, Limit: limits[name], OnStoreError: middleware.FailClosed}
		route := name
		switch name {
		case open:
			p.OnStoreError = middleware.FailOpen
		case all:
			p.Key, route = keyfunc.Global(), both
		case refund:
			p.Refund = func(status int) bool { return status == http.StatusTeapot }
		}
		p.Match.Routes = []string{"GET /" + route}
		out = append(out, p)
	}
	return out
}

// guard is one guard process.
type guard struct {
	passed   *stamps
	failures atomic.Int64 // calls to the store without an answer
	slowest  atomic.Int64 // of those with one, in nanoseconds
	starved  atomic.Int64 // the longest that nothing of this process ran, in nanoseconds
}

// watch notes how late a goroutine is that wants to run every few milliseconds: what a busy machine, and no limiter, costs.
func (g *guard) watch(ctx context.Context) {
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		g.starved.Store(max(g.starved.Load(), int64(now.Sub(last)-every)))
		last = now
	}
}

// visit is one request on its way through the guard.
type visit struct {
	began time.Time
	via   string
}

type visitKey struct{}

// Observe notes with each request what decided it.
func (g *guard) Observe(e limiter.Event) {
	switch {
	case e.Kind == limiter.EventDecision && e.Context != nil:
		if v, ok := e.Context.Value(visitKey{}).(*visit); ok {
			v.via = e.Decision.Via.String()
		}
	case e.Kind == limiter.EventError && e.Reason == limiter.ReasonRefund:
		g.passed.note(unbooked, time.Now(), time.Now(), "none")
	case e.Kind == limiter.EventStore && e.Err != nil:
		g.failures.Add(1)
	case e.Kind == limiter.EventStore:
		for d := int64(e.Duration); ; {
			if old := g.slowest.Load(); d <= old || g.slowest.CompareAndSwap(old, d) {
				return
			}
		}
	}
}

// arrive stands outside of everything: its instant is when the request came, and its answer says what decided.
func arrive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{began: time.Now(), via: "none"}
		next.ServeHTTP(&viaWriter{ResponseWriter: w, visit: v}, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
	})
}

type viaWriter struct {
	http.ResponseWriter
	visit *visit
	told  bool
}

const viaField = "X-Via"

func (w *viaWriter) WriteHeader(status int) {
	if !w.told {
		w.told = true
		w.Header().Set(viaField, w.visit.via)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *viaWriter) Write(b []byte) (int, error) {
	if !w.told {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// serve is the handler of a count. It is the only one who tells the meter.
func (g *guard) serve(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		at, counted, status := time.Now(), name, http.StatusOK
		switch {
		case name == refund && r.URL.RawQuery == drain:
			counted = drain
		case name == refund, r.URL.RawQuery == giveBack:
			status = http.StatusTeapot
		}
		v := r.Context().Value(visitKey{}).(*visit)
		g.passed.note(counted, v.began, at, v.via)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "x")
	}
}

// mount puts the guard and its handlers into a framework.
func (g *guard) mount(adapter string, s *spillway.Guard, names ...string) http.Handler {
	switch adapter {
	case "gin":
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.Use(ginlimit.Middleware(s))
		for _, name := range names {
			router.GET("/"+name, gin.WrapF(g.serve(name)))
		}
		return router
	case "echo":
		e := echo.New()
		e.Use(echolimit.Middleware(s))
		for _, name := range names {
			e.GET("/"+name, echo.WrapHandler(g.serve(name)))
		}
		return e
	}
	mux := http.NewServeMux()
	for _, name := range names {
		mux.HandleFunc("GET /"+name, g.serve(name))
	}
	return stdhttp.Middleware(s)(mux)
}

var adapters = []string{"net/http", "gin", "echo"}

// state is what a guard process tells of itself.
type state struct {
	Goroutines, Files int
	Heap              uint64 // bytes that are reachable
	Failures          int64
	Slowest, Starved  time.Duration
}

func (g *guard) state() state {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return state{
		Goroutines: runtime.NumGoroutine(), Files: files(), Heap: m.HeapAlloc,
		Failures: g.failures.Load(), Slowest: time.Duration(g.slowest.Load()), Starved: time.Duration(g.starved.Load()),
	}
}

// files is how many files and sockets are open; 0 where the system does not tell.
func files() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// playGuard is the life of a guard process: it ends when its standard input does, and says what it has left behind.
func playGuard(s setup) error {
	logging.Disable()
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close() // what the runtime keeps open for sockets is open from now on
	}
	before := files()
	if err := s.live(); err != nil {
		return err
	}
	left := goleak.Find()
	for n := 0; left != nil && n < 10; n++ { // each takes half a second; go-redis looks once a second whether a pool is closed
		left = goleak.Find()
	}
	if now := files(); now > before {
		left = errors.Join(left, fmt.Errorf("%d files or sockets are open, %d were", now, before))
	}
	return left
}

func (s setup) live() (err error) {
	g := new(guard)
	if s.Meter != "" {
		if g.passed, err = newStamps(s.Meter); err != nil {
			return err
		}
		defer g.passed.close()
	}
	watching, rest := context.WithCancel(context.Background())
	defer rest()
	go g.watch(watching)
	client := s.client()
	defer func() { err = errors.Join(err, client.Close()) }()
	var handler http.Handler
	if s.Mode == soaking {
		h, end, err := g.soak(s, client)
		if err != nil {
			return err
		}
		defer end()
		handler = h
	} else {
		l, end, err := s.limiter(s.Mode, client, g)
		if err != nil {
			return err
		}
		defer end()
		sg, err := spillway.New(spillway.Config{Limiter: l, Observer: g, Logger: slog.New(slog.DiscardHandler), Policies: policies()})
		if err != nil {
			return err
		}
		handler = g.mount(s.Adapter, sg, busy, calm, open, early, late, both, refund)
	}
	mux := http.NewServeMux()
	mux.Handle("/", arrive(handler))
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(g.state()) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	_, _ = fmt.Fprintln(os.Stdout, "http://"+l.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	err = server.Shutdown(context.Background())
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}
