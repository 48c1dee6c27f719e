package limitertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var traceRules = []rule{
	{"traces", "every trace of the algorithms is answered to the last unit; see Traces", needInstants | needExact, checkTraces},
	{"model", "random traces over all algorithms, groups, refunds and live changes are answered as Model answers them", needInstants | needExact, checkModel},
}

func checkTraces(c *check) {
	var errs []error
	for _, trace := range Traces() {
		if trace.stepped() || !c.p.follows(trace) {
			continue
		}
		if err := c.do(func(c *check) { c.follow(trace) }); err != nil {
			errs = append(errs, fmt.Errorf("trace %s (%s): %w", trace.ID, trace.Note, err))
		}
		if len(errs) == 8 { // more would say the same
			break
		}
	}
	if err := errors.Join(errs...); err != nil {
		panic(failure{err})
	}
}

// follows reports whether the profile has all that a trace uses.
func (p Profile) follows(t Trace) bool {
	var last limiter.Limit
	for _, s := range t.Steps {
		takes := s.Takes
		if s.Op != OpAllowAll {
			takes = []StepTake{{Limit: s.Limit}}
		}
		for _, take := range takes {
			if !p.supports(take.Limit.Algorithm) || take.Limit.Period%p.tick() != 0 {
				return false
			}
		}
		if s.Op == OpRefund && p.NoRefund || s.Op == OpReset && p.NoReset {
			return false
		}
		if p.NoRelimit && last != (limiter.Limit{}) && s.Op != OpAllowAll && s.Limit != last {
			return false
		}
		last = s.Limit
	}
	return !p.NoRelimit || t.ID != "al-new-limit"
}

func (c *check) follow(t Trace) {
	base := c.key()
	key := func(name string) limiter.Key { return limiter.Key{Space: base.Space, ID: base.ID + "/" + name} }
	for i, s := range t.Steps {
		c.at = time.Unix(0, s.At)
		when := fmt.Sprintf("step %d, %s", i, s.Op)
		if s.Op == OpAllowAll {
			takes := make([]limiter.Take, len(s.Takes))
			for k, st := range s.Takes {
				takes[k] = take(key(st.Key), st.Limit, st.N)
			}
			ok, takes := c.all(takes...)
			c.require(ok == s.Want.Allowed, "%s: the group's answer is %v", when, ok)
			for k, st := range s.Takes {
				if !c.answers(st.Want, takes[k].Decision, s.Edge, fmt.Sprintf("%s, take %d", when, k)) {
					return
				}
			}
			continue
		}
		k, n := key(s.Key), s.N
		switch s.Op {
		case OpRefund:
			c.refund(k, s.Limit, s.N, limiter.Decision{Allowed: true, Limit: s.Limit, Mark: s.Mark})
			n = 0
		case OpReset:
			c.reset(k)
			n = 0
		case OpPeek:
			n = 0
		}
		if !c.answers(s.Want, c.take(k, s.Limit, n), s.Edge, when) {
			return
		}
	}
}

// answers compares a decision with the right answer. It returns false where the profile may refuse and has refused, after
// which the rest of a trace says nothing.
func (c *check) answers(want Answer, d limiter.Decision, edge bool, when string) bool {
	var more time.Duration // at an edge a coarser clock may be one tick longer
	fewer := c.p.FewerLeft
	if edge && c.p.tick() > 1 {
		more, fewer = c.p.tick(), fewer+1
	}
	if want.Allowed && !d.Allowed && (more > 0 || c.p.Margin > 0 && d.RetryAfter <= c.p.Margin) {
		return false
	}
	ok := d.Allowed == want.Allowed && d.Remaining <= want.Remaining && d.Remaining >= want.Remaining-fewer &&
		c.p.sameWait(want.RetryAfter, d.RetryAfter, more) && c.p.sameWait(want.ResetAfter, d.ResetAfter, more) &&
		c.p.sameWait(want.Delay, d.Delay, more)
	c.require(ok, "%s: %v, want %v", when, show(d), want)
	return true
}

func checkModel(c *check) {
	for seed := range uint64(12) {
		if err := Compare(NewModel(), c.l, c.p, seed, 250); err != nil {
			c.fatalf("seed %d: %v", seed, err)
		}
	}
}

// String prints an answer as decisions are printed.
func (a Answer) String() string {
	retry := a.RetryAfter.String()
	if a.RetryAfter == limiter.Never {
		retry = "never"
	}
	return fmt.Sprintf("{allowed %v, remaining %d, retry %s, reset %v, delay %v}", a.Allowed, a.Remaining, retry, a.ResetAfter, a.Delay)
}
