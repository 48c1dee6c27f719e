package middleware

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/spillway-go/spillway/limiter"
)

// What a policy's Adaptive controller is told, and what it decides. One that moves a bound refuses by itself; one that moves
// a rate is the policy's last adjuster, and learns of what the limit has decided.

// enterAdaptive takes a place in the bound that the policy's controller moves.
func (v *visit) enterAdaptive(a *active) (err error) {
	defer v.contain(a.policy, "Adaptive", &err)
	var n, bound int
	var ok bool
	switch {
	case v.alone:
		n, bound = a.Adaptive.InFlight(), a.Adaptive.Bound()
		ok = n < bound-a.reserved(bound, 1)
	case a.Shadow:
		n, bound, ok = a.Adaptive.Admit(v.now)
		a.held = true
	default:
		n, bound, ok = a.Adaptive.Acquire(v.now, a.reserve)
		a.held = ok
	}
	a.full, a.adaptive, a.shed = !ok, !ok, !ok && n < bound
	if a.InFlight == 0 || !ok {
		a.bound = len(v.bounds)
		v.bounds = append(v.bounds, limiter.Decision{Allowed: ok, Limit: limiter.Limit{Burst: a.most}, Remaining: max(0, bound-n)})
	}
	return nil
}

// learn tells controllers of rates what has become of the request.
func (v *visit) learn(out outcome) {
	if v.look {
		return
	}
	for k := range v.active {
		a := &v.active[k]
		if a.Adaptive == nil || a.waived || !a.rate || a.err != nil {
			continue
		}
		v.learnOf(a, out)
	}
}

func (v *visit) learnOf(a *active, out outcome) {
	var err error
	defer v.contain(a.policy, "Adaptive", &err)
	if a.violated {
		a.Adaptive.Reject(v.now)
	}
	if out == passes && !v.alone {
		a.Adaptive.Admit(v.now)
		a.held = true
	}
}

// suspend stops the time of requests while they are held.
func (v *visit) suspend() {
	for k := range v.active {
		if a := &v.active[k]; a.held {
			v.suspendOne(a)
		}
	}
	v.suspended = true
}

func (v *visit) suspendOne(a *active) {
	var err error
	defer v.contain(a.policy, "Adaptive", &err)
	a.Adaptive.Suspend(v.began)
}

// begin starts the time of requests anew: what they were held for is not the service's.
func (v *visit) begin() {
	now := v.guard.clock.now()
	for k := range v.active {
		if a := &v.active[k]; a.held {
			v.resume(a, now)
		}
	}
	v.began, v.suspended = now, false
}

func (v *visit) resume(a *active, now time.Time) {
	var err error
	defer v.contain(a.policy, "Adaptive", &err)
	a.Adaptive.Resume(now)
}

// result tells what a request that went on is to a controller, by its status: 0 if nobody knows it.
func (v *visit) result(status int) (r limiter.Result) {
	if !v.stage.adaptive {
		return limiter.ResultUnmeasured
	}
	defer func() {
		if recover() != nil { // of the user's writer or context: the place has to be given back all the same
			if r = limiter.ResultUnmeasured; v.long {
				r = limiter.ResultDetached
			}
		}
	}()
	end := ended(v.r.Context())
	switch {
	case v.long:
		return limiter.ResultDetached
	case v.answeredFurtherIn():
		return limiter.ResultWithdrawn
	case v.degraded != nil, v.degradedFurtherIn(), status == 0, errors.Is(end, context.Canceled):
		return limiter.ResultUnmeasured
	case status >= http.StatusInternalServerError, errors.Is(end, context.DeadlineExceeded):
		return limiter.ResultFailed
	}
	return limiter.ResultSucceeded
}

// watchLong returns a writer that notices what is long by its nature: upgraded connections and streams of events.
func (v *visit) watchLong(w http.ResponseWriter) http.ResponseWriter {
	gen := v.gen.Load()
	detach := func() {
		if v.gen.Load() != gen || v.long { // the handler may hold its writer for longer than the visit lasts
			return
		}
		v.long = true
		for k := range v.active {
			if a := &v.active[k]; a.held {
				v.detach(a)
			}
		}
	}
	streams := func() {
		if isEvents(w.Header().Get("Content-Type")) {
			detach()
		}
	}
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				if code == http.StatusSwitchingProtocols {
					detach()
				} else if code >= http.StatusOK {
					streams()
				}
				next(code)
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				streams()
				next()
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (conn net.Conn, rw *bufio.ReadWriter, err error) {
				if conn, rw, err = next(); err == nil {
					detach()
				}
				return conn, rw, err
			}
		},
	})
}

func (v *visit) detach(a *active) {
	var err error
	defer v.contain(a.policy, "Adaptive", &err)
	a.Adaptive.Detach(v.began)
}

// isEvents reports whether a response goes on and on. Case does not matter in a media type (RFC 9110, 8.3.1), nor what
// parameters it has.
func isEvents(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

// leaveAdaptive gives places back.
func (v *visit) leaveAdaptive(r limiter.Result) {
	if v.suspended { // it has left while it was held
		v.begin()
	}
	var now time.Time
	for k := range v.active {
		a := &v.active[k]
		if !a.held {
			continue
		}
		if now.IsZero() {
			now = v.guard.clock.now()
		}
		a.held = false
		v.leaveOne(a, now, r)
	}
}

func (v *visit) leaveOne(a *active, now time.Time, r limiter.Result) {
	var err error
	defer v.contain(a.policy, "Adaptive", &err)
	a.Adaptive.Release(now, v.began, r)
}

// answeredMark is in the header of what a guard has answered itself, without a line and so never sent. To controllers of stages
// further out such a request never came: whether the service is well, a refusal does not tell, and neither does its time.
const answeredMark = "X-Ratelimit-Answered"

func (v *visit) answers() {
	if controllers.Load() {
		v.w.Header()[answeredMark] = noLine
	}
}

// controllers says that some guard of the process has had a policy with a controller. Without one nobody reads the mark, and
// the fields of a refusal fit a small map.
var controllers atomic.Bool

// answeredFurtherIn reports whether another stage has answered the request.
func (v *visit) answeredFurtherIn() bool {
	lines, marked := v.w.Header()[answeredMark]
	return marked && len(lines) == 0
}
