package middleware

import (
	"math"

	"github.com/spillway-go/spillway/limiter"
)

// While an adjuster keeps a limit below the nominal one, a second counter, the twin, is what the nominal one would be: it
// is charged for what passes, in the same call, and for what is refused as far as it has room. A refusal for which it has
// room is the service's, any other the caller's. The counter itself could not tell: its level has been cut down with the
// limit.

// belowNominal reports whether adjusters have lowered the limit in any way.
func (a *active) belowNominal() bool {
	l, n := a.limit, &a.nominal.limit
	switch {
	case *l == *n || *n == limiter.DenyAll:
		return false
	case *l == limiter.DenyAll || *n == limiter.Unlimited || l.Algorithm != n.Algorithm || l.Quota() < n.Quota():
		return true
	}
	return float64(l.Rate)*float64(n.Period) < float64(n.Rate)*float64(l.Period)
}

func (a *active) twinKey() limiter.Key { return twinOf(a.policy, a.id) }

// twinOf is the key of the policy behind a slash, which no policy's name can hold.
func twinOf(p *policy, id string) limiter.Key {
	return limiter.Key{Space: p.space + "/nominal", ID: id}
}

func (v *visit) gatherTwins(store int) {
	for k := range v.active {
		a := &v.active[k]
		if !a.lowered || a.policy.store != store || a.take < 0 || a.Shadow || v.look || a.nominal.limit == limiter.Unlimited {
			continue
		}
		a.twin = len(v.takes)
		v.takes = append(v.takes, limiter.Take{
			Key: a.twinKey(), Limit: a.nominal.limit, N: a.cost, MaxDelay: math.MaxInt64, Shadow: true,
		})
	}
}

// passesNominal reports whether the nominal limit would have let a refused request pass.
func (v *visit) passesNominal(a *active) bool {
	if !a.lowered || a.Shadow {
		return false
	}
	if a.nominal.limit == limiter.Unlimited {
		return true
	}
	n := a.cost
	if v.look {
		n = 0
	}
	d, err := v.allow(a.Limiter, a.twinKey(), a.nominal.limit, n)
	return err == nil && d.Allowed && (!v.look || fits(&d, &a.nominal.limit, a.cost, 0))
}
