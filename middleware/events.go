package middleware

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spillway-go/spillway/internal/errtext"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// What the guard tells its observer and its log. Every event is emitted here.

// emit shows the observer an event about policy p, or about none (nil). Its panic must not cost a request.
func (c *core) emit(p *policy, e *limiter.Event) {
	if c.watch.observer == nil {
		return
	}
	defer c.watch.contain()
	o := c.watch.observer
	if p != nil {
		e.Policy, o = p.Name, p.observer
	}
	o.Observe(*e)
}

// decided reports what p decided about n units of e.Key, e.Context and e.Time being set. Of e all else is zero or of a
// decision before: an event is large. The caller contains a panic of the observer.
func (p *policy) decided(e *limiter.Event, n int, d *limiter.Decision, blocked bool) {
	e.Kind, e.Policy, e.N, e.Outcome = limiter.EventDecision, p.Name, n, limiter.OutcomeAllowed
	e.Decision = *d
	switch {
	case blocked && p.Shadow:
		e.Outcome = limiter.OutcomeShadowBlocked
	case blocked:
		e.Outcome = limiter.OutcomeBlocked
	}
	p.observer.Observe(*e)
}

// observe reports the decisions about a request, one event a policy, and what could not be decided. A panic of the observer
// ends it: what is left to tell is lost, for a defer around each event would be felt.
func (v *visit) observe() {
	if v.guard.watch.observer == nil {
		return
	}
	defer v.guard.watch.contain()
	var e limiter.Event // on the stack, where writing it costs no barrier
	v.report(&e)
}

// observeRefused reports the decisions of a refused request, and which policies refused it and why.
func (v *visit) observeRefused(out outcome) {
	if v.guard.watch.observer == nil {
		return
	}
	defer v.guard.watch.contain()
	var e limiter.Event
	v.report(&e)
	e.Kind, e.N, e.Outcome = limiter.EventRejected, 0, limiter.OutcomeAllowed
	for k := range v.active {
		a := &v.active[k]
		reason := a.refusal(out)
		if reason == "" {
			continue
		}
		e.Policy, e.Key, e.Reason, e.Err = a.Name, a.counted(), reason, a.err
		if e.Decision = (limiter.Decision{}); a.violated || a.full || a.shut != nil {
			e.Decision = *v.decision(a)
		}
		a.observer.Observe(e)
	}
}

// report is observe with an event to write in, and leaves it with the fields of decisions.
func (v *visit) report(e *limiter.Event) {
	ctx := v.r.Context()
	e.Context, e.Time = ctx, v.now
	if err := v.req.Fallback(); err != nil {
		v.guard.emit(nil, &limiter.Event{Kind: limiter.EventError, Context: ctx, Time: v.now, Reason: limiter.ReasonClientIP, Err: err})
	}
	for k := range v.active {
		a := &v.active[k]
		switch {
		case a.decided:
			e.Key = a.key
			a.policy.decided(e, a.cost, v.decision(a), a.violated || a.full)
		case a.shut != nil:
			e.Key = a.counted()
			a.policy.decided(e, a.cost, v.decision(a), true)
		case a.bound >= 0 && a.err == nil:
			e.Key = a.counted()
			a.policy.decided(e, 1, &v.bounds[a.bound], a.full)
		}
		if a.err != nil && !a.reported {
			a.reported = true
			v.guard.emit(a.policy, &limiter.Event{
				Kind: limiter.EventError, Context: ctx, Time: v.now, Key: a.key, Reason: reasonOf(a.err), Err: a.err,
			})
		}
	}
}

// counted returns the key under which the policy counts: with a bound on requests in flight alone, it asks no limiter.
func (a *active) counted() limiter.Key {
	if a.key == (limiter.Key{}) && a.id != "" {
		return limiter.Key{Space: a.space, ID: a.id}
	}
	return a.key
}

// refusal returns why the policy refuses a request with that outcome, "" if it does not.
func (a *active) refusal(out outcome) string {
	switch {
	case a.Shadow:
	case a.shut != nil:
		return a.shut.mode
	case a.shed:
		return limiter.ReasonShed
	case a.full && a.adaptive:
		return limiter.ReasonAdaptive
	case a.full:
		return limiter.ReasonInFlight
	case a.violated && a.adaptive:
		return limiter.ReasonAdaptive
	case a.violated && a.cost > a.limit.Quota():
		return limiter.ReasonNever
	case a.violated && a.crowded:
		return limiter.ReasonWaiting
	case a.violated:
		return limiter.ReasonQuota
	case a.err == nil || out == limited:
	case out == unavailable && a.OnStoreError == FailClosed,
		out == forbidden && errors.Is(a.err, keyfunc.ErrNoKey),
		out == broken && reasonOf(a.err) != limiter.ReasonUnavailable:
		return reasonOf(a.err)
	}
	return ""
}

