package limiter_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

func requireAnswer(t *testing.T, want limitertest.Answer, d limiter.Decision, at string) {
	t.Helper()
	got := limitertest.Answer{
		Allowed: d.Allowed, Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter, Delay: d.Delay,
	}
	require.Equal(t, want, got, at)
}

const unbounded = time.Duration(math.MaxInt64)

func newRule(t require.TestingT, l limiter.Limit) *limiter.Rule {
	r, err := limiter.NewRule(l)
	require.NoError(t, err)
	return r
}

// The traces hold right answers computed with exact rationals.
func TestTracesOfThePureSteps(t *testing.T) {
	for _, trace := range limitertest.Traces() {
		t.Run(trace.ID, func(t *testing.T) {
			states := map[string]*limiter.State{}
			state := func(key string, l limiter.Limit) *limiter.State {
				key += "/" + l.Algorithm.Tag()
				if states[key] == nil {
					states[key] = new(limiter.State)
				}
				return states[key]
			}
			for k, step := range trace.Steps {
				at := fmt.Sprintf("%s: step %d %s", trace.Note, k, step.Op)
				now := limiter.Reading{Now: step.At, Caller: trace.CallerClock}
				if step.Op == limitertest.OpAllowAll {
					group(t, step, state, now, at)
					continue
				}
				rule, s := newRule(t, step.Limit), state(step.Key, step.Limit)
				switch step.Op {
				case limitertest.OpAllow:
					requireAnswer(t, step.Want, rule.Take(s, now, step.N, unbounded), at)
					continue
				case limitertest.OpRefund:
					s.Refund(now, step.N, step.Mark)
				case limitertest.OpReset:
					*s = limiter.State{}
				}
				requireAnswer(t, step.Want, rule.Take(s, now, 0, unbounded), at)
			}
		})
	}
}

// group is AllowAll in its plainest form, for keys that may repeat.
func group(t *testing.T, step limitertest.Step, state func(string, limiter.Limit) *limiter.State, now limiter.Reading, at string) {
	type part struct {
		rule *limiter.Rule
		s    *limiter.State
		n    int
	}
	var parts []*part
	index := make([]*part, len(step.Takes))
	for k, take := range step.Takes {
		s := state(take.Key, take.Limit)
		for _, p := range parts {
			if p.s == s {
				index[k] = p
			}
		}
		if index[k] == nil {
			index[k] = &part{rule: newRule(t, take.Limit), s: s}
			parts = append(parts, index[k])
		}
		index[k].n += take.N
	}
	allowed, never := true, false
	var wait time.Duration
	for _, p := range parts {
		d := p.rule.Peek(p.s, now, p.n, unbounded)
		if !d.Allowed {
			allowed = false
			never = never || d.RetryAfter == limiter.Never
			wait = max(wait, d.RetryAfter)
		}
	}
	require.Equal(t, step.Want.Allowed, allowed, at)
	require.Equal(t, step.Want.RetryAfter, wait, at)
	answers := map[*part]limiter.Decision{}
	for _, p := range parts {
		d := p.rule.Peek(p.s, now, p.n, unbounded)
		switch {
		case allowed:
			d = p.rule.Take(p.s, now, p.n, unbounded)
		case d.Allowed:
			d = p.rule.Peek(p.s, now, 0, unbounded)
			fallthrough
		default:
			if !never {
				p.rule.Learn(p.s, now)
			}
		}
		answers[p] = d
	}
	for k := range step.Takes {
		requireAnswer(t, step.Takes[k].Want, answers[index[k]], fmt.Sprint(at, " take ", k))
	}
}
