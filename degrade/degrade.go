// Package degrade is what a limited request gets instead of a refusal: a [Handler] is asked when a policy says no, and
// may answer something useful, let the request through marked as degraded, or pass.
//
// A chain ends in the plain refusal, which cannot fail: a handler that panics or passes costs nothing but itself.
// Degrading takes nothing from the policy that refused.
package degrade

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Outcome is what a [Handler] did.
type Outcome uint8

const (
	// Skip: not mine, ask the next one. Nothing was written.
	Skip Outcome = iota
	// Done: the response has been written.
	Done
	// Proceed: let the request through, marked as degraded (see [FromContext]). Nothing was written. It is charged to no policy
	// of its stage: where one refuses, none takes. A policy that has to count such requests belongs into a stage of its own,
	// or [Within] bounds them.
	Proceed
)

// Handler serves a request that a policy has refused. It may write a whole response (Done), or write nothing (Skip,
// Proceed). Once something is written the answer is final, whatever is returned; a panic then breaks off the connection
// (http.ErrAbortHandler), so that nobody takes half a response for a whole one. The headers of the decision are set
// already; Retry-After is taken off again where the status is none of 429, 503 and 3xx. Handlers are safe for concurrent
// use.
type Handler interface {
	Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome
}

// Recorder is a [Handler] that wants to see responses to allowed requests, to replay them later. Record returns the
// writer to hand on, usually one around w, and a function that is called once the handler is done: ok says that it
// returned without a panic and that the response is complete.
type Recorder interface {
	Record(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func(ok bool))
}

// Moded is a [Handler] that names its mode, as events and metrics tell it: cache, read_only, static, queue, redirect,
// shed, flag. The mode of others is "func".
type Moded interface{ Mode() string }

// ModeOf returns the mode of h.
func ModeOf(h Handler) string {
	if m, ok := h.(Moded); ok {
		return m.Mode()
	}
	return "func"
}

// Cause is whose limit refused a request.
type Cause uint8

const (
	// Quota: the caller's own quota is spent; the plain refusal is 429.
	Quota Cause = iota
	// Capacity: the service protects itself, by an adaptive limit or a bound on requests in flight; 503.
	Capacity
)

// Denial is why a request was refused. It is valid until Degrade returns.
type Denial struct {
	Policy     string           // the policy whose handler is asked
	Violated   []string         // all policies that refused, in configuration order
	Cause      Cause            // of the plain refusal
	Status     int              // of the plain refusal
	Key        limiter.Key      // of Policy; never to be shown
	Decision   limiter.Decision // of Policy
	RetryAfter time.Duration    // the longest of all that refused; limiter.Never if one can never pass

	// Mode is set by the handler that serves, for events: the innermost one knows.
	Mode string

	// Budget takes one unit of another limit for the same key, on the policy's limiter. It is nil where a handler is
	// called outside of a guard.
	Budget func(ctx context.Context, name string, limit limiter.Limit) (limiter.Decision, error)

	// Contain reports the panic of one handler of a chain, and whether the next one may be asked: not once something has
	// been written. It is nil where a handler is called outside of a guard, where panics pass on.
	Contain func(panicked any) bool
}

// Func is a function as a [Handler].
type Func func(w http.ResponseWriter, r *http.Request, d *Denial) Outcome

// Degrade calls f.
func (f Func) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome { return f(w, r, d) }

// First asks handlers in order until one does not skip. A handler that panics before anything was written counts as
// having skipped; the guard reports the panic.
func First(handlers ...Handler) Handler { return first(handlers) }

type first []Handler

func (f first) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	for _, h := range f {
		d.Mode = ""
		if out := ask(h, w, r, d); out != Skip {
			if d.Mode == "" {
				d.Mode = ModeOf(h)
			}
			return out
		}
	}
	d.Mode = ""
	return Skip
}

// ask asks one handler of a chain, whose panic is not the end of the chain.
func ask(h Handler, w http.ResponseWriter, r *http.Request, d *Denial) (out Outcome) {
	if d.Contain != nil {
		defer func() {
			if p := recover(); p != nil {
				if out = Skip; !d.Contain(p) {
					panic(p)
				}
			}
		}()
	}
	return h.Degrade(w, r, d)
}

// Record hands the response to every recorder of the chain.
func (f first) Record(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func(bool)) {
	var done []func(bool)
	for _, h := range f {
		if rec, ok := h.(Recorder); ok {
			var end func(bool)
			if w, end = rec.Record(w, r); end != nil {
				done = append(done, end)
			}
		}
	}
	return w, func(ok bool) {
		for _, end := range done {
			end(ok)
		}
	}
}

// Records reports whether h wants to see allowed responses.
func Records(h Handler) bool {
	if f, ok := h.(first); ok {
		for _, h := range f {
			if Records(h) {
				return true
			}
		}
		return false
	}
	if b, ok := h.(*within); ok {
		return Records(b.h)
	}
	_, ok := h.(Recorder)
	return ok
}

// Within gives a handler a budget of its own, per key of the policy: what proceeds or is replayed under attack stays
// bounded by limit. Over the budget, or where the budget cannot be asked, the handler is skipped.
func Within(limit limiter.Limit, h Handler) Handler { return &within{limit: limit, h: h} }

type within struct {
	limit limiter.Limit
	h     Handler
}

func (b *within) Mode() string { return ModeOf(b.h) }

func (b *within) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	if d.Budget == nil {
		return Skip
	}
	if dec, err := d.Budget(r.Context(), b.Mode(), b.limit); err != nil || !dec.Allowed {
		return Skip
	}
	return b.h.Degrade(w, r, d)
}

func (b *within) Record(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func(bool)) {
	if rec, ok := b.h.(Recorder); ok {
		return rec.Record(w, r)
	}
	return w, func(bool) {}
}

// Validate reports everything wrong with the settings of h: an invalid budget, a nil handler in a chain, two budgets of one
// mode with different limits, which would share a counter.
func Validate(h Handler) error {
	budgets := make(map[string]limiter.Limit)
	var errs []error
	var walk func(h Handler)
	walk = func(h Handler) {
		switch h := h.(type) {
		case nil:
			errs = append(errs, errors.New("degrade: a handler is nil"))
		case Func:
			if h == nil {
				errs = append(errs, errors.New("degrade: a Func is nil"))
			}
		case first:
			for _, h := range h {
				walk(h)
			}
		case *within:
			if err := h.limit.Validate(); err != nil {
				errs = append(errs, fmt.Errorf("degrade: Within: %w", err))
			}
			if walk(h.h); h.h == nil {
				return
			}
			if other, ok := budgets[h.Mode()]; ok && other != h.limit {
				errs = append(errs, fmt.Errorf("degrade: Within: two budgets of mode %q, %v and %v, would share a counter", h.Mode(), other, h.limit))
			}
			budgets[h.Mode()] = h.limit
		}
	}
	walk(h)
	return errors.Join(errs...)
}

// Info is the mark of a degraded request.
type Info struct {
	Policy     string
	Mode       string
	Cause      Cause
	RetryAfter time.Duration
}

type infoKey struct{}

// NewContext returns ctx marked as degraded.
func NewContext(ctx context.Context, i Info) context.Context {
	return context.WithValue(ctx, infoKey{}, i)
}

// FromContext returns the mark of a degraded request, by which a handler decides what to leave out.
func FromContext(ctx context.Context) (Info, bool) {
	i, ok := ctx.Value(infoKey{}).(Info)
	return i, ok
}
