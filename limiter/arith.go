package limiter

import (
	"math"
	"math/bits"
)

// The products here need 128 bits: 10⁹ units times 366 days in nanoseconds is 3·10²⁵. Results saturate at
// math.MaxInt64; reports clip them at maxDuration.

// mulAddDivUp returns ⌈(a·b + c) / d⌉ for a, b, c ≥ 0 and d > 0.
func mulAddDivUp(a, b, c, d int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c), 0)
	return divUp(hi+carry, lo, uint64(d))
}

// mulSubDivUp returns ⌈(a·b − c) / d⌉ for a·b ≥ c ≥ 0 and d > 0.
func mulSubDivUp(a, b, c, d int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, borrow := bits.Sub64(lo, uint64(c), 0)
	return divUp(hi-borrow, lo, uint64(d))
}

func divUp(hi, lo, d uint64) int64 {
	var q, rem uint64
	switch {
	case hi == 0:
		q = lo / d
		rem = lo - q*d
	case hi >= d:
		return math.MaxInt64
	default:
		q, rem = bits.Div64(hi, lo, d)
	}
	if rem != 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// mulDiv returns the whole part and the remainder of a·b / d for a, b ≥ 0 and a quotient below 2⁶³.
func mulDiv(a, b, d int64) (q, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 {
		quo := lo / uint64(d)
		return int64(quo), int64(lo - quo*uint64(d))
	}
	quo, r := bits.Div64(hi, lo, uint64(d))
	return int64(quo), int64(r)
}

// addSat returns a + b for b ≥ 0, saturated.
func addSat(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}

// floorMod returns a mod m in 0…m−1, also for instants before 1970.
func floorMod(a, m int64) int64 {
	r := a % m
	if r < 0 {
		r += m
	}
	return r
}

// divisor divides by a number known beforehand with a multiplication, which takes a fraction of a division's time.
type divisor struct {
	d       uint64
	inverse uint64 // ⌊(2⁶⁴ − 1) / d⌋: the quotient it gives is exact or one too small
}

func newDivisor(d int64) divisor { return divisor{uint64(d), math.MaxUint64 / uint64(d)} }

func (v divisor) div(x uint64) (q, rem uint64) {
	q, _ = bits.Mul64(x, v.inverse)
	if rem = x - q*v.d; rem >= v.d {
		q++
		rem -= v.d
	}
	return q, rem
}

// up returns ⌈x / d⌉.
func (v divisor) up(x uint64) int64 {
	q, rem := v.div(x)
	if rem != 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}
