package client

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// wire is what net/http tells of one attempt. Its hooks may be called at any time, by any goroutine.
type wire struct {
	wrote  atomic.Uint64 // how often the header was written
	reused atomic.Bool   // the last connection had been used before
}

// traced returns the attempt as Base gets it.
func (x *exchange) traced(w *wire) *http.Request {
	ctx := httptrace.WithClientTrace(x.now.Context(), &httptrace.ClientTrace{
		GotConn:      func(info httptrace.GotConnInfo) { w.reused.Store(info.Reused) },
		WroteHeaders: func() { w.wrote.Add(1) },
	})
	sent := x.now.WithContext(ctx)
	if x.t.config.Strict && hasBody(sent) {
		sent.GetBody = nil // a body that cannot be made again is not sent again
	}
	return sent
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
