package ginlimit

import (
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

// WithDenied lets write answer refused requests in an envelope of its own. The header fields of the refusal are set, and
// so is the status, v.Status, unless write sets another. The chain is aborted already. It is not called where a degrade
// handler has answered.
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
// later, the status is unknown, and the request stays charged; a recorded copy of the page stays too, for as long as it may.
func Middleware(guard *middleware.Guard, opts ...Option) gin.HandlerFunc {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	mount := guard.Mount()
	return func(c *gin.Context) {
		if o.skip != nil && o.skip(c) {
			return
		}
		if mount.Several() {
			if _, decided := c.Get(mount); decided {
				return
			}
			c.Set(mount, true)
		}
		pass := guard.Enter(c.Writer, c.Request, middleware.Entry{Framework: routed{c}, Defer: o.denied != nil})
		if !pass.Proceed() {
			c.Abort()
			if v := pass.Denied(); v != nil {
				c.Status(v.Status)
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

// Entry is what Gin knows of a request, for [middleware.Guard.Peek] and [middleware.Guard.Check] inside handlers:
//
//	verdict, err := guard.Peek(c.Request, ginlimit.Entry(c))
func Entry(c *gin.Context) middleware.Entry { return middleware.Entry{Framework: routed{c}} }

// serve runs the rest of the chain and settles.
func serve(c *gin.Context, pass *middleware.Pass) {
	w := &writer{ResponseWriter: c.Writer, out: pass.Writer()}
	w.records = !same(w.out, c.Writer)
	if pass.NeedsStatus() || w.records {
		before := c.Writer
		c.Writer = w
		defer func() { c.Writer = before }()
	}
	status, returned, whole := 0, false, false
	defer func() {
		switch {
		case returned && (whole || status == 0):
			pass.Leave(status)
		case returned:
			pass.Broke(status)
		case c.Writer.Written() && !w.hijacked:
			pass.Broke(c.Writer.Status())
		default:
			pass.Broke(0)
		}
	}()
	c.Next()
	returned = true
	// What has failed may have stopped anywhere. The body of a bare status may be written further out, by Gin itself where
	// there is no route.
	whole = c.Writer.Written() && len(c.Errors) == 0
	switch {
	case w.hijacked, len(c.Errors) > 0 && !c.Writer.Written(), c.Writer.Status() == http.StatusSwitchingProtocols:
		status = 0
	default:
		status = c.Writer.Status()
		w.announce()
	}
}

// same compares writers. Those of a type that cannot be compared are never a recorder's, which is another type.
func same(a, b http.ResponseWriter) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = true
		}
	}()
	return a == b
}

// routed is what Gin knows of a request.
type routed struct{ c *gin.Context }

func (x routed) Route() string                 { return x.c.FullPath() }
func (x routed) Param(name string) string      { return x.c.Param(name) }
func (x routed) Value(name string) (any, bool) { return x.c.Get(name) }
