package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// Two sets of terms that take turns, as while a new configuration reaches one node after the other, let ten units pass and
// not three more at each turn.
func TestSlidingWindowTermsThatTakeTurnsMintNothing(t *testing.T) {
	wide := newRule(t, limiter.Per(10, time.Hour).WithCells(4))
	narrow := newRule(t, limiter.Per(7, 30*time.Minute).WithCells(4))
	var s limiter.State
	now := limiter.Reading{Now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC).UnixNano()}
	passed := 0
	for range 50 {
		for _, r := range []*limiter.Rule{wide, narrow} {
			if r.Take(&s, now, 1, 0).Allowed {
				passed++
			}
		}
	}
	require.LessOrEqual(t, passed, 10)
}
