package echolimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/spillway-go/spillway/middleware"
)

// Option changes a [Middleware].
type Option func(*options)

type options struct {
	skip   func(echo.Context) bool
	denied func(echo.Context, *middleware.Verdict) error
}

// WithDenied lets write answer refused requests, or return an error for Echo's HTTPErrorHandler, such as
// echo.NewHTTPError(v.Status). The header fields of the refusal are set; if write does neither, the answer is v.Status
// without a body. It is not called where a degrade handler has answered.
func WithDenied(write func(c echo.Context, v *middleware.Verdict) error) Option {
	return func(o *options) { o.denied = write }
}

// WithSkipper hands requests for which skip is true on without asking the guard; it takes the Skipper type of Echo's own
// middleware.
func WithSkipper(skip func(echo.Context) bool) Option {
	return func(o *options) { o.skip = skip }
}

// Middleware returns the guard as Echo middleware.
//
// A request is settled by its real status: an error that is returned and not yet written is settled when the error
// handler writes it. If nobody ever does, the request stays charged.
func Middleware(guard *middleware.Guard, opts ...Option) echo.MiddlewareFunc {
	m := &mounted{guard: guard, mount: guard.Mount()}
	for _, opt := range opts {
		opt(&m.options)
	}
	m.mark = fmt.Sprintf("spillway %p", m.mount)
	// Echo calls this for every request, so what it returns holds two pointers and no more.
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return m.handle(c, next) }
	}
}

// mounted is a guard at one place of a chain.
type mounted struct {
	options
	guard *middleware.Guard
	mount *middleware.Mount
	mark  string // of requests that the stage has decided
}

func (m *mounted) handle(c echo.Context, next echo.HandlerFunc) error {
	if m.skip != nil && m.skip(c) {
		return next(c)
	}
	if m.mount.Several() {
		if c.Get(m.mark) != nil {
			return next(c)
		}
		c.Set(m.mark, true)
	}
	known := routes.Get().(*routed)
	known.c = c
	res, req := c.Response(), c.Request()
	pass := m.guard.Enter(res, req, middleware.Entry{Framework: known, Below: res.Writer, Defer: m.denied != nil})
	if !pass.Settles() {
		known.release()
	}
	if !pass.Proceed() {
		return m.refuse(c, pass.Denied())
	}
	if r := pass.Request(); r != req {
		c.SetRequest(r)
	}
	if !pass.Settles() {
		return next(c)
	}
	return serve(c, next, &pass, known)
}

// refuse answers what the guard has left to answer.
func (o *options) refuse(c echo.Context, v *middleware.Verdict) error {
	if v == nil {
		return nil
	}
	if err := o.denied(c, v); err != nil || c.Response().Committed {
		return err
	}
	return c.NoContent(v.Status)
}

// Entry is what Echo knows of a request, for [middleware.Guard.Peek] and [middleware.Guard.Check] inside handlers:
//
//	verdict, err := guard.Peek(c.Request(), echolimit.Entry(c))
func Entry(c echo.Context) middleware.Entry { return middleware.Entry{Framework: &routed{c}} }

// serve runs the rest of the chain and settles.
func serve(c echo.Context, next echo.HandlerFunc, pass *middleware.Pass, known *routed) error {
	res := c.Response()
	below := res.Writer
	hijacked := func() bool { return false }
	w := pass.Writer()
	records := w != http.ResponseWriter(res)
	if records {
		res.Writer = w
	}
	if pass.NeedsStatus() || records {
		res.Writer, hijacked = middleware.WatchHijack(res.Writer)
	}
	defer func() { res.Writer = below }()
	status, returned, left, failed := 0, false, false, false
	defer func() {
		if !left {
			defer known.release()
		}
		switch {
		case left:
		case failed:
			pass.Broke(status)
		case returned:
			pass.Leave(status)
		case res.Committed && !hijacked():
			pass.Broke(res.Status)
		default:
			pass.Broke(0)
		}
	}()
	err := next(c)
	returned = true
	switch {
	case hijacked(), res.Committed && res.Status == http.StatusSwitchingProtocols:
		status = 0
	case res.Committed:
		status = res.Status
		failed = err != nil // and may have stopped anywhere
	case err != nil:
		left = true
		settle := pass.LeaveLater(likely(err))
		res.Before(func() {
			settle(res.Status)
			known.c = nil // not given back: nobody knows whether this is called once
		})
	case len(c.Request().Header["Upgrade"]) > 0:
		status = 0 // perhaps hijacked below the writer that is watched
	default:
		status = http.StatusOK // as the server will answer
	}
	return err
}

// likely is the status that Echo's own error handler writes for an error.
func likely(err error) int {
	var he *echo.HTTPError
	if errors.As(err, &he) {
		return he.Code
	}
	return http.StatusInternalServerError
}

// routed is what Echo knows of a request. It is pooled, as an interface in it would be allocated anew.
type routed struct{ c echo.Context }

// release gives x back, once nobody asks it any more.
func (x *routed) release() {
	x.c = nil
	routes.Put(x)
}

var routes = sync.Pool{New: func() any { return new(routed) }}

func (x *routed) Route() string { return x.c.Path() }

// Param unescapes what Echo has matched in the escaped path. One value must not have many keys.
func (x *routed) Param(name string) string {
	value := x.c.Param(name)
	if x.c.Request().URL.RawPath != "" {
		if text, err := url.PathUnescape(value); err == nil {
			return text
		}
	}
	return value
}

func (x *routed) Value(name string) (any, bool) {
	v := x.c.Get(name)
	return v, v != nil
}
