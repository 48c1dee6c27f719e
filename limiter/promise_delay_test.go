package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// A caller that holds a request for at most D gets a place whose delay is at most D, counted on its own clock, and a
// refusal names when the place is near enough, to the nanosecond.
func TestMaxDelay(t *testing.T) { rapid.Check(t, checkMaxDelay) }

func checkMaxDelay(t *rapid.T) {
	l := anyLimit(t, limiter.LeakyBucket)
	r := newRule(t, l)
	interval := frac(int64(l.Period), int64(l.Rate))
	now := anyStart(t) + 2*int64(limiter.MaxPeriod)
	var s limiter.State
	var hits []hit
	var last limiter.Decision
	for k := range rapid.IntRange(1, 25).Draw(t, "steps") {
		now += anyPause(t, l, now, last)
		// A caller's reading may be late, and is then counted at the newest instant.
		reading := limiter.Reading{Now: now - rapid.SampledFrom([]int64{0, 0, 0, 1, 999, 1e9, 3e9}).Draw(t, "late"), Caller: true}
		e := reading.Now
		if len(hits) > 0 {
			e = max(e, hits[len(hits)-1].at)
		}
		seen := hits
		held := sub(rat(int64(l.Quota())), freePlaces(l, hits, instantOf(e, 0)))
		if held.Sign() == 0 {
			e, seen = reading.Now, nil // full is fresh
		}
		wait := add(mul(held, interval), rat(e-reading.Now)) // until the place leaves, on the reading's clock
		near := ceil(wait)
		bounds := []int64{0, 1, int64(l.Period), int64(unbounded)}
		if near.IsInt64() {
			bounds = append(bounds, near.Int64(), max(0, near.Int64()-1), near.Int64()/2)
		}
		most := rapid.SampledFrom(bounds).Draw(t, "max delay")
		n := anyUnits(t, l, last)
		last = r.Take(&s, reading, n, time.Duration(most))
		t.Logf("step %d: %+v at %d (%d late) take %d within %d: %+v", k, l, reading.Now, e-reading.Now, n, most, last)

		fits := sub(rat(int64(l.Quota())), held).Cmp(rat(int64(n))) >= 0
		require.Equal(t, n == 0 || fits && (most == int64(unbounded) || wait.Cmp(rat(most)) <= 0), last.Allowed)
		switch {
		case last.Allowed && n > 0:
			require.True(t, sameInt(near, int64(last.Delay)) || int64(last.Delay) == saturated, "Delay %d, want %s", last.Delay, near)
			hits = append(seen, hit{e, int64(n)})
			held = add(held, rat(int64(n)))
		case n > l.Quota():
			require.Equal(t, limiter.Never, last.RetryAfter)
		case !last.Allowed:
			at := func(w time.Duration) bool {
				return r.Peek(&s, limiter.Reading{Now: reading.Now + int64(w), Caller: true}, n, time.Duration(most)).Allowed
			}
			if last.RetryAfter < time.Duration(4e18) {
				require.True(t, at(last.RetryAfter), "waiting is not enough")
				require.False(t, at(last.RetryAfter-1), "waiting less is enough")
			}
		}
		left := sub(rat(int64(l.Quota())), held)
		require.True(t, sameInt(floor(left), int64(last.Remaining)), "Remaining ignores the bound: %d, want %s", last.Remaining, left)
		if reset := ceil(add(mul(held, interval), rat(e-reading.Now))); held.Sign() > 0 && reset.IsInt64() && reset.Int64() < saturated {
			require.Equal(t, reset.Int64(), int64(last.ResetAfter), "ResetAfter ignores the bound")
		}
	}
}
