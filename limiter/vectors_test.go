package limiter_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// The traces hold right answers computed with exact rationals; see the meta object of the file.

type vecLimit struct {
	Algorithm string `json:"algorithm"`
	Rate      int    `json:"rate"`
	PeriodNS  int64  `json:"period_ns"`
	Burst     int    `json:"burst"`
	Cells     int    `json:"cells"`
}

type vecNanos struct{ time.Duration }

func (d *vecNanos) UnmarshalJSON(b []byte) error {
	if string(b) == `"never"` {
		d.Duration = limiter.Never
		return nil
	}
	return json.Unmarshal(b, (*int64)(&d.Duration))
}

type vecAnswer struct {
	Allowed   bool        `json:"allowed"`
	Remaining int         `json:"remaining"`
	Retry     vecNanos    `json:"retry_after_ns"`
	Reset     vecNanos    `json:"reset_after_ns"`
	Delay     vecNanos    `json:"delay_ns"`
	Takes     []vecAnswer `json:"takes"`
}

type vecStep struct {
	At     int64     `json:"at_ns"`
	Op     string    `json:"op"`
	N      int       `json:"n"`
	Key    string    `json:"key"`
	Taken  int64     `json:"taken_ns"`
	Limit  *vecLimit `json:"limit"`
	Expect vecAnswer `json:"expect"`
	Takes  []struct {
		Key   string   `json:"key"`
		Limit vecLimit `json:"limit"`
		N     int      `json:"n"`
	} `json:"takes"`
}

type vecTrace struct {
	ID          string   `json:"id"`
	Algorithm   string   `json:"algorithm"`
	Limit       vecLimit `json:"limit"`
	CallerClock bool     `json:"caller_clock"`
	Note        string   `json:"note"`
	Steps       []vecStep
}

func (v vecLimit) limit(t *testing.T, algorithm string) limiter.Limit {
	l := limiter.Limit{Rate: v.Rate, Period: time.Duration(v.PeriodNS), Burst: v.Burst, Cells: v.Cells}
	if v.Algorithm != "" {
		algorithm = v.Algorithm
	}
	if algorithm == "gcra" {
		algorithm = "token_bucket"
	}
	for _, a := range limiter.Algorithms() {
		if a.String() == algorithm {
			return l.With(a)
		}
	}
	require.Fail(t, "algorithm", algorithm)
	return l
}

func loadTraces(t *testing.T) []vecTrace {
	b, err := os.ReadFile("testdata/algorithms.json")
	require.NoError(t, err)
	var f struct{ Traces []vecTrace }
	require.NoError(t, json.Unmarshal(b, &f))
	require.NotEmpty(t, f.Traces)
	return f.Traces
}

func requireAnswer(t *testing.T, want vecAnswer, d limiter.Decision, at string) {
	t.Helper()
	got := fmt.Sprintf("allowed %v remaining %d retry %d reset %d delay %d", d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay)
	exp := fmt.Sprintf("allowed %v remaining %d retry %d reset %d delay %d", want.Allowed, want.Remaining, want.Retry.Duration, want.Reset.Duration, want.Delay.Duration)
	require.Equal(t, exp, got, at)
}

const unbounded = time.Duration(math.MaxInt64)

func TestTracesOfThePureSteps(t *testing.T) {
	for _, trace := range loadTraces(t) {
		t.Run(trace.ID, func(t *testing.T) {
			states := map[string]*limiter.State{}
			state := func(key string, l limiter.Limit) *limiter.State {
				if key == "" {
					key = "k"
				}
				key += "/" + l.Algorithm.Tag()
				if states[key] == nil {
					states[key] = new(limiter.State)
				}
				return states[key]
			}
			current := trace.Limit
			for k, step := range trace.Steps {
				at := fmt.Sprintf("%s: step %d %s", trace.Note, k, step.Op)
				now := limiter.Reading{Now: step.At, Caller: trace.CallerClock}
				if step.Op == "limit" {
					current = *step.Limit
					continue
				}
				if step.Op == "allow_all" {
					group(t, step, state, now, at)
					continue
				}
				l := current.limit(t, trace.Algorithm)
				rule, err := limiter.NewRule(l)
				require.NoError(t, err)
				s := state(step.Key, l)
				switch step.Op {
				case "allow":
					requireAnswer(t, step.Expect, rule.Take(s, now, step.N, unbounded), at)
				case "peek":
					requireAnswer(t, step.Expect, rule.Take(s, now, 0, unbounded), at)
				case "refund":
					s.Refund(now, step.N, step.Taken)
					requireAnswer(t, step.Expect, rule.Take(s, now, 0, unbounded), at)
				case "reset":
					*s = limiter.State{}
					requireAnswer(t, step.Expect, rule.Take(s, now, 0, unbounded), at)
				default:
					require.Fail(t, step.Op)
				}
			}
		})
	}
}

// group is AllowAll in its plainest form, for keys that may repeat.
func group(t *testing.T, step vecStep, state func(string, limiter.Limit) *limiter.State, now limiter.Reading, at string) {
	type part struct {
		rule *limiter.Rule
		s    *limiter.State
		n    int
	}
	var parts []*part
	index := make([]*part, len(step.Takes))
	for k, take := range step.Takes {
		l := take.Limit.limit(t, "")
		s := state(take.Key, l)
		for _, p := range parts {
			if p.s == s {
				index[k] = p
			}
		}
		if index[k] == nil {
			rule, err := limiter.NewRule(l)
			require.NoError(t, err)
			index[k] = &part{rule: rule, s: s}
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
	require.Equal(t, step.Expect.Allowed, allowed, at)
	require.Equal(t, step.Expect.Retry.Duration, wait, at)
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
		requireAnswer(t, step.Expect.Takes[k], answers[index[k]], fmt.Sprint(at, " take ", k))
	}
}
