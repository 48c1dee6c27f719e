package limitertest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

//go:embed algorithms.json
var tracesJSON []byte

// Trace is a sequence of steps with the right answers, which were computed with exact rationals by a program of its own.
type Trace struct {
	ID, Note string
	// CallerClock says that readings come from many clocks: an old one is late, however old, and never a stepped clock.
	CallerClock bool
	Steps       []Step
}

// Step is one operation of a [Trace] and its right answer, at an instant that is a whole number of microseconds.
type Step struct {
	At   int64 // Unix ns
	Op   Op
	Key  string
	N    int
	Mark int64 // refund: effective instant of the take given back
	// Limit is the one in force. Takes of an AllowAll have their own.
	Limit limiter.Limit
	Takes []StepTake
	// Edge says that the exact margin is under one microsecond: a store with a coarser clock may refuse here.
	Edge bool
	// Want is the answer; after a refund and a reset it is what a peek at the same instant answers. For an AllowAll it
	// is that of the group: whether it passed and the longest wait.
	Want Answer
}

// Op is what a [Step] does.
type Op string

// Operations.
const (
	OpAllow    Op = "allow"
	OpPeek     Op = "peek"
	OpRefund   Op = "refund"
	OpReset    Op = "reset"
	OpAllowAll Op = "allow_all"
)

// StepTake is one take of an AllowAll and its right answer.
type StepTake struct {
	Key   string
	Limit limiter.Limit
	N     int
	Want  Answer
}

// Answer is the part of a decision that a trace fixes. Takes are made with an unbounded MaxDelay.
type Answer struct {
	Allowed                       bool
	Remaining                     int
	RetryAfter, ResetAfter, Delay time.Duration
}

// Traces returns the traces of all algorithms. The caller must not change them.
func Traces() []Trace { return loadTraces() }

var loadTraces = sync.OnceValue(func() []Trace {
	var f struct{ Traces []rawTrace }
	if err := json.Unmarshal(tracesJSON, &f); err != nil {
		panic(fmt.Sprint("limitertest: algorithms.json: ", err)) // the file is part of the program
	}
	traces := make([]Trace, len(f.Traces))
	for k, t := range f.Traces {
		traces[k] = t.trace()
	}
	return traces
})

type rawLimit struct {
	Algorithm string `json:"algorithm"`
	Rate      int    `json:"rate"`
	PeriodNS  int64  `json:"period_ns"`
	Burst     int    `json:"burst"`
	Cells     int    `json:"cells"`
}

type rawWait time.Duration

func (d *rawWait) UnmarshalJSON(b []byte) error {
	if string(b) == `"never"` {
		*d = rawWait(limiter.Never)
		return nil
	}
	return json.Unmarshal(b, (*int64)(d))
}

type rawAnswer struct {
	Allowed   bool        `json:"allowed"`
	Remaining int         `json:"remaining"`
	Retry     rawWait     `json:"retry_after_ns"`
	Reset     rawWait     `json:"reset_after_ns"`
	Delay     rawWait     `json:"delay_ns"`
	Takes     []rawAnswer `json:"takes"`
}

type rawTrace struct {
	ID          string   `json:"id"`
	Algorithm   string   `json:"algorithm"`
	Limit       rawLimit `json:"limit"`
	CallerClock bool     `json:"caller_clock"`
	Note        string   `json:"note"`
	Steps       []struct {
		At     int64     `json:"at_ns"`
		Op     string    `json:"op"`
		N      int       `json:"n"`
		Key    string    `json:"key"`
		Taken  int64     `json:"taken_ns"`
		Edge   bool      `json:"edge"`
		Limit  *rawLimit `json:"limit"`
		Expect rawAnswer `json:"expect"`
		Takes  []struct {
			Key   string   `json:"key"`
			Limit rawLimit `json:"limit"`
			N     int      `json:"n"`
		} `json:"takes"`
	} `json:"steps"`
}

// trace resolves what a line of the file leaves to the lines before it.
func (r rawTrace) trace() Trace {
	t := Trace{ID: r.ID, Note: r.Note, CallerClock: r.CallerClock}
	current := r.Limit
	for _, s := range r.Steps {
		if s.Op == "limit" {
			current = *s.Limit
			continue
		}
		step := Step{At: s.At, Op: Op(s.Op), Key: s.Key, N: s.N, Mark: s.Taken, Edge: s.Edge, Want: s.Expect.answer()}
		if step.Key == "" {
			step.Key = "k"
		}
		if step.Op != OpAllowAll {
			step.Limit = current.limit(r.Algorithm)
		}
		for k, take := range s.Takes {
			step.Takes = append(step.Takes, StepTake{
				Key: take.Key, Limit: take.Limit.limit(""), N: take.N, Want: s.Expect.Takes[k].answer(),
			})
		}
		t.Steps = append(t.Steps, step)
	}
	return t
}

func (r rawLimit) limit(algorithm string) limiter.Limit {
	if r.Algorithm != "" {
		algorithm = r.Algorithm
	}
	l := limiter.Limit{Rate: r.Rate, Period: time.Duration(r.PeriodNS), Burst: r.Burst, Cells: r.Cells}
	if algorithm == "gcra" { // another notation of the token bucket
		return l
	}
	for _, a := range limiter.Algorithms() {
		if a.String() == algorithm {
			return l.With(a)
		}
	}
	panic("limitertest: algorithms.json: algorithm " + algorithm)
}

func (a rawAnswer) answer() Answer {
	return Answer{
		Allowed: a.Allowed, Remaining: a.Remaining,
		RetryAfter: time.Duration(a.Retry), ResetAfter: time.Duration(a.Reset), Delay: time.Duration(a.Delay),
	}
}

// stepped reports whether the trace's own clock is set back by more than a late reading, so that only a limiter on one
// clock of its own can follow it.
func (t Trace) stepped() bool {
	if t.CallerClock {
		return false
	}
	var newest int64
	for _, s := range t.Steps {
		if s.At < newest-int64(time.Second) {
			return true
		}
		newest = max(newest, s.At)
	}
	return false
}
