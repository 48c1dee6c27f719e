package adaptive

import "slices"

// Constants of [Hybrid].
const (
	baselineWindows = 60  // how many windows the best round-trip time is remembered
	tolerance       = 1.5 // how much slower than that is noise
	smoothing       = 0.2 // the weight of a gradient's verdict
	onErrors        = 0.7
)

// Hybrid is the default law. It asks the processors whether slowness is ours. Above the CPU threshold c the limit goes half
// way to what is in use, times the ratio of the threshold to the load or of round-trip times to what they were, whichever is
// less. Below 0.7·c a slow request waits for somebody else, and the limit grows by √L if it is binding: a slow dependency
// does not close the gate, so Max must be what memory can hold. Between, the median round-trip time is held against the
// least median of 60 windows: more than 1.5 times as slow shrinks the limit, otherwise it grows half as fast. Errors above
// their threshold cut it by 0.7. A 90th percentile above the RTT threshold can not be healthy: then latency counts whatever
// the processors say.
//
// It needs a reading of the processors: without one for three intervals, the fixed limit is in force.
func Hybrid(t Thresholds) Law { return newHybrid(t, false) }

// HybridDownstream is [Hybrid] that protects what it calls as well: latency counts whatever the processors say.
func HybridDownstream(t Thresholds) Law { return newHybrid(t, true) }

type hybrid struct {
	Thresholds
	downstream bool
	medians    recent
}

func newHybrid(t Thresholds, downstream bool) *hybrid {
	return &hybrid{Thresholds: t, downstream: downstream, medians: newRecent(baselineWindows)}
}

func (h *hybrid) NeedsCPU() bool { return true }

func (h *hybrid) Reset() { h.medians.reset() }

// gradient is 1 while requests are as fast as they were, down to 0.5.
func (h *hybrid) gradient(w *Window) float64 {
	if w.Measured == 0 || w.P50 <= 0 {
		return 1
	}
	h.medians.add(float64(w.P50))
	return min(max(tolerance*slices.Min(h.medians.known())/float64(w.P50), 0.5), 1)
}

func (h *hybrid) Update(cur float64, w Window, cpu Reading) (float64, Reason) {
	g := h.gradient(&w)
	queue := ratioOf(float64(w.QueueDelay), float64(h.QueueDelay))
	load := ratioOf(cpu.Value, h.CPU)
	unhealthy := ratioOf(float64(h.rtt(cur, &w)), float64(h.RTT)) > 1+edge
	switch {
	case ratioOf(w.ErrorRatio(), h.Errors) > 1+edge:
		return onErrors * cur, ReasonErrors
	case !cpu.OK:
		return cur, ReasonHold
	case load > 1+edge || queue > 1+edge:
		why := ReasonCPU
		if queue > load {
			why = ReasonQueue
		}
		target := inUse(cur, &w) * min(g, 1/max(load, queue))
		return (cur + target) / 2, why
	case g < 1 && (unhealthy || h.downstream || load >= 0.7-edge):
		why := ReasonGradient
		if unhealthy {
			why = ReasonRTT
		}
		return cur * (1 - smoothing + smoothing*g), why
	case unhealthy:
		return cur, ReasonRTT
	case !binding(cur, &w):
		return cur, ReasonHold
	case load < 0.7-edge:
		return cur + step(cur), ReasonGrow
	}
	return cur + step(cur)/2, ReasonGrow
}
