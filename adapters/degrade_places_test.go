package adapters_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/middleware"
)

// native is one handler in the words of each framework.
type native struct {
	std  http.HandlerFunc
	gin  gin.HandlerFunc
	echo echo.HandlerFunc
}

// alike is a handler of net/http in all three.
func alike(h http.HandlerFunc) native {
	return native{h, func(c *gin.Context) { h(c.Writer, c.Request) }, func(c echo.Context) error {
		h(c.Response(), c.Request())
		return nil
	}}
}

// around is a middleware in the words of each framework; nil: none.
type around struct {
	std  func(http.Handler) http.Handler
	gin  gin.HandlerFunc
	echo echo.MiddlewareFunc
}

// service is an application with guards, the outermost stage first.
type service struct {
	guards          []*middleware.Guard
	routes          map[string]native // by ServeMux pattern without wildcards, method included
	outside, inside []around          // of the guards
	denied          bool              // refusals are written by WithDenied
	gin             func(*gin.Engine)
	echo            func(*echo.Echo)
}

// envelope is what WithDenied writes.
func envelope(v *middleware.Verdict) string { return fmt.Sprintf("%d %v", v.Status, v.Refusal.Kind) }

// place is one way of putting a service together.
type place struct {
	name  string
	build func(*service) http.Handler
	blind bool // a request without a route does not come by the guards
}

var places = []place{
	{name: "std/handler", build: func(s *service) http.Handler {
		mux := http.NewServeMux()
		for pattern, h := range s.routes {
			mux.Handle(pattern, s.stdChain(s.stdInside(h.std)))
		}
		return mux
	}, blind: true},
	{name: "std/mux", build: func(s *service) http.Handler { return s.stdChain(s.stdMux()) }},
	{name: "std/outer", build: func(s *service) http.Handler {
		mux := s.stdMux()
		return s.stdChain(http.HandlerFunc(mux.ServeHTTP), stdhttp.WithMux(mux))
	}},
	{name: "std/nested", build: func(s *service) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", s.stdChain(s.stdMux()))
		return mux
	}},
	{name: "std/raw", build: func(s *service) http.Handler {
		h := s.stdGuards(s.stdMux())
		return s.stdOutside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(raw{ResponseWriter: w}, r) }))
	}},
	{name: "gin/use", build: func(s *service) http.Handler {
		r := s.engine()
		r.Use(s.ginChain()...)
		s.ginRoutes(r)
		return r
	}},
	{name: "gin/group", build: func(s *service) http.Handler {
		r := s.engine()
		s.ginRoutes(r.Group("/", s.ginChain()...))
		return r
	}, blind: true},
	{name: "gin/route", build: func(s *service) http.Handler {
		r := s.engine()
		s.ginRoutes(r, s.ginChain()...)
		return r
	}, blind: true},
	{name: "gin/noroute", build: func(s *service) http.Handler {
		r := s.engine()
		r.Use(s.ginChain()...)
		r.NoRoute(func(c *gin.Context) { c.String(http.StatusNotFound, "nothing here") })
		s.ginRoutes(r)
		return r
	}},
	{name: "gin/raw", build: func(s *service) http.Handler {
		r := s.engine()
		r.Use(func(c *gin.Context) { c.Writer = ginRaw{ResponseWriter: c.Writer} })
		r.Use(s.ginChain()...)
		s.ginRoutes(r)
		return r
	}},
	{name: "echo/use", build: func(s *service) http.Handler {
		e := s.router()
		e.Use(s.echoChain()...)
		s.echoRoutes(e.Add)
		return e
	}},
	{name: "echo/notfound", build: func(s *service) http.Handler {
		e := s.router()
		e.Use(s.echoChain()...)
		e.RouteNotFound("/*", func(c echo.Context) error { return c.String(http.StatusNotFound, "nothing here") })
		s.echoRoutes(e.Add)
		return e
	}},
	{name: "echo/pre", build: func(s *service) http.Handler {
		e := s.router()
		e.Pre(s.echoChain()...)
		s.echoRoutes(e.Add)
		return e
	}},
	{name: "echo/group", build: func(s *service) http.Handler {
		e := s.router()
		s.echoRoutes(e.Group("", s.echoChain()...).Add)
		return e
	}},
	{name: "echo/route", build: func(s *service) http.Handler {
		e := s.router()
		s.echoRoutes(e.Add, s.echoChain()...)
		return e
	}, blind: true},
	{name: "echo/raw", build: func(s *service) http.Handler {
		e := s.router()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				c.Response().Writer = raw{ResponseWriter: c.Response().Writer}
				return next(c)
			}
		})
		e.Use(s.echoChain()...)
		s.echoRoutes(e.Add)
		return e
	}},
}

