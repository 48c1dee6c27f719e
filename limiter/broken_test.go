package limiter_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

func ruleOf(t *testing.T, l limiter.Limit) *limiter.Rule {
	t.Helper()
	r, err := limiter.NewRule(l)
	require.NoError(t, err)
	return r
}

// A log forgets what was given back: requests that overlap and are refunded would fill it for a period otherwise.
func TestALogHoldsNoEntryThatWasGivenBack(t *testing.T) {
	r := ruleOf(t, limiter.PerHour(10).With(limiter.SlidingLog))
	var s limiter.State
	now := int64(1e18)
	var held []int64
	for k := range 10_000 {
		now++
		d := r.Take(&s, limiter.Reading{Now: now}, 1, 0)
		require.True(t, d.Allowed)
		held = append(held, d.Mark)
		if len(held) > 4 {
			back := k % len(held) // from both ends and the middle
			s.Refund(limiter.Reading{Now: now}, 1, held[back])
			held = append(held[:back], held[back+1:]...)
		}
		require.Equal(t, len(held), s.Log.Len())
	}
	require.Equal(t, 6, r.Peek(&s, limiter.Reading{Now: now}, 0, 0).Remaining)
	// What is left leaves at its own time, in order.
	require.Equal(t, 6, r.Peek(&s, limiter.Reading{Now: held[0] + int64(time.Hour) - 1}, 0, 0).Remaining)
	require.Equal(t, 7, r.Peek(&s, limiter.Reading{Now: held[0] + int64(time.Hour)}, 0, 0).Remaining)
}

// Instants at the end of time have windows as well.
func TestCalendarWindowsAtTheEndOfTime(t *testing.T) {
	for _, unit := range []limiter.Unit{limiter.Day, limiter.Week, limiter.Month} {
		for _, zone := range []string{"", "Pacific/Kiritimati", "America/Los_Angeles"} {
			r := ruleOf(t, limiter.Limit{Rate: 5}.Aligned(unit, zone))
			for _, now := range []int64{math.MaxInt64, math.MaxInt64 - 1e9, math.MaxInt64 - 86400e9, math.MinInt64, math.MinInt64 + 86400e9, 0} {
				var s limiter.State
				require.True(t, r.Take(&s, limiter.Reading{Now: now}, 5, 0).Allowed)
				if now != math.MaxInt64 { // where the window ends
					require.False(t, r.Peek(&s, limiter.Reading{Now: now}, 1, 0).Allowed)
				}
			}
		}
	}
}

// Where midnight comes twice, the day begins with the first one.
func TestTheDayBeginsWithTheFirstMidnight(t *testing.T) {
	for zone, first := range map[string]string{
		"Asia/Amman":     "2021-10-28T21:00:00Z", // 01:00 back to 00:00
		"America/Havana": "2025-11-02T04:00:00Z",
	} {
		r := ruleOf(t, limiter.Limit{Rate: 1}.Aligned(limiter.Day, zone))
		at, err := time.Parse(time.RFC3339, first)
		require.NoError(t, err)
		var s limiter.State
		require.True(t, r.Take(&s, limiter.Reading{Now: at.UnixNano() - 1}, 1, 0).Allowed)
		d := r.Take(&s, limiter.Reading{Now: at.UnixNano()}, 1, 0)
		require.True(t, d.Allowed, zone)
		require.Equal(t, 25*time.Hour, d.ResetAfter, "%s: a day of 25 hours", zone)
	}
}

func TestANegativeMaxDelayIsNone(t *testing.T) {
	r := ruleOf(t, limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(3))
	var s limiter.State
	require.True(t, r.Take(&s, limiter.Reading{Now: 1e18}, 1, -1).Allowed)
	require.Equal(t, time.Second, r.Take(&s, limiter.Reading{Now: 1e18}, 1, -1).RetryAfter)
}
