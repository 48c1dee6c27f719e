package middleware

import (
	"errors"
	"slices"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// take asks the limiters, local ones first and the one with a queue last, as a place in a queue cannot be given back.
// Shadow policies that have to be asked apart follow, when nothing can be refused any more.
func (v *visit) take() outcome {
	if v.stage.simple && !v.look {
		if v.gatherSimple(); len(v.takes) == 0 {
			return passes
		}
		out, closed := v.askFrom(0, 0, 0)
		if closed {
			return unavailable
		}
		return out
	}
	queue, out := v.plan()
	if out != passes {
		return out
	}
	open := true
	rounds := v.stage.enforced + 1
	if v.stage.shadows {
		rounds += len(v.stage.stores)
	}
	for round := range rounds {
		store := round
		switch {
		case round == v.stage.enforced:
			store = queue
		case round > v.stage.enforced:
			store = round - v.stage.enforced - 1
		case round == queue:
			continue
		}
		if store < 0 {
			continue
		}
		from := len(v.takes)
		shadows := v.gather(store, store == queue, round > v.stage.enforced)
		if len(v.takes) == from {
			continue
		}
		switch out, closed := v.askFrom(store, from, shadows); {
		case out != passes:
			return out
		case closed:
			open = false
		}
	}
	if !open {
		v.giveBack(len(v.takes))
		return unavailable
	}
	return passes
}

// gatherSimple is what the rounds gather where all policies take the same way.
func (v *visit) gatherSimple() {
	v.takes = slices.Grow(v.takes, len(v.active))[:len(v.active)]
	for k := range v.active {
		a, t := &v.active[k], &v.takes[k]
		a.take = k
		t.Decision = limiter.Decision{}
		t.Key, t.Limit, t.N, t.MaxDelay, t.Shadow, t.NoCache = a.key, *a.limit, 1, 0, false, false
	}
}

// askFrom lets a store decide the takes from from on, of which those from shadows on are of shadow policies. closed: the
// store is away, and a policy fails closed.
func (v *visit) askFrom(store, from, shadows int) (out outcome, closed bool) {
	ok, err := v.askStore(store, from)
	if err != nil && shadows > from && shadows < len(v.takes) && malformed(err) {
		// Perhaps only what a shadow policy asks for cannot be decided, and that must not refuse anybody. Nothing has
		// been taken.
		v.undecided(shadows, err)
		v.forget(shadows)
		ok, err = v.askStore(store, from)
	}
	switch {
	case err == nil:
		v.decided(from)
		if !ok && !v.look {
			v.refused(from)
			v.giveBack(from)
			return limited, false
		}
		if v.stage.gated && !v.look && !v.leavesReserves(from) {
			v.giveBack(len(v.takes))
			return limited, false
		}
	case isContext(v.r.Context(), err):
		v.giveBack(from)
		return canceled, false
	default:
		if out := v.undecided(from, err); out == broken {
			v.giveBack(from)
			return out, false
		} else if out == unavailable {
			return passes, true
		}
	}
	return passes, false
}

// forget drops the takes from from on.
func (v *visit) forget(from int) {
	for k := range v.active {
		a := &v.active[k]
		if a.take >= from {
			a.take = -1
		}
		if a.twin >= from {
			a.twin = -1
		}
	}
	v.takes = v.takes[:from]
}

// plan answers what needs no limiter, and finds the store of the queue, −1 if there is none.
func (v *visit) plan() (queue int, out outcome) {
	queue = -1
	for k := range v.active {
		a := &v.active[k]
		if a.Limit == nil || a.err != nil || a.waived {
			continue
		}
		switch {
		case isStateless(a.limit):
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
	a.take, a.decided = len(v.takes), true
	v.takes = append(v.takes, limiter.Take{
		Key: a.key, Limit: *a.limit, N: a.cost, Shadow: a.Shadow, Decision: stateless(*a.limit, a.cost, v.now),
	})
	if a.violated = !v.takes[a.take].Decision.Allowed; a.violated {
		a.adaptive = v.passesNominal(a)
	}
}

// stateless decides a limit that keeps no state.
func stateless(l limiter.Limit, n int, now time.Time) limiter.Decision {
	rule, err := limiter.NewRule(l)
	if err != nil { // never: the two limits are valid
		return limiter.Decision{Limit: l, RetryAfter: limiter.Never}
	}
	return rule.Peek(new(limiter.State), limiter.Reading{Now: now.UnixNano()}, n, 0)
}

// gather appends the takes of one store, those of shadow policies behind the others, and returns where they begin. Queues
// of shadow policies give nothing back either, so they wait until no other limiter can refuse.
func (v *visit) gather(store int, queue, last bool) (shadows int) {
	if !last {
		v.gatherOf(store, queue, false, false)
	}
	shadows = len(v.takes)
	if !last && v.lowered {
		v.gatherTwins(store)
	}
	if v.stage.shadows && (last || store < v.stage.enforced) {
		v.gatherOf(store, false, true, last || v.stage.enforced == 1)
	}
	return shadows
}

func (v *visit) gatherOf(store int, queue, shadow, queues bool) {
	for k := range v.active {
		a := &v.active[k]
		if a.policy.store != store || a.Shadow != shadow || a.Limit == nil || a.err != nil || a.waived || a.take >= 0 || a.cost == 0 && !v.look {
			continue
		}
		if shadow && !queues && a.limit.Algorithm == limiter.LeakyBucket {
			continue
		}
		a.take = len(v.takes)
		v.takes = slices.Grow(v.takes, 1)[:a.take+1]
		t := &v.takes[a.take] // in place, for an element is large
		t.MaxDelay, t.Decision = 0, limiter.Decision{}
		t.Key, t.Limit, t.N, t.Shadow, t.NoCache = a.key, *a.limit, a.cost, shadow, a.Refund != nil || a.reserve > 0
		if queue && a.limit.Algorithm == limiter.LeakyBucket {
			t.MaxDelay = v.mayWait(a)
		}
		if v.look {
			t.N = 0
		}
	}
}

// mayWait returns how long the request could be held for a place, and reserves a place among the waiting.
func (v *visit) mayWait(a *active) time.Duration {
	d := a.maxDelay(*a.limit)
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
	if v.waits = v.guard.waiting.enter(v.stage.settings.maxWaiting); !v.waits {
		a.crowded = true
		return 0
	}
	return d
}

// askStore lets one limiter decide the takes from from on as one.
func (v *visit) askStore(store, from int) (ok bool, err error) {
	s := &v.stage.stores[store]
	if s.batcher == nil {
		return v.askEach(s.limiter, from)
	}
	defer v.contain(nil, "Limiter", &err)
	return s.batcher.AllowAll(v.r.Context(), v.now, v.takes[from:])
}

// askEach serves a limiter that decides one take at a time: the one real take first, then the shadow ones, which take
// only if it passes.
func (v *visit) askEach(l limiter.Limiter, from int) (ok bool, err error) {
	ok = true
	for k := from; k < len(v.takes); k++ {
		t := &v.takes[k]
		n := t.N
		if !ok {
			n = 0
		}
		if t.Decision, err = v.allow(l, t.Key, t.Limit, n); err == nil {
			ok = ok && (t.Shadow || t.Decision.Allowed)
			continue
		}
		if !t.Shadow || isContext(v.r.Context(), err) {
			return false, err
		}
		v.undecided(k, err)
		break
	}
	return ok, nil
}

// allow asks a limiter for one take.
func (v *visit) allow(l limiter.Limiter, key limiter.Key, limit limiter.Limit, n int) (d limiter.Decision, err error) {
	defer v.contain(nil, "Limiter", &err)
	return l.Allow(v.r.Context(), key, limit, n)
}

// decided marks the policies whose takes start at from as decided. Shadow policies know their refusal by themselves.
func (v *visit) decided(from int) {
	for k := range v.active {
		a := &v.active[k]
		if a.take < from || a.err != nil {
			continue
		}
		a.decided = true
		if v.look {
			v.foresee(a)
		} else if a.Shadow {
			a.violated = !v.takes[a.take].Decision.Allowed
		}
		v.guard.decidedAgain(a.policy)
	}
}

// foresee turns a look into what the take itself would be answered.
func (v *visit) foresee(a *active) {
	t := &v.takes[a.take]
	d := &t.Decision
	queued := a.limit.Algorithm == limiter.LeakyBucket && a.cost > 0
	switch {
	case fits(d, a.limit, a.cost, t.MaxDelay):
		if queued {
			d.Delay = d.ResetAfter
		}
		return
	case a.cost > a.limit.Quota():
		d.RetryAfter = limiter.Never
	default:
		if d.Remaining < a.cost {
			d.RetryAfter = d.NextAfter
		}
		if queued {
			d.RetryAfter = max(d.RetryAfter, d.ResetAfter-t.MaxDelay)
		}
	}
	d.Allowed, a.violated = false, true
	a.adaptive = v.passesNominal(a)
}

// fits reports whether n units would be taken where a look has seen d. In a queue what is used has to leave first.
func fits(d *limiter.Decision, l *limiter.Limit, n int, maxDelay time.Duration) bool {
	return n <= d.Remaining && (n == 0 || l.Algorithm != limiter.LeakyBucket || d.ResetAfter <= maxDelay)
}

// refused finds out which policies of a refused group are the cause.
func (v *visit) refused(from int) {
	for k := range v.active {
		a := &v.active[k]
		if a.take < from || a.Shadow || a.err != nil {
			continue
		}
		if a.violated = !v.takes[a.take].Decision.Allowed; a.violated {
			a.adaptive = v.passesNominal(a)
		}
	}
}

// malformed reports whether err is not an outage: asking again, or elsewhere, would not help, and input of the sender may
// be the cause. It never opens the gate.
func malformed(err error) bool {
	return errors.Is(err, limiter.ErrInvalid) || errors.Is(err, errors.ErrUnsupported)
}

// undecided marks the policies whose takes start at from, and says what becomes of the request: unavailable if one of
// them fails closed, broken if the cause is not an outage, passes otherwise.
func (v *visit) undecided(from int, err error) outcome {
	out := passes
	panicked := errors.Is(err, errPanic)
	for k := range v.active {
		a := &v.active[k]
		if a.take < from || a.err != nil {
			continue
		}
		a.err = err
		if !panicked {
			v.guard.undecided(v.r.Context(), a.policy, a.key, err)
			a.reported = true
		}
		switch {
		case a.Shadow:
		case panicked || malformed(err):
			out = broken
		case a.OnStoreError == FailOpen:
			v.open = true
		case out == passes:
			out = unavailable
		}
	}
	return out
}