// net/http

func (s *service) stdMux() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range s.routes {
		mux.Handle(pattern, s.stdInside(h.std))
	}
	return mux
}

func (s *service) stdChain(h http.Handler, opts ...stdhttp.Option) http.Handler {
	return s.stdOutside(s.stdGuards(h, opts...))
}

func (s *service) stdGuards(h http.Handler, opts ...stdhttp.Option) http.Handler {
	if s.denied {
		opts = append(opts, stdhttp.WithDenied(func(w http.ResponseWriter, _ *http.Request, v *middleware.Verdict) {
			w.WriteHeader(v.Status)
			_, _ = io.WriteString(w, envelope(v))
		}))
	}
	for _, g := range slices.Backward(s.guards) {
		h = stdhttp.Middleware(g, opts...)(h)
	}
	return h
}

func (s *service) stdOutside(h http.Handler) http.Handler { return stdAround(h, s.outside) }

func (s *service) stdInside(h http.HandlerFunc) http.Handler { return stdAround(h, s.inside) }

func stdAround(h http.Handler, arounds []around) http.Handler {
	for _, a := range slices.Backward(arounds) {
		if a.std != nil {
			h = a.std(h)
		}
	}
	return h
}

// Gin

func (s *service) engine() *gin.Engine {
	r := gin.New()
	if s.gin != nil {
		s.gin(r)
	}
	return r
}

func (s *service) ginChain() (chain []gin.HandlerFunc) {
	add := func(arounds []around) {
		for _, a := range arounds {
			if a.gin != nil {
				chain = append(chain, a.gin)
			}
		}
	}
	var opts []ginlimit.Option
	if s.denied {
		opts = append(opts, ginlimit.WithDenied(func(c *gin.Context, v *middleware.Verdict) {
			c.Status(v.Status)
			_, _ = c.Writer.WriteString(envelope(v))
		}))
	}
	add(s.outside)
	for _, g := range s.guards {
		chain = append(chain, ginlimit.Middleware(g, opts...))
	}
	add(s.inside)
	return chain
}

func (s *service) ginRoutes(r gin.IRoutes, chain ...gin.HandlerFunc) {
	for pattern, h := range s.routes {
		method, path, _ := strings.Cut(pattern, " ")
		handlers := append(chain[:len(chain):len(chain)], h.gin)
		r.Handle(method, path, handlers...)
		if method == http.MethodGet {
			r.Handle(http.MethodHead, path, handlers...)
		}
	}
}

// Echo

func (s *service) router() *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	if s.echo != nil {
		s.echo(e)
	}
	return e
}

func (s *service) echoChain() (chain []echo.MiddlewareFunc) {
	add := func(arounds []around) {
		for _, a := range arounds {
			if a.echo != nil {
				chain = append(chain, a.echo)
			}
		}
	}
	var opts []echolimit.Option
	if s.denied {
		opts = append(opts, echolimit.WithDenied(func(c echo.Context, v *middleware.Verdict) error {
			return c.Blob(v.Status, "text/plain", []byte(envelope(v)))
		}))
	}
	add(s.outside)
	for _, g := range s.guards {
		chain = append(chain, echolimit.Middleware(g, opts...))
	}
	add(s.inside)
	return chain
}

func (s *service) echoRoutes(
	add func(method, path string, h echo.HandlerFunc, m ...echo.MiddlewareFunc) *echo.Route, ms ...echo.MiddlewareFunc,
) {
	for pattern, h := range s.routes {
		method, path, _ := strings.Cut(pattern, " ")
		add(method, path, h.echo, ms...)
		if method == http.MethodGet {
			add(http.MethodHead, path, h.echo, ms...)
		}
	}
}
