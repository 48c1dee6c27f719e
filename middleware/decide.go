package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

var (
	errPanic = errors.New("middleware: a callback panicked")
	errCost  = fmt.Errorf("%w: the cost is negative", limiter.ErrInvalid)
	errQueue = fmt.Errorf("%w: two queues apply to one request, which would have to leave both at one instant", limiter.ErrInvalid)
)

// guarded calls f, which runs code of the user, and turns its panic into errPanic. A crafted input must neither take the
// server down nor open the gate.
func (v *visit) guarded(p *policy, callback string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errPanic
			v.guard.panicked(v.r.Context(), p, callback, r)
		}
	}()
	return f()
}

// decide asks every policy that applies, and takes from all or from none.
func (v *visit) decide() outcome {
	if out := v.prepare(); out != passes {
		return out
	}
	if out := v.enterInFlight(); out != passes {
		return out
	}
	out := v.take()
	if out != passes {
		v.release()
	}
	return out
}

// prepare finds key, cost and limit of every policy. Of what is wrong, the first in configuration order decides.
func (v *visit) prepare() outcome {
	out := passes
	kept := v.active[:0]
	for k := range v.active {
		a := v.active[k]
		if a.err == nil {
			a.err = v.guarded(a.policy, "Key", func() error { return v.keyOf(&a) })
		}
		switch {
		case a.err == nil:
		case errors.Is(a.err, keyfunc.ErrSkip), errors.Is(a.err, keyfunc.ErrNoKey) && a.OnNoKey == SkipPolicy:
			continue
		case a.Shadow:
			// It would have refused; it is observed and does not.
		case errors.Is(a.err, keyfunc.ErrNoKey):
			if out == passes {
				out = forbidden
			}
		default:
			if out == passes {
				out = broken
			}
		}
		kept = append(kept, a)
	}
	clear(v.active[len(kept):])
	v.active = kept
	if out != passes {
		return out
	}
	frozen := v.req.Freeze()
	for k := range v.active {
		a := &v.active[k]
		if a.err != nil {
			continue
		}
		a.err = v.guarded(a.policy, "Limit", func() error { return v.limitOf(a, frozen) })
		if a.err != nil && !a.Shadow {
			out = broken
		}
	}
	return out
}

func (v *visit) keyOf(a *active) (err error) {
	if a.policy.Key == nil {
		return keyfunc.ErrNoKey
	}
	a.span, err = v.req.Resolve(a.policy.Key)
	return err
}

func (v *visit) limitOf(a *active, frozen string) error {
	a.id = a.span.In(frozen)
	if a.Partition != nil && !a.Shadow {
		a.partition = a.Partition(a.span)
	}
	if a.Limit == nil {
		return nil
	}
	a.key = a.storeKey(a.id)
	a.cost = 1
	if a.Cost != nil {
		if a.cost = a.Cost(&v.req); a.cost < 0 {
			return errCost
		}
	}
	a.nominal = a.policy.nominal(&v.req)
	a.limit = a.nominal
	if len(a.Adjust) > 0 {
		a.limit = a.adjusted(v.now, a.nominal)
	}
	var err error
	a.told, err = a.policy.told.of(a.policy, a.nominal)
	return err
}

// enterInFlight takes a place in every bound on requests in flight. It is local and exact, so it comes first.
func (v *visit) enterInFlight() outcome {
	out := passes
	for k := range v.active {
		a := &v.active[k]
		if a.InFlight == 0 || a.err != nil {
			continue
		}
		n, ok := a.state.inflight.enter(a.id, a.InFlight, a.Shadow && !v.look)
		if a.slot = ok || a.Shadow && !v.look; a.slot && v.look {
			a.state.inflight.leave(a.id)
			a.slot = false
		}
		d := limiter.Decision{Allowed: ok, Remaining: max(0, a.InFlight-n)}
		if a.full = !ok; a.full && !a.Shadow {
			out = limited
		}
		v.bounds = append(v.bounds, d)
		a.bound = len(v.bounds) - 1
	}
	if out != passes {
		v.release()
	}
	return out
}

// take asks the limiters, local ones first and the one with a queue last: a place in a queue cannot be given back.
func (v *visit) take() outcome {
	queue, out := v.plan()
	if out != passes {
		return out
	}
	open := true
	for round := range len(v.stage.stores) + 1 {
		store := round
		if round == len(v.stage.stores) {
			if store = queue; queue < 0 {
				break
			}
		} else if round == queue {
			continue
		}
		from := len(v.takes)
		v.gather(store, store == queue)
		group := v.takes[from:]
		if len(group) == 0 {
			continue
		}
		ok, err := v.ask(store, group)
		switch {
		case err == nil:
			v.decided(from)
			if !ok && !v.look {
				v.refused(from)
				v.giveBack(from)
				return limited
			}
		case isContext(v.r.Context(), err):
			v.giveBack(from)
			return canceled
		default:
			if out := v.undecided(from, err); out == broken {
				v.giveBack(from)
				return out
			} else if out == unavailable {
				open = false
			}
		}
	}
	if !open {
		v.giveBack(len(v.takes))
		return unavailable
	}
	return passes
}

