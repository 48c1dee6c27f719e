package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

const (
	// fullTokens is how many retries a destination has at most to spend.
	fullTokens = 10
	// drained is the largest body that nobody wants and that is read all the same, in bytes, so that its connection can be used
	// again: what has as a rule come with the header.
	drained = 4 << 10
	// drainTime bounds that: its rest may never come.
	drainTime = 100 * time.Millisecond
)

// exchange is one request with all its attempts.
type exchange struct {
	t      *Transport
	l      *lane
	key    limiter.Key
	s      shape
	to     endpoint
	first  *http.Request
	now    *http.Request // this attempt's
	status int           // of the answer before
	events []limiter.Event
	idle   bool // what broke may be a connection that the destination had just closed, which net/http does not make up for
}

func (x *exchange) run() (res *http.Response, err error) {
	returned := false
	defer func() {
		if !returned && res != nil { // a GetBody or an observer panics, or ends the goroutine
			_ = res.Body.Close()
		}
	}()
	ctx := x.first.Context()
	for attempt := 1; ; attempt++ {
		f, err := x.depart(ctx)
		if err != nil {
			x.tell()
			return nil, err
		}
		var least time.Duration
		res, least, err = x.send(f)
		x.tell()
		next, wait, ok := x.again(res, err, attempt, least)
		if !ok {
			returned = true
			return res, err
		}
		if res != nil {
			x.status = res.StatusCode
			x.drain(res)
			res = nil
		}
		x.now = next
		if err := sleep(ctx, wait, nil); err != nil {
			closeBody(next)
			return nil, err
		}
		x.t.retried.Add(1)
	}
}

// depart waits for the attempt's turn. On an error its body is closed.
func (x *exchange) depart(ctx context.Context) (f *flight, err error) {
	defer func() {
		if f == nil {
			closeBody(x.now)
		}
	}()
	began := time.Now()
	u := turn{t: x.t, l: x.l, key: x.key, s: x.s, status: x.status, until: x.until(began)}
	f, err = u.depart(ctx)
	x.decided(ctx, &u, time.Since(began), err)
	var limited *LimitedError
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.As(err, &limited) { // who knows that nothing was sent may send it again
		err = &LimitedError{Reason: ReasonCanceled, Key: u.key, Status: u.status, Err: ctx.Err()}
	}
	return f, err
}

// decided takes note of what became of a request's turn.
func (x *exchange) decided(ctx context.Context, u *turn, waited time.Duration, err error) {
	var limited *LimitedError
	switch {
	case errors.As(err, &limited):
		x.t.refused.Add(1)
	case err != nil:
		return // nobody has decided
	}
	if x.t.config.Observer == nil {
		return
	}
	e := limiter.Event{
		Kind: limiter.EventDecision, Context: ctx, Time: time.Now(), Policy: x.t.config.Name, Key: u.key, N: 1,
		Decision: u.shown, Duration: waited, Err: err,
	}
	e.Decision.Allowed = err == nil
	if limited != nil {
		e.Outcome, e.Reason = limiter.OutcomeBlocked, string(limited.Reason)
		e.Decision.RetryAfter = limited.RetryAfter
	}
	x.events = append(x.events, e)
}

// tell tells the observer, after a request has left: it must hold up no departure. Each tells what became of his own.
func (x *exchange) tell() {
	x.t.changes.tell()
	for len(x.events) > 0 {
		e := x.events[0]
		x.events = x.events[1:]
		observe(x.t.config.Observer, e)
	}
}

// until is the last instant at which a request that waits from now on may leave.
func (x *exchange) until(now time.Time) time.Time {
	until := now.Add(forever)
	if most := x.t.config.MaxWait; most > 0 {
		until = now.Add(most)
	}
	// What leaves with the deadline finds the context done.
	if deadline, ok := x.first.Context().Deadline(); ok && deadline.Add(-1).Before(until) {
		until = deadline.Add(-1)
	}
	return until
}

// send sends the attempt and takes note of what comes. least is how long it has to be waited before the next one.
func (x *exchange) send(f *flight) (res *http.Response, least time.Duration, err error) {
	l, w, known, done := x.l, new(wire), false, false
	defer func() {
		if done {
			return
		}
		// Base, the Limiter or Pauses panics, or ends the goroutine.
		if !known {
			l.lost()
			l.land(f)
			w.end()
			f.tell(errFailed)
		}
		if res != nil && res.Body != nil {
			_ = res.Body.Close() // one that is watched lands by that
		}
	}()
	x.t.sent.Add(1)
	sent := x.traced(w)
	res, err = x.t.config.Base.RoundTrip(sent)
	if res != nil && res.Request == sent {
		res.Request = x.now
	}
	x.idle = x.guards() && (w.reused.Load() || w.http2.Load())
	if n := w.wrote.Load(); n > 1 {
		x.resent(n - 1)
	}
	if err != nil || res == nil {
		known, done = true, true
		l.lost()
		l.land(f)
		w.end()
		err = x.outcome(w, err)
		verdict := x.verdict(0, false, err)
		if w.stale(err) {
			verdict = errNoSign
		}
		f.tell(verdict)
		return nil, 0, err
	}
	x.t.spoken.note(x.to, res.ProtoMajor == 1 && w.wrote.Load() > 0)
	now := time.Now()
	a := readAdvice(res.Header, now)
	known = true
	pause, refused := l.answered(f, res.StatusCode, &a, now)
	x.watch(res, f, w)
	f.tell(x.verdict(res.StatusCode, refused, nil))
	if refused && x.t.config.Pauses != nil && pause > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(x.first.Context()), settleTimeout)
		defer cancel()
		// Who cannot be told finds out by himself.
		_ = x.t.config.Pauses.Pause(ctx, x.key, pause)
	}
	if a.hasRetry {
		least = min(a.retry, x.t.config.MaxPause)
	}
	done = true
	return res, max(least, pause), nil
}

