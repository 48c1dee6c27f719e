package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// How a request ends: places become free, units go back, recorders learn whether they have seen a whole response.

// release frees what is held while the request is served, which ended with r.
func (v *visit) release(r limiter.Result) {
	if !v.stage.bounded {
		return
	}
	if v.stage.adaptive {
		v.leaveAdaptive(r)
	}
	for k := range v.active {
		if a := &v.active[k]; a.slot {
			a.slot = false
			a.state.inflight.leave(a.id)
		}
	}
}

// refundable reports whether the policy has taken something that it may give back.
func (v *visit) refundable(a *active) bool {
	return a.Refund != nil && a.decided && a.take >= 0 && v.takes[a.take].Decision.Mark != 0
}

// writes reports whether a request may change something.
func writes(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

// settle gives units back by the real status.
func (v *visit) settle(status int) {
	v.endRecords(status != 0 && status != http.StatusInternalServerError && (len(v.ended) == 0 || writes(v.r) || !v.degradedFurtherIn()))
	if status == 0 {
		return
	}
	for k := range v.active {
		a := &v.active[k]
		if v.refundable(a) && v.refunds(a, status) {
			v.refund(a)
		}
	}
}

// endRecords tells the recorders whether what they have seen is a whole response.
func (v *visit) endRecords(ok bool) {
	for _, end := range v.ended {
		v.recorded(end, ok)
	}
	clear(v.ended)
	v.ended = v.ended[:0]
}

// tellRecorders shows recorders the status of an answer that does not pass by them, and its header, as a response without
// an end.
func (v *visit) tellRecorders(status int) {
	if status == 0 || v.degraded != nil && !writes(v.r) {
		return
	}
	p := Pass{w: bodiless{v.w.Header()}}
	for k := range v.active {
		a := &v.active[k]
		for _, x := range a.records {
			_ = v.record(a, x, &p)
		}
	}
	if len(v.ended) == 0 {
		return
	}
	v.recorded(func(bool) { p.w.WriteHeader(status) }, false)
	v.endRecords(false)
}

// bodiless is the head of a response that somebody else writes.
type bodiless struct{ header http.Header }

func (b bodiless) Header() http.Header            { return b.header }
func (b bodiless) Write(body []byte) (int, error) { return len(body), nil }
func (b bodiless) WriteHeader(int)                {}

func (v *visit) recorded(end func(bool), ok bool) {
	var err error
	defer v.contain(nil, "Degrade.Record", &err)
	end(ok)
}

// refunds asks the policy; a panic keeps the units.
func (v *visit) refunds(a *active, status int) (yes bool) {
	var err error
	defer v.contain(a.policy, "Refund", &err)
	return a.Refund(status)
}

// refund gives the take of a policy back. The request may be over, so its context does not bound this.
func (v *visit) refund(a *active) {
	v.refundTake(a.policy, a.take)
	if a.twin >= 0 {
		v.refundTake(a.policy, a.twin)
	}
}

func (v *visit) refundTake(p *policy, k int) {
	s, t := &v.stage.stores[p.store], &v.takes[k]
	if s.refunder == nil || t.Decision.Mark == 0 {
		return
	}
	err := v.giveOne(p, s.refunder, t)
	t.Decision.Mark = 0
	if err != nil && !errors.Is(err, errPanic) {
		v.guard.unrefunded(v.r.Context(), p, t.Key, err)
	}
}

func (v *visit) giveOne(p *policy, r limiter.Refunder, t *limiter.Take) (err error) {
	defer v.contain(p, "Limiter", &err)
	return r.Refund(context.WithoutCancel(v.r.Context()), time.Time{}, t)
}

// giveBack undoes the first n takes, because the request does not go on after all.
func (v *visit) giveBack(n int) {
	for k := range v.active {
		if a := &v.active[k]; a.take >= 0 && a.take < n && a.decided {
			v.refund(a)
		}
	}
}
