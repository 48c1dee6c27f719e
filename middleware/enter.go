package middleware

import (
	"context"
	"errors"
	"math/bits"
	"net/http"
	"slices"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// Enter decides a request before it is served. If [Pass.Proceed], serve it with the Pass's writer and request and call
// [Pass.Leave]; otherwise it has been answered. A request may be held in Enter for its place in a queue, for as long as
// its policy and its context allow.
func (g *Guard) Enter(w http.ResponseWriter, r *http.Request, e Entry) (p Pass) {
	st := g.stageFor(r.Context())
	if st == nil || !st.settings.CountPreflights && preflight(r) {
		p.next, p.w, p.r = true, w, r
		return p
	}
	v := g.visit(st, w, r, &e)
	gen, returned := v.gen.Load(), false
	defer func() {
		if !returned && v.gen.Load() == gen {
			v.abandon()
		}
	}()
	v.admit(&p)
	returned = true
	return p
}

// abandon gives back what is held where something of the user's, as a writer or a context, panics or ends the goroutine. The
// visit is in no known state and is not used again.
func (v *visit) abandon() {
	v.stopWaiting()
	v.release(limiter.ResultWithdrawn)
	v.endRecords(false)
}

// admit is Enter for one visit. The Pass is written in place, here and by what follows: copies of it would be felt.
func (v *visit) admit(p *Pass) {
	if !v.pick() {
		p.next, p.w, p.r = true, v.w, v.r
		v.done()
		return
	}
	v.now = v.guard.clock.now()
	out := v.prepare()
	if out == passes {
		if out = v.enter(); out == passes {
			v.observe()
			v.pass(p)
			return
		}
	}
	if out == limited && v.degradable() {
		v.degrade(p)
		return
	}
	v.end(p, out)
}

// enter decides and, where the request passes, tells it so and holds it until its turn.
func (v *visit) enter() outcome {
	out := v.ask()
	if out == passes {
		v.writeHeaders()
		if delay := v.delay(); delay > 0 {
			v.suspend()
			if v.hold(delay) {
				v.begin()
			} else {
				v.giveBack(len(v.takes))
				out = canceled
			}
		}
	}
	v.stopWaiting()
	return out
}

// end answers or hands on a request that has been decided.
func (v *visit) end(p *Pass, out outcome) {
	switch out {
	case passes:
		v.observe()
		v.pass(p)
	case canceled:
		v.release(limiter.ResultWithdrawn)
		v.observeCanceled()
		// Nobody may take an answer that was never made for a success: net/http would write 200.
		status := statusClosed
		if errors.Is(ended(v.r.Context()), context.DeadlineExceeded) {
			status = http.StatusGatewayTimeout
		}
		v.answers()
		v.w.WriteHeader(status)
		v.done()
	default:
		v.refuse(p, out)
	}
}

// statusClosed is what servers log of a client that has left before the answer; nobody reads it.
const statusClosed = 499

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
	if st := v.stage; st.always {
		v.active = slices.Grow(v.active, len(st.policies))[:len(st.policies)]
		for k, p := range st.policies {
			v.active[k].begin(p, nil)
		}
		return true
	}
	m := &v.stage.matcher
	v.host = m.look(&v.req, v.entry.Framework, v.hits)
	if exempt := &m.rules[v.stage.exempt]; !exempt.empty {
		// A predicate that panics exempts nobody.
		if yes, err := v.meant(nil, v.stage.exempt); yes && err == nil {
			return false
		}
	}
	// Only policies without routes, and those whose routes match, are looked at, in configuration order.
	for word, set := range v.hits {
		for set = (set | m.free[word]) & v.stage.subjects[word]; set != 0; set &= set - 1 {
			v.pickOne(v.stage.byRule[word*64+bits.TrailingZeros64(set)])
		}
	}
	return len(v.active) > 0
}

