// Package adapters_test runs one table of requests through every adapter and every way of mounting it, so that the
// adapters cannot drift: the same status, fields and body wherever the framework runs middleware at all. What a framework
// hides from its middleware stands in the table as such.
package adapters_test

import (
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter, gin.DefaultErrorWriter = io.Discard, io.Discard
	log.SetOutput(io.Discard) // panics that tests let through a server
	m.Run()
}

// app is the application behind a guard: the same in all frameworks.
type app struct {
	guard  *middleware.Guard
	routes map[string]http.HandlerFunc // by ServeMux pattern, method included; HEAD goes with GET
	skip   func(*http.Request) bool
	// before and after stand outside and inside of the guard. The frameworks' own spelling of middleware is not needed
	// for what they do here.
	before http.HandlerFunc
	values map[string]any // what a middleware before the guard has stored
	denied bool           // refusals are written by WithDenied
}

// mount is one way of putting a guard into a chain.
type mount struct {
	name  string
	build func(*app) http.Handler
	// blind404 and blind405 say that requests for which there is no route, or no method, do not come by the guard.
	blind404, blind405 bool
	// early says that the route is not known to the guard yet.
	early bool
	// no405 says that a wrong method is 404: Echo puts a route for everything into a group with middleware.
	no405 bool
}

const deniedBody = "no more\n"

var mounts = []mount{
	{name: "std/handler", build: func(a *app) http.Handler {
		mux := http.NewServeMux()
		limit := a.std()
		for pattern, h := range a.routes {
			mux.Handle(pattern, a.stdBefore(limit(h)))
		}
		return mux
	}, blind404: true, blind405: true},
	{name: "std/mux", build: func(a *app) http.Handler {
		return a.stdBefore(a.std()(a.mux()))
	}},
	{name: "std/outer", build: func(a *app) http.Handler {
		mux := a.mux()
		between := http.HandlerFunc(mux.ServeHTTP)
		return a.stdBefore(a.std(stdhttp.WithMux(mux))(between))
	}},
	{name: "std/raw", build: func(a *app) http.Handler {
		h := a.std()(a.mux())
		return a.stdBefore(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(raw{ResponseWriter: w}, r)
		}))
	}},
	{name: "std/nested", build: func(a *app) http.Handler {
		outer := http.NewServeMux()
		outer.Handle("/", a.stdBefore(a.std()(a.mux())))
		return outer
	}},
	{name: "gin/use", build: func(a *app) http.Handler {
		r := ginEngine(a)
		r.Use(a.ginBefore, a.gin())
		a.ginRoutes(r)
		return r
	}},
	{name: "gin/group", build: func(a *app) http.Handler {
		r := ginEngine(a)
		g := r.Group("/", a.ginBefore, a.gin())
		a.ginRoutes(g)
		return r
	}, blind404: true, blind405: true},
	{name: "gin/route", build: func(a *app) http.Handler {
		r := ginEngine(a)
		a.ginRoutes(r, a.ginBefore, a.gin())
		return r
	}, blind404: true, blind405: true},
	{name: "gin/noroute", build: func(a *app) http.Handler {
		r := ginEngine(a)
		r.Use(a.ginBefore, a.gin())
		r.NoRoute(func(c *gin.Context) { c.String(http.StatusNotFound, "nothing here") })
		r.NoMethod(func(c *gin.Context) { c.String(http.StatusMethodNotAllowed, "not so") })
		a.ginRoutes(r)
		return r
	}},
	{name: "gin/raw", build: func(a *app) http.Handler {
		r := ginEngine(a)
		r.Use(a.ginBefore, func(c *gin.Context) { c.Writer = ginRaw{ResponseWriter: c.Writer} }, a.gin())
		a.ginRoutes(r)
		return r
	}},
	{name: "echo/raw", build: func(a *app) http.Handler {
		e := echo.New()
		e.Use(a.echoBefore, func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				c.Response().Writer = raw{ResponseWriter: c.Response().Writer}
				return next(c)
			}
		}, a.echo())
		a.echoRoutes(e.Add)
		return e
	}},
	{name: "echo/use", build: func(a *app) http.Handler {
		e := echo.New()
		e.Use(a.echoBefore, a.echo())
		a.echoRoutes(e.Add)
		return e
	}},
	{name: "echo/notfound", build: func(a *app) http.Handler {
		e := echo.New()
		e.Use(a.echoBefore, a.echo())
		e.RouteNotFound("/*", func(c echo.Context) error { return c.String(http.StatusNotFound, "nothing here") })
		a.echoRoutes(e.Add)
		return e
	}, no405: true},
	{name: "echo/pre", build: func(a *app) http.Handler {
		e := echo.New()
		e.Pre(a.echoBefore, a.echo())
		a.echoRoutes(e.Add)
		return e
	}, early: true},
	{name: "echo/group", build: func(a *app) http.Handler {
		e := echo.New()
		g := e.Group("", a.echoBefore, a.echo())
		a.echoRoutes(g.Add)
		return e
	}, no405: true},
	{name: "echo/route", build: func(a *app) http.Handler {
		e := echo.New()
		a.echoRoutes(e.Add, a.echoBefore, a.echo())
		return e
	}, blind404: true, blind405: true},
}

