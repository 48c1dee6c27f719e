package limiter_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// ledger is what the algorithms, sections 8 and 9, say of one key, in exact numbers: the state is brought to the instant
// under the limit it was last changed under, a full key is fresh, and only then the limit changes.
type ledger struct {
	limit limiter.Limit // of the last change; the zero limit: never seen
	at    int64
	level *big.Rat        // tokens left, or places used
	cells map[int64]int64 // units by window or cell; of a fixed window only that of at
	hits  []hit
}

func (g *ledger) used() bool { return g.limit != limiter.Limit{} }

func rateOf(l limiter.Limit) *big.Rat { return frac(int64(l.Rate), int64(l.Period)) }

func grid(l limiter.Limit) (cell, cells int64) {
	cells = int64(max(l.Cells, 1))
	return int64(l.Period) / cells, cells
}

// settled returns the ledger brought to e under its own limit.
func (g *ledger) settled(e int64) *ledger {
	if !g.used() {
		return &ledger{}
	}
	l, v := g.limit, &ledger{limit: g.limit, at: e, cells: map[int64]int64{}}
	back := mul(rat(e-g.at), rateOf(l))
	switch l.Algorithm {
	case limiter.TokenBucket:
		if v.level = add(g.level, back); v.level.Cmp(rat(int64(l.Quota()))) >= 0 {
			return &ledger{}
		}
	case limiter.LeakyBucket:
		if v.level = sub(g.level, back); v.level.Sign() <= 0 {
			return &ledger{}
		}
	case limiter.FixedWindow:
		n := g.cells[0]
		if floorDiv(e, int64(l.Period)) != floorDiv(g.at, int64(l.Period)) || n == 0 {
			return &ledger{}
		}
		v.cells[0] = n
	case limiter.SlidingWindow:
		cell, cells := grid(l)
		for i, n := range g.cells {
			if floorDiv(e, cell)-i <= cells && n > 0 {
				v.cells[i] = n
			}
		}
		if len(v.cells) == 0 {
			return &ledger{}
		}
	case limiter.SlidingLog:
		for _, h := range g.hits {
			if e-h.at < int64(l.Period) && h.n > 0 {
				v.hits = append(v.hits, h)
			}
		}
		if len(v.hits) == 0 {
			return &ledger{}
		}
	}
	return v
}

// under returns the ledger at e as a take with limit l sees it.
func (g *ledger) under(l limiter.Limit, e int64) *ledger {
	v := g.settled(e)
	if !v.used() {
		v = &ledger{limit: l, at: e, level: new(big.Rat), cells: map[int64]int64{}}
		if l.Algorithm == limiter.TokenBucket {
			v.level = rat(int64(l.Quota()))
		}
		return v
	}
	old := v.limit
	v.limit = l
	switch l.Algorithm {
	case limiter.TokenBucket:
		if l.Period != old.Period { // a fraction has the period as its denominator
			v.level = quo(new(big.Rat).SetInt(floor(mul(v.level, rat(int64(l.Period))))), rat(int64(l.Period)))
		}
		v.level = least(v.level, rat(int64(l.Quota())))
	case limiter.LeakyBucket:
		if l.Period != old.Period {
			v.level = quo(new(big.Rat).SetInt(ceil(mul(v.level, rat(int64(l.Period))))), rat(int64(l.Period)))
		}
		v.level = least(v.level, rat(int64(l.Quota())))
	case limiter.SlidingWindow:
		oldCell, oldCells := grid(old)
		if cell, cells := grid(l); cell != oldCell || cells != oldCells {
			v.cells = map[int64]int64{floorDiv(e, cell): ceil(estimate(old, v.cells, e, 1<<62)).Int64()}
		}
	case limiter.SlidingLog:
		var young []hit
		for _, h := range v.hits {
			if e-h.at < int64(l.Period) {
				young = append(young, h)
			}
		}
		v.hits = young
	}
	return v
}

// estimate is Σ c[i] + c[j−K]·(1 − x), with counts capped at most.
func estimate(l limiter.Limit, counts map[int64]int64, e, most int64) *big.Rat {
	cell, cells := grid(l)
	sum := new(big.Rat)
	for i, n := range counts {
		part := rat(min(n, most))
		if floorDiv(e, cell)-i == cells {
			part = mul(part, frac(cell-e+floorDiv(e, cell)*cell, cell))
		}
		sum = add(sum, part)
	}
	return sum
}

