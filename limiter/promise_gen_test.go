package limiter_test

import (
	"math/big"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// The generators draw from the whole valid ranges, with as many numbers of one size as of another and the extremes often.

// sized draws 1…most.
func sized(t *rapid.T, most int64, label string) int64 {
	switch rapid.IntRange(0, 9).Draw(t, label+" kind") {
	case 0:
		return 1
	case 1:
		return most
	case 2, 3, 4:
		return min(most, rapid.Int64Range(1, 12).Draw(t, label))
	}
	bits := rapid.IntRange(1, 62).Draw(t, label+" bits")
	return min(most, rapid.Int64Range(1, max(1, int64(1)<<bits-1)).Draw(t, label))
}

// anyLimit draws a limit of an algorithm.
func anyLimit(t *rapid.T, a limiter.Algorithm) limiter.Limit {
	most := int64(limiter.MaxRate)
	if a == limiter.SlidingLog {
		most = limiter.MaxLogRate
	}
	l := limiter.Limit{Algorithm: a, Rate: int(sized(t, most, "rate"))}
	l.Period = max(limiter.MinPeriod, time.Duration(sized(t, int64(limiter.MaxPeriod), "period")))
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		if rapid.IntRange(0, 5).Draw(t, "own burst") > 0 {
			l.Burst = int(sized(t, limiter.MaxRate, "burst"))
		}
	case limiter.SlidingWindow:
		l.Cells = rapid.SampledFrom([]int{0, 1, 2, 3, 7, 10, 60, 100}).Draw(t, "cells")
		whole := time.Duration(max(l.Cells, 1)) * time.Microsecond
		l.Period = max(whole, l.Period-l.Period%whole)
	}
	return l
}

// anyStart draws an instant from 1938 to 2033; with the pauses below, a trace ends before 2262.
func anyStart(t *rapid.T) int64 {
	if rapid.Bool().Draw(t, "now") {
		return time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC).UnixNano()
	}
	return rapid.Int64Range(-1e18, 2e18).Draw(t, "start")
}

const longestPause = int64(1e17)

// anyPause draws the time to the next step: none, the least, what the last decision named or a nanosecond off it, an edge
// of a window, a part of the period or several.
func anyPause(t *rapid.T, l limiter.Limit, now int64, last limiter.Decision) int64 {
	p := max(int64(l.Period), 1)
	g := p / int64(max(l.Cells, 1))
	var d int64
	switch rapid.IntRange(0, 12).Draw(t, "pause kind") {
	case 0, 1, 2, 3:
	case 4:
		d = 1
	case 5:
		d = int64(last.RetryAfter)
	case 6:
		d = int64(last.RetryAfter) - 1
	case 7:
		d = int64(last.NextAfter)
	case 8:
		d = int64(last.ResetAfter) - rapid.Int64Range(0, 1).Draw(t, "early")
	case 9:
		d = g - (now - floorDiv(now, g)*g) - rapid.Int64Range(0, 1).Draw(t, "early")
	case 10:
		d = rapid.Int64Range(0, p/int64(min(l.Rate, 1000))+1).Draw(t, "about a unit")
	case 11:
		d = rapid.Int64Range(0, p).Draw(t, "within a period")
	case 12:
		d = rapid.Int64Range(0, 1+min(longestPause, 3*p)).Draw(t, "some periods")
	}
	return min(max(d, 0), longestPause)
}

// anyUnits draws 0…quota+1, often what the last decision left or one more.
func anyUnits(t *rapid.T, l limiter.Limit, last limiter.Decision) int {
	quota := l.Quota()
	switch rapid.IntRange(0, 11).Draw(t, "units kind") {
	case 0:
		return 0
	case 1:
		return quota
	case 2:
		return quota + 1
	case 3:
		return last.Remaining
	case 4:
		return min(last.Remaining+1, quota)
	case 5:
		return rapid.IntRange(1, quota).Draw(t, "units")
	case 6:
		return max(1, last.Remaining/2)
	case 7:
		return max(1, last.Remaining-1)
	}
	return rapid.IntRange(1, min(quota, 3)).Draw(t, "few units")
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Short names for exact arithmetic.

func rat(n int64) *big.Rat              { return new(big.Rat).SetInt64(n) }
func frac(n, d int64) *big.Rat          { return big.NewRat(n, d) }
func add(a, b *big.Rat) *big.Rat        { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat        { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat        { return new(big.Rat).Mul(a, b) }
func quo(a, b *big.Rat) *big.Rat        { return new(big.Rat).Quo(a, b) }
func least(a, b *big.Rat) *big.Rat      { return pick(a, b, a.Cmp(b) <= 0) }
func most(a, b *big.Rat) *big.Rat       { return pick(a, b, a.Cmp(b) >= 0) }
func instantOf(at, wait int64) *big.Int { return new(big.Int).Add(big.NewInt(at), big.NewInt(wait)) }

func pick(a, b *big.Rat, first bool) *big.Rat {
	if first {
		return a
	}
	return b
}

// floor returns ⌊x⌋, ceil ⌈x⌉.
func floor(x *big.Rat) *big.Int {
	return new(big.Int).Div(x.Num(), x.Denom()) // Euclidean, and the denominator is positive
}

func ceil(x *big.Rat) *big.Int {
	return new(big.Int).Neg(floor(new(big.Rat).Neg(x)))
}

func sameInt(x *big.Int, n int64) bool { return x.IsInt64() && x.Int64() == n }
