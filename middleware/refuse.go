package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// retryUnavailable is told when nobody knows how long the store will be away.
const retryUnavailable = 2 * time.Second

// refuse answers a request that does not go on: by the degrade chain where every policy that refuses has one, else by
// the plain refusal.
func (v *visit) refuse(out outcome) Pass {
	v.release()
	verdict := v.verdict(out)
	v.observeRefused(out)
	defer v.done()
	if out == limited {
		v.writeHeaders()
		if p, ok := v.degrade(&verdict); ok {
			return p
		}
	}
	if v.entry.Defer {
		verdict.Refusal = v.guard.renderer.Prepare(v.w.Header(), v.r, verdict.Refusal)
		return Pass{no: &verdict}
	}
	v.guard.renderer.Refuse(v.w, v.r, verdict.Refusal)
	return Pass{}
}

// refusal says what is told to the client, for all that refuse together.
func (v *visit) refusal(out outcome) response.Refusal {
	f := response.Refusal{At: v.now}
	switch out {
	case forbidden:
		f.Kind = response.Forbidden
		return f
	case unavailable:
		f.Kind, f.RetryAfter = response.Unavailable, retryUnavailable
		return f
	case broken:
		f.Kind, f.RetryAfter = response.Unavailable, limiter.Never
		return f
	}
	f.Kind, f.Silent = response.Overloaded, true
	longest := time.Duration(-1)
	for k := range v.active {
		a := &v.active[k]
		if a.Shadow || !a.violated && !a.full {
			continue
		}
		if a.violated && !a.adaptive {
			f.Kind = response.QuotaExceeded
		}
		if a.set == response.Off {
			continue
		}
		f.Silent = false
		if a.violated {
			f.Policies = append(f.Policies, a.Name)
			if wait := v.takes[a.take].Decision.RetryAfter; wait > longest {
				longest, f.Messages = wait, a.messages
			}
		}
		if a.full {
			f.Policies = append(f.Policies, a.inflight.Name())
			if longest < 0 {
				longest, f.Messages = 0, a.messages
			}
		}
	}
	f.RetryAfter = max(longest, 0)
	return f
}

// degrade asks the chains of the policies that refuse. One without a chain means the plain refusal: what another serves
// instead must not get around it.
func (v *visit) degrade(verdict *Verdict) (Pass, bool) {
	var violated []string
	for k := range v.active {
		a := &v.active[k]
		if a.Shadow || !a.violated && !a.full {
			continue
		}
		if a.Degrade == nil {
			return Pass{}, false
		}
		violated = append(violated, a.Name)
	}
	cause := degrade.Quota
	if verdict.Refusal.Kind == response.Overloaded {
		cause = degrade.Capacity
	}
	for k := range v.active {
		a := &v.active[k]
		if a.Shadow || !a.violated && !a.full {
			continue
		}
		d := &degrade.Denial{
			Policy: a.Name, Violated: violated, Cause: cause, Status: verdict.Status, Key: a.key,
			RetryAfter: verdict.Refusal.RetryAfter, Budget: v.budget(a),
		}
		if a.take >= 0 {
			d.Decision = v.takes[a.take].Decision
		}
		w, status, written := watch(v.w)
		out := degrade.Skip
		err := v.guarded(a.policy, "Degrade", func() error { out = a.Degrade.Degrade(w, v.r, d); return nil })
		if d.Mode == "" {
			d.Mode = degrade.ModeOf(a.Degrade)
		}
		switch {
		case err != nil && written(), out == degrade.Done:
			// After the first byte the answer is final, whatever went wrong behind it.
			v.guard.degraded(v.r.Context(), a, d.Mode, status())
			return Pass{}, true
		case err == nil && out == degrade.Proceed:
			v.guard.degraded(v.r.Context(), a, d.Mode, 0)
			info := degrade.Info{Policy: a.Name, Mode: d.Mode, Cause: cause, RetryAfter: verdict.Refusal.RetryAfter}
			return Pass{next: true, w: v.w, r: v.r.WithContext(degrade.NewContext(v.r.Context(), info))}, true
		}
	}
	return Pass{}, false
}

