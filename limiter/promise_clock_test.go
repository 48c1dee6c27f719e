package limiter_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// requireComesTrue checks the waits of a decision by waiting them out: what they announce is so at their end and not one
// nanosecond earlier. s is the state after the decision; peeks and refusals for good announce what a refusal would see.
func requireComesTrue(t require.TestingT, r *limiter.Rule, s *limiter.State, now limiter.Reading, n int, d limiter.Decision) {
	s = limiter.CloneState(s)
	if n == 0 || d.RetryAfter == limiter.Never {
		r.Learn(s, now)
	}
	at := func(wait time.Duration, n int) limiter.Decision {
		return r.Peek(s, limiter.Reading{Now: now.Now + int64(wait), Caller: now.Caller}, n, unbounded)
	}
	quota := r.Limit().Quota()
	rest := time.Duration(math.MaxInt64 - max(0, now.Now)) // instants end in the year 2262
	if d.ResetAfter > min(rest, time.Duration(saturated-1)) || d.RetryAfter != limiter.Never && d.RetryAfter > rest {
		return
	}
	if n > 0 && !d.Allowed && d.RetryAfter != limiter.Never {
		require.True(t, at(d.RetryAfter, n).Allowed, "RetryAfter is not enough")
		require.False(t, at(d.RetryAfter-1, n).Allowed, "RetryAfter is too long")
	}
	full := at(d.ResetAfter, 0)
	require.Equal(t, quota, full.Remaining, "ResetAfter is not enough")
	require.Zero(t, full.ResetAfter, "ResetAfter is not enough")
	if d.ResetAfter > 0 {
		require.NotZero(t, at(d.ResetAfter-1, 0).ResetAfter, "ResetAfter is too long")
	}
	if d.NextAfter > 0 {
		require.True(t, at(d.NextAfter, d.Remaining+1).Allowed, "NextAfter is not enough")
		require.False(t, at(d.NextAfter-1, d.Remaining+1).Allowed, "NextAfter is too long")
		require.Equal(t, d.NextAfter, at(0, d.Remaining+1).RetryAfter, "NextAfter is the RetryAfter of one more")
	}
	require.Equal(t, d.ResetAfter == 0, d.NextAfter == 0, "full, or something is to come")
}

// keyClock is the clock of one key: what section 2 of the algorithms says of a reading.
type keyClock struct {
	used  bool
	at    int64
	shift int64
}

func (k keyClock) instant(r limiter.Reading) (e, lag, shift int64, stepped bool) {
	if !k.used {
		return r.Now, 0, 0, false
	}
	shift = k.shift
	if shift > 0 && r.Now >= k.at {
		shift = 0
	}
	e = r.Now + shift
	switch {
	case e >= k.at:
		return e, 0, shift, false
	case r.Caller || k.at-e <= int64(time.Second):
		return k.at, k.at - e, shift, false
	}
	return k.at, 0, k.at - r.Now, true
}

// Readings of clocks that are late, are stepped back and forth or take turns: decisions are those of the key's own clock,
// which never runs backwards and gains at most the distance between two clocks that take turns, of callers' clocks however
// many they are. (One clock that is set back, forward by a part of that and forward by the rest is believed each time it
// goes forward: it does not come back to where it was.)
func TestClocks(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		for _, caller := range []bool{false, true} {
			name := a.String() + "/own"
			if caller {
				name = a.String() + "/callers"
			}
			t.Run(name, rapid.MakeCheck(func(t *rapid.T) { checkClocks(t, a, caller) }))
		}
	}
}

func checkClocks(t *rapid.T, a limiter.Algorithm, caller bool) {
	l := anyLimit(t, a)
	r := newRule(t, l)
	second := int64(time.Second)
	offsets := rapid.SliceOfN(rapid.OneOf(
		rapid.SampledFrom([]int64{0, -1, -second / 2, -second, -second - 1, -3 * second, -3600 * second, 3600 * second}),
		rapid.Int64Range(-int64(l.Period), int64(l.Period)),
	), 1, 3).Draw(t, "offsets")
	spread, lowest := int64(0), offsets[0]
	for _, o := range offsets {
		lowest = min(lowest, o)
	}
	for _, o := range offsets {
		spread = max(spread, o-lowest)
	}
	truth := anyStart(t) + 2*int64(limiter.MaxPeriod)
	var s limiter.State
	var clock keyClock
	var hits []hit
	var last limiter.Decision
	var first [2]int64 // true and effective instant of this life's first take
	for k := range rapid.IntRange(1, 25).Draw(t, "steps") {
		truth += anyPause(t, l, truth, last)
		n := anyUnits(t, l, last)
		now := limiter.Reading{Now: truth + rapid.SampledFrom(offsets).Draw(t, "clock"), Caller: caller}
		e, lag, shift, stepped := clock.instant(now)
		seen := hits
		free := func(e *big.Int) *big.Rat { return promises[a](l, seen, e) }
		if clock.used && free(big.NewInt(e)).Cmp(rat(int64(l.Quota()))) == 0 {
			seen = nil // full is fresh
			e, lag, shift, stepped = keyClock{}.instant(now)
		}
		before := limiter.CloneState(&s)
		last = r.Take(&s, now, n, unbounded)
		t.Logf("step %d: %+v at %d (true %d, effective %d) take %d: %+v", k, l, now.Now, truth, e, n, last)

		fits := free(big.NewInt(e)).Cmp(rat(int64(n))) >= 0
		require.Equal(t, fits || n == 0, last.Allowed)
		switch {
		case last.Allowed && n > 0:
			require.Equal(t, e, last.Mark)
			if seen == nil {
				first = [2]int64{truth, e}
			}
			if caller || len(offsets) <= 2 {
				require.LessOrEqual(t, e-first[1], truth-first[0]+spread, "the key's clock ran ahead of every clock")
			}
			seen = append(seen, hit{e, int64(n)})
			hits, clock = seen, keyClock{true, e, shift}
		case !last.Allowed && last.RetryAfter != limiter.Never && stepped:
			clock = keyClock{true, e, shift}
		default:
			require.Equal(t, before, limiter.CloneState(&s), "nothing was taken")
		}
		require.True(t, sameInt(floor(free(big.NewInt(e))), int64(last.Remaining)), "Remaining %d, want %s", last.Remaining, free(big.NewInt(e)))
		requireComesTrue(t, r, &s, now, n, last)
		if shift == 0 && lag > 0 && n == 0 {
			// A late reading earns nothing, and its waits are longer by what it is late.
			if !caller {
				require.LessOrEqual(t, lag, int64(time.Second))
			}
			base := r.Peek(&s, limiter.Reading{Now: e, Caller: caller}, 0, unbounded)
			require.Equal(t, base.Remaining, last.Remaining)
			require.Equal(t, min(base.ResetAfter+time.Duration(lag), time.Duration(saturated)), last.ResetAfter)
			require.Equal(t, min(base.NextAfter+time.Duration(lag), time.Duration(saturated)), last.NextAfter)
		}
	}
}

