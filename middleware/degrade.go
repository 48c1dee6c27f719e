package middleware

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

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

// refuses reports whether the policy is a cause of the refusal.
func (a *active) refuses() bool {
	return !a.Shadow && !a.waived && (a.violated || a.full || a.shut != nil)
}

// cause is whose limit it is that refuses.
func (a *active) cause() degrade.Cause {
	switch {
	case a.shut != nil:
		return a.shut.Cause
	case a.violated && !a.adaptive && !a.shed:
		return degrade.Quota
	}
	return degrade.Capacity
}

// decision is what is told of a policy that has decided or refuses.
func (v *visit) decision(a *active) *limiter.Decision {
	switch {
	case a.last != nil:
		return a.last
	case a.take >= 0:
		return &v.takes[a.take].Decision
	case a.bound >= 0:
		return &v.bounds[a.bound]
	}
	d := new(limiter.Decision)
	if a.limit != nil {
		d.Limit = *a.limit
	}
	return d
}

// identity joins the keys of all policies that apply: what one of them knows of the caller, the copies of another must go by.
func (v *visit) identity() string {
	id := ""
	for k := range v.active {
		switch a := &v.active[k]; {
		case a.id == "" || a.id == id:
		case id == "":
			id = a.id
		default:
			id += "|" + a.id
		}
	}
	return id
}

// answer is what a chain wants the plain refusal to say.
type answer struct {
	wait     time.Duration // at least
	capacity bool          // it is the service's
	readOnly bool          // it is the write that is refused
}

// degrade answers a request that policies refuse: by their chains, or plainly.
func (v *visit) degrade(p *Pass) {
	for {
		v.asked++
		fields := v.w.Header().Clone()
		v.writeHeaders()
		s := substitute{visit: v, w: v.w, r: v.r, fields: fields, told: v.w.Header().Clone()}
		out := s.serve()
		switch {
		case out == degrade.Done:
			defer v.done()
			v.observeRefused(limited)
			v.observeDegraded(s.mode, s.status.get(), 0)
			if s.broken {
				// The client must see that the response is cut off, and not take it for a whole one.
				panic(http.ErrAbortHandler)
			}
			return
		case out == degrade.Again || ended(v.r.Context()) != nil:
			s.withdraw()
			begin := v.now
			if next := v.askAgain(); next != limited {
				if next == passes {
					v.observeDegraded(s.mode, 0, v.now.Sub(begin))
				}
				v.end(p, next)
				return
			}
			if !v.degradable() {
				v.refuse(p, limited)
				return
			}
		case out == degrade.Proceed:
			s.withdraw()
			v.proceed(p, s.info)
			return
		default:
			v.refuse(p, limited)
			return
		}
	}
}

// askAgain decides anew what a handler has held back.
func (v *visit) askAgain() outcome {
	if ended(v.r.Context()) != nil {
		return canceled
	}
	for k := range v.active {
		a := &v.active[k]
		a.queued = a.queued || a.refuses()
	}
	v.reset()
	v.now = v.guard.clock.now()
	if out := v.limits(); out != passes {
		return out
	}
	return v.enter()
}

// proceed lets the request pass the policies that have refused it, if all others do.
func (v *visit) proceed(p *Pass, info degrade.Info) {
	for k := range v.active {
		if a := &v.active[k]; a.refuses() {
			d := *v.decision(a)
			a.waived, a.last = true, &d
		}
	}
	v.reset()
	v.proceeds = true
	out := v.enter()
	if out != passes {
		v.end(p, out)
		return
	}
	v.observeRefused(limited)
	v.observeDegraded(info.Mode, 0, 0)
	v.tellDegraded(v.w.Header(), info.Mode)
	v.degraded = &info
	v.pass(p)
}

// reset forgets the decisions, except those of policies that are passed over.
func (v *visit) reset() {
	v.takes, v.bounds, v.items = v.takes[:0], v.bounds[:0], v.items[:0]
	v.lowered, v.open, v.told, v.answer = false, false, false, answer{}
	for k := range v.active {
		a := &v.active[k]
		if a.take >= 0 {
			a.err = nil // of asking; what is wrong with key or limit stays
		}
		a.take, a.twin, a.bound, a.slot = -1, -1, -1, false
		if !a.waived {
			a.reserve = 0
			a.decided, a.violated, a.adaptive, a.full, a.crowded, a.shut, a.shed = false, false, false, false, false, nil, false
			v.lowered = v.lowered || a.lowered
		}
	}
}

// degradedMark is the usual field that names the mode. It is in the header of every degraded answer, without a line and so
// not sent where the settings want another field or none: recorders of stages further out go by it.
const degradedMark = "X-Ratelimit-Degraded"

var noLine = []string{}

// tellDegraded names the mode on the response, unless the policies are silent.
func (v *visit) tellDegraded(h http.Header, mode string) {
	for k := range v.active {
		if a := &v.active[k]; (a.refuses() || a.waived) && a.set != response.Off {
			v.stage.settings.renderer.WriteDegraded(h, mode)
			break
		}
	}
	if len(h[degradedMark]) == 0 {
		h[degradedMark] = noLine
	}
}

