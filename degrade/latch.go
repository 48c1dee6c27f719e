package degrade

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	latchSlots  = 10
	latchSlot   = 500 * time.Millisecond // ten are the window of 5 s
	latchQuiet  = 10 * time.Second       // how long the share stays under half before the latch opens
	latchLeast  = 20                     // decisions in the window, below which their share says nothing
	latchBehind = time.Minute            // a reading older than this is a clock set back, not a slow request
)

// latchTally is what was decided in a slot of time.
type latchTally struct{ asked, refused int }

// latchState is a switch that goes on when the refused share of the decisions of the last 5 s reaches share, and off once
// the share has stayed under half of that for 10 s. The window moves in slots of half a second.
type latchState struct {
	share float64

	start time.Time     // of the state's own time, which never runs backwards
	now   time.Duration // since start
	slots [latchSlots]latchTally
	sum   latchTally

	on    bool
	quiet bool          // while on: the share is under half
	since time.Duration // of quiet
}

// advance moves to now. What ends between two calls, a slot or the wait, ends at its own instant and not at the call's.
func (s *latchState) advance(now time.Time) {
	if s.start.IsZero() {
		s.start = now
	}
	at := now.Sub(s.start)
	if at <= s.now {
		if s.now-at > latchBehind {
			// The clock was set back. Waiting until it is where it was could hold the latch for hours.
			s.start = now.Add(-s.now)
		}
		return
	}
	for slot := s.now/latchSlot + 1; slot <= at/latchSlot && s.sum.asked > 0; slot++ {
		gone := &s.slots[slot%latchSlots]
		s.sum.asked -= gone.asked
		s.sum.refused -= gone.refused
		*gone = latchTally{}
		s.judge(slot * latchSlot)
	}
	s.now = at
	s.judge(at)
}

// add counts one decision.
func (s *latchState) add(now time.Time, refused bool) {
	s.advance(now)
	slot := &s.slots[s.now/latchSlot%latchSlots]
	slot.asked++
	s.sum.asked++
	if refused {
		slot.refused++
		s.sum.refused++
	}
	s.judge(s.now)
}

// judge switches by the window as it is at an instant. Few decisions switch nothing on, and hold nothing on either: what
// is asked of the policy while writes are shut may be next to nothing.
func (s *latchState) judge(at time.Duration) {
	share := 0.0
	if s.sum.asked >= latchLeast {
		share = float64(s.sum.refused) / float64(s.sum.asked)
	}
	switch {
	case !s.on:
		s.on, s.quiet = share >= s.share, false
	case share >= s.share/2:
		s.quiet = false
	case !s.quiet:
		s.quiet, s.since = true, at
	case at-s.since >= latchQuiet:
		s.on = false
	}
}

// wait is the time until the latch could open, at the earliest; 0 while it is off.
func (s *latchState) wait() time.Duration {
	switch {
	case !s.on:
		return 0
	case s.quiet:
		return latchQuiet - (s.now - s.since)
	}
	return latchQuiet
}

// latch is a latchState for concurrent use.
type latch struct {
	on atomic.Bool // as state.on was last: what is off costs requests no lock before they are decided

	mu    sync.Mutex
	state latchState
}

func newLatch(share float64) *latch { return &latch{state: latchState{share: share}} }

func (l *latch) hear(now time.Time, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.add(now, refused)
	l.on.Store(l.state.on)
}

// wait returns 0 while the latch is off.
func (l *latch) wait(now time.Time) time.Duration {
	if !l.on.Load() {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.advance(now)
	l.on.Store(l.state.on)
	return l.state.wait()
}
