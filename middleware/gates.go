package middleware

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

// What a degrade.Gate asks for: to refuse a request before its policy is asked, or to leave a part of the limit to others.

// shut is the Hint of a gate that refuses.
type shut struct {
	degrade.Hint
	mode string // of the gate
}

// before asks the gates. A look asks none, nor does a request that proceeds: the gates of the other policies have been asked.
func (v *visit) before() outcome {
	out := passes
	if v.look || v.proceeds {
		return out
	}
	for k := range v.active {
		a := &v.active[k]
		if a.err != nil {
			continue
		}
		for _, g := range a.gates {
			h, err := v.hint(a, g)
			switch {
			case err != nil:
				a.err, out = err, broken
			case h.Shut:
				// Of several the service's cause counts: a queue would hold what another has refused for its sake.
				if a.shut == nil || h.Cause == degrade.Capacity {
					a.shut = &shut{h, modeOf(g)}
				}
				if out == passes {
					out = limited
				}
			default:
				a.reserve = max(a.reserve, h.Reserve)
			}
		}
	}
	return out
}

func modeOf(g degrade.Gate) string {
	if m, ok := g.(degrade.Moded); ok {
		return m.Mode()
	}
	return degrade.ModeFunc
}

func (v *visit) hint(a *active, g degrade.Gate) (h degrade.Hint, err error) {
	defer v.contain(a.policy, "Degrade.Before", &err)
	return g.Before(v.subjectOf(a)), nil
}

// subjectOf is the request as gates see it. It is part of the visit, as it would be allocated for each call otherwise.
func (v *visit) subjectOf(a *active) *degrade.Subject {
	v.subject = degrade.Subject{Request: &v.req, Key: a.counted(), Cost: a.cost, Now: v.now, Again: v.asked > 0}
	return &v.subject
}

// after tells the gates what became of the request.
func (v *visit) after(out outcome) {
	if v.look {
		return
	}
	for k := range v.active {
		a := &v.active[k]
		if a.waived {
			continue
		}
		for _, g := range a.gates {
			x := degrade.Verdict{Passed: out == passes, Refused: (a.violated || a.full) && !a.shed}
			if a.decided && a.take >= 0 {
				x.Decision = v.takes[a.take].Decision
			}
			v.hear(a, g, x)
		}
	}
}

func (v *visit) hear(a *active, g degrade.Gate, x degrade.Verdict) {
	var err error
	defer v.contain(a.policy, "Degrade.After", &err)
	g.After(v.subjectOf(a), x)
}

// reserved is how many of quota units a request of that cost must leave to others. While nobody uses any, it fits: a small
// quota would be closed to the less important for ever otherwise.
func (a *active) reserved(quota, cost int) int {
	if !(a.reserve > 0) {
		return 0
	}
	return max(0, min(int(math.Ceil(min(a.reserve, 1)*float64(quota)-1e-9)), quota-cost))
}

// leavesReserves reports whether the takes from from on leave what gates have reserved; those that do not become refusals,
// to be given back. Only then is it known what was left, so that no other request can come in between.
func (v *visit) leavesReserves(from int) bool {
	ok := true
	for k := range v.active {
		a := &v.active[k]
		if a.reserve == 0 || a.take < from || a.Shadow || a.err != nil || isStateless(a.limit) || a.limit.Algorithm == limiter.LeakyBucket ||
			v.stage.stores[a.policy.store].refunder == nil {
			continue
		}
		d := &v.takes[a.take].Decision
		reserved := a.reserved(a.limit.Quota(), a.cost)
		if missing := reserved - d.Remaining; missing > 0 {
			ok, a.violated, a.shed = false, true, true
			d.RetryAfter = untilBack(d, a.limit, missing)
			d.Allowed, d.Remaining = false, max(0, d.Remaining+a.cost-reserved)
		}
	}
	return ok
}

// untilBack is when n more units are there than d says, at the latest.
func untilBack(d *limiter.Decision, l *limiter.Limit, n int) time.Duration {
	if l.Algorithm != limiter.TokenBucket {
		return d.ResetAfter
	}
	wait := float64(n-1) * float64(l.Period) / float64(l.Rate)
	return min(d.NextAfter+time.Duration(math.Ceil(min(wait, math.MaxInt64/4))), d.ResetAfter)
}