// raw is a writer of a type that cannot be compared, as a middleware before the guard may put it there.
type raw struct {
	http.ResponseWriter
	_ []string
}

func (w raw) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type ginRaw struct {
	gin.ResponseWriter
	_ []string
}

func (w ginRaw) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func each(t *testing.T, f func(t *testing.T, m mount)) {
	t.Helper()
	for _, m := range mounts {
		t.Run(m.name, func(t *testing.T) { f(t, m) })
	}
}

// net/http

func (a *app) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range a.routes {
		mux.Handle(pattern, h)
	}
	return mux
}

func (a *app) std(opts ...stdhttp.Option) func(http.Handler) http.Handler {
	if a.skip != nil {
		opts = append(opts, stdhttp.WithSkipper(a.skip))
	}
	if a.denied {
		opts = append(opts, stdhttp.WithDenied(func(w http.ResponseWriter, _ *http.Request, v *middleware.Verdict) {
			w.WriteHeader(v.Status)
			_, _ = io.WriteString(w, deniedBody)
		}))
	}
	return stdhttp.Middleware(a.guard, opts...)
}

func (a *app) stdBefore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.before != nil {
			a.before(w, r)
		}
		next.ServeHTTP(w, withValues(r, a.values))
	})
}

// Gin

func ginEngine(*app) *gin.Engine {
	r := gin.New()
	r.HandleMethodNotAllowed = true // as the others do
	return r
}

func (a *app) gin() gin.HandlerFunc {
	var opts []ginlimit.Option
	if a.skip != nil {
		opts = append(opts, ginlimit.WithSkipper(func(c *gin.Context) bool { return a.skip(c.Request) }))
	}
	if a.denied {
		opts = append(opts, ginlimit.WithDenied(func(c *gin.Context, v *middleware.Verdict) {
			c.Status(v.Status)
			_, _ = c.Writer.WriteString(deniedBody)
		}))
	}
	return ginlimit.Middleware(a.guard, opts...)
}

func (a *app) ginBefore(c *gin.Context) {
	if a.before != nil {
		a.before(c.Writer, c.Request)
	}
	for name, v := range a.values {
		c.Set(name, v)
	}
}

func (a *app) ginRoutes(r gin.IRoutes, handlers ...gin.HandlerFunc) {
	for pattern, h := range a.routes {
		method, path, _ := strings.Cut(pattern, " ")
		chain := append(handlers[:len(handlers):len(handlers)], func(c *gin.Context) { h(c.Writer, c.Request) })
		r.Handle(method, spell(path, "*rest"), chain...)
		if method == http.MethodGet {
			r.Handle(http.MethodHead, spell(path, "*rest"), chain...)
		}
	}
}

// Echo

func (a *app) echo() echo.MiddlewareFunc {
	var opts []echolimit.Option
	if a.skip != nil {
		opts = append(opts, echolimit.WithSkipper(func(c echo.Context) bool { return a.skip(c.Request()) }))
	}
	if a.denied {
		opts = append(opts, echolimit.WithDenied(func(c echo.Context, v *middleware.Verdict) error {
			return c.Blob(v.Status, "text/plain", []byte(deniedBody))
		}))
	}
	return echolimit.Middleware(a.guard, opts...)
}

func (a *app) echoBefore(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if a.before != nil {
			a.before(c.Response(), c.Request())
		}
		for name, v := range a.values {
			c.Set(name, v)
		}
		return next(c)
	}
}

func (a *app) echoRoutes(
	add func(method, path string, h echo.HandlerFunc, m ...echo.MiddlewareFunc) *echo.Route, ms ...echo.MiddlewareFunc,
) {
	for pattern, h := range a.routes {
		method, path, _ := strings.Cut(pattern, " ")
		serve := func(c echo.Context) error {
			h(c.Response(), c.Request())
			return nil
		}
		add(method, spell(path, "*"), serve, ms...)
		if method == http.MethodGet {
			add(http.MethodHead, spell(path, "*"), serve, ms...)
		}
	}
}

// spell writes the path of a ServeMux pattern as Gin and Echo do.
func spell(path, rest string) string {
	path = strings.ReplaceAll(strings.ReplaceAll(path, "{$}", ""), "{rest...}", rest)
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}
