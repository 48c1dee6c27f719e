package middleware

import (
	"errors"
	"fmt"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

var (
	errPanic = errors.New("middleware: a callback panicked")
	errCost  = fmt.Errorf("%w: the cost is negative", limiter.ErrInvalid)
	errQueue = fmt.Errorf("%w: two queues apply to one request, which would have to leave both at one instant", limiter.ErrInvalid)
)

// contain is deferred around code of the user, and turns its panic into errPanic. A crafted input must neither take the
// server down nor open the gate.
func (v *visit) contain(p *policy, callback string, err *error) {
	if r := recover(); r != nil {
		*err = errPanic
		v.guard.panicked(v.r.Context(), p, callback, r)
	}
}

// decide asks every policy that applies, and takes from all or from none.
func (v *visit) decide() outcome {
	if out := v.prepare(); out != passes {
		return out
	}
	return v.ask()
}

// ask is decide for policies whose keys and limits are known.
func (v *visit) ask() outcome {
	out := passes
	if v.stage.gated {
		out = v.before()
	}
	if v.stage.adaptive {
		v.began = v.now
	}
	if out == passes && v.stage.bounded {
		out = v.enterInFlight()
	}
	if out == passes {
		if out = v.take(); out != passes {
			v.release(limiter.ResultWithdrawn)
		}
	}
	if v.stage.adaptive {
		v.learn(out)
	}
	if v.stage.gated {
		v.after(out)
	}
	return out
}

// prepare finds key, cost and limit of every policy. Of what is wrong, the first in configuration order decides.
func (v *visit) prepare() outcome {
	out := passes
	kept := 0
	for k := range v.active {
		a := &v.active[k]
		if a.err == nil {
			a.err = v.keyOf(a)
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
			v.guard.keyless(a.policy, a.err)
		default:
			if out == passes {
				out = broken
			}
			v.guard.malformed(a.policy, a.err)
		}
		if kept != k {
			v.active[kept] = *a
		}
		kept++
	}
	v.active = v.active[:kept]
	if v.req.Ignored() {
		v.guard.ignored(v.r.RemoteAddr)
	}
	if out != passes {
		return out
	}
	v.text = v.keys()
	return v.limits()
}

// limits finds the limit of every policy at this instant.
func (v *visit) limits() outcome {
	out := passes
	for k := range v.active {
		a := &v.active[k]
		if a.err != nil {
			continue
		}
		if a.plain {
			a.id = a.span.In(v.text)
			a.key, a.cost, a.nominal, a.limit = limiter.Key{Space: a.space, ID: a.id}, 1, a.fixed, &a.fixed.limit
			continue
		}
		if a.err = v.limitOf(a, v.text); a.err == nil {
			continue
		}
		v.guard.malformed(a.policy, a.err)
		if !a.Shadow {
			out = broken
		}
	}
	return out
}

// keys returns the text that all keys are cut from. It is copied, unless nobody is there who could keep a part of it.
func (v *visit) keys() string {
	if v.stage.keepsNoKey && v.guard.watch.keepsNoKey {
		return v.req.Borrow()
	}
	return v.req.Freeze()
}

// keyOf finds the key. An error that is none of keyfunc's says that the function could not tell, as when a session store
// is away: no decision can be made.
func (v *visit) keyOf(a *active) (err error) {
	if a.policy.Key == nil {
		return keyfunc.ErrNoKey
	}
	defer v.contain(a.policy, "Key", &err)
	a.span, err = v.req.Resolve(a.policy.Key)
	if err != nil && !errors.Is(err, keyfunc.ErrNoKey) && !errors.Is(err, keyfunc.ErrSkip) && !errors.Is(err, limiter.ErrInvalid) {
		err = fmt.Errorf("%w: no key can be made: %w", limiter.ErrInvalid, err)
	}
	return err
}

// limitOf finds what to take.
func (v *visit) limitOf(a *active, frozen string) (err error) {
	callback := "Limit"
	defer func() {
		if r := recover(); r != nil {
			err = errPanic
			v.guard.panicked(v.r.Context(), a.policy, callback, r)
		}
	}()
	a.id = a.span.In(frozen)
	if a.Partition != nil && !a.Shadow {
		callback = "Partition"
		a.partition = a.Partition(a.span)
	}
	if a.Limit == nil {
		return nil
	}
	if a.StoreKey != nil {
		callback = "StoreKey"
	}
	a.key = a.storeKey(a.id)
	a.cost = 1
	if a.Cost != nil {
		callback = "Cost"
		if a.cost = a.Cost(&v.req); a.cost < 0 {
			return errCost
		}
	}
	callback = "Limit"
	if a.nominal = a.policy.fixed; a.nominal == nil {
		if a.Plan != nil {
			callback = "Plan"
		}
		if a.nominal, err = a.policy.told.of(a.policy, a.policy.nominal(&v.req)); err != nil {
			return err
		}
	}
	if a.limit = &a.nominal.limit; len(a.Adjust) > 0 || a.Adaptive != nil {
		callback = "Adjust"
		return v.adjust(a)
	}
	return nil
}

// adjust lets adjusters move the limit. They move on all the time, so what they return is checked here and not by the
// limiter: an invalid limit of one policy must not spoil the call that decides the others.
func (v *visit) adjust(a *active) error {
	l := a.adjusted(v.now, a.nominal.limit)
	if l == a.nominal.limit {
		return nil
	}
	a.limit = &l
	a.lowered = a.belowNominal()
	v.lowered = v.lowered || a.lowered
	return l.Validate()
}

// enterInFlight takes a place in every bound on requests in flight. It is local and exact, so it comes first.
func (v *visit) enterInFlight() outcome {
	out := passes
	for k := range v.active {
		a := &v.active[k]
		if a.InFlight == 0 && a.Adaptive == nil || a.err != nil || a.waived {
			continue
		}
		if a.Adaptive != nil && !a.rate {
			if a.err = v.enterAdaptive(a); a.err != nil {
				if !a.Shadow {
					out = broken
				}
				continue
			}
			if a.full && !a.Shadow && !v.look && out == passes {
				out = limited
			}
		}
		if a.InFlight == 0 || a.full {
			continue
		}
		var n int
		var ok bool
		bound := a.InFlight - a.reserved(a.InFlight, 1)
		if v.alone {
			n, ok = a.state.inflight.look(a.id, bound)
		} else {
			n, ok = a.state.inflight.enter(a.id, bound, a.Shadow)
			a.slot = ok || a.Shadow
		}
		a.shed = !ok && n < a.InFlight
		if a.full = !ok; a.full && !a.Shadow && !v.look && out == passes { // a look goes on to see the other policies as well
			out = limited
		}
		a.bound = len(v.bounds)
		v.bounds = append(v.bounds, limiter.Decision{
			Allowed: ok, Limit: limiter.Limit{Burst: a.InFlight}, Remaining: max(0, bound-n),
		})
	}
	if out != passes {
		v.release(limiter.ResultWithdrawn)
	}
	return out
}