// free is what fits at the instant of a ledger that a take sees.
func (g *ledger) free() *big.Rat {
	r := rat(int64(g.limit.Rate))
	switch g.limit.Algorithm {
	case limiter.TokenBucket:
		return g.level
	case limiter.LeakyBucket:
		return sub(rat(int64(g.limit.Quota())), g.level)
	case limiter.FixedWindow:
		return sub(r, rat(g.cells[0]))
	case limiter.SlidingWindow:
		return sub(r, estimate(g.limit, g.cells, g.at, int64(g.limit.Rate)))
	}
	for _, h := range g.hits {
		r = sub(r, rat(h.n))
	}
	return r
}

func (g *ledger) book(n int64) {
	cell, _ := grid(g.limit)
	switch g.limit.Algorithm {
	case limiter.TokenBucket:
		g.level = sub(g.level, rat(n))
	case limiter.LeakyBucket:
		g.level = add(g.level, rat(n))
	case limiter.FixedWindow:
		g.cells[0] += n
	case limiter.SlidingWindow:
		g.cells[floorDiv(g.at, cell)] += n
	case limiter.SlidingLog:
		g.hits = append(g.hits, hit{g.at, n})
	}
}

// refund gives n units of a take at an instant back, under the stored limit.
func (g *ledger) refund(e, n, taken int64) {
	v := g.settled(e)
	if n <= 0 || !v.used() || v.limit.Algorithm == limiter.LeakyBucket {
		return
	}
	l := v.limit
	switch cell, _ := grid(l); l.Algorithm {
	case limiter.TokenBucket:
		if v.level = add(v.level, rat(n)); v.level.Cmp(rat(int64(l.Quota()))) >= 0 {
			v = &ledger{}
		}
	case limiter.FixedWindow:
		if floorDiv(taken, int64(l.Period)) != floorDiv(e, int64(l.Period)) {
			return
		}
		v.cells[0] = max(0, v.cells[0]-n)
	case limiter.SlidingWindow:
		if v.cells[floorDiv(taken, cell)] == 0 {
			return
		}
		v.cells[floorDiv(taken, cell)] = max(0, v.cells[floorDiv(taken, cell)]-n)
	case limiter.SlidingLog:
		for i := range v.hits {
			if v.hits[i].at == taken {
				give := min(n, v.hits[i].n)
				v.hits[i].n -= give
				n -= give
			}
		}
	}
	*g = *v
}

// sameTerms reports whether two limits count alike.
func sameTerms(a, b limiter.Limit) bool {
	a.Burst, b.Burst = a.Quota(), b.Quota()
	a.Cells, b.Cells = max(a.Cells, 1), max(b.Cells, 1)
	return a == b
}

// The limit of a key changes at any take, and takes are given back at any time: every decision is that of the exact
// ledger, every wait comes true, and nobody waits longer than the new limit alone could make him.
func TestLiveChangesAndRefunds(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		t.Run(a.String(), rapid.MakeCheck(func(t *rapid.T) { checkChanges(t, a) }))
	}
}

