package degrade

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// wrap returns a writer with the optional interfaces of w that tells x what goes through.
func (x *recording) wrap(w http.ResponseWriter) http.ResponseWriter {
	hooks := httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				x.begin(w.Header(), status)
				next(status)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				x.ok(w)
				n, err := next(b)
				x.wrote(b, n, err)
				return n, err
			}
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				x.ok(w)
				n, err := next(s)
				x.wroteString(s, n, err)
				return n, err
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				x.ok(w)
				if !x.active() {
					return next(src) // a file goes out by sendfile
				}
				t := &tee{src: src, x: x}
				n, err := next(t)
				if err != nil || n != t.read {
					x.wrote(nil, 0, io.ErrShortWrite)
				}
				return n, err
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				x.ok(w)
				x.flushed()
				next()
			}
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error {
				x.ok(w)
				x.flushed()
				return next()
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				if err == nil {
					x.hijacked()
				}
				return conn, rw, err
			}
		},
	}
	return httpsnoop.Wrap(w, hooks)
}

// ok is the status of who writes without one.
func (x *recording) ok(w http.ResponseWriter) {
	x.mu.Lock()
	begun := x.status != 0
	x.mu.Unlock()
	if !begun {
		x.begin(w.Header(), http.StatusOK)
	}
}