// budget lets a degrade handler take from a limit of its own, per key of the policy. Its counter is the policy's with
// the handler's name behind it.
func (v *visit) budget(a *active) func(context.Context, string, limiter.Limit) (limiter.Decision, error) {
	key, l := limiter.Key{Space: a.space, ID: a.id}, a.Limiter
	if l == nil {
		l = v.guard.cfg.Limiter
	}
	return func(ctx context.Context, name string, limit limiter.Limit) (limiter.Decision, error) {
		if l == nil {
			return limiter.Decision{}, errors.ErrUnsupported
		}
		key := key
		key.Space += "." + name
		return l.Allow(ctx, key, limit, 1)
	}
}

// watch is watchStatus with whether anything was written.
func watch(w http.ResponseWriter) (http.ResponseWriter, func() int, func() bool) {
	x := new(status)
	return x.wrap(w), x.get, x.written
}

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
		x.Status = x.Refusal.Status()
	}
	if out == passes || v.entry.Defer || v.look {
		x.Policies = make([]Standing, 0, len(v.active))
		for k := range v.active {
			a := &v.active[k]
			s := Standing{Policy: a.Name, Decided: a.decided, Violated: a.violated || a.full, InFlight: a.full, Shadow: a.Shadow}
			if a.take >= 0 {
				s.Decision = v.takes[a.take].Decision
			}
			x.Policies = append(x.Policies, s)
		}
	}
	return x
}

// Peek says how r stands with the policies of this stage, and takes nothing: Allowed is what the guard would answer if
// nobody came first. An error means that it could not tell.
func (g *Guard) Peek(r *http.Request, e Entry) (Verdict, error) { return g.examine(r, e, true) }

// Check decides r as [Guard.Enter] does and takes what it allows, but writes nothing and never waits: Verdict.Delay says
// how long the caller has to hold the request. Bounds on requests in flight are looked at and not entered, as nobody
// would leave them. An error means that no decision was made and nothing taken, where the guard would have refused for
// that; a policy that fails open is an allowed one that is not Decided.
func (g *Guard) Check(r *http.Request, e Entry) (Verdict, error) { return g.examine(r, e, false) }

func (g *Guard) examine(r *http.Request, e Entry, look bool) (Verdict, error) {
	st := g.stage()
	if st == nil || !g.cfg.CountPreflights && preflight(r) {
		return Verdict{Allowed: true}, nil
	}
	v := g.visit(st, nil, r, e)
	defer v.done()
	if !v.pick() {
		return Verdict{Allowed: true}, nil
	}
	v.now, v.look = time.Now(), look
	out := v.decide()
	delay := v.delay()
	v.stopWaiting()
	v.release()
	switch out {
	case canceled:
		return Verdict{}, r.Context().Err()
	case unavailable, broken:
		return Verdict{}, v.firstError()
	}
	if look && out == passes {
		for k := range v.active {
			if a := &v.active[k]; !a.Shadow && (a.violated || a.full) {
				out = limited
			}
		}
	}
	v.entry.Defer = true // whoever asks for a verdict wants the policies in it
	x := v.verdict(out)
	x.Delay = delay
	if !look {
		if out == passes {
			v.observe()
		} else {
			v.observeRefused(out)
		}
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
// stage; one that is only for Take belongs into [StageManual]. Its Cost, Key, Plan, InFlight and Refund are not used. A
// Shadow policy always allows.
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
		return limiter.Decision{}, fmt.Errorf("policy %q: %w", policy, err)
	}
	now := time.Now()
	k := p.storeKey(id)
	d, err := p.Limiter.Allow(ctx, k, p.adjusted(now, p.Limit.Current()), n)
	if err != nil {
		if ctx.Err() == nil {
			g.undecided(ctx, p, k, err)
		}
		return limiter.Decision{}, err
	}
	if p.state.undecided.Load() {
		g.decidedAgain(ctx, p)
	}
	if g.observer != nil {
		g.observer.Observe(decisionEvent(ctx, now, p, k, n, d, !d.Allowed))
	}
	d.Allowed = d.Allowed || p.Shadow
	return d, nil
}
