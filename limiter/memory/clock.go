package memory

import (
	"math"
	"time"
)

// clock is a store's own: Unix nanoseconds that advance with the monotonic clock, so they never step.
type clock struct {
	base time.Time
	unix int64
}

func newClock(base time.Time) clock { return clock{base: base, unix: base.UnixNano()} }

func (c *clock) now() int64 { return c.unix + int64(time.Since(c.base)) }

// Instants of callers are clamped to 1970…2262, so that the difference of two fits an int64.
const (
	minInstant int64 = 0
	maxInstant int64 = math.MaxInt64 - graceTime
)

// of returns an instant of a caller on this clock. If it has a monotonic reading, that is what counts.
func (c *clock) of(at time.Time) int64 {
	d := int64(at.Sub(c.base)) // saturates
	switch x := c.unix + d; {
	case d > 0 && (x < c.unix || x > maxInstant):
		return maxInstant
	case d < 0 && (x > c.unix || x < minInstant):
		return minInstant
	default:
		return x
	}
}

// reading returns the instant a call is decided at: the caller's, or now. A reading can be behind the state because it is
// the caller's or because another call was faster. However far, it is late and not a step: the own clock never steps.
func (c *clock) reading(at time.Time) int64 {
	if at.IsZero() {
		return c.now()
	}
	return c.of(at)
}