// pickOne adds the policy if it applies. A predicate that panics may have meant to exempt nobody: the policy then applies,
// and refuses.
func (v *visit) pickOne(p *policy) {
	yes, err := v.meant(p, p.match)
	if yes && !v.stage.matcher.rules[p.exempt].empty {
		var no bool
		no, err = v.meant(p, p.exempt)
		yes = !no
	}
	if yes || err != nil {
		n := len(v.active)
		v.active = slices.Grow(v.active, 1)[:n+1]
		v.active[n].begin(p, err)
	}
}

// begin is in place, for an element is large.
func (a *active) begin(p *policy, err error) {
	*a = active{}
	a.policy, a.take, a.twin, a.bound, a.err = p, -1, -1, -1, err
}

// meant reports whether rule k matches the request. Only a predicate of the user can panic, so only it is guarded.
func (v *visit) meant(p *policy, k int) (yes bool, err error) {
	m := &v.stage.matcher
	if m.rules[k].cond != nil {
		defer v.contain(p, "Match", &err)
	}
	return m.matches(k, &v.req, v.host, v.hits), nil
}

// writeHeaders tells the client of the policies, in configuration order.
func (v *visit) writeHeaders() {
	if v.tell(); len(v.items) > 0 {
		v.stage.settings.renderer.WriteHeaders(v.w.Header(), v.r, v.now, v.items)
	}
}

// tell collects what is told of the policies.
func (v *visit) tell() {
	v.told = true
	for k := range v.active {
		a := &v.active[k]
		if a.Shadow || a.set == response.Off {
			continue
		}
		if a.nominal != nil && a.err == nil {
			item := v.item(a)
			if item.Policy, item.Violated = a.nominal.policy, a.violated && !a.waived; a.decided {
				item.Decision = v.decision(a)
			}
		}
		if a.bound >= 0 {
			item := v.item(a)
			item.Policy, item.Violated, item.Decision = a.inflight, a.full, &v.bounds[a.bound]
		}
	}
}

// item adds what is told of a policy, in place.
func (v *visit) item(a *active) *response.Item {
	n := len(v.items)
	v.items = slices.Grow(v.items, 1)[:n+1]
	x := &v.items[n]
	x.Decision, x.Partition, x.Set = nil, a.partition, a.set
	return x
}

// delay returns how long the request has to be held for its place.
func (v *visit) delay() (d time.Duration) {
	if !v.waits && !v.look {
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
func (v *visit) pass(p *Pass) {
	p.next, p.w, p.r = true, v.w, v.r
	if !v.stage.settles && !v.open {
		v.done()
		return
	}
	if v.open || v.degraded != nil {
		p.r = v.r.WithContext(v.context())
	}
	settles, recorded, long := false, false, false
	for k := range v.active {
		a := &v.active[k]
		settles = settles || a.slot
		if a.held {
			settles, p.want, long = true, true, true
		}
		if v.refundable(a) {
			settles, p.want = true, true
		}
		if v.degraded != nil && !writes(v.r) {
			continue // what it gets is not what others should get later; what it changes, they should not miss
		}
		for _, x := range a.records {
			if !recorded && v.entry.Below != nil { // writers may be of a type that cannot be compared
				p.w = v.entry.Below
			}
			recorded = true
			settles = v.record(a, x, p) == nil || settles
		}
	}
	if long {
		if !recorded && v.entry.Below != nil {
			p.w = v.entry.Below
		}
		p.w = v.watchLong(p.w)
	}
	if settles {
		p.v, p.gen = v, v.gen.Load()
		return
	}
	v.done()
}

// record lets the policy's degrade handler see the response.
func (v *visit) record(a *active, x degrade.Recorder, p *Pass) (err error) {
	defer v.contain(a.policy, "Degrade.Record", &err)
	w, end := x.Record(p.w, &v.req, a.Name, v.identity())
	if w != nil {
		p.w = w
	}
	if end != nil {
		v.ended = append(v.ended, end)
	}
	return nil
}

// isContext reports whether err is the end of the request's own context, which says nothing about the store.
func isContext(ctx context.Context, err error) bool {
	end := ended(ctx)
	return end != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, end))
}

// ended returns why ctx has ended, nil if it has not. A deadline that has passed counts though the context's timer has not
// run yet: a store that goes by the deadline itself, as that of a socket, may be the first to notice.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}
