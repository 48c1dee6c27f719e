package adapters_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// chains put two guards on one request to /x: one around everything, one in front of the handler.
var chains = []struct {
	name  string
	build func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler
}{
	{"std", func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/x", stdhttp.Middleware(inner)(h))
		return stdhttp.Middleware(outer)(mux)
	}},
	{"std, other middleware between", func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/x", http.TimeoutHandler(stdhttp.Middleware(inner)(h), 1<<40, ""))
		return stdhttp.Middleware(outer, stdhttp.WithMux(mux))(http.MaxBytesHandler(mux, 10))
	}},
	{"std, directly", func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/x", stdhttp.Middleware(outer)(stdhttp.Middleware(inner)(h)))
		return mux
	}},
	{"std, a mux in a mux", func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler {
		sub, mux := http.NewServeMux(), http.NewServeMux()
		sub.Handle("/x", stdhttp.Middleware(inner)(h))
		mux.Handle("/", stdhttp.Middleware(outer)(sub))
		return mux
	}},
	{"gin, engine and route", func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler {
		r := gin.New()
		r.Use(ginlimit.Middleware(outer))
		r.GET("/x", ginlimit.Middleware(inner), gin.WrapF(h))
		return r
	}},
	{"gin, group and route", func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler {
		r := gin.New()
		r.Group("/", ginlimit.Middleware(outer)).GET("/x", ginlimit.Middleware(inner), gin.WrapF(h))
		return r
	}},
	{"echo, all and route", func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler {
		e := echo.New()
		e.Use(echolimit.Middleware(outer))
		e.GET("/x", echo.WrapHandler(h), echolimit.Middleware(inner))
		return e
	}},
	{"echo, before the router and behind it", func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler {
		e := echo.New()
		e.Pre(echolimit.Middleware(outer))
		e.Use(echolimit.Middleware(inner))
		e.GET("/x", echo.WrapHandler(h))
		return e
	}},
}

func inChains(t *testing.T, f func(t *testing.T, build func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler)) {
	for _, c := range chains {
		t.Run(c.name, func(t *testing.T) { f(t, c.build) })
	}
}

func send(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// DBL: one request through two mounts of a stage counts once for each of its policies.
func TestAStageDecidesARequestOnce(t *testing.T) {
	inChains(t, func(t *testing.T, build func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler) {
		guard := spillway.Must(spillway.New(spillway.Config{Policies: perIP(limiter.PerHour(3))}))
		served := 0
		h := build(guard, guard.Stage(middleware.StageEdge), func(http.ResponseWriter, *http.Request) { served++ })
		for _, left := range []string{"2", "1", "0"} {
			w := send(h, "/x")
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, left, w.Header().Get("X-RateLimit-Remaining"))
		}
		require.Equal(t, http.StatusTooManyRequests, send(h, "/x").Code)
		require.Equal(t, 3, served)
	})
}

// A skipped request has not been decided.
func TestTheInnerMountDecidesWhatTheOuterSkips(t *testing.T) {
	guard := spillway.Must(spillway.New(spillway.Config{Policies: perIP(limiter.DenyAll)}))
	mux := http.NewServeMux()
	mux.Handle("/x", stdhttp.Middleware(guard)(http.NotFoundHandler()))
	never := stdhttp.WithSkipper(func(*http.Request) bool { return true })
	require.Equal(t, http.StatusTooManyRequests, send(stdhttp.Middleware(guard, never)(mux), "/x").Code)

	r := gin.New()
	r.Use(ginlimit.Middleware(guard, ginlimit.WithSkipper(func(*gin.Context) bool { return true })))
	r.GET("/x", ginlimit.Middleware(guard))
	require.Equal(t, http.StatusTooManyRequests, send(r, "/x").Code)

	e := echo.New()
	e.Use(echolimit.Middleware(guard, echolimit.WithSkipper(func(echo.Context) bool { return true })))
	e.GET("/x", echo.NotFoundHandler, echolimit.Middleware(guard))
	require.Equal(t, http.StatusTooManyRequests, send(e, "/x").Code)
}

