package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// Transport is an [http.RoundTripper] that sends requests when they may be sent. It is safe for concurrent use. Make one
// with [New].
type Transport struct {
	config   Config
	batch    limiter.Batcher  // nil: the Limiter is none
	refund   limiter.Refunder // nil: the Limiter is none
	lanes    lanes
	spoken   spoken
	requests sync.Pool // of *keyfunc.Request
	changes  changes

	sent, resent, retried, refused atomic.Uint64
}

var _ http.RoundTripper = (*Transport)(nil)

// New returns a Transport, or an error wrapping [limiter.ErrInvalid] that names everything wrong with c. It does no I/O and
// starts nothing.
func New(c Config) (*Transport, error) {
	c = c.complete()
	if err := c.validate(); err != nil {
		return nil, err
	}
	t := &Transport{config: c, requests: sync.Pool{New: func() any { return new(keyfunc.Request) }}}
	t.batch, _ = c.Limiter.(limiter.Batcher)
	t.refund, _ = c.Limiter.(limiter.Refunder)
	t.spoken.most = c.MaxDestinations
	t.changes.observer = c.Observer
	t.lanes = lanes{t: t, byID: map[string]*list.Element{}, order: list.New()}
	return t, nil
}

// Stats are counts since the Transport was made.
type Stats struct {
	Sent         uint64 // requests given to Base, retries included
	Retried      uint64 // of these, those that were sent again
	Resent       uint64 // not of these: what Base has sent again by itself all the same, see [Config].Base
	Refused      uint64 // not sent: a LimitedError
	Destinations int    // remembered now
}

// Stats returns the counts.
func (t *Transport) Stats() Stats {
	t.lanes.mu.Lock()
	n := t.lanes.order.Len()
	t.lanes.mu.Unlock()
	return Stats{Sent: t.sent.Load(), Resent: t.resent.Load(), Retried: t.retried.Load(), Refused: t.refused.Load(), Destinations: n}
}

// CloseIdleConnections closes those of Base, if it can. [http.Client] asks for it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.config.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) newLane(key limiter.Key, shared bool) *lane {
	l := &lane{t: t, key: key, shared: shared, wake: make(chan struct{}, 1), tokens: fullTokens}
	if !shared && t.config.Breaker.Failures > 0 {
		l.breaker = newBreaker(t, key)
	}
	return l
}

// RoundTrip sends the request when its turn has come, and again as [Retry] says. The response is the last one's, also if
// that is a refusal: nothing is made of it. The error is Base's, a [*LimitedError] where the request was not
// sent, one wrapping [keyfunc.ErrNoKey] where it has no key, or the Limiter's.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	key, s, err := t.destination(req)
	switch {
	case errors.Is(err, keyfunc.ErrSkip):
		return t.config.Base.RoundTrip(req)
	case err != nil:
		closeBody(req)
		return nil, fmt.Errorf("client: %w", err)
	}
	l := t.lanes.enter(key)
	defer l.use(-1)
	l.earn()
	x := exchange{t: t, l: l, key: key, s: s, to: endpointOf(req), first: req, now: req}
	return x.run()
}

// destination returns whose limit a request counts against, and what that is.
func (t *Transport) destination(req *http.Request) (limiter.Key, shape, error) {
	if req.URL == nil {
		return limiter.Key{}, shape{}, errors.New("the request has no URL")
	}
	r := t.requests.Get().(*keyfunc.Request)
	defer func() {
		r.Release()
		t.requests.Put(r)
	}()
	r.Reset(req, nil, nil)
	k, err := r.Resolve(t.config.Key)
	if err != nil {
		return limiter.Key{}, shape{}, err
	}
	key := limiter.Key{Space: t.config.Name, ID: k.String()}
	var limit limiter.Limit
	planned := false
	if t.config.Plan != nil {
		limit, planned = t.config.Plan(r)
	}
	switch {
	case planned:
	case t.config.Limit != nil:
		limit = t.config.Limit.Current()
	default:
		return key, shape{}, nil
	}
	// A limit that was forgotten or is broken must not become none.
	if err := limit.Validate(); err != nil {
		return limiter.Key{}, shape{}, err
	}
	return key, shapeOf(limit, t.config.Headroom), nil
}

// ask asks the Limiter for a take, with a place in its queue where it has queues.
func (t *Transport) ask(ctx context.Context, take *limiter.Take) (limiter.Decision, error) {
	if t.batch != nil {
		takes := [1]limiter.Take{*take}
		ok, err := t.batch.AllowAll(ctx, time.Time{}, takes[:])
		if !errors.Is(err, errors.ErrUnsupported) {
			d := takes[0].Decision
			d.Allowed = d.Allowed && ok
			return d, err
		}
	}
	return t.config.Limiter.Allow(ctx, take.Key, take.Limit, take.N)
}

// giveBack offers back what was taken for a request that was not sent.
func (t *Transport) giveBack(ctx context.Context, take limiter.Take, d limiter.Decision) {
	if t.refund == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	take.Decision = d
	// What fails here stays charged, which errs on the partner's side.
	_ = t.refund.Refund(ctx, time.Time{}, &take)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// changes are the events of breakers. They are told with no lock held, one at a time and in their order.
type changes struct {
	observer limiter.Observer // nil: nobody

	mu      sync.Mutex
	events  []limiter.Event
	telling bool
}

func (c *changes) add(e limiter.Event) {
	if c.observer == nil {
		return
	}
	c.mu.Lock()
	c.events = append(c.events, e)
	c.mu.Unlock()
}

// tell hands over what has come. Who finds somebody else telling leaves his to him: they are few.
func (c *changes) tell() {
	for c.observer != nil && c.tellOne() {
	}
}

func (c *changes) tellOne() bool {
	c.mu.Lock()
	if c.telling || len(c.events) == 0 {
		c.mu.Unlock()
		return false
	}
	e := c.events[0]
	c.events = c.events[1:]
	c.telling = true
	c.mu.Unlock()
	defer func() { // also where the observer ends its goroutine
		c.mu.Lock()
		c.telling = false
		c.mu.Unlock()
	}()
	observe(c.observer, e)
	return true
}

// observe drops the panic of an observer: it must not cost a request.
func observe(o limiter.Observer, e limiter.Event) {
	defer func() { _ = recover() }()
	o.Observe(e)
}

// body is the body of a response: its end frees the place in flight.
type body struct {
	io.ReadCloser
	land func() // frees the place alone
	end  func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