// plan answers what needs no limiter, and finds the store of the queue, −1 if there is none.
func (v *visit) plan() (queue int, out outcome) {
	queue = -1
	if cap(v.takes) < len(v.active) {
		v.takes = make([]limiter.Take, 0, max(4, len(v.active)))
	}
	for k := range v.active {
		a := &v.active[k]
		if a.Limit == nil || a.err != nil {
			continue
		}
		switch {
		case a.limit == limiter.Unlimited, a.limit == limiter.DenyAll:
			v.local(a)
			if a.violated && !a.Shadow {
				out = limited
			}
		case a.limit.Algorithm == limiter.LeakyBucket && !a.Shadow && a.cost > 0:
			if queue >= 0 {
				a.err = errQueue
				return queue, broken
			}
			queue = a.store
		}
	}
	if v.look {
		out = passes
	}
	return queue, out
}

// local decides Unlimited and DenyAll, which keep no state anywhere.
func (v *visit) local(a *active) {
	rule, err := limiter.NewRule(a.limit)
	if err != nil {
		a.err = err
		return
	}
	d := rule.Peek(new(limiter.State), limiter.Reading{Now: v.now.UnixNano()}, a.cost, 0)
	a.take, a.decided, a.violated = len(v.takes), true, !d.Allowed
	v.takes = append(v.takes, limiter.Take{Key: a.key, Limit: a.limit, N: a.cost, Shadow: a.Shadow, Decision: d})
}

// gather appends the takes of one store.
func (v *visit) gather(store int, queue bool) {
	for k := range v.active {
		a := &v.active[k]
		if a.policy.store != store || a.Limit == nil || a.err != nil || a.take >= 0 {
			continue
		}
		t := limiter.Take{Key: a.key, Limit: a.limit, N: a.cost, Shadow: a.Shadow}
		if v.look {
			t.N = 0
		}
		if queue && a.limit.Algorithm == limiter.LeakyBucket {
			t.MaxDelay = v.mayWait(a)
		}
		a.take = len(v.takes)
		v.takes = append(v.takes, t)
	}
}

// mayWait returns how long the request could be held for a place, and reserves a place among the waiting.
func (v *visit) mayWait(a *active) time.Duration {
	d := a.maxDelay(a.limit)
	if d <= 0 || a.limit.Quota() == 1 || v.stage.stores[a.policy.store].batcher == nil {
		return 0
	}
	if deadline, ok := v.r.Context().Deadline(); ok {
		if d = min(d, deadline.Sub(v.now)); d <= 0 {
			return 0
		}
	}
	if v.look {
		return d
	}
	if v.waits = v.guard.waiting.enter(); !v.waits {
		a.crowded = true
		return 0
	}
	return d
}

// ask lets one limiter decide its takes as one.
func (v *visit) ask(store int, group []limiter.Take) (ok bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			ok, err = false, errPanic
			v.guard.panicked(v.r.Context(), nil, "Limiter", r)
		}
	}()
	s := &v.stage.stores[store]
	ctx := v.r.Context()
	if s.batcher != nil {
		return s.batcher.AllowAll(ctx, v.now, group)
	}
	return askEach(ctx, s.limiter, group)
}

// askEach serves a limiter that decides one take at a time: the one real take first, shadows only if it passes.
func askEach(ctx context.Context, l limiter.Limiter, group []limiter.Take) (ok bool, err error) {
	ok = true
	for _, shadow := range []bool{false, true} {
		for k := range group {
			t := &group[k]
			if t.Shadow != shadow {
				continue
			}
			n := t.N
			if shadow && !ok {
				n = 0
			}
			if t.Decision, err = l.Allow(ctx, t.Key, t.Limit, n); err != nil {
				if shadow {
					continue
				}
				return false, err
			}
			ok = ok && (shadow || t.Decision.Allowed)
		}
	}
	return ok, nil
}

// decided marks the policies whose takes start at from as decided. Shadow policies know their refusal by themselves.
func (v *visit) decided(from int) {
	for k := range v.active {
		a := &v.active[k]
		if a.take < from || a.err != nil {
			continue
		}
		a.decided = true
		t := &v.takes[a.take]
		if v.look {
			a.violated = t.Decision.Remaining < a.cost
		} else if a.Shadow {
			a.violated = !t.Decision.Allowed
		}
		if a.state.undecided.Load() {
			v.guard.decidedAgain(v.r.Context(), a.policy)
		}
	}
}

// refused finds out which policies of a refused group are the cause.
func (v *visit) refused(from int) {
	for k := range v.active {
		a := &v.active[k]
		if a.take < from || a.Shadow || a.err != nil {
			continue
		}
		a.violated = !v.takes[a.take].Decision.Allowed
		if a.violated && a.limit != a.nominal {
			a.adaptive = v.passesNominal(a)
		}
	}
}

// passesNominal reports whether the nominal limit would have let the request pass: then the service refuses, not the
// caller's quota. A peek at the nominal limit writes nothing.
func (v *visit) passesNominal(a *active) (yes bool) {
	_ = v.guarded(a.policy, "Limiter", func() error {
		d, err := a.Limiter.Allow(v.r.Context(), a.key, a.nominal, 0)
		yes = err == nil && d.Remaining >= a.cost
		return err
	})
	return yes
}

// undecided marks the policies whose takes start at from, and says what becomes of the request: unavailable if one of
// them fails closed, broken if the cause is not an outage, passes otherwise.
func (v *visit) undecided(from int, err error) outcome {
	out := passes
	outage := !errors.Is(err, limiter.ErrInvalid) && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, errPanic)
	for k := range v.active {
		a := &v.active[k]
		if a.take < from {
			continue
		}
		a.err = err
		if !errors.Is(err, errPanic) {
			v.guard.undecided(v.r.Context(), a.policy, a.key, err)
		}
		switch {
		case a.Shadow:
		case !outage:
			out = broken
		case a.OnStoreError == FailClosed && out == passes:
			out = unavailable
		}
	}
	return out
}
