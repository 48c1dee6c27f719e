package degrade

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/felixge/httpsnoop"
)

// wrap returns a writer with the optional interfaces of w that tells x what goes through.
func (x *recording) wrap(w http.ResponseWriter) http.ResponseWriter {
	h := recordHooksPool.Get().(*recordHooks)
	h.x, h.w = x, w
	hooks := h.all
	if x.write {
		hooks = h.status // is all there is to see
	}
	wrapped := httpsnoop.Wrap(w, hooks)
	h.x, h.w = nil, nil
	recordHooksPool.Put(h)
	return wrapped
}

// recordHooks make the methods of one writer after another. They are called while it is wrapped, and what they return does
// not know them.
type recordHooks struct {
	x           *recording
	w           http.ResponseWriter
	all, status httpsnoop.Hooks
}

var recordHooksPool = sync.Pool{New: func() any {
	h := new(recordHooks)
	h.all = httpsnoop.Hooks{
		WriteHeader: h.writeHeader, Write: h.write, WriteString: h.writeString, ReadFrom: h.readFrom, Flush: h.flush, FlushError: h.flushError, Hijack: h.hijack,
	}
	h.status = httpsnoop.Hooks{WriteHeader: h.writeHeader, Hijack: h.hijack}
	return h
}}

func (h *recordHooks) writeHeader(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
	x, w := h.x, h.w
	return func(status int) {
		x.begin(w, status)
		next(status)
		x.sent(w)
	}
}

func (h *recordHooks) write(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
	x, w := h.x, h.w
	return func(b []byte) (int, error) {
		x.ok(w)
		n, err := next(b)
		x.wrote(b, n, err)
		x.sent(w)
		return n, err
	}
}

func (h *recordHooks) writeString(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
	x, w := h.x, h.w
	return func(s string) (int, error) {
		x.ok(w)
		n, err := next(s)
		x.wroteString(s, n, err)
		x.sent(w)
		return n, err
	}
}

func (h *recordHooks) readFrom(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
	x, w := h.x, h.w
	return func(src io.Reader) (int64, error) {
		x.ok(w)
		if !x.active() {
			n, err := next(src) // a file goes out by sendfile
			x.sent(w)
			return n, err
		}
		t := &tee{src: src, x: x}
		n, err := next(t)
		if err != nil || n != t.read {
			x.wrote(nil, 0, io.ErrShortWrite)
		}
		x.sent(w)
		return n, err
	}
}

func (h *recordHooks) flush(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
	x, w := h.x, h.w
	return func() {
		x.ok(w)
		x.flushed()
		next()
		x.sent(w)
	}
}

func (h *recordHooks) flushError(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
	x, w := h.x, h.w
	return func() error {
		x.ok(w)
		x.flushed()
		err := next()
		x.sent(w)
		return err
	}
}

func (h *recordHooks) hijack(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
	x := h.x
	return func() (net.Conn, *bufio.ReadWriter, error) {
		conn, rw, err := next()
		if err == nil {
			x.hijacked()
		}
		return conn, rw, err
	}
}

// ok is the status of who writes without one.
func (x *recording) ok(w http.ResponseWriter) {
	x.mu.Lock()
	begun := x.status != 0
	x.mu.Unlock()
	if !begun {
		x.begin(w, http.StatusOK)
	}
}
