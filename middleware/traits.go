package middleware

import "github.com/spillway-go/spillway/limiter"

// traits are what the policies of a stage have, found once, so that requests pass over what none of them has. Each is a
// shortcut to what the long way would find out policy by policy, which tests hold it to.
type traits struct {
	always  bool // all policies apply to every request
	bounded bool // some policy bounds requests in flight
	settles bool // some policy has to know how a request ends
	simple  bool // every policy takes one unit of a fixed quota, all from one store, and refuses without one
}

func (st *stage) find() traits {
	x := traits{always: st.matcher.rules[st.exempt].empty, simple: st.enforced == 1 && len(st.stores) == 1 && !st.shadows && !st.gated}
	for _, p := range st.policies {
		rules := st.matcher.rules
		x.always = x.always && rules[p.match].empty && rules[p.exempt].empty
		x.bounded = x.bounded || p.InFlight != 0 || p.Adaptive != nil
		x.settles = x.settles || p.Refund != nil || p.Degrade != nil
		x.simple = x.simple && p.plain && !p.queue && !isStateless(&p.fixed.limit) && p.Refund == nil && p.Degrade == nil
	}
	x.settles = x.settles || x.bounded
	x.simple = x.simple && !x.settles
	return x
}

// isStateless reports whether l is one of the two limits that keep no state; they have no rate.
func isStateless(l *limiter.Limit) bool {
	return l.Rate == 0 && (*l == limiter.Unlimited || *l == limiter.DenyAll)
}
