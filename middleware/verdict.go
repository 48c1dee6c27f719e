package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// Verdict is what a guard says of a request, in numbers.
type Verdict struct {
	Allowed bool
	Status  int              // of the refusal: 429, 503, 403; 0 if allowed
	Refusal response.Refusal // what is told of it
	// Delay is how long the request has to be held for its place in a queue.
	Delay time.Duration
	// Policies are those that apply, in configuration order.
	Policies []Standing
}

// Standing is one policy's part in a [Verdict].
type Standing struct {
	Policy   string
	Decision limiter.Decision
	Decided  bool // false: the store could not be asked, or another policy had refused already
	Violated bool // the policy refuses, or would if it were enforced
	InFlight bool // it is the bound on requests in flight that refuses
	Shadow   bool
}

func (v *visit) verdict(out outcome) Verdict {
	x := Verdict{Allowed: out == passes}
	if !x.Allowed {
		x.Refusal = v.refusal(out)
		x.Refusal.Policies = slices.Clone(x.Refusal.Policies) // which is the caller's
		x.Status = x.Refusal.Status()
	}
	if out == passes || v.entry.Defer {
		x.Policies = make([]Standing, 0, len(v.active))
		for k := range v.active {
			a := &v.active[k]
			s := Standing{Policy: a.Name, Decided: a.decided, Violated: a.violated || a.full || a.shut != nil, InFlight: a.full, Shadow: a.Shadow}
			if a.take >= 0 {
				s.Decision = v.takes[a.take].Decision
			}
			x.Policies = append(x.Policies, s)
		}
	}
	return x
}

// Peek says how r stands with the policies of this stage, and takes nothing: Allowed is what the guard would answer if
// nobody came first. The RetryAfter of a policy that would refuse is when one more unit is there; a cost of several may
// have to wait longer. Of events only errors are emitted. An error means that it could not tell.
//
// At most one Entry tells what a framework knows of r; without one, keys and routes are those of net/http.
func (g *Guard) Peek(r *http.Request, known ...Entry) (Verdict, error) {
	return g.examine(r, known, true)
}

// Check decides r as [Guard.Enter] does and takes what it allows, but writes nothing and never waits: Verdict.Delay says
// how long the caller has to hold the request. Bounds on requests in flight are looked at and not entered, as nobody
// would leave them. An error means that no decision was made and nothing taken, where the guard would have refused for
// that; a policy that fails open is an allowed one that is not Decided.
//
// At most one Entry tells what a framework knows of r; without one, keys and routes are those of net/http.
func (g *Guard) Check(r *http.Request, known ...Entry) (Verdict, error) {
	return g.examine(r, known, false)
}

func (g *Guard) examine(r *http.Request, known []Entry, look bool) (Verdict, error) {
	var e Entry
	if len(known) > 0 {
		e = known[0]
	}
	st := g.stageFor(r.Context())
	if st == nil || !st.settings.CountPreflights && preflight(r) {
		return Verdict{Allowed: true}, nil
	}
	e.Defer = true // whoever asks for a verdict wants the policies in it
	v := g.visit(st, nil, r, &e)
	defer v.done()
	if !v.pick() {
		return Verdict{Allowed: true}, nil
	}
	v.now, v.look, v.alone = g.clock.now(), look, true
	out := v.decide()
	delay := v.delay()
	v.stopWaiting()
	switch {
	case out == canceled:
		return Verdict{}, ended(r.Context())
	case out == unavailable, out == broken:
		if !look {
			v.observe() // what becomes of it is the caller's to say
		}
		return Verdict{}, v.firstError()
	case !look && out == passes:
		v.observe()
	case !look:
		v.observeRefused(out)
	}
	if look && out == passes {
		for k := range v.active {
			if v.active[k].refuses() {
				out = limited
			}
		}
	}
	x := v.verdict(out)
	if x.Allowed {
		x.Delay = delay
	}
	return x, nil
}

func (v *visit) firstError() error {
	for k := range v.active {
		if err := v.active[k].err; err != nil && !v.active[k].Shadow {
			return err
		}
	}
	return limiter.ErrUnavailable
}

// Take takes n units of a policy for a key that is known only inside a handler or a worker, such as a phone number or
// the size of an upload. The value is encoded by the guard and may be any non-empty bytes. The policy may be in any
// stage; one that is only for Take belongs into [StageManual]. Its Cost, Key, Plan, InFlight and Refund are not used, and
// its counters are never those of requests: the key is of a kind of its own. A Shadow policy always allows.
//
// An error means that no decision was made: what becomes of that is the caller's to say, OnStoreError is not applied.
// An unknown policy, an empty key and a negative n are errors wrapping [limiter.ErrInvalid].
func (g *Guard) Take(ctx context.Context, policy, key string, n int) (limiter.Decision, error) {
	p := g.core.snapshot.Load().byName[policy]
	switch {
	case p == nil:
		return limiter.Decision{}, fmt.Errorf("%w: there is no policy %q", limiter.ErrInvalid, policy)
	case p.Limit == nil:
		return limiter.Decision{}, fmt.Errorf("%w: policy %q has no Limit", limiter.ErrInvalid, policy)
	case n < 0:
		return limiter.Decision{}, fmt.Errorf("%w: n is negative", limiter.ErrInvalid)
	}
	id, err := keyfunc.Encode("key", key)
	if err != nil {
		return limiter.Decision{}, fmt.Errorf("%w: policy %q: %w", limiter.ErrInvalid, policy, err)
	}
	now := g.clock.now()
	k, d, err := g.takeOf(ctx, p, id, n, now)
	if err != nil {
		switch {
		case errors.Is(err, errPanic): // which is no state of the store
			g.emit(p, &limiter.Event{Kind: limiter.EventError, Context: ctx, Time: now, Key: k, Reason: limiter.ReasonPanic, Err: err})
		case ended(ctx) == nil:
			g.undecided(ctx, p, k, err)
		}
		return limiter.Decision{}, err
	}
	g.decidedAgain(p)
	if g.watch.observer != nil {
		g.observeTake(ctx, now, p, k, n, &d)
	}
	d.Allowed = d.Allowed || p.Shadow
	return d, nil
}

func (g *Guard) observeTake(ctx context.Context, now time.Time, p *policy, k limiter.Key, n int, d *limiter.Decision) {
	defer g.watch.contain()
	p.decided(&limiter.Event{Context: ctx, Time: now, Key: k}, n, d, !d.Allowed)
}

func (g *Guard) takeOf(ctx context.Context, p *policy, id string, n int, now time.Time) (k limiter.Key, d limiter.Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			d, err = limiter.Decision{}, errPanic
			g.panicked(ctx, p, "Take", r)
		}
	}()
	k = p.storeKey(id)
	l := p.adjusted(now, p.Limit.Current())
	if isStateless(&l) {
		return k, stateless(l, n, now), nil
	}
	d, err = p.Limiter.Allow(ctx, k, l, n)
	return k, d, err
}
