// Package stdhttp puts a guard in front of net/http handlers.
//
//	http.ListenAndServe(addr, stdhttp.Middleware(guard)(mux))
//
// Around a whole [http.ServeMux] the guard sees every request, unknown paths included, and knows the route by asking the
// mux; around one handler it sees what the mux sends there. Redirects that a ServeMux answers by itself (a missing
// trailing slash, an unclean path) are requests like others when the guard is outside of it.
package stdhttp

import (
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
// status to write is v.Status. It is not called where a degrade handler has answered.
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
		mux := o.mux
		if mux == nil {
			mux, _ = next.(*http.ServeMux)
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if o.skip != nil && o.skip(r) {
				next.ServeHTTP(w, r)
				return
			}
			pass := guard.Enter(w, r, middleware.Entry{Mux: mux, Defer: o.denied != nil})
			switch {
			case pass.Proceed():
				pass.Serve(next)
			case pass.Denied() != nil:
				o.denied(w, r, pass.Denied())
			}
		})
	}
}