// watch frees the place in flight when the body ends.
func (x *exchange) watch(res *http.Response, f *flight, w *wire) {
	land := sync.OnceFunc(func() { x.l.land(f) })
	end := func() {
		w.end()
		land()
	}
	if res.Body == nil {
		res.Body = http.NoBody
	}
	// The connection of an upgrade is the caller's: its body is also a writer and stays what it is.
	if _, upgraded := res.Body.(io.Writer); upgraded {
		land()
		return
	}
	if res.Body == http.NoBody {
		end()
		return
	}
	res.Body = &body{ReadCloser: res.Body, land: land, end: end}
}

func (f *flight) tell(verdict error) {
	if f.done != nil {
		f.done(verdict)
	}
}

// verdict is what an outcome means for the breaker.
func (x *exchange) verdict(status int, refused bool, err error) error {
	switch {
	case errors.Is(err, context.Canceled), refused:
		return errNoSign
	case err != nil:
		return errFailed
	}
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return errFailed
	}
	return nil
}

// again decides whether there is another attempt, and returns it with a body of its own.
func (x *exchange) again(res *http.Response, err error, attempt int, least time.Duration) (next *http.Request, wait time.Duration, ok bool) {
	c := &x.t.config.Retry
	if attempt >= c.Attempts || !worthwhile(res, err, x.idle) || !repeatable(x.first) || x.first.Context().Err() != nil {
		return nil, 0, false
	}
	most := c.Cap
	if shift := attempt - 1; shift < 62 && c.Base <= c.Cap>>shift {
		most = c.Base << shift
	}
	// Full jitter, and at least what was asked for.
	wait = max(rand.N(most+1), least)
	now := time.Now()
	if o := x.l.outlook(x.s, now); max(wait, o.wait) > x.until(now).Sub(now) {
		return nil, 0, false // the answer that is here is better than none
	}
	if b := x.l.breaker; b != nil {
		if open, is := b.opened(now); is && open > wait {
			return nil, 0, false
		}
	}
	if !x.l.spend() {
		return nil, 0, false
	}
	copied := *x.first
	copied.Header = x.first.Header.Clone() // the first attempt may still be reading its own
	if hasBody(x.first) {
		body, err := x.first.GetBody()
		if err != nil {
			return nil, 0, false
		}
		copied.Body = body
	}
	return &copied, wait, true
}

// worthwhile reports whether the next attempt may end in something better.
func worthwhile(res *http.Response, err error, idle bool) bool {
	if err == nil {
		switch res.StatusCode {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if errors.Is(err, errWithheld) {
		return true
	}
	var (
		bad     *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		dns     *net.DNSError
		network net.Error
	)
	switch {
	case errors.As(err, &bad), errors.As(err, &unknown), errors.As(err, &name):
		return false
	case errors.As(err, &dns):
		return !dns.IsNotFound
	}
	return idle || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPIPE)
}

// repeatable reports whether a request may be sent twice (RFC 9110 section 9.2.2), and can be.
func repeatable(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
	default:
		if req.Header.Get("Idempotency-Key") == "" && req.Header.Get("X-Idempotency-Key") == "" {
			return false
		}
	}
	return !hasBody(req) || req.GetBody != nil
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// earn is what a request brings for retries.
func (l *lane) earn() {
	l.mu.Lock()
	l.tokens = min(l.tokens+max(l.t.config.Retry.Ratio, 0), fullTokens)
	l.mu.Unlock()
}

// spend takes one retry.
func (l *lane) spend() bool {
	if l.t.config.Retry.Ratio < 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}

// drain ends a response nobody wants. What is large, of unknown size or does not come at once may never end, and costs its connection
// instead. It holds no place in flight meanwhile. Close ends a Read that waits, as it does in net/http.
func (x *exchange) drain(res *http.Response) {
	if b, ok := res.Body.(*body); ok {
		b.land()
	}
	end := sync.OnceFunc(func() { _ = res.Body.Close() })
	defer end()
	now := time.Now()
	within := min(drainTime, x.until(now).Sub(now))
	if within <= 0 || res.ContentLength < 0 || res.ContentLength > drained {
		return
	}
	defer time.AfterFunc(within, end).Stop()
	_, _ = io.CopyN(io.Discard, res.Body, drained)
}
