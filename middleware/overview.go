package middleware

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Overview is one policy as it stands at an instant, for people who look at a process.
type Overview struct {
	Policy, Stage string
	Shadow        bool
	// Limiter is what decides: what its String says, or else the package of its type, such as "memory" or "redislimit";
	// "" where there is no limit.
	Limiter      string
	OnStoreError OnError
	// Undecided: the last decisions failed, and OnStoreError is in force.
	Undecided bool

	Limit     limiter.Limit // the nominal one; zero: the policy is a bound on requests in flight alone
	Planned   bool          // some callers get another limit, by Plan
	Refunds   bool          // units may be given back, by Refund
	Effective limiter.Limit // what schedules and controllers make of Limit now; zero with Limit
	// Why is what adjusters say of it that are each a [limiter.Explainer], in their order; empty where the limit is nominal.
	Why []string

	InFlight   int // requests being served, of all keys together, where they are bounded
	InFlightOf int // the bound for each key; 0: none
	// Adaptive is the policy's controller, nil if it has none. What it knows beside its Bound is for its own type to tell.
	Adaptive limiter.Controller
}

// Overview returns what the policies of all stages are at this instant, in configuration order. It asks no store. It is
// not meant for every request: it calls the adjusters, and counts what is in flight.
func (g *Guard) Overview() []Overview {
	now := g.clock.now()
	s := g.core.snapshot.Load()
	all := make([]Overview, 0, len(s.policies))
	for _, p := range s.policies {
		o := Overview{
			Policy: p.Name, Stage: p.Stage, Shadow: p.Shadow, OnStoreError: p.OnStoreError, Undecided: p.state.undecided.Load(),
			Planned: p.Plan != nil, Refunds: p.Refund != nil, InFlightOf: p.InFlight, Adaptive: p.Adaptive,
		}
		if p.InFlight > 0 {
			o.InFlight = p.state.inflight.total()
		}
		if p.Limit != nil {
			of := p.Limiter
			if of == nil {
				of = s.settings.Limiter
			}
			o.Limiter = nameOf(of)
		}
		if err := attempt(func() { p.explain(now, &o) }); err != nil { // callbacks are the user's
			o.Why = append(o.Why, "an adjuster panics")
		}
		all = append(all, o)
	}
	return all
}

// explain finds the limits and why they are what they are.
func (p *policy) explain(now time.Time, o *Overview) {
	if p.Limit != nil {
		o.Limit = p.Limit.Current()
		o.Effective = o.Limit
	}
	adjust := func(a limiter.Adjuster) {
		x, ok := a.(limiter.Explainer)
		if !ok {
			if p.Limit != nil {
				o.Effective = a.Adjust(now, o.Effective)
			}
			return
		}
		l, why := x.Explain(now, o.Effective)
		if p.Limit != nil {
			o.Effective = l
		}
		if why != "" {
			o.Why = append(o.Why, why)
		}
	}
	for _, a := range p.Adjust {
		adjust(a)
	}
	if p.Adaptive != nil {
		adjust(p.Adaptive)
	}
}

// nameOf names a limiter for people.
func nameOf(l limiter.Limiter) (name string) {
	if s, ok := l.(fmt.Stringer); ok {
		if attempt(func() { name = s.String() }) == nil {
			return name
		}
	}
	t := reflect.TypeOf(l)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if pkg := t.PkgPath(); pkg != "" {
		return pkg[strings.LastIndexByte(pkg, '/')+1:]
	}
	return t.String()
}