// untellDegraded takes off what another stage has told: the plain refusal is what it says.
func (v *visit) untellDegraded(h http.Header) {
	delete(h, degradedMark)
	if name := v.stage.settings.degradedField; name != "" {
		delete(h, name)
	}
}

// degradedFurtherIn reports whether the response is the degraded one of another stage, which nobody should get later.
func (v *visit) degradedFurtherIn() bool {
	_, marked := v.w.Header()[degradedMark]
	return marked
}

// substitute is the chains of the policies that refuse one request, at work.
type substitute struct {
	visit  *visit
	w      http.ResponseWriter
	r      *http.Request
	done   bool        // it has answered: a writer kept for longer changes nothing of the response
	fields http.Header // without those of the decision
	told   http.Header // with them
	policy *policy     // whose chain is asked
	denial *degrade.Denial
	status status
	mode   string
	info   degrade.Info // of who lets it proceed
	broken bool         // a handler panicked behind the first byte
}

// serve asks the chains in turn. One that serves is enough, but all have to let the request proceed.
func (s *substitute) serve() degrade.Outcome {
	v := s.visit
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
	s.status.before, s.status.unsaid = s.final, s.ok
	w := s.status.wrap(s.w)
	proceeds := true
	for k := range v.active {
		a := &v.active[k]
		if !a.refuses() {
			continue
		}
		d := &degrade.Denial{
			Policy: a.Name, Violated: slices.Clone(violated), Cause: cause, Status: refusal.Status(), Key: a.counted(), Identity: v.identity(), Cost: a.cost, Decision: *v.decision(a),
			RetryAfter: refusal.RetryAfter, Asked: v.asked, Request: &v.req, Mode: degrade.ModeOf(a.Degrade), Budget: v.budget(a), Withdraw: s.withdraw,
			Place: v.place, Contain: s.contain,
		}
		if a.limit != nil {
			d.Decision.Limit = *a.limit // also where it is the bound in flight that refuses
		}
		s.policy, s.denial = a.policy, d
		out := s.ask(w, d)
		s.mode = d.Mode
		switch out {
		case degrade.Done:
			s.done = true
			return out
		case degrade.Refuse:
			v.answer.readOnly, v.answer.capacity = d.ReadOnly, d.Cause == degrade.Capacity
			v.answer.wait = max(v.answer.wait, d.Wait)
			s.done = true
			return out
		case degrade.Again:
			if v.asked == 1 {
				s.done = true
				return out
			}
			proceeds = false
		case degrade.Proceed:
			if a.shut != nil && a.shut.Strict {
				v.answer.readOnly = v.answer.readOnly || a.shut.mode == degrade.ModeReadOnly
				proceeds = false
				continue
			}
			if s.info.Policy == "" {
				s.info = degrade.Info{Policy: a.Name, Mode: d.Mode, Cause: cause, RetryAfter: refusal.RetryAfter}
			}
		default:
			v.answer.wait = max(v.answer.wait, d.Wait)
			proceeds = false
		}
	}
	s.done = true
	if proceeds {
		return degrade.Proceed
	}
	return degrade.Skip
}

// ask asks the chain of one policy. After the first byte the answer is final, whatever it says or goes wrong.
func (s *substitute) ask(w http.ResponseWriter, d *degrade.Denial) (out degrade.Outcome) {
	defer func() {
		if r := recover(); r != nil && !s.contain(r) {
			s.visit.guard.panicked(s.r.Context(), s.policy, "Degrade", r)
			out, s.broken = degrade.Done, true
		}
		switch {
		case s.status.written():
			out = degrade.Done
		case out == degrade.Done:
			s.final(http.StatusOK)
			s.ok()
		}
	}()
	return s.policy.Degrade.Degrade(w, s.r, d)
}

// contain reports a panic of one handler and whether the next may be asked: not once something has been written.
func (s *substitute) contain(panicked any) bool {
	if s.status.written() || s.done {
		return false
	}
	s.visit.guard.panicked(s.r.Context(), s.policy, "Degrade", panicked)
	replace(s.w.Header(), s.told)
	return true
}

// withdraw takes the fields of the decision off again.
func (s *substitute) withdraw() {
	if !s.status.written() {
		replace(s.w.Header(), s.fields)
	}
}

func replace(h, by http.Header) {
	clear(h)
	maps.Copy(h, by.Clone())
}

// final sees the status before it is written. Retry-After belongs to answers that say no; where a redirect has it, it
// means the time before following.
func (s *substitute) final(code int) {
	if s.done {
		return
	}
	h := s.w.Header()
	if code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable && code/100 != 3 {
		if before := s.fields["Retry-After"]; before != nil {
			h["Retry-After"] = before
		} else {
			delete(h, "Retry-After")
		}
	}
	s.visit.tellDegraded(h, s.denial.Mode)
}

// ok says the status that a server takes for granted: to a framework that has found no route it would be 404.
func (s *substitute) ok() {
	if !s.done {
		s.w.WriteHeader(http.StatusOK)
	}
}

// place takes a place among the requests that are held back.
func (v *visit) place() (leave func(), ok bool) {
	w := &v.guard.waiting
	if !w.enter(v.stage.settings.maxWaiting) {
		return nil, false
	}
	return sync.OnceFunc(w.leave), true
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
