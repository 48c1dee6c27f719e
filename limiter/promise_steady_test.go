package limiter_test

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// hit is a take that passed, at its effective instant.
type hit struct{ at, n int64 }

// A promise says how many units are free at an instant, from nothing but the takes that passed: the most that could pass
// without breaking the promise. So n ≤ free is both halves of it, never more and never idle. It never falls while nobody
// takes, therefore a wait is exact if it is true at its end and false one nanosecond earlier.
type promise func(l limiter.Limit, hits []hit, e *big.Int) *big.Rat

var promises = map[limiter.Algorithm]promise{
	limiter.TokenBucket:   freeTokens,
	limiter.LeakyBucket:   freePlaces,
	limiter.FixedWindow:   freeOfWindow,
	limiter.SlidingWindow: freeOfEstimate,
	limiter.SlidingLog:    freeOfLog,
}

func elapsed(h hit, e *big.Int) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Sub(e, big.NewInt(h.at)))
}

// freeTokens: of every closed interval that ends now, B + r·t less what passed in it; the tightest counts.
func freeTokens(l limiter.Limit, hits []hit, e *big.Int) *big.Rat {
	b, r := rat(int64(l.Quota())), frac(int64(l.Rate), int64(l.Period))
	free, passed := b, new(big.Rat)
	for i := len(hits) - 1; i >= 0; i-- {
		passed = add(passed, rat(hits[i].n))
		free = least(free, sub(add(b, mul(r, elapsed(hits[i], e))), passed))
	}
	return free
}

// departures returns when each take leaves, and when the last interval after them ends: one after the other, n intervals
// after n units.
func departures(l limiter.Limit, hits []hit) (leave []*big.Rat, end *big.Rat) {
	interval := frac(int64(l.Period), int64(l.Rate))
	for _, h := range hits {
		at := rat(h.at)
		if end != nil {
			at = most(at, end)
		}
		leave = append(leave, at)
		end = add(at, mul(rat(h.n), interval))
	}
	return leave, end
}

func freePlaces(l limiter.Limit, hits []hit, e *big.Int) *big.Rat {
	b := rat(int64(l.Quota()))
	_, end := departures(l, hits)
	if end == nil {
		return b
	}
	held := sub(end, new(big.Rat).SetInt(e))
	if held.Sign() <= 0 {
		return b
	}
	return sub(b, quo(held, frac(int64(l.Period), int64(l.Rate))))
}

func freeOfWindow(l limiter.Limit, hits []hit, e *big.Int) *big.Rat {
	p := big.NewInt(int64(l.Period))
	w, free := new(big.Int).Div(e, p), int64(l.Rate)
	for _, h := range hits {
		if new(big.Int).Div(big.NewInt(h.at), p).Cmp(w) == 0 {
			free -= h.n
		}
	}
	return rat(free)
}

func freeOfEstimate(l limiter.Limit, hits []hit, e *big.Int) *big.Rat {
	cells := int64(max(l.Cells, 1))
	g := big.NewInt(int64(l.Period) / cells)
	j, off := new(big.Int).DivMod(e, g, new(big.Int))
	inside := sub(rat(1), new(big.Rat).SetFrac(off, g)) // of the oldest cell
	free := rat(int64(l.Rate))
	for _, h := range hits {
		age := new(big.Int).Sub(j, new(big.Int).Div(big.NewInt(h.at), g))
		switch age.Cmp(big.NewInt(cells)) {
		case -1:
			free = sub(free, rat(h.n))
		case 0:
			free = sub(free, mul(rat(h.n), inside))
		}
	}
	return free
}

func freeOfLog(l limiter.Limit, hits []hit, e *big.Int) *big.Rat {
	free := int64(l.Rate)
	for _, h := range hits {
		if elapsed(h, e).Cmp(rat(int64(l.Period))) < 0 {
			free -= h.n
		}
	}
	return rat(free)
}

const saturated = int64(9e18)

// requireWait checks a wait reported at an effective instant: n units are free at its end and not a nanosecond earlier.
func requireWait(t require.TestingT, free func(e *big.Int) *big.Rat, at int64, wait int64, n int64, what string) {
	if wait == saturated {
		require.True(t, free(instantOf(at, saturated-1)).Cmp(rat(n)) < 0, "%s: not 285 years", what)
		return
	}
	require.True(t, free(instantOf(at, wait)).Cmp(rat(n)) >= 0, "%s of %d is too short", what, wait)
	if wait > 0 {
		require.True(t, free(instantOf(at, wait-1)).Cmp(rat(n)) < 0, "%s of %d is too long", what, wait)
	}
}

