package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// Enter decides a request before it is served. If [Pass.Proceed], serve it with the Pass's writer and request and call
// [Pass.Leave]; otherwise it has been answered. A request may be held in Enter for its place in a queue, for as long as
// its policy and its context allow.
func (g *Guard) Enter(w http.ResponseWriter, r *http.Request, e Entry) Pass {
	st := g.stage()
	if st == nil || !g.cfg.CountPreflights && preflight(r) {
		return Pass{next: true, w: w, r: r}
	}
	v := g.visit(st, w, r, e)
	if !v.pick() {
		v.done()
		return Pass{next: true, w: w, r: r}
	}
	v.now = time.Now()
	out := v.decide()
	if out == passes {
		v.writeHeaders()
		if delay := v.delay(); delay > 0 && !v.hold(delay) {
			v.giveBack(len(v.takes))
			out = canceled
		}
	}
	v.stopWaiting()
	switch out {
	case passes:
		v.observe()
		return v.pass()
	case canceled:
		v.release()
		v.observeCanceled()
		v.done()
		return Pass{}
	}
	return v.refuse(out)
}

// outcome of a stage's decision.
type outcome uint8

const (
	passes      outcome = iota
	limited             // a policy refuses
	forbidden           // a key is missing
	unavailable         // the store is away, and a policy fails closed
	broken              // no decision can be made: a malformed limit, a panic
	canceled            // the request's context has ended
)

// pick finds the policies that apply.
func (v *visit) pick() bool {
	m := &v.stage.matcher
	v.host = m.look(&v.req, v.entry.Framework, v.hits)
	if v.exempted() {
		return false
	}
	for _, p := range v.stage.policies {
		v.active = append(v.active, active{policy: p, take: -1, bound: -1})
		a := &v.active[len(v.active)-1]
		applies := false
		// A predicate that panics may have meant to exempt nobody: the policy applies, and refuses.
		a.err = v.guarded(a.policy, "Match", func() error {
			applies = m.matches(p.match, &v.req, v.host, v.hits) && !m.exempts(p.exempt, &v.req, v.host, v.hits)
			return nil
		})
		if !applies && a.err == nil {
			v.active = v.active[:len(v.active)-1]
		}
	}
	return len(v.active) > 0
}

// exempted reports whether Config.Exempt holds; a predicate that panics exempts nobody.
func (v *visit) exempted() (yes bool) {
	m := &v.stage.matcher
	if m.rules[v.stage.exempt].empty {
		return false
	}
	_ = v.guarded(nil, "Exempt", func() error {
		yes = m.exempts(v.stage.exempt, &v.req, v.host, v.hits)
		return nil
	})
	return yes
}

// writeHeaders tells the client of the policies, in configuration order.
func (v *visit) writeHeaders() {
	for k := range v.active {
		a := &v.active[k]
		if a.Shadow || a.set == response.Off {
			continue
		}
		if a.told != nil && a.err == nil {
			item := response.Item{Policy: a.told, Set: a.set, Violated: a.violated, Partition: a.partition}
			if a.decided {
				item.Decision = &v.takes[a.take].Decision
			}
			v.items = append(v.items, item)
		}
		if a.bound >= 0 {
			v.items = append(v.items, response.Item{
				Policy: a.inflight, Set: a.set, Violated: a.full, Decision: &v.bounds[a.bound], Partition: a.partition,
			})
		}
	}
	if len(v.items) > 0 {
		v.guard.renderer.WriteHeaders(v.w.Header(), v.r, v.now, v.items)
	}
}

// delay returns how long the request has to be held for its place.
func (v *visit) delay() (d time.Duration) {
	if !v.waits {
		return 0
	}
	for k := range v.takes {
		if !v.takes[k].Shadow {
			d = max(d, v.takes[k].Decision.Delay)
		}
	}
	return d
}

// hold waits, and reports whether the request is still wanted.
func (v *visit) hold(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-v.r.Context().Done():
		return false
	}
}

func (v *visit) stopWaiting() {
	if v.waits {
		v.waits = false
		v.guard.waiting.leave()
	}
}

// pass hands the request on.
func (v *visit) pass() Pass {
	p := Pass{next: true, w: v.w, r: v.r}
	settles := false
	for k := range v.active {
		a := &v.active[k]
		settles = settles || a.slot
		if a.Refund != nil && a.decided && v.takes[a.take].Decision.Mark != 0 {
			settles, v.needsStatus = true, true
		}
		if a.records != nil {
			if p.w == v.w && v.entry.Below != nil {
				p.w = v.entry.Below
			}
			_ = v.guarded(a.policy, "Degrade.Record", func() error {
				w, end := a.records.Record(p.w, v.r)
				if p.w = w; end != nil {
					v.ended = append(v.ended, end)
					settles = true
				}
				return nil
			})
		}
	}
	if settles {
		p.v, p.gen = v, v.gen
		return p
	}
	v.done()
	return p
}

// release frees what is held while the request is served.
func (v *visit) release() {
	for k := range v.active {
		if a := &v.active[k]; a.slot {
			a.slot = false
			a.state.inflight.leave(a.id)
		}
	}
}

// settle gives units back by the real status.
func (v *visit) settle(status int) {
	for _, end := range v.ended {
		_ = v.guarded(nil, "Degrade.Record", func() error { end(status != 0 && status != http.StatusInternalServerError); return nil })
	}
	if status == 0 {
		return
	}
	for k := range v.active {
		a := &v.active[k]
		if a.Refund == nil || !a.decided || v.takes[a.take].Decision.Mark == 0 {
			continue
		}
		back := false
		if err := v.guarded(a.policy, "Refund", func() error { back = a.Refund(status); return nil }); err == nil && back {
			v.refund(a.policy, &v.takes[a.take])
		}
	}
}

// refund gives one take back. The request may be over, so its context does not bound this.
func (v *visit) refund(p *policy, t *limiter.Take) {
	s := &v.stage.stores[p.store]
	if s.refunder == nil || t.Decision.Mark == 0 {
		return
	}
	err := v.guarded(p, "Limiter", func() error { return s.refunder.Refund(detached(v.r.Context()), time.Time{}, t) })
	t.Decision.Mark = 0
	if err != nil && !errors.Is(err, errPanic) {
		v.guard.undecided(v.r.Context(), p, limiter.Key{}, err)
	}
}

// giveBack undoes the first n takes, because the request does not go on after all.
func (v *visit) giveBack(n int) {
	for k := range v.active {
		if a := &v.active[k]; a.take >= 0 && a.take < n && a.decided {
			v.refund(a.policy, &v.takes[a.take])
		}
	}
}

// isContext reports whether err is the end of the request's own context, which says nothing about the store.
func isContext(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ctx.Err()))
}
