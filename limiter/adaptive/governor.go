package adaptive

import (
	"fmt"
	"math"
	"time"
)

// Constants of the governor.
const (
	lateIntervals  = 3
	lateAtLeast    = time.Second // short intervals are late by chance
	blindIntervals = 3           // without a reading of the processors
	blindAtLeast   = time.Second // which is what a sampler needs to begin with
	unsteadyMoves  = 10          // windows that are looked at
	unsteadyTurns  = 6           // changes of direction in them that are still fine
	unsteadyStep   = 0.25        // moves that count
	gatherMost     = 60          // windows that are put together
	busyWindows    = 3           // that are enough where the limit is used up, and few are done
	busyAtLeast    = time.Second // short intervals see the same reading again and again
	firstHold      = 30 * time.Second
	longestHold    = 10 * time.Minute
)

// governor keeps a law within bounds, and takes over with the fixed limit when the law cannot be trusted. It has no clock
// and no lock: steps come one at a time.
type governor struct {
	law             Law
	least, most     float64
	fixed           float64
	cpuAt, errorsAt float64
	interval        time.Duration
	minSamples      int
	cur             float64
	why             Reason
	fallback        Reason // "": the law rules
	until           time.Time
	hold            time.Duration // of the next fallback
	last            time.Time     // the step before
	back            time.Time     // when the law took over again
	sighted         time.Time     // when the processors were read last
	pinned          pinned
	moves           [unsteadyMoves]int8
	move            int
	gathered        sample // of the windows before that had too few samples
	windows         int    // how many those are
	busy            int    // windows with busy processors, one after the other, that nothing was made of
	panicked        any    // what a law panicked with, to be told once
	// call runs the law's code, which may be the user's. It returns what that panicked with, nil if it did not.
	call func(f func()) (panicked any)
}

// overdueAfter is how long after a step the next one has been due for too long.
func overdueAfter(interval time.Duration) time.Duration {
	return interval + max(lateIntervals*interval, lateAtLeast)
}

// start puts the fixed limit in force.
func (g *governor) start(now time.Time) {
	g.cur, g.why, g.hold, g.last, g.back, g.sighted = g.fixed, ReasonStart, firstHold, now, now, now
}

// step takes a window and makes the next limit of it.
func (g *governor) step(now time.Time, w *sample, cpu Reading) {
	isLate := now.Sub(g.last) >= overdueAfter(g.interval)
	g.last = now
	if cpu.OK {
		g.sighted = now
	}
	if g.fallback != "" {
		if now.Before(g.until) {
			return
		}
		if !g.resume(now) {
			return
		}
		isLate = false // what was late has been held against it
	}
	if isLate {
		g.fall(now, FallbackLate)
		return
	}
	if now.Sub(g.sighted) >= max(blindIntervals*g.interval, blindAtLeast) {
		needs := false
		if !g.ask(func() { needs = g.law.NeedsCPU() }) {
			g.fall(now, FallbackPanic)
			return
		}
		if needs {
			g.fall(now, FallbackCPU)
			return
		}
	}
	g.apply(now, w, cpu)
}

// ready returns what there is to judge by, nil for too little. Only requests of which it is known how they did count: what is
// unmeasured says nothing of the service, however much of it there is, and one failure amid it is one failure.
//
// A limit that is used up lets too few through in each window for as long as it is a low one: where requests take longer than
// a window, and where they come in bunches. Such windows are put together until they are enough, from one on in which the limit
// was used up; those after it count whether it was or not.
func (g *governor) ready(w *sample) *sample {
	if g.windows > 0 {
		g.gathered.add(w)
	} else {
		g.gathered = *w
	}
	g.windows++
	if g.gathered.samples(g.cur) >= g.minSamples {
		g.windows = 0
		return &g.gathered
	}
	if g.windows >= gatherMost || !binding(g.cur, &g.gathered.Window) {
		g.windows = 0
	}
	return nil
}

