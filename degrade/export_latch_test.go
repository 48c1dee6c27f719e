package degrade

import "time"

// LatchState is the pure switch behind a latch.
type LatchState struct{ s latchState }

func NewLatchState(share float64) *LatchState { return &LatchState{latchState{share: share}} }

func (l *LatchState) Add(now time.Time, refused bool) { l.s.add(now, refused) }
func (l *LatchState) Advance(now time.Time)           { l.s.advance(now) }
func (l *LatchState) On() bool                        { return l.s.on }
func (l *LatchState) Wait() time.Duration             { return l.s.wait() }
