package adaptive

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// ages knows how long requests in flight have been there, without a lock and without a list: a ring of slots counts those that
// began in the same stretch of time. A slot that is taken over by a later stretch hands what is left in it to ancient. So its
// answers are rough by one slot, and by more for what is older than the ring.
type ages struct {
	shift   int // a slot is 2^shift ns
	slots   [ageSlots]atomic.Uint64
	ancient atomic.Int64 // how many are older than their slot
	since   atomic.Int64 // the slot in which the oldest of those began, as far as is known
}

const (
	ageSlots  = 128
	ageCounts = 24 // bits of a slot that count; the others are the stretch it stands for
	ageMask   = 1<<ageCounts - 1
)

// init chooses slots of a sixteenth of the threshold at most, but no less than a millisecond, in a ring that spans four times
// the threshold at least.
func (a *ages) init(threshold time.Duration) {
	if threshold <= 0 {
		threshold = time.Second
	}
	a.shift = max(20, bits.Len64(uint64(threshold))-1-4)
}

func (a *ages) slot(began int64) (*atomic.Uint64, uint64) {
	stretch := uint64(max(0, began)) >> a.shift & (1<<(64-ageCounts) - 1)
	return &a.slots[stretch%ageSlots], stretch
}

// begin counts a request that begins at an instant in ns since the origin.
func (a *ages) begin(began int64) {
	s, stretch := a.slot(began)
	for {
		old := s.Load()
		switch n, was := old&ageMask, old>>ageCounts; {
		case was == stretch || n == 0:
			if s.CompareAndSwap(old, stretch<<ageCounts|n+1) {
				return
			}
		case was > stretch: // an instant from before this turn of the ring
			a.addAncient(stretch, 1)
			return
		default:
			if s.CompareAndSwap(old, stretch<<ageCounts|1) {
				a.addAncient(was, int64(n))
				return
			}
		}
	}
}

// end takes back one begin of the same instant.
func (a *ages) end(began int64) {
	s, stretch := a.slot(began)
	for {
		old := s.Load()
		if old>>ageCounts != stretch || old&ageMask == 0 {
			a.ancient.Add(-1)
			return
		}
		if s.CompareAndSwap(old, old-1) {
			return
		}
	}
}

func (a *ages) addAncient(stretch uint64, n int64) {
	if a.ancient.Add(n) <= n {
		a.since.Store(int64(stretch))
		return
	}
	lower(&a.since, int64(stretch))
}

// look returns the age of the oldest request at an instant, and how many are older than a threshold; 0: none is asked for.
func (a *ages) look(now, threshold int64) (oldest time.Duration, overdue int) {
	see := func(stretch uint64, n int) {
		age := now - int64(stretch<<a.shift)
		oldest = max(oldest, time.Duration(age))
		// A slot is old when the latest that can be in it is.
		if threshold > 0 && now-int64((stretch+1)<<a.shift) >= threshold {
			overdue += n
		}
	}
	for k := range a.slots {
		s := a.slots[k].Load()
		if n := s & ageMask; n > 0 {
			see(s>>ageCounts, int(n))
		}
	}
	if n := a.ancient.Load(); n > 0 {
		see(uint64(a.since.Load()), int(n))
	}
	return oldest, overdue
}