func checkChanges(t *rapid.T, a limiter.Algorithm) {
	limits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) limiter.Limit { return anyLimit(t, a) }), 1, 3).Draw(t, "limits")
	if len(limits) > 1 && rapid.Bool().Draw(t, "a near limit") { // that differs in its rate alone
		limits[1].Period, limits[1].Cells, limits[1].Burst = limits[0].Period, limits[0].Cells, limits[0].Burst
	}
	now := anyStart(t)
	begin := now
	var s limiter.State
	var g ledger
	var booked []hit
	var last limiter.Decision
	l := limits[0]
	passed, refunds, raised := int64(0), false, int64(0)
	for k := range rapid.IntRange(1, 25).Draw(t, "steps") {
		now += anyPause(t, l, now, last)
		reading := limiter.Reading{Now: now}
		if len(booked) > 0 && rapid.IntRange(0, 4).Draw(t, "refund") == 0 {
			refunds = true
			b := rapid.SampledFrom(booked).Draw(t, "of")
			n := b.n + rapid.Int64Range(-1, 1).Draw(t, "units more")
			taken := b.at + rapid.SampledFrom([]int64{0, 0, 0, -1, 1, int64(l.Period)}).Draw(t, "off")
			s.Refund(reading, int(n), taken)
			g.refund(now, n, taken)
			t.Logf("step %d: refund at %d of %d taken at %d", k, now, n, taken)
		}
		l = rapid.SampledFrom(limits).Draw(t, "limit")
		r := newRule(t, l)
		n := anyUnits(t, l, last)
		before := limiter.CloneState(&s)
		last = r.Take(&s, reading, n, unbounded)
		t.Logf("step %d: %+v at %d take %d: %+v", k, l, now, n, last)

		if old := g.settled(now); !old.used() && g.used() {
			raised += max(0, int64(l.Quota())-int64(g.limit.Quota()))
		}
		v := g.under(l, now)
		fits := v.free().Cmp(rat(int64(n))) >= 0
		require.Equal(t, fits || n == 0, last.Allowed, "%s are free", v.free())
		switch {
		case last.Allowed && n > 0:
			v.book(int64(n))
			g = *v
			booked = append(booked, hit{now, int64(n)})
			passed += int64(n)
		case !last.Allowed && last.RetryAfter != limiter.Never && !sameTerms(l, g.limit):
			g = *v
		default:
			require.Equal(t, before, limiter.CloneState(&s), "nothing was taken, nothing was learned")
		}
		left := most(new(big.Rat), v.free())
		require.True(t, sameInt(floor(left), int64(last.Remaining)), "Remaining %d, want %s", last.Remaining, left)
		requireComesTrue(t, r, &s, reading, n, last)
		if !last.Allowed && last.RetryAfter != limiter.Never {
			requireShort(t, l, int64(n), last.RetryAfter)
		}
		if a == limiter.TokenBucket && !refunds {
			requireBound(t, limits, passed, now-begin, raised)
		}
	}
}

// requireShort checks that a wait is one the limit alone could cause.
func requireShort(t require.TestingT, l limiter.Limit, n int64, wait time.Duration) {
	p, units := rat(int64(l.Period)), frac(n, int64(l.Rate))
	var longest *big.Rat
	switch l.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		longest = mul(units, p)
	case limiter.SlidingWindow:
		cell, _ := grid(l)
		longest = add(p, mul(rat(cell), units))
	default:
		longest = p
	}
	require.True(t, ceil(longest).Cmp(big.NewInt(int64(wait))) >= 0 || int64(wait) == saturated, "%v is longer than %s", wait, longest)
}

// requireBound checks what token buckets let pass under changing limits: the largest burst, the fastest rate, and what
// raising a burst added to a key that was full.
func requireBound(t require.TestingT, limits []limiter.Limit, passed, length, raised int64) {
	burst, rate := int64(0), new(big.Rat)
	for _, l := range limits {
		burst, rate = max(burst, int64(l.Quota())), most(rate, rateOf(l))
	}
	bound := add(rat(burst+raised), mul(rate, rat(length)))
	require.True(t, rat(passed).Cmp(bound) <= 0, "%d passed, at most %s may", passed, bound)
}

// Terms that take turns at one instant let no more pass than the largest quota among them. A LeakyBucket with fewer
// places forgets those beyond, so that nobody waits longer than the queue is long: its places do not change here.
func TestTermsThatTakeTurnsMintNothing(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		t.Run(a.String(), rapid.MakeCheck(func(t *rapid.T) {
			limits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) limiter.Limit { return anyLimit(t, a) }), 2, 3).Draw(t, "limits")
			now := limiter.Reading{Now: anyStart(t)}
			quota := 0
			for k := range limits {
				if a == limiter.LeakyBucket {
					limits[k].Burst = limits[0].Quota()
				}
				quota = max(quota, limits[k].Quota())
			}
			var s limiter.State
			var last limiter.Decision
			passed := 0
			for range rapid.IntRange(2, 30).Draw(t, "turns") {
				l := rapid.SampledFrom(limits).Draw(t, "limit")
				n := anyUnits(t, l, last)
				if last = newRule(t, l).Take(&s, now, n, unbounded); last.Allowed {
					passed += n
				}
			}
			require.LessOrEqual(t, passed, quota)
		}))
	}
}

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
