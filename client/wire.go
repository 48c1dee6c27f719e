package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// errWithheld is what becomes of a request that net/http would have sent again on HTTP/2.
var errWithheld = errors.New("client: the destination has not taken the request (HTTP/2 GOAWAY or REFUSED_STREAM); it is not sent again out of turn")

// wire is what net/http tells of one attempt. Its hooks may be called at any time, by any goroutine.
type wire struct {
	wrote    atomic.Uint64 // how often the header was written
	reused   atomic.Bool   // the connection had been used before
	http2    atomic.Bool
	answers  atomic.Bool // an answer has begun
	withheld atomic.Bool // from a second connection
	stop     context.CancelFunc
	spoken   *spoken
	to       endpoint
}

// traced returns the attempt as Base gets it.
func (x *exchange) traced(w *wire) *http.Request {
	ctx := x.now.Context()
	guards := x.guards()
	http1 := x.t.spoken.http1(x.to)
	w.spoken, w.to = &x.t.spoken, x.to
	body := hasBody(x.now)
	if guards && !body && !http1 && x.now.URL.Scheme == "https" && !x.to.upgrade {
		ctx, w.stop = context.WithCancel(ctx)
	}
	sent := x.now.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              w.gotConn,
		WroteHeaders:         func() { w.wrote.Add(1) },
		GotFirstResponseByte: func() { w.answers.Store(true) },
	}))
	switch {
	case !guards:
	case body && (!http1 || replayed(sent)):
		sent.GetBody = nil
	case !body && http1 && replayed(sent) && mayLackLength(sent.Method):
		// A body that cannot be made again. It is empty, and as identity coding says no length, nothing of it is on the wire.
		sent.Body, sent.GetBody = io.NopCloser(strings.NewReader("")), nil
		sent.ContentLength, sent.TransferEncoding = 0, []string{"identity"}
	}
	return sent
}

// guards reports whether Base must not send the request again by itself: Retry makes up for it, or Strict rather fails.
func (x *exchange) guards() bool {
	return x.t.config.Strict || x.t.config.Retry.Attempts > 1 && repeatable(x.first)
}

// replayed reports whether net/http sends a request again on HTTP/1 that the destination may have read. Others it sends again
// only if nothing was written.
func replayed(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	_, key := req.Header["Idempotency-Key"]
	_, xKey := req.Header["X-Idempotency-Key"]
	return key || xKey
}

// mayLackLength reports whether a request without a body says no Content-Length, as those methods do that have none as a rule.
func mayLackLength(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodConnect:
		return false
	}
	return true
}

func upgrades(req *http.Request) bool {
	return req.Method == http.MethodConnect || req.Header.Get("Upgrade") != ""
}

// gotConn is called before a request is written. On HTTP/2 a context that ends here keeps it from being written; on HTTP/1
// it may not.
func (w *wire) gotConn(info httptrace.GotConnInfo) {
	protocol, told := protocolOf(info.Conn)
	http2 := protocol == "h2"
	if told && (http2 || protocol == "" || protocol == "http/1.1") { // before the answer, for those that leave meanwhile
		w.spoken.note(w.to, !http2)
	}
	if http2 && w.stop != nil && w.wrote.Load() > 0 {
		w.withheld.Store(true)
		w.stop()
		return
	}
	w.http2.Store(http2)
	w.reused.Store(info.Reused)
}

// protocolOf returns what a connection with TLS has agreed upon.
func protocolOf(c net.Conn) (name string, ok bool) {
	secure, ok := c.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return "", false
	}
	return secure.ConnectionState().NegotiatedProtocol, true
}

// end lets go of what the attempt holds.
func (w *wire) end() {
	if w.stop != nil {
		w.stop()
	}
}

// outcome is the error of an attempt that got no answer.
func (x *exchange) outcome(w *wire, err error) error {
	switch {
	case err == nil:
		return errors.New("client: Base returned neither a response nor an error")
	case w.withheld.Load() && x.first.Context().Err() == nil:
		return errWithheld
	}
	return err
}

// stale reports whether a failure may be that of a connection alone: one that was used before, and closed by the destination just
// now. It says nothing about the destination. On HTTP/2 a connection that breaks is not told from a stream.
func (w *wire) stale(err error) bool {
	return w.reused.Load() && !w.answers.Load() && (!w.http2.Load() || w.withheld.Load()) &&
		!errors.Is(err, context.DeadlineExceeded)
}

// resent takes note of what Base has sent again. It has left, so each takes afterwards what the limit gives it, and those that
// follow leave later.
func (x *exchange) resent(n uint64) {
	x.t.resent.Add(n)
	l := x.l
	l.mu.Lock()
	l.last = time.Now()
	for i := range l.told {
		l.told[i].left -= int64(n)
	}
	l.mu.Unlock()
	if x.s.limit == (limiter.Limit{}) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.first.Context()), settleTimeout)
	defer cancel()
	for range n {
		take := limiter.Take{Key: x.key, Limit: x.s.limit, N: 1, NoCache: true, MaxDelay: forever}
		d, err := x.t.ask(ctx, &take)
		l.mu.Lock()
		now := time.Now()
		at := now.Add(d.Delay)
		if err != nil || !d.Allowed { // at least this process makes up for it
			if at = now; l.planned.After(at) {
				at = l.planned
			}
			at = at.Add(x.s.gap)
		}
		if x.s.even && at.After(l.planned) {
			l.planned, l.under = at, x.s.gap
		}
		l.mu.Unlock()
	}
}
