// Package ginlimit puts a guard into Gin.
//
//	router.Use(ginlimit.Middleware(guard))
//
// Import it under its own name, ginlimit. It serves as global, group or route middleware. Global middleware sees requests
// that match no route as well; Gin answers its trailing-slash and fixed-path redirects without running any middleware,
// so no guard sees those. The client address comes from the guard's own configuration, never from
// [gin.Context.ClientIP], which by default trusts every proxy.
package ginlimit

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/spillway-go/spillway/middleware"
)

// Option changes a [Middleware].
type Option func(*options)

type options struct {
	skip   func(*gin.Context) bool
	denied func(*gin.Context, *middleware.Verdict)
}

// WithDenied lets write answer refused requests in an envelope of its own. The header fields of the refusal are set; the
// status to write is v.Status. The chain is aborted already. It is not called where a degrade handler has answered.
func WithDenied(write func(c *gin.Context, v *middleware.Verdict)) Option {
	return func(o *options) { o.denied = write }
}

// WithSkipper hands requests for which skip is true on without asking the guard.
func WithSkipper(skip func(*gin.Context) bool) Option {
	return func(o *options) { o.skip = skip }
}

// Middleware returns the guard as Gin middleware. Refused requests abort the chain.
//
// A request is settled by the status in c.Writer. Where a handler only adds to c.Errors and an outer middleware answers
// later, the status is unknown, and the request stays charged.
func Middleware(guard *middleware.Guard, opts ...Option) gin.HandlerFunc {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return func(c *gin.Context) {
		if o.skip != nil && o.skip(c) {
			return
		}
		pass := guard.Enter(c.Writer, c.Request, middleware.Entry{Framework: routed{c}, Defer: o.denied != nil})
		if !pass.Proceed() {
			c.Abort()
			if v := pass.Denied(); v != nil {
				o.denied(c, v)
			}
			c.Writer.WriteHeaderNow()
			return
		}
		c.Request = pass.Request()
		if pass.Settles() {
			serve(c, &pass)
		}
	}
}

// serve runs the rest of the chain and settles.
func serve(c *gin.Context, pass *middleware.Pass) {
	w := &writer{ResponseWriter: c.Writer, out: pass.Writer()}
	if pass.NeedsStatus() || w.out != http.ResponseWriter(c.Writer) {
		before := c.Writer
		c.Writer = w
		defer func() { c.Writer = before }()
	}
	status := http.StatusInternalServerError // unless the chain returns
	defer func() { pass.Leave(status) }()
	c.Next()
	switch {
	case w.hijacked, len(c.Errors) > 0 && !c.Writer.Written(), c.Writer.Status() == http.StatusSwitchingProtocols:
		status = 0
	default:
		status = c.Writer.Status()
	}
}

// writer is Gin's writer with the body going through out, and remembers a hijacked connection.
type writer struct {
	gin.ResponseWriter
	out      http.ResponseWriter
	hijacked bool
}

func (w *writer) Write(b []byte) (int, error)       { return w.out.Write(b) }
func (w *writer) WriteString(s string) (int, error) { return w.out.Write([]byte(s)) }

// WriteHeader lets a recorder see the status as well.
func (w *writer) WriteHeader(code int) { w.out.WriteHeader(code) }

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// Flush goes through out: a recorder has to know that the response is streamed.
func (w *writer) Flush() {
	if w.out == http.ResponseWriter(w.ResponseWriter) {
		w.ResponseWriter.Flush()
		return
	}
	_ = http.NewResponseController(w.out).Flush()
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// routed is what Gin knows of a request.
type routed struct{ c *gin.Context }

func (x routed) Route() string                 { return x.c.FullPath() }
func (x routed) Param(name string) string      { return x.c.Param(name) }
func (x routed) Value(name string) (any, bool) { return x.c.Get(name) }
