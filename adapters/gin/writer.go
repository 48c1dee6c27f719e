package ginlimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// writer is Gin's writer with the response going through out, if that records it. It remembers a hijacked connection.
type writer struct {
	gin.ResponseWriter
	out      http.ResponseWriter
	records  bool
	hijacked bool
}

// announce tells a recorder the status. In Gin that is settled, and the header fields with it, only when the first byte
// is written.
func (w *writer) announce() {
	if w.records && !w.Written() {
		w.out.WriteHeader(w.Status())
	}
}

// WriteHeader tells a recorder of a second status, by which a recovery further in says that the handler has broken off.
func (w *writer) WriteHeader(code int) {
	if w.records && code > 0 && w.Written() && code != w.Status() {
		w.out.WriteHeader(code)
		return
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *writer) WriteHeaderNow() {
	w.announce()
	w.ResponseWriter.WriteHeaderNow()
}

func (w *writer) Write(b []byte) (int, error) {
	if !w.records {
		return w.ResponseWriter.Write(b)
	}
	w.WriteHeaderNow()
	return w.out.Write(b)
}

func (w *writer) WriteString(s string) (int, error) {
	if !w.records {
		return w.ResponseWriter.WriteString(s)
	}
	w.WriteHeaderNow()
	return io.WriteString(w.out, s)
}

// Flush goes through out, so that a recorder knows that the response is streamed. One that cannot flush holds nothing up.
func (w *writer) Flush() {
	if !w.records {
		w.ResponseWriter.Flush()
		return
	}
	w.WriteHeaderNow()
	if errors.Is(http.NewResponseController(w.out).Flush(), http.ErrNotSupported) {
		w.ResponseWriter.Flush()
	}
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
