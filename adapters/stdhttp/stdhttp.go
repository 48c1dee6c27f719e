package stdhttp

import (
	"context"
	"net/http"

	"github.com/spillway-go/spillway/middleware"
)

// Option changes a [Middleware].
type Option func(*options)

type options struct {
	skip   func(*http.Request) bool
	denied func(http.ResponseWriter, *http.Request, *middleware.Verdict)
	mux    *http.ServeMux
}

// WithDenied lets write answer refused requests in an envelope of its own. The header fields of the refusal are set; the
// status to write is v.Status, which also is the answer if write writes nothing. It is not called where a degrade handler
// has answered.
func WithDenied(write func(w http.ResponseWriter, r *http.Request, v *middleware.Verdict)) Option {
	return func(o *options) { o.denied = write }
}

// WithSkipper hands requests for which skip is true to the next handler without asking the guard. Config.Exempt and
// Policy.Exempt do the same in the guard itself.
func WithSkipper(skip func(*http.Request) bool) Option {
	return func(o *options) { o.skip = skip }
}

// WithMux names the mux that routes are looked up in, for guards that are not directly around it.
func WithMux(mux *http.ServeMux) Option {
	return func(o *options) { o.mux = mux }
}

// Middleware returns the guard as net/http middleware.
func Middleware(guard *middleware.Guard, opts ...Option) func(http.Handler) http.Handler {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return func(next http.Handler) http.Handler {
		h := &handler{guard: guard, mount: guard.Mount(), next: next, options: o}
		h.inner, _ = next.(*http.ServeMux)
		_, direct := next.(*handler)
		h.marks = h.inner != nil || direct
		return h
	}
}

// handler is a guard in front of next.
type handler struct {
	options
	guard *middleware.Guard
	mount *middleware.Mount
	next  http.Handler
	inner *http.ServeMux // next, if it is one
	marks bool           // next may lead to the guard again, whoever calls
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.skip != nil && h.skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	outer := r
	if h.mount.Several() {
		if r.Context().Value(h.mount) != nil {
			h.next.ServeHTTP(w, r) // decided further out
			return
		}
		// Inside of a mux a guard is usually in front of one handler, and the request stays as it is.
		if h.marks || r.Pattern == "" {
			r = r.WithContext(context.WithValue(r.Context(), h.mount, true))
		}
	}
	mux := h.inner
	if h.mux != nil && r.Pattern == "" { // else that mux has been asked already
		mux = h.mux
	}
	pass := h.guard.Enter(w, r, middleware.Entry{Mux: mux, Defer: h.denied != nil})
	switch {
	case pass.Proceed():
		pass.Serve(h.next)
		if inner := pass.Request(); inner != outer {
			outer.Pattern = inner.Pattern // what a mux has set, for an access log further out
		}
	case pass.Denied() != nil:
		v := pass.Denied()
		a := answer{ResponseWriter: w}
		h.denied(&a, r, v)
		if !a.written {
			w.WriteHeader(v.Status)
		}
	}
}

// answer knows whether a refusal has been written.
type answer struct {
	http.ResponseWriter
	written bool
}

func (a *answer) WriteHeader(code int) {
	a.written = a.written || code >= 200
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(b []byte) (int, error) {
	a.written = true
	return a.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
