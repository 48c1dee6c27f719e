package adaptive

import (
	"math"
	"slices"
	"time"
)

// Constants of [BBR].
const (
	throughputWindows = 10
	fastestWindows    = 60
)

// BBR holds as many requests as keep the service busy: the highest throughput of 10 windows times the least mean round-trip
// time of 60, and three times the square root of that, for the number in flight varies by that much where requests come at
// random. That bound is in force only while the CPU threshold is passed, or the delay threshold of the queue, or twice as
// many requests are in flight and the processors are not known to be idle, and for one window after. Before anything has been
// measured it is what is in flight, and three times the root of that. Otherwise the limit
// grows by √L where it is binding, unless requests take longer than can be healthy or too many fail. Once in 60 windows in
// which it is in force it is half of the estimate, for as long as a request takes: so the time without a queue is seen again. A
// queue that was there from the first window on is taken for service until then: choose a Fixed limit that is too low rather than
// too high.
//
// It needs no reading of the processors. It is for [Concurrency] alone.
func BBR(t Thresholds) Law {
	return &bbr{Thresholds: t, throughput: newRecent(throughputWindows), fastest: newRecent(fastestWindows)}
}

type bbr struct {
	Thresholds
	throughput recent // completed requests a second
	fastest    recent // mean round-trip time, seconds
	armed      bool
	since      int // windows in which the bound was in force, since it was halved
	why        Reason
}

func (b *bbr) NeedsCPU() bool { return false }

func (b *bbr) Reset() {
	b.throughput.reset()
	b.fastest.reset()
	b.armed, b.since = false, 0
}

// estimate is how many requests in flight keep the service busy; 0: not known. It never is less than 1, or a slow start
// would look like congestion for good.
func (b *bbr) estimate(w *Window) float64 {
	if w.Measured > 0 && w.Mean > 0 && w.Span > 0 {
		b.throughput.add(float64(w.Measured) / w.Span.Seconds())
		b.fastest.add(w.Mean.Seconds())
	}
	if len(b.fastest.known()) == 0 {
		return 0
	}
	return max(1, slices.Max(b.throughput.known())*slices.Min(b.fastest.known()))
}

func (b *bbr) Update(cur float64, w Window, cpu Reading) (float64, Reason) {
	est := b.estimate(&w)
	isIdle := cpu.OK && cpu.Value < 0.7*b.CPU-edge
	was := b.armed
	b.armed = true
	switch {
	case ratioOf(float64(w.QueueDelay), float64(b.QueueDelay)) > 1+edge:
		b.why = ReasonQueue
	case cpu.OK && cpu.Value > b.CPU+edge:
		b.why = ReasonCPU
	case est > 0 && w.Peak > 2*est && !isIdle:
		b.why = ReasonInFlight
	default:
		b.armed = false
	}
	if !b.armed && !was {
		b.since = 0
	}
	switch {
	case est > 0 && (b.armed || was):
		// A bound that is in force for longer than times are remembered only sees times with a queue in them. They would become the
		// least ones, and the bound rise and rise.
		// So it is halved for as long as requests take, and what is measured then has waited less.
		if b.since++; b.since >= fastestWindows {
			if w.Span <= 0 || time.Duration(b.since-fastestWindows+1)*w.Span >= w.P90 {
				b.since = 0
			}
			return est / 2, b.why
		}
		return est + 3*math.Sqrt(est), b.why
	case est == 0 && b.armed: // of what is needed nothing is known but what is in use
		return min(cur, inUse(cur, &w)+3*math.Sqrt(inUse(cur, &w))), b.why
	case ratioOf(float64(b.rtt(cur, &w)), float64(b.RTT)) > 1+edge:
		return cur, ReasonRTT
	case ratioOf(w.ErrorRatio(), b.Errors) > 1+edge:
		return cur, ReasonErrors
	case binding(cur, &w) && !b.armed:
		return cur + step(cur), ReasonGrow
	}
	return cur, ReasonHold
}