// A clock stepped back: from then on time runs at its real pace, and forgetting the key once a reading reaches
// [limiter.State.Gone] never shows.
func TestForgettingAfterAStepNeverShows(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		t.Run(a.String(), rapid.MakeCheck(func(t *rapid.T) {
			l := anyLimit(t, a)
			r := newRule(t, l)
			now := anyStart(t) + 2*int64(limiter.MaxPeriod)
			stepAt := rapid.IntRange(1, 6).Draw(t, "step at")
			var s, twin limiter.State
			var last limiter.Decision
			for k := range rapid.IntRange(1, 25).Draw(t, "steps") {
				if k == stepAt {
					now -= int64(time.Second) + rapid.Int64Range(1, int64(limiter.MaxPeriod)).Draw(t, "back")
				}
				now += anyPause(t, l, now, last)
				n := anyUnits(t, l, last)
				if k >= stepAt && now >= twin.Gone() { // a key that was full before the step may be remembered as not full
					twin = limiter.State{}
				}
				last = r.Take(&s, limiter.Reading{Now: now}, n, unbounded)
				require.Equal(t, last, r.Take(&twin, limiter.Reading{Now: now}, n, unbounded), "step %d: forgetting shows", k)
			}
		}))
	}
}

// Waits come true to the nanosecond also where the limit changes while the clock is stepped.
func TestWaitsComeTrueOverStepsAndChanges(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		t.Run(a.String(), rapid.MakeCheck(func(t *rapid.T) {
			limits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) limiter.Limit { return anyLimit(t, a) }), 1, 3).Draw(t, "limits")
			now, caller := anyStart(t)+2*int64(limiter.MaxPeriod), rapid.Bool().Draw(t, "callers")
			var s limiter.State
			var last limiter.Decision
			for k := range rapid.IntRange(1, 25).Draw(t, "steps") {
				l := rapid.SampledFrom(limits).Draw(t, "limit")
				now += anyPause(t, l, now, last)
				if rapid.IntRange(0, 5).Draw(t, "step") == 0 {
					now -= rapid.OneOf(rapid.Int64Range(0, 3e9), rapid.Int64Range(0, int64(limits[0].Period)*4)).Draw(t, "back")
				}
				r, n := newRule(t, l), anyUnits(t, l, last)
				reading := limiter.Reading{Now: now, Caller: caller}
				last = r.Take(&s, reading, n, unbounded)
				t.Logf("step %d: %+v at %d take %d: %+v", k, l, now, n, last)
				requireComesTrue(t, r, &s, reading, n, last)
			}
		}))
	}
}

// A refusal that stores a new limit moves the key's instant, so a wait may end before readings reach it although it would
// have ended behind the old one.
func TestAChangeWhileTheClockIsSteppedBack(t *testing.T) {
	slow, fast := newRule(t, limiter.PerDay(1)), newRule(t, limiter.Per(1, 6*time.Hour))
	at := func(d time.Duration) limiter.Reading {
		return limiter.Reading{Now: time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC).Add(d).UnixNano()}
	}
	var s limiter.State
	require.True(t, slow.Take(&s, at(8*time.Hour), 1, 0).Allowed)
	require.False(t, slow.Take(&s, at(0), 1, 0).Allowed)
	d := fast.Take(&s, at(8*time.Hour-time.Minute), 1, 0)
	require.False(t, d.Allowed)
	require.Less(t, d.RetryAfter, 6*time.Hour)
	requireComesTrue(t, fast, &s, at(8*time.Hour-time.Minute), 1, d)
}
