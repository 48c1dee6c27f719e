package middleware

import (
	"sync/atomic"
	"time"
)

// clock reads the time once per request. time.Now reads two clocks, which is a sizeable part of a decision; this reads the
// monotonic one and adds it to a recent time.Now. A wall clock that is set is followed within refresh; decisions use the
// monotonic part alone.
type clock struct{ base atomic.Pointer[time.Time] }

const refresh = time.Second

func (c *clock) now() time.Time {
	if base := c.base.Load(); base != nil {
		// Below zero: base is of another clock, as at the edge of a synctest bubble.
		if since := time.Since(*base); since >= 0 && since < refresh {
			return base.Add(since)
		}
	}
	now := time.Now()
	c.base.Store(&now)
	return now
}
