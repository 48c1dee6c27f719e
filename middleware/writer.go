package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// watchStatus returns a writer with the same optional interfaces as w, and what it sees of the response.
func watchStatus(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *status) {
	x := &status{upgrade: len(r.Header["Upgrade"]) > 0}
	return x.wrap(w), x
}

func (x *status) wrap(w http.ResponseWriter) http.ResponseWriter {
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				x.set(code)
				next(code)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				x.ok()
				return next(b)
			}
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				x.ok()
				return next(s)
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				x.ok()
				return next(src)
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				x.ok()
				next()
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				if err == nil {
					x.hijacked = true
				}
				return conn, rw, err
			}
		},
	})
}

// WatchHijack returns a writer with the same optional interfaces as w, and a function that reports whether the connection
// has been hijacked: for adapters whose framework tells the status, but not that.
func WatchHijack(w http.ResponseWriter) (http.ResponseWriter, func() bool) {
	hijacked := false
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				hijacked = hijacked || err == nil
				return conn, rw, err
			}
		},
	}), func() bool { return hijacked }
}

type status struct {
	code     int
	hijacked bool
	before   func(code int) // called before the final status is written; nil: nobody
	unsaid   func()         // called before a response that begins without a status; nil: nobody
	upgrade  bool           // the request asks for another protocol
}

// ok takes the status of a response that begins without one.
func (x *status) ok() {
	if x.code == 0 {
		if x.set(http.StatusOK); x.unsaid != nil {
			x.unsaid()
		}
	}
}

// set takes the first final status; 1xx other than 101 announce another.
func (x *status) set(code int) {
	if x.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		if x.code = code; x.before != nil {
			x.before(code)
		}
	}
}

func (x *status) written() bool { return x.code != 0 || x.hijacked }

// get returns the status so far: 200 for a response that was never written, 0 for a hijacked connection, whose outcome
// nobody knows. Whoever unwraps the writer may hijack it behind our back, so silence upon an upgrade is 0 as well.
func (x *status) get() int {
	switch {
	case x.hijacked, x.code == http.StatusSwitchingProtocols, x.code == 0 && x.upgrade:
		return 0
	case x.code == 0:
		return http.StatusOK
	}
	return x.code
}
