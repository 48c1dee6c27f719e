package documents_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// routes are those of all documents.
var routes = []string{"GET /", "GET /search", "GET /healthz", "POST /login", "POST /exports"}

// mounts put all stages of a guard in front of a handler.
var mounts = map[string]func(g *middleware.Guard, stages []string, h http.Handler) http.Handler{
	"net/http": func(g *middleware.Guard, stages []string, h http.Handler) http.Handler {
		mux := http.NewServeMux()
		for _, r := range routes {
			mux.Handle(r, h)
		}
		next := http.Handler(mux)
		for _, s := range slices.Backward(stages) {
			next = stdhttp.Middleware(g.Stage(s))(next)
		}
		return next
	},
	"gin": func(g *middleware.Guard, stages []string, h http.Handler) http.Handler {
		gin.SetMode(gin.TestMode)
		e := gin.New()
		for _, s := range stages {
			e.Use(ginlimit.Middleware(g.Stage(s)))
		}
		for _, r := range routes {
			method, path, _ := strings.Cut(r, " ")
			e.Handle(method, path, gin.WrapH(h))
		}
		return e
	},
	"echo": func(g *middleware.Guard, stages []string, h http.Handler) http.Handler {
		e := echo.New()
		for _, s := range stages {
			e.Use(echolimit.Middleware(g.Stage(s)))
		}
		for _, r := range routes {
			method, path, _ := strings.Cut(r, " ")
			e.Add(method, path, echo.WrapHandler(h))
		}
		return e
	},
}

// server is a document at work.
type server struct {
	http.Handler
	store *switchable
	mu    sync.Mutex
	seen  map[string]bool // what events said of policies since the last step
}

// switchable is a store that can be taken away.
type switchable struct {
	*memory.Limiter
	away bool
}

// AllowAll is what the guard decides by.
func (s *switchable) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if s.away {
		return false, fmt.Errorf("%w: taken away", limiter.ErrUnavailable)
	}
	return s.Limiter.AllowAll(ctx, at, takes)
}

// Allow is what it decides single takes by.
func (s *switchable) Allow(ctx context.Context, key limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	if s.away {
		return limiter.Decision{}, fmt.Errorf("%w: taken away", limiter.ErrUnavailable)
	}
	return s.Limiter.Allow(ctx, key, l, n)
}

// Observe notes who refuses, and who would have.
func (s *server) Observe(e limiter.Event) {
	what := ""
	switch {
	case e.Kind == limiter.EventRejected:
		what = e.Policy
	case e.Kind == limiter.EventDegraded:
		what = e.Policy + " (degraded)"
	case e.Kind == limiter.EventDecision && e.Outcome == limiter.OutcomeShadowBlocked:
		what = e.Policy + " (shadow)"
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[what] = true
}

// serve builds a document that has to be free of findings, with every counter in memory. work is what the handler does.
func serve(t *testing.T, name, mount string, work http.HandlerFunc) *server {
	t.Helper()
	t.Setenv("KEY_SECRET", "an-example-of-32-random-bytes-ab")
	t.Setenv("REDIS_URL", "redis://127.0.0.1:6379")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	doc, findings := config.Parse(text)
	require.Empty(t, findings)
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	s := &server{store: &switchable{Limiter: store}, seen: make(map[string]bool)}
	inMemory := func(config.Store) (limiter.Limiter, error) { return s.store, nil }
	header := func(name string) func(*keyfunc.Request) string {
		return func(r *keyfunc.Request) string { return r.Header.Get(name) }
	}
	cfg, findings := config.Build(doc, config.Deps{
		Keys: map[string]keyfunc.Func{
			"tenant": keyfunc.Tenant(header("X-Tenant")),
			"account": func(r *keyfunc.Request) (keyfunc.Key, error) {
				return r.Key("account", strings.ToLower(r.Header.Get("X-Name"))), nil
			},
		},
		Plans: map[string]func(*keyfunc.Request) string{"plan": header("X-Plan")},
		Degrade: map[string]degrade.Handler{"challenge": degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome {
			return degrade.Proceed
		})},
		Central: inMemory, Local: inMemory, Observer: s, Logger: slog.New(slog.DiscardHandler),
	})
	require.Empty(t, findings)
	guard, err := middleware.New(cfg)
	require.NoError(t, err)
	s.Handler = mounts[mount](guard, doc.Stages(), work)
	return s
}

// step is so many requests of one kind, one after another, and what becomes of the last of them; all before are served.
type step struct {
	about  string
	wait   time.Duration // before
	away   bool          // the store is
	times  int           // 0: 1
	do     string        // METHOD PATH; "GET /" if empty
	from   string        // peer; 198.51.100.7 if empty
	fields string        // "Name: value; Name: value"
	answer int           // of the service, if it is asked; 0: 200

	status int
	by     string // the policies that refuse or would, in the order of their names
}

func (s *server) ask(x step) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(x.do, " ")
	if path == "" {
		method, path = "GET", "/"
	}
	r := httptest.NewRequest(method, path, nil)
	if r.RemoteAddr = "198.51.100.7:1000"; x.from != "" {
		r.RemoteAddr = x.from + ":1000"
	}
	for f := range strings.SplitSeq(x.fields, "; ") {
		if name, value, ok := strings.Cut(f, ": "); ok {
			r.Header.Set(name, value)
		}
	}
	r.Header.Set("Answer", fmt.Sprint(max(x.answer, 200)))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// answers is a service that answers what the request asks for.
func answers(w http.ResponseWriter, r *http.Request) {
	var status int
	_, _ = fmt.Sscan(r.Header.Get("Answer"), &status)
	w.WriteHeader(status)
}

// run runs a table through a document in every framework, in the time of a bubble.
func run(t *testing.T, name string, steps []step) {
	t.Helper()
	for mount := range mounts {
		t.Run(mount, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, name, mount, answers)
				for k, x := range steps {
					time.Sleep(x.wait)
					s.store.away = x.away
					for n := range max(x.times, 1) {
						clear(s.seen)
						w := s.ask(x)
						if n < x.times-1 {
							require.Equal(t, max(x.answer, 200), w.Code, "step %d, request %d of %d: %s: %v", k, n+1, x.times, x.about, s.seen)
							continue
						}
						require.Equal(t, x.status, w.Code, "step %d: %s: %v %s", k, x.about, s.seen, w.Body)
						require.Equal(t, x.by, s.who(), "step %d: %s", k, x.about)
					}
				}
			})
		})
	}
}

func (s *server) who() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for what := range s.seen {
		all = append(all, what)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Every command in the first lines of a document is run as it stands there.
func TestCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command")
	}
	bin := t.TempDir()
	out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "spillway"), "../../cmd/spillway").CombinedOutput()
	require.NoError(t, err, "%s", out)
	documents, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.Len(t, documents, 5)
	for _, name := range documents {
		f, err := os.Open(name)
		require.NoError(t, err)
		checks := 0
		for lines := bufio.NewScanner(f); lines.Scan() && strings.HasPrefix(lines.Text(), "#"); {
			command, ok := strings.CutPrefix(lines.Text(), "#   ")
			if !ok || !strings.Contains(command, "spillway check ") {
				continue
			}
			checks++
			require.True(t, strings.HasSuffix(command, " "+name), command)
			sh := exec.Command("sh", "-c", strings.Replace(command, "spillway check ", "spillway check -strict ", 1))
			sh.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
			out, err := sh.CombinedOutput()
			require.NoError(t, err, "%s\n%s", command, out)
		}
		require.NoError(t, f.Close())
		require.Positive(t, checks, "%s does not say how it is checked", name)
	}
}