// observeCanceled reports a request whose context ended before it could go on.
func (v *visit) observeCanceled() {
	if v.guard.watch.observer == nil {
		return
	}
	for k := range v.active {
		v.guard.emit(v.active[k].policy, &limiter.Event{
			Kind: limiter.EventError, Context: v.r.Context(), Time: v.now, Reason: limiter.ReasonCanceled, Err: ended(v.r.Context()),
		})
	}
}

// observeDegraded reports what a refused request got instead, for every policy that refused it, and how long it was held
// for that.
func (v *visit) observeDegraded(mode string, status int, held time.Duration) {
	for k := range v.active {
		if a := &v.active[k]; a.refuses() || a.waived || a.queued {
			v.guard.emit(a.policy, &limiter.Event{
				Kind: limiter.EventDegraded, Context: v.r.Context(), Time: time.Now(), Key: a.counted(), Mode: mode, Reason: a.refusal(limited), N: status,
				Duration: held,
			})
		}
	}
}

// undecided counts a policy that could not decide, and logs the first of a row.
func (c *core) undecided(ctx context.Context, p *policy, key limiter.Key, err error) {
	now := time.Now()
	reason := reasonOf(err)
	c.emit(p, &limiter.Event{Kind: limiter.EventError, Context: ctx, Time: now, Key: key, Reason: reason, Err: err})
	if !p.state.fails() {
		return
	}
	c.emit(p, &limiter.Event{Kind: limiter.EventStoreState, Time: now, State: 1, Reason: reason, Err: err})
	if !c.watch.logsStates {
		c.log.Error("spillway: a policy cannot decide", "policy", p.Name, "cause", reason, "error", errtext.Of(err))
	}
}

// decidedAgain ends a row of undecided.
func (c *core) decidedAgain(p *policy) {
	if !p.state.recovers() {
		return
	}
	c.emit(p, &limiter.Event{Kind: limiter.EventStoreState, Time: time.Now()})
	if !c.watch.logsStates {
		c.log.Info("spillway: a policy decides again", "policy", p.Name)
	}
}

// unrefunded counts units that could not be given back. The request was decided, so it is no state of the store.
func (c *core) unrefunded(ctx context.Context, p *policy, key limiter.Key, err error) {
	c.emit(p, &limiter.Event{Kind: limiter.EventError, Context: ctx, Time: time.Now(), Key: key, Reason: limiter.ReasonRefund, Err: err})
}

// keyless tells once for each policy why requests are answered with 403: a client sees no more than that.
func (c *core) keyless(p *policy, err error) {
	if p.state.keyless.CompareAndSwap(false, true) {
		c.log.Warn("spillway: requests without a key are refused; OnNoKey can let other policies decide. "+
			"Is the guard in front of what sets the key?", "policy", p.Name, "cause", errtext.Of(err))
	}
}

// malformed tells once for each policy what it asks for and cannot be decided: each time would be a log that input can
// fill. Panics have a log of their own.
func (c *core) malformed(p *policy, err error) {
	if !errors.Is(err, errPanic) && p.state.malformed.CompareAndSwap(false, true) {
		c.log.Error("spillway: a policy cannot decide some requests, which are refused with 503; this is told once",
			"policy", p.Name, "cause", reasonOf(err), "error", errtext.Of(err))
	}
}

// ignored tells once that a header with client addresses came from a peer that is not trusted.
func (c *core) ignored(peer string) {
	if c.ignoring.CompareAndSwap(false, true) {
		c.log.Warn("spillway: a peer that is not in ClientIP.TrustedProxies sent client addresses, which are not believed. "+
			"If it is a proxy of yours, all its clients share one key", "peer", peer)
	}
}

// panicked reports a contained panic of a callback; p is nil where it belongs to no one policy.
func (c *core) panicked(ctx context.Context, p *policy, callback string, value any) {
	name := ""
	if p != nil {
		name = p.Name
	}
	c.emit(p, &limiter.Event{
		Kind: limiter.EventPanic, Context: ctx, Time: time.Now(), Name: callback, Reason: limiter.ReasonPanic,
		Err: fmt.Errorf("%w: %v", errPanic, value),
	})
	c.panics.Do(func() {
		c.log.Error("spillway: a callback panicked; further panics are only counted", "policy", name, "callback", callback,
			"panic", panicText(value), "stack", string(debug.Stack()))
	})
}

// reasonOf names the cause of an error for metrics.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, keyfunc.ErrNoKey):
		return limiter.ReasonNoKey
	case errors.Is(err, errPanic):
		return limiter.ReasonPanic
	case errors.Is(err, errors.ErrUnsupported):
		return limiter.ReasonUnsupported
	case errors.Is(err, limiter.ErrInvalid):
		return limiter.ReasonInvalid
	}
	return limiter.ReasonUnavailable
}
