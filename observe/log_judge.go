package observe

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// class is what lines are counted by. A flood of one class leaves the lines of others alone.
type class uint8

const (
	unsampled class = iota
	classAllowed
	classBlocked
	classShadow
	classRejected
	classDegraded
	classError
	classClient // errors any client can cause
	classCanceled
	classPanic
	classStore
	classStoreFailed
	classLease
	classAdapt
	classAdaptReason
	classes
)

// reasonDeadline is why a call to a store failed whose caller gave it no time.
const reasonDeadline = "deadline"

// verdict is what becomes of an event. Without a text there is no line.
type verdict struct {
	class class
	level slog.Level
	text  string
}

// judge says what becomes of e, and notes what later events are compared with.
func (l *Log) judge(e *limiter.Event) verdict {
	switch e.Kind {
	case limiter.EventDecision:
		switch e.Outcome {
		case limiter.OutcomeAllowed:
			return verdict{classAllowed, slog.LevelDebug, "spillway: allowed"}
		case limiter.OutcomeShadowBlocked:
			return verdict{classShadow, slog.LevelInfo, "spillway: would be blocked"}
		default:
			return verdict{classBlocked, slog.LevelDebug, "spillway: blocked"} // the refusal says it, and why
		}
	case limiter.EventRejected:
		return verdict{classRejected, slog.LevelInfo, "spillway: a request is refused"}
	case limiter.EventDegraded:
		return verdict{classDegraded, slog.LevelInfo, "spillway: a refused request is served otherwise"}
	case limiter.EventError:
		return judgeError(e)
	case limiter.EventStoreState:
		if e.State == 0 {
			return verdict{unsampled, slog.LevelInfo, "spillway: a policy decides again"}
		}
		return verdict{unsampled, slog.LevelError, "spillway: a policy cannot decide"}
	case limiter.EventPanic:
		return verdict{classPanic, slog.LevelError, "spillway: a callback panicked"}
	case limiter.EventStore:
		switch {
		case e.Err == nil:
			return verdict{classStore, slog.LevelDebug, "spillway: a call to a store"}
		case e.Reason == limiter.ReasonCanceled, e.Reason == reasonDeadline:
			return verdict{classCanceled, slog.LevelDebug, "spillway: a call to a store ended with its caller"}
		}
		return verdict{classStoreFailed, slog.LevelWarn, "spillway: a call to a store failed"}
	case limiter.EventMemory:
		return l.judgeMemory(e)
	case limiter.EventBreaker:
		return l.judgeBreaker(e)
	case limiter.EventReload:
		return l.judgeReload(e)
	case limiter.EventLease:
		return verdict{classLease, slog.LevelDebug, "spillway: leases of a policy"}
	case limiter.EventAdapt:
		if was := swap(&l.state, &l.state.adapt, e.Policy, e.Reason); was != e.Reason {
			return verdict{classAdaptReason, slog.LevelInfo, "spillway: a limit moves for another reason"}
		}
		return verdict{classAdapt, slog.LevelDebug, "spillway: a limit moves"}
	}
	return verdict{}
}

func judgeError(e *limiter.Event) verdict {
	switch e.Reason {
	case limiter.ReasonCanceled:
		return verdict{classCanceled, slog.LevelDebug, "spillway: the client left before a decision"}
	case limiter.ReasonClientIP:
		return verdict{classClient, slog.LevelWarn, "spillway: a client's address cannot be told; its nearest verified hop is counted"}
	case limiter.ReasonNoKey:
		return verdict{classClient, slog.LevelWarn, "spillway: a request has no key"}
	case limiter.ReasonRefund:
		return verdict{classError, slog.LevelWarn, "spillway: units could not be given back"}
	}
	return verdict{classError, slog.LevelWarn, "spillway: a policy could not decide"}
}

func (l *Log) judgeMemory(e *limiter.Event) verdict {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if e.State != 0 { // closed; one of that name that is made later begins anew
		delete(l.state.memory, e.Name)
		return verdict{}
	}
	was := l.state.memory[e.Name]
	now := overflow{sum: e.Overflow, rises: e.Overflow > was.sum}
	if e.Overflow < was.sum {
		now.rises = was.rises // another limiter of that name: it says nothing about the one before
	}
	put(&l.state.memory, e.Name, now)
	switch {
	case now.rises && !was.rises:
		return verdict{unsampled, slog.LevelWarn, "spillway: the table of a memory limiter is full, further keys share cells"}
	case !now.rises && was.rises:
		return verdict{unsampled, slog.LevelInfo, "spillway: the table of a memory limiter has room again"}
	}
	return verdict{}
}