// KEY-06: two stages of a guard, and two guards, decide each by itself. The fields tell of what is nearer to its end.
func TestTwoStagesAndTwoGuardsBothDecide(t *testing.T) {
	inChains(t, func(t *testing.T, build func(outer, inner *middleware.Guard, h http.HandlerFunc) http.Handler) {
		store := spillway.Must(memory.New(memory.Config{}))
		edge := spillway.Policy{Name: "edge", Key: keyfunc.IP(), Limit: limiter.PerHour(9)}
		user := spillway.Policy{Name: "user", Stage: middleware.StageIdentity, Key: keyfunc.Global(), Limit: limiter.PerHour(2)}
		both := spillway.Must(spillway.New(spillway.Config{Limiter: store, Policies: []spillway.Policy{edge, user}}))
		nothing := func(http.ResponseWriter, *http.Request) {}

		h := build(both, both.Stage(middleware.StageIdentity), nothing)
		require.Equal(t, "1", send(h, "/x").Header().Get("X-RateLimit-Remaining"))
		require.Equal(t, "0", send(h, "/x").Header().Get("X-RateLimit-Remaining"))
		w := send(h, "/x")
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Contains(t, w.Body.String(), `"user"`)

		user.Stage = ""
		one := spillway.Must(spillway.New(spillway.Config{Policies: []spillway.Policy{edge}}))
		other := spillway.Must(spillway.New(spillway.Config{Policies: []spillway.Policy{user}}))
		h = build(one, other, nothing)
		require.Equal(t, "1", send(h, "/x").Header().Get("X-RateLimit-Remaining"))
		require.Equal(t, "0", send(h, "/x").Header().Get("X-RateLimit-Remaining"))
		require.Equal(t, http.StatusTooManyRequests, send(h, "/x").Code)
	})
}

// KEY-12: one middleware on two routers is one limit, whatever the store.
func TestOneMiddlewareOnTwoRouters(t *testing.T) {
	guard := spillway.Must(spillway.New(spillway.Config{Policies: perIP(limiter.PerHour(3))}))
	limit, gins, echoes := stdhttp.Middleware(guard), ginlimit.Middleware(guard), echolimit.Middleware(guard)
	a, b := http.NewServeMux(), http.NewServeMux()
	require.Equal(t, "2", send(limit(a), "/x").Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, "1", send(limit(b), "/x").Header().Get("X-RateLimit-Remaining"))
	r, e := gin.New(), echo.New()
	r.Use(gins)
	e.Use(echoes)
	require.Equal(t, "0", send(r, "/x").Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, http.StatusTooManyRequests, send(e, "/x").Code)
}

// FW-05: every router built from one guard counts together, so one built for each request limits as well.
func TestARouterForEachRequest(t *testing.T) {
	guard := spillway.Must(spillway.New(spillway.Config{Policies: perIP(limiter.PerHour(1))}))
	each(t, func(t *testing.T, m mount) {
		routes := map[string]http.HandlerFunc{"GET /users/{id}": func(http.ResponseWriter, *http.Request) {}}
		send(m.build(&app{guard: guard, routes: routes}), "/users/1")
		require.Equal(t, http.StatusTooManyRequests, send(m.build(&app{guard: guard, routes: routes}), "/users/1").Code)
	})
}

// A request that nothing happens to reaches the handler as it came: nothing is wrapped, copied or marked.
func TestNothingIsWrappedWithoutNeed(t *testing.T) {
	guard := func() *middleware.Guard {
		return spillway.Must(spillway.New(spillway.Config{Policies: perIP(limiter.PerHour(3))}))
	}
	r, w := httptest.NewRequest(http.MethodGet, "/x", nil), httptest.NewRecorder()
	came := 0
	same := func(gotW http.ResponseWriter, gotR *http.Request) {
		if gotW == w && gotR == r {
			came++
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/x", same)
	stdhttp.Middleware(guard())(mux).ServeHTTP(w, r)
	// One guard in front of several handlers.
	r, mux = httptest.NewRequest(http.MethodGet, "/x", nil), http.NewServeMux()
	limit := stdhttp.Middleware(guard())
	mux.Handle("/x", limit(http.HandlerFunc(same)))
	mux.Handle("/y", limit(http.HandlerFunc(same)))
	mux.ServeHTTP(w, r)
	require.Equal(t, 2, came)

	engine := gin.New()
	var before gin.ResponseWriter
	engine.Use(func(c *gin.Context) { before = c.Writer })
	engine.Use(ginlimit.Middleware(guard()))
	engine.GET("/x", func(c *gin.Context) {
		require.Same(t, before, c.Writer)
		require.Same(t, r, c.Request)
		require.Empty(t, c.Keys)
	})
	engine.ServeHTTP(w, r)

	e := echo.New()
	e.Use(echolimit.Middleware(guard()))
	e.GET("/x", func(c echo.Context) error {
		require.Same(t, w, c.Response().Writer)
		require.Same(t, r, c.Request())
		return nil
	})
	e.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
}