// requireNumbers checks a decision on n units against a promise: hits are the takes that passed before.
func requireNumbers(t require.TestingT, l limiter.Limit, hits []hit, at int64, n int, d limiter.Decision) []hit {
	free := func(e *big.Int) *big.Rat { return promises[l.Algorithm](l, hits, e) }
	quota := int64(l.Quota())
	fits := free(big.NewInt(at)).Cmp(rat(int64(n))) >= 0
	require.Equal(t, fits || n == 0, d.Allowed, "%d units with %s free", n, free(big.NewInt(at)))
	switch {
	case d.Allowed:
		require.Zero(t, d.RetryAfter)
		if n > 0 {
			hits = append(hits, hit{at, int64(n)})
			require.Equal(t, at, d.Mark)
		}
	case int64(n) > quota:
		require.Equal(t, limiter.Never, d.RetryAfter)
	default:
		require.Positive(t, d.RetryAfter)
		requireWait(t, free, at, int64(d.RetryAfter), int64(n), "RetryAfter")
	}
	left := floor(free(big.NewInt(at)))
	require.True(t, sameInt(left, int64(d.Remaining)), "Remaining %d, want %s", d.Remaining, left)
	requireWait(t, free, at, int64(d.ResetAfter), quota, "ResetAfter")
	requireWait(t, free, at, int64(d.NextAfter), min(int64(d.Remaining)+1, quota), "NextAfter")
	return hits
}

// Under one limit and a clock that runs forward, every decision and every number of every algorithm follows from its
// promise; a refusal and a peek change nothing; and a key forgotten when its quota is back answers as one remembered.
func TestPromises(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		t.Run(a.String(), rapid.MakeCheck(func(t *rapid.T) {
			l := anyLimit(t, a)
			r := newRule(t, l)
			now := anyStart(t)
			var state, twin limiter.State
			var hits []hit
			var last limiter.Decision
			for k := range rapid.IntRange(1, 30).Draw(t, "steps") {
				now += anyPause(t, l, now, last)
				n := anyUnits(t, l, last)
				reading := limiter.Reading{Now: now}
				before := limiter.CloneState(&state)
				last = r.Take(&state, reading, n, unbounded)
				t.Logf("step %d: %+v at %d take %d: %+v", k, l, now, n, last)

				earlier := len(hits)
				hits = requireNumbers(t, l, hits, now, n, last)
				if n == 0 || !last.Allowed {
					require.Equal(t, before, limiter.CloneState(&state), "nothing was taken")
				}
				if a == limiter.LeakyBucket {
					requireDelay(t, l, hits, len(hits) > earlier, last)
				}
				if now >= twin.Gone() {
					twin = limiter.State{}
				}
				require.Equal(t, last, r.Take(&twin, reading, n, unbounded), "forgetting shows")
			}
			if a == limiter.SlidingWindow {
				requireEstimateErrors(t, l, hits)
			}
		}))
	}
}

// requireDelay checks what a queue promises about departures.
func requireDelay(t require.TestingT, l limiter.Limit, hits []hit, booked bool, d limiter.Decision) {
	if !booked {
		require.Zero(t, d.Delay)
		return
	}
	leave, _ := departures(l, hits)
	last := len(hits) - 1
	delay := sub(leave[last], rat(hits[last].at))
	require.True(t, sameInt(ceil(delay), int64(d.Delay)) || int64(d.Delay) == saturated, "Delay %d, want %s", d.Delay, delay)
	interval := frac(int64(l.Period), int64(l.Rate))
	longest := mul(rat(int64(l.Quota())-hits[last].n), interval)
	require.True(t, delay.Cmp(longest) <= 0, "Delay %s is longer than the queue", delay)
}

// requireEstimateErrors checks how far a sliding window may be off the log: see algorithms, section 6.
func requireEstimateErrors(t require.TestingT, l limiter.Limit, hits []hit) {
	p, r := int64(l.Period), int64(l.Rate)
	g := p / int64(max(l.Cells, 1))
	for i, from := range hits {
		var sum, cell int64
		for _, to := range hits[i:] {
			sum += to.n
			length := to.at - from.at
			if floorDiv(to.at, g) == floorDiv(from.at, g) {
				cell += to.n // what the first cell holds of the interval
			}
			at := fmt.Sprintf("%d units in %d ns of %+v", sum, length, l)
			if length <= p-g || length < p && from.at%g == 0 {
				require.LessOrEqual(t, sum, r, at)
			}
			if length < p {
				require.LessOrEqual(t, sum-cell, r, at)
				require.LessOrEqual(t, sum, 2*r, at)
			}
		}
	}
}