// judgeBreaker logs outages, not the probes in between, of which there may be one a second for hours.
func (l *Log) judgeBreaker(e *limiter.Event) verdict {
	was := false
	switch e.State {
	case limiter.BreakerOpen:
		if was = swap(&l.state, &l.state.away, e.Name, true); !was {
			return verdict{unsampled, slog.LevelWarn, "spillway: a limiter is away, its substitute decides"}
		}
	case limiter.BreakerClosed:
		if was = swap(&l.state, &l.state.away, e.Name, false); was && e.Reason != limiter.ReasonEnd {
			return verdict{unsampled, slog.LevelInfo, "spillway: a limiter is back and decides again"}
		}
	}
	return verdict{unsampled, slog.LevelDebug, "spillway: a circuit breaker changed"}
}

func (l *Log) judgeReload(e *limiter.Event) verdict {
	refused := ""
	if result := reloadResult(e); result != limiter.ReasonOK {
		refused = result + "\x00" + e.Hash
	}
	was := swap(&l.state, &l.state.refused, e.Name, refused)
	switch {
	case refused == "":
		return verdict{unsampled, slog.LevelInfo, "spillway: new policies are applied"}
	case refused == was:
		return verdict{unsampled, slog.LevelDebug, "spillway: new policies are still refused"}
	}
	return verdict{unsampled, slog.LevelError, "spillway: new policies are refused, the former go on"}
}

// reloadResult is what came of a reload, as metrics count it.
func reloadResult(e *limiter.Event) string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Err != nil:
		return limiter.ReasonInvalid
	}
	return limiter.ReasonOK
}

// logState is what events are compared with, by the name of a limiter or source, or by the policy.
type logState struct {
	mu      sync.Mutex
	memory  map[string]overflow
	away    map[string]bool
	refused map[string]string // what for; "": applied
	adapt   map[string]string // the last reason
	flips   map[string]*flips // of policies that cannot decide and do again
}

type overflow struct {
	sum   int64
	rises bool
}

// mostNames bounds each of the maps: names come and go with reloads. One that is full is emptied, which may repeat a line.
const mostNames = 4096

func put[V any](m *map[string]V, name string, v V) {
	if _, known := (*m)[name]; !known {
		if *m == nil || len(*m) >= mostNames {
			*m = map[string]V{}
		}
		name = strings.Clone(name)
	}
	(*m)[name] = v
}

func swap[V comparable](s *logState, m *map[string]V, name string, v V) (was V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was = (*m)[name]; was != v {
		put(m, name, v)
	}
	return was
}

// sampler lets the first lines of each class and second through.
type sampler struct {
	base  time.Time
	rates [classes]uint32
	state [classes]struct {
		window  atomic.Uint64 // the second since base in the upper half, the lines in it in the lower
		leftOut atomic.Int64
	}
}

func (s *sampler) init(rate uint32) {
	s.base = time.Now()
	for i := range s.rates {
		s.rates[i] = rate
	}
	// A panic is a fault of the program, which must not be overlooked where samples are not wanted.
	s.rates[classPanic] = 1
}

func (s *sampler) rate(c class) uint32 { return s.rates[c] }

// pass reports whether a line about something that happened at the given time is to be written, and how many were not
// since the last one. A second that has begun ends no sooner than time does: late events count in the one that is, and one
// from the future does not silence those of the present.
func (s *sampler) pass(c class, at time.Time) (leftOut int64, pass bool) {
	if at.IsZero() {
		at = time.Now()
	}
	second := seconds(at.Sub(s.base))
	st := &s.state[c]
	for {
		old := st.window.Load()
		window, lines := uint32(old>>32), uint32(old)
		if second > window {
			second = min(second, seconds(time.Since(s.base)))
		}
		if second > window {
			window, lines = second, 0
		}
		if lines >= s.rates[c] {
			st.leftOut.Add(1)
			return 0, false
		}
		if st.window.CompareAndSwap(old, uint64(window)<<32|uint64(lines+1)) {
			return st.leftOut.Swap(0), true
		}
	}
}
