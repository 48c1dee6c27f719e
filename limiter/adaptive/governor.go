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
	pinnedFor      = time.Minute
	unsteadyMoves  = 10   // windows that are looked at
	unsteadyTurns  = 6    // changes of direction in them that are still fine
	unsteadyStep   = 0.25 // moves that count
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
	pinned          time.Time     // since when the limit has been at its least, in vain
	moves           [unsteadyMoves]int8
	move            int
	panicked        any // what a law panicked with, to be told once
}

// overdueAfter is how long after a step the next one has been due for too long.
func overdueAfter(interval time.Duration) time.Duration {
	return interval + max(lateIntervals*interval, lateAtLeast)
}

// start puts the fixed limit in force.
func (g *governor) start(now time.Time) {
	g.cur, g.why, g.hold, g.last, g.back, g.sighted = g.fixed, ReasonStart, firstHold, now, now, now
}

// step takes a window and returns the next limit.
func (g *governor) step(now time.Time, w Window, cpu Reading) {
	isLate := now.Sub(g.last) >= overdueAfter(g.interval)
	g.last = now
	if cpu.OK {
		g.sighted = now
	}
	if g.fallback != "" {
		if now.Before(g.until) {
			return
		}
		g.resume(now)
		isLate = false // what was late has been held against it
	}
	switch {
	case isLate:
		g.fall(now, FallbackLate)
	case now.Sub(g.sighted) >= max(blindIntervals*g.interval, blindAtLeast) && g.law.NeedsCPU():
		g.fall(now, FallbackCPU)
	default:
		g.apply(now, w, cpu)
	}
}

// apply asks the law, unless the window says nothing.
func (g *governor) apply(now time.Time, w Window, cpu Reading) {
	if w.Arrivals == 0 && w.Completed == 0 && w.MaxInFlight == 0 {
		g.why = ReasonIdle
		g.turn(g.cur)
		g.watch(now, &w, cpu)
		return
	}
	// What hangs completes nothing, and is seen by its age. Where clients leave before they are answered, nothing is measured
	// either.
	hangs := w.Overdue > 0 && 10*w.Overdue > w.Measured+w.Overdue
	isMeasured := w.Measured+w.Failed >= g.minSamples
	if !isMeasured && !hangs && w.Completed < g.minSamples {
		g.why = ReasonUnready
		g.turn(g.cur)
		g.watch(now, &w, cpu)
		return
	}
	next, why, ok := g.ask(w, cpu)
	switch {
	case !ok:
		g.fall(now, FallbackPanic)
		return
	case math.IsNaN(next) || math.IsInf(next, 0) || next < 0:
		g.fall(now, FallbackValue)
		return
	}
	if !isMeasured && next > g.cur { // what has not been measured is no reason to grow
		next, why = g.cur, ReasonUnready
	}
	next = min(max(next, g.cur/2), 2*g.cur)
	next = min(max(next, g.least), g.most)
	g.turn(next)
	g.cur, g.why = next, why
	if g.isUnsteady() {
		g.fall(now, FallbackUnsteady)
		return
	}
	g.watch(now, &w, cpu)
}

// ask runs the law. A law may be the user's: what it panics with is no reason to end the process.
func (g *governor) ask(w Window, cpu Reading) (next float64, why Reason, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			g.panicked = v
		}
	}()
	next, why = g.law.Update(g.cur, w, cpu)
	return next, why, true
}

// watch sees whether the limit has been at its least for a minute, refusing requests, while nothing hurts: then it is not
// the limit that helps.
func (g *governor) watch(now time.Time, w *Window, cpu Reading) {
	isVain := g.cur <= g.least+edge && g.least < g.fixed && cpu.OK && cpu.Value < g.cpuAt/2 && w.ErrorRatio() <= g.errorsAt && w.Rejected > 0
	switch {
	case !isVain:
		g.pinned = time.Time{}
	case g.pinned.IsZero():
		g.pinned = now
	case now.Sub(g.pinned) >= pinnedFor:
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

// resume lets the law try again, from the fixed limit on.
func (g *governor) resume(now time.Time) {
	g.cur, g.why, g.fallback, g.back = g.fixed, ReasonStart, "", now
	g.sighted = now // three intervals again
	g.forget()
}

func (g *governor) forget() {
	g.pinned, g.moves = time.Time{}, [unsteadyMoves]int8{}
	defer func() { // Reset is the law's own code as well
		if v := recover(); v != nil {
			g.panicked = v
		}
	}()
	g.law.Reset()
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
