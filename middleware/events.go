package middleware

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// What the guard tells its observer and its log. Every event is emitted here.

func decisionEvent(ctx context.Context, now time.Time, p *policy, key limiter.Key, n int, d limiter.Decision, blocked bool) limiter.Event {
	e := limiter.Event{
		Kind: limiter.EventDecision, Context: ctx, Time: now, Policy: p.Name, Key: key, N: n, Decision: d,
	}
	switch {
	case blocked && p.Shadow:
		e.Outcome = limiter.OutcomeShadowBlocked
	case blocked:
		e.Outcome = limiter.OutcomeBlocked
	}
	return e
}

// observe reports the decisions of a request that goes on, one event a policy.
func (v *visit) observe() {
	if v.guard.observer == nil {
		return
	}
	ctx := v.r.Context()
	if err := v.req.Fallback(); err != nil {
		v.guard.emit(limiter.Event{Kind: limiter.EventError, Context: ctx, Time: v.now, Reason: limiter.ReasonClientIP, Err: err})
	}
	for k := range v.active {
		a := &v.active[k]
		switch {
		case a.decided:
			v.guard.emit(decisionEvent(ctx, v.now, a.policy, a.key, a.cost, v.takes[a.take].Decision, a.violated || a.full))
		case a.bound >= 0:
			v.guard.emit(decisionEvent(ctx, v.now, a.policy, limiter.Key{Space: a.space, ID: a.id}, 1, v.bounds[a.bound], a.full))
		case a.err != nil && a.Shadow:
			v.guard.emit(limiter.Event{Kind: limiter.EventError, Context: ctx, Time: v.now, Policy: a.Name, Reason: reasonOf(a.err), Err: a.err})
		}
	}
}

// observeRefused reports the decisions of a refused request, and which policies refused it and why.
func (v *visit) observeRefused(out outcome) {
	if v.guard.observer == nil {
		return
	}
	v.observe()
	ctx := v.r.Context()
	for k := range v.active {
		a := &v.active[k]
		e := limiter.Event{Kind: limiter.EventRejected, Context: ctx, Time: v.now, Policy: a.Name, Key: a.key, Err: a.err}
		switch {
		case a.Shadow:
			continue
		case a.full:
			e.Reason = limiter.ReasonInFlight
		case a.violated:
			e.Decision = v.takes[a.take].Decision
			switch {
			case e.Decision.RetryAfter == limiter.Never:
				e.Reason = limiter.ReasonNever
			case a.adaptive:
				e.Reason = limiter.ReasonAdaptive
			case a.crowded:
				e.Reason = limiter.ReasonWaiting
			default:
				e.Reason = limiter.ReasonQuota
			}
		case a.err != nil && (out == unavailable) == (reasonOf(a.err) == limiter.ReasonUnavailable):
			if out == unavailable && a.OnStoreError != FailClosed {
				continue
			}
			e.Reason = reasonOf(a.err)
			if out == forbidden || out == broken {
				v.guard.emit(limiter.Event{Kind: limiter.EventError, Context: ctx, Time: v.now, Policy: a.Name, Reason: e.Reason, Err: a.err})
			}
		default:
			continue
		}
		v.guard.emit(e)
	}
}

// observeCanceled reports a request whose context ended before it could go on.
func (v *visit) observeCanceled() {
	if v.guard.observer == nil {
		return
	}
	for k := range v.active {
		a := &v.active[k]
		v.guard.emit(limiter.Event{
			Kind: limiter.EventError, Context: v.r.Context(), Time: v.now, Policy: a.Name,
			Reason: limiter.ReasonCanceled, Err: v.r.Context().Err(),
		})
	}
}

func (c *core) emit(e limiter.Event) {
	if c.observer != nil {
		c.observer.Observe(e)
	}
}

// degraded reports what a refused request got instead.
func (c *core) degraded(ctx context.Context, a *active, mode string, status int) {
	c.emit(limiter.Event{
		Kind: limiter.EventDegraded, Context: ctx, Time: time.Now(), Policy: a.Name, Key: a.key, Mode: mode, N: status,
	})
}

// undecided counts a policy that could not decide, and logs the first of a row.
func (c *core) undecided(ctx context.Context, p *policy, key limiter.Key, err error) {
	now := time.Now()
	reason := reasonOf(err)
	c.emit(limiter.Event{Kind: limiter.EventError, Context: ctx, Time: now, Policy: p.Name, Key: key, Reason: reason, Err: err})
	if p.state.undecided.CompareAndSwap(false, true) {
		c.emit(limiter.Event{Kind: limiter.EventStoreState, Time: now, Policy: p.Name, State: 1, Reason: reason, Err: err})
		c.log.Error("spillway: a policy cannot decide", "policy", p.Name, "cause", reason, "error", err)
	}
}

// decidedAgain ends a row of undecided.
func (c *core) decidedAgain(_ context.Context, p *policy) {
	if p.state.undecided.CompareAndSwap(true, false) {
		c.emit(limiter.Event{Kind: limiter.EventStoreState, Time: time.Now(), Policy: p.Name})
		c.log.Info("spillway: a policy decides again", "policy", p.Name)
	}
}

// panicked reports a contained panic of a callback; p is nil where it belongs to no one policy.
func (c *core) panicked(ctx context.Context, p *policy, callback string, value any) {
	name := ""
	if p != nil {
		name = p.Name
	}
	c.emit(limiter.Event{
		Kind: limiter.EventPanic, Context: ctx, Time: time.Now(), Policy: name, Name: callback, Reason: limiter.ReasonPanic,
		Err: fmt.Errorf("%w: %v", errPanic, value),
	})
	c.panics.Do(func() {
		c.log.Error("spillway: a callback panicked; further panics are only counted", "policy", name, "callback", callback,
			"panic", fmt.Sprint(value), "stack", string(debug.Stack()))
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
	case errors.Is(err, context.Canceled):
		return limiter.ReasonCanceled
	}
	return limiter.ReasonUnavailable
}
