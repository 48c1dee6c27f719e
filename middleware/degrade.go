package middleware

import (
	"context"
	"errors"
	"maps"
	"net/http"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// degradable reports whether all policies that refuse have a chain. One without means the plain refusal: what another
// serves instead must not get around it.
func (v *visit) degradable() bool {
	for k := range v.active {
		if a := &v.active[k]; a.refuses() && a.Degrade == nil {
			return false
		}
	}
	return true
}

// degrade asks the chains of the policies that refuse, in order. before is the Retry-After of the response without ours.
func (v *visit) degrade(before []string) (Pass, bool) {
	refusal := v.refusal(limited)
	var violated []string
	for k := range v.active {
		if a := &v.active[k]; a.refuses() {
			violated = append(violated, a.Name)
		}
	}
	cause := degrade.Quota
	if refusal.Kind == response.Overloaded {
		cause = degrade.Capacity
	}
	told := v.w.Header().Clone()
	for k := range v.active {
		a := &v.active[k]
		if !a.refuses() {
			continue
		}
		d := &degrade.Denial{
			Policy: a.Name, Violated: violated, Cause: cause, Status: refusal.Status(), Key: a.key,
			RetryAfter: refusal.RetryAfter, Budget: v.budget(a),
		}
		if a.take >= 0 {
			d.Decision = v.takes[a.take].Decision
		}
		x := &substitute{guard: v.guard, policy: a.policy, w: v.w, r: v.r, told: told, before: before}
		out := x.serve(d)
		if d.Mode == "" {
			d.Mode = degrade.ModeOf(a.Degrade)
		}
		switch out {
		case degrade.Done:
			v.degraded(d.Mode, x.status.get())
			if x.broken {
				// The client must see that the response is cut off, and not take it for a whole one.
				panic(http.ErrAbortHandler)
			}
			return Pass{}, true
		case degrade.Proceed:
			v.degraded(d.Mode, 0)
			info := degrade.Info{Policy: a.Name, Mode: d.Mode, Cause: cause, RetryAfter: refusal.RetryAfter}
			return Pass{next: true, w: v.w, r: v.r.WithContext(degrade.NewContext(v.context(), info))}, true
		}
	}
	return Pass{}, false
}

// refuses reports whether the policy is a cause of the refusal.
func (a *active) refuses() bool { return !a.Shadow && (a.violated || a.full) }

// substitute is one policy's degrade handler at work.
type substitute struct {
	guard  *core
	policy *policy
	w      http.ResponseWriter
	r      *http.Request
	done   bool        // it has answered: a writer kept for longer changes nothing of the response
	told   http.Header // as the guard has set it
	before []string    // Retry-After without ours
	status status
	broken bool // it panicked behind the first byte
}

// serve asks the handler. After the first byte the answer is final, whatever it says or goes wrong.
func (x *substitute) serve(d *degrade.Denial) (out degrade.Outcome) {
	x.status.before = x.final
	d.Contain = x.contain
	defer func() {
		defer func() { x.done = true }()
		if p := recover(); p != nil && !x.contain(p) {
			x.guard.panicked(x.r.Context(), x.policy, "Degrade", p)
			out, x.broken = degrade.Done, true
		}
		switch {
		case x.status.written():
			out = degrade.Done
		case out == degrade.Done:
			x.final(http.StatusOK) // as the server will answer
		case out == degrade.Proceed:
			x.withoutRetryAfter()
		}
	}()
	return x.policy.Degrade.Degrade(x.status.wrap(x.w), x.r, d)
}

// contain reports a panic of one handler and whether the next may be asked: not once something has been written.
func (x *substitute) contain(panicked any) bool {
	if x.status.written() || x.done {
		return false
	}
	x.guard.panicked(x.r.Context(), x.policy, "Degrade", panicked)
	h := x.w.Header()
	clear(h)
	maps.Copy(h, x.told.Clone())
	return true
}

// final sees the status before it is written. Retry-After belongs to answers that say no; where a redirect has it, it
// means the time before following.
func (x *substitute) final(code int) {
	if !x.done && code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable && code/100 != 3 {
		x.withoutRetryAfter()
	}
}

func (x *substitute) withoutRetryAfter() {
	if h := x.w.Header(); x.before != nil {
		h["Retry-After"] = x.before
	} else {
		delete(h, "Retry-After")
	}
}

// budget lets a degrade handler take from a limit of its own, per key of the policy. Its counter is the policy's with
// the handler's mode behind a slash, which no policy's name can hold.
func (v *visit) budget(a *active) func(context.Context, string, limiter.Limit) (limiter.Decision, error) {
	key, l := limiter.Key{Space: a.space, ID: a.id}, a.Limiter
	if l == nil {
		l = v.stage.settings.Limiter
	}
	return func(ctx context.Context, name string, limit limiter.Limit) (limiter.Decision, error) {
		if l == nil {
			return limiter.Decision{}, errors.ErrUnsupported
		}
		key := key
		key.Space += "/" + name
		return l.Allow(ctx, key, limit, 1)
	}
}
