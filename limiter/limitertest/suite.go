package limitertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/spillway-go/spillway/limiter"
)

// needs says what a rule asks of a limiter. A rule is skipped where the profile takes that away.
type needs uint

const (
	needBatch    needs = 1 << iota
	needRefund         // gives back
	needReset          // forgets
	needRelimit        // live change of the limit
	needAlign          // calendar windows
	needInstants       // explicit instants
	needTime           // any way to move time: explicit instants, or a bubble around the limiter's own clock
	needOwnClock       // the limiter's own clock, moved in a bubble
	needExact          // each decision, not only bounds
	needClose          // has Close
)

// rule is one promise and the check of it.
type rule struct {
	name  string
	why   string // printed on failure
	needs needs
	check func(c *check)
}

// rules returns all rules in the order in which they are worth reading when several fail.
func rules() []rule {
	return slices.Concat(basicRules, waitRules, promiseRules, clockRules, changeRules, keyRules, batchRules, errorRules,
		concurrentRules, traceRules)
}

// Rules returns the names of all rules with what each of them means.
func Rules() map[string]string {
	m := map[string]string{}
	for _, r := range rules() {
		m[r.name] = r.why
	}
	return m
}

// Run tests a limiter against everything its profile promises, in one subtest per rule. newLimiter returns a limiter with
// no takes made so far, and releases it with t.Cleanup; it is called at least once for each rule, in some of them inside
// a bubble of testing/synctest unless the profile says ForeignClock.
func Run(t *testing.T, newLimiter func(t *testing.T) limiter.Limiter, p Profile) {
	t.Helper()
	for name := range p.Skip {
		if !slices.ContainsFunc(rules(), func(r rule) bool { return r.name == name }) {
			t.Errorf("Profile.Skip names %q, which is no rule", name)
		}
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			if reason := p.skips(r); reason != "" {
				t.Skip(reason)
			}
			if err := r.run(t, newLimiter, p); err != nil {
				t.Errorf("%v\n\nThe rule: %s", err, r.why)
			}
		})
	}
}

// Failures runs the named rules, all if none is named, and returns those that fail instead of failing t. It is for proving
// that a test would notice a fault.
func Failures(t *testing.T, newLimiter func(t *testing.T) limiter.Limiter, p Profile, names ...string) map[string]error {
	t.Helper()
	failed := map[string]error{}
	for _, r := range rules() {
		if p.skips(r) != "" || len(names) > 0 && !slices.Contains(names, r.name) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			if err := r.run(t, newLimiter, p); err != nil {
				failed[r.name] = err
			}
		})
	}
	return failed
}

// skips returns why a rule is not run, or nothing.
func (p Profile) skips(r rule) string {
	lacks := func(need needs, lack bool) bool { return r.needs&need != 0 && lack }
	switch {
	case p.Skip[r.name] != "":
		return p.Skip[r.name]
	case lacks(needBatch, p.NoBatch):
		return "profile: no batches"
	case lacks(needRefund, p.NoRefund):
		return "profile: no refunds"
	case lacks(needReset, p.NoReset):
		return "profile: no reset"
	case lacks(needRelimit, p.NoRelimit):
		return "profile: a key's limit does not change"
	case lacks(needAlign, p.NoAlign || !p.supports(limiter.FixedWindow)):
		return "profile: no calendar windows"
	case lacks(needInstants, !p.instants()):
		return "profile: the suite cannot choose the instant of a decision"
	case lacks(needTime, !p.instants() && p.ForeignClock):
		return "profile: the suite cannot move this limiter's clock"
	case lacks(needOwnClock, p.ForeignClock):
		return "profile: the limiter's own clock is not this process's"
	case lacks(needExact, p.Bounds != nil):
		return "profile: bounds only"
	}
	return ""
}

// run checks one rule on a limiter of its own. It runs inside a bubble where the limiter's own clock has to be moved.
func (r rule) run(t *testing.T, newLimiter func(t *testing.T) limiter.Limiter, p Profile) (err error) {
	own := r.needs&needOwnClock != 0 || !p.instants()
	body := func(t *testing.T) {
		l := newLimiter(t)
		if r.needs&needClose != 0 && closer(l) == nil {
			return
		}
		c := &check{ctx: t.Context(), l: l, p: p, rule: r.name, own: own}
		if !own {
			c.at = start
		}
		err = c.do(r.check)
	}
	if own && !p.ForeignClock {
		synctest.Test(t, body)
	} else {
		body(t)
	}
	return err
}

// failure carries the end of a check up to its runner: checks read as a list of statements that way, and need no
// *testing.T, so that they can also be run to see them fail.
type failure struct{ error }

func (c *check) do(f func(*check)) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f(c)
	return nil
}

func (c *check) fatalf(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

// require ends the check unless ok.
func (c *check) require(ok bool, format string, args ...any) {
	if !ok {
		c.fatalf(format, args...)
	}
}

// each runs f for every supported algorithm and joins what fails. A queue needs batches: through Allow nobody may wait
// in it.
func (c *check) each(f func(c *check, a limiter.Algorithm)) {
	var errs []error
	for _, a := range limiter.Algorithms() {
		if !c.p.supports(a) || a == limiter.LeakyBucket && c.p.NoBatch {
			continue
		}
		if err := c.do(func(c *check) { f(c, a) }); err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", a, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		panic(failure{err})
	}
}

// closer returns what ends the limiter, nil if nothing does.
func closer(l limiter.Limiter) func() error {
	switch c := l.(type) {
	case interface{ Close() error }:
		return c.Close
	case interface{ Close() }:
		return func() error { c.Close(); return nil }
	case interface{ Close(context.Context) error }:
		return func() error { return c.Close(context.Background()) }
	}
	return nil
}