// apply asks the law, unless there is nothing to judge by.
func (g *governor) apply(now time.Time, w *sample, cpu Reading) {
	if g.busy++; !cpu.OK || cpu.Value <= g.cpuAt+edge || w.MaxInFlight == 0 {
		g.busy = 0
	}
	isIdle := w.Arrivals == 0 && w.Completed == 0 && w.MaxInFlight == 0
	if isIdle && g.windows == 0 {
		g.stay(now, w, cpu, ReasonIdle)
		return
	}
	var seen Window
	enough := g.ready(w)
	switch {
	case enough != nil:
		seen, g.busy = enough.Window, 0
	case isIdle:
		g.stay(now, w, cpu, ReasonIdle)
		return
	case g.busy >= max(busyWindows, int(busyAtLeast/g.interval)), w.Completed >= g.minSamples:
		g.busy = 0
		// All that is known is how busy the processors are: few requests are done because they are, or all clients leave before
		// they are answered. A few that failed or were slow say nothing, so the law does not see them.
		seen = w.Window
		seen.Failed, seen.Measured, seen.Late, seen.Overdue, seen.Oldest = 0, 0, 0, 0, 0
		seen.Min, seen.Mean, seen.P50, seen.P90 = 0, 0, 0, 0
	default:
		g.stay(now, w, cpu, ReasonUnready)
		return
	}
	var next float64
	var why Reason
	switch ok := g.ask(func() { next, why = g.law.Update(g.cur, seen, cpu) }); {
	case !ok:
		g.fall(now, FallbackPanic)
		return
	case math.IsNaN(next) || math.IsInf(next, 0) || next < 0:
		g.fall(now, FallbackValue)
		return
	}
	switch {
	case enough == nil && next >= g.cur:
		next, why = g.cur, ReasonUnready
	case next > g.cur:
		switch {
		case 2*seen.Measured < g.minSamples || seen.Measured < seen.Failed: // what went well is a reason to grow
			next, why = g.cur, ReasonUnready
		case 10*seen.Late > seen.Measured+seen.Late: // more than one in ten hangs, whoever is to blame
			next, why = g.cur, ReasonRTT
		}
	}
	next = min(max(next, g.cur/2), 2*g.cur)
	next = min(max(next, g.least), g.most)
	g.turn(next)
	g.cur, g.why = next, why
	if g.isUnsteady() {
		g.fall(now, FallbackUnsteady)
		return
	}
	g.watch(now, &w.Window, cpu)
}

// stay leaves the limit where it is.
func (g *governor) stay(now time.Time, w *sample, cpu Reading, why Reason) {
	g.why = why
	g.turn(g.cur)
	g.watch(now, &w.Window, cpu)
}

// ask runs the law's code. What it panics with is no reason to end the process.
func (g *governor) ask(f func()) (ok bool) {
	if v := g.call(f); v != nil {
		g.panicked = v
		return false
	}
	return true
}

// watch sees whether the limit is at its least in vain.
func (g *governor) watch(now time.Time, w *Window, cpu Reading) {
	isIdle := g.cur <= g.least+edge && g.least < g.fixed && cpu.OK && cpu.Value < g.cpuAt/2
	switch {
	case !isIdle:
		g.pinned.reset()
	case g.pinned.see(now, w, g.errorsAt):
		g.fall(now, FallbackPinned)
	}
}

// turn remembers which way the limit moves, if far.
func (g *governor) turn(next float64) {
	g.moves[g.move] = 0
	switch {
	case next > g.cur*(1+unsteadyStep)+edge:
		g.moves[g.move] = 1
	case next < g.cur*(1-unsteadyStep)-edge:
		g.moves[g.move] = -1
	}
	g.move = (g.move + 1) % unsteadyMoves
}

func (g *governor) isUnsteady() bool {
	turns, before := 0, int8(0)
	for k := range unsteadyMoves {
		m := g.moves[(g.move+k)%unsteadyMoves]
		if m != 0 && m == -before {
			turns++
		}
		if m != 0 {
			before = m
		}
	}
	return turns > unsteadyTurns
}

// fall puts the fixed limit in force for a while, longer each time.
func (g *governor) fall(now time.Time, why Reason) {
	if now.Sub(g.back) >= longestHold { // it had been well for long
		g.hold = firstHold
	}
	g.cur, g.why, g.fallback = g.fixed, why, why
	g.until = now.Add(g.hold)
	g.hold = min(2*g.hold, longestHold)
	g.forget()
}

// resume lets the law try again, from the fixed limit on, and tells whether it can.
func (g *governor) resume(now time.Time) bool {
	g.cur, g.why, g.fallback, g.back = g.fixed, ReasonStart, "", now
	g.sighted = now // three intervals again
	if g.forget() {
		return true
	}
	g.fall(now, FallbackPanic)
	return false
}

// forget begins anew. It tells whether the law could.
func (g *governor) forget() (ok bool) {
	g.pinned.reset()
	g.moves, g.windows, g.busy = [unsteadyMoves]int8{}, 0, 0
	return g.ask(g.law.Reset)
}

// complaint is what a law panicked with, once.
func (g *governor) complaint() error {
	if g.panicked == nil {
		return nil
	}
	v := g.panicked
	g.panicked = nil
	return fmt.Errorf("adaptive: the law panicked: %v", v)
}
