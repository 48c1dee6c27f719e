package adaptive

import (
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Reason says why a limit is what it is. The set is small and fixed: it serves as a metric label.
type Reason string

// Reasons of a [Law] and of the controller.
const (
	ReasonStart    Reason = "start"     // nothing has been seen yet: the fixed limit
	ReasonGrow     Reason = "grow"      // the limit was binding and nothing hurts
	ReasonHold     Reason = "hold"      // nothing hurts and nobody needs more, or a cut is being waited for
	ReasonIdle     Reason = "idle"      // no traffic
	ReasonUnready  Reason = "unready"   // too few requests were completed to say anything
	ReasonCPU      Reason = "cpu"       // the processors are above their threshold
	ReasonRTT      Reason = "rtt"       // requests take longer than can be healthy
	ReasonErrors   Reason = "errors"    // too large a share of requests fails
	ReasonQueue    Reason = "queue"     // goroutines wait too long for a processor
	ReasonGradient Reason = "gradient"  // requests take longer than they did
	ReasonInFlight Reason = "in_flight" // more requests are in flight than keep the service busy
)

// Reasons of the governor: the fixed limit is in force.
const (
	FallbackCPU      Reason = "fallback_cpu"      // the law needs the load of the processors and it cannot be read
	FallbackValue    Reason = "fallback_value"    // the law returned what is no limit: NaN, an infinity, less than zero
	FallbackPanic    Reason = "fallback_panic"    // the law panicked
	FallbackLate     Reason = "fallback_late"     // the controller was not run for three intervals
	FallbackPinned   Reason = "fallback_pinned"   // the limit is at Min, refuses requests and does not help
	FallbackUnsteady Reason = "fallback_unsteady" // the limit jumps up and down
	FallbackClosed   Reason = "fallback_closed"   // the controller has been closed
)

// Reasons returns all reasons, for whoever makes a series of each.
func Reasons() []Reason {
	return []Reason{
		ReasonStart, ReasonGrow, ReasonHold, ReasonIdle, ReasonUnready, ReasonCPU, ReasonRTT, ReasonErrors, ReasonQueue, ReasonGradient,
		ReasonInFlight, FallbackCPU, FallbackValue, FallbackPanic, FallbackLate, FallbackPinned, FallbackUnsteady, FallbackClosed,
	}
}

// Thresholds are where a [Law] begins to cut. A zero or negative one, other than CPU, is off.
type Thresholds struct {
	CPU        float64       // share of what this process may use, above 0 and up to 1
	RTT        time.Duration // what can certainly not be healthy; a bit slow is not meant
	Errors     float64       // share of the completed requests that failed, 0…1
	QueueDelay time.Duration // 90th percentile of the time a goroutine waits for a processor
}

// Law moves a limit by what a window saw. Update is told the limit in force, not rounded, and returns the next one: it keeps
// no clock and takes no lock, and what it returns depends on the calls before it alone. The limit in force may differ from
// what the call before returned: the controller bounds it, and sees to it that calls do not overlap. A Law may panic or
// return nonsense: then the fixed limit is in force.
type Law interface {
	Update(cur float64, w Window, cpu Reading) (next float64, why Reason)
	// Reset forgets what was learnt.
	Reset()
	// NeedsCPU reports whether the law can do nothing without a reading of the processors.
	NeedsCPU() bool
}

// MakeLaw makes a [Law] of its own for each controller, for laws remember. [Hybrid], [AIMD] and [BBR] are such functions.
type MakeLaw func(Thresholds) Law

// LawNamed returns the law of a name as documents write it: "hybrid", "aimd" or "bbr"; "" is hybrid. An unknown one is an
// error wrapping [limiter.ErrInvalid].
func LawNamed(name string) (MakeLaw, error) {
	switch name {
	case "", "hybrid":
		return Hybrid, nil
	case "aimd":
		return AIMD, nil
	case "bbr":
		return BBR, nil
	}
	return nil, fmt.Errorf("adaptive: %w: law %q is none of hybrid, aimd, bbr", limiter.ErrInvalid, name)
}

// edge absorbs the rounding of a division, so that a signal exactly at its threshold is not above it.
const edge = 1e-9

// binding reports whether the limit kept requests out, or was close to it. A limit nobody meets must not grow: the next
// burst would meet none.
func binding(cur float64, w *Window) bool {
	return w.Rejected > 0 || w.Peak >= 0.8*cur-edge
}

// inUse is as much of the limit as was in use: to cut what nobody uses would do nothing.
func inUse(cur float64, w *Window) float64 {
	if w.Peak <= 0 {
		return cur
	}
	return min(cur, w.Peak)
}

// rtt is the time that 90 % of the requests took at most. Where the service hangs it is the age of what hangs, or a service
// that answers nothing would look well: only what is done has a round-trip time.
func (t *Thresholds) rtt(cur float64, w *Window) time.Duration {
	if w.hanging(cur) > 0 {
		return max(w.P90, w.Oldest, t.RTT+t.RTT/100) // which they passed, whoever has left by now
	}
	return w.P90
}

func ratioOf(value, threshold float64) float64 {
	if !(threshold > 0) || !(value > 0) {
		return 0
	}
	return value / threshold
}

// severity is the largest of all signals, each as a multiple of its threshold, and which one that is.
func (t *Thresholds) severity(cur float64, w *Window, cpu Reading) (s float64, why Reason) {
	why = ReasonHold
	worst := func(x float64, r Reason) {
		if x > s {
			s, why = x, r
		}
	}
	if cpu.OK {
		worst(ratioOf(cpu.Value, t.CPU), ReasonCPU)
	}
	worst(ratioOf(float64(t.rtt(cur, w)), float64(t.RTT)), ReasonRTT)
	worst(ratioOf(w.ErrorRatio(), t.Errors), ReasonErrors)
	worst(ratioOf(float64(w.QueueDelay), float64(t.QueueDelay)), ReasonQueue)
	return s, why
}

// step is the growth of a limit that nothing speaks against.
func step(cur float64) float64 { return max(1, math.Sqrt(cur)) }

// recent is a ring of the last values, for their minimum or maximum.
type recent struct {
	values []float64
	next   int
	full   bool
}

func newRecent(n int) recent { return recent{values: make([]float64, n)} }

func (r *recent) add(v float64) {
	r.values[r.next] = v
	r.next++
	if r.next == len(r.values) {
		r.next, r.full = 0, true
	}
}

func (r *recent) known() []float64 {
	if r.full {
		return r.values
	}
	return r.values[:r.next]
}

func (r *recent) reset() { r.next, r.full = 0, false }
