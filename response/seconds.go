package response

import (
	"math/bits"
	"time"
)

const (
	// maxInteger is the largest Integer of a structured field (RFC 9651 section 3.3.1); serialising a larger one fails.
	maxInteger = 999_999_999_999_999
	// maxRetry is the largest Retry-After: widely used clients read it into 32 signed bits and fail beyond.
	maxRetry = 1<<31 - 1
)

// ceilSeconds rounds up, on integers: a float would lose the one nanosecond that makes a client come back too early.
func ceilSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// ceilEpoch is the first whole second since the epoch not before now + d. Seconds and nanoseconds are added apart
// because d may be centuries.
func ceilEpoch(now time.Time, d time.Duration) int64 {
	d = max(d, 0)
	nanos := int64(now.Nanosecond()) + int64(d%time.Second)
	return now.Unix() + int64(d/time.Second) + ceilSeconds(time.Duration(nanos))
}

// ceilMulDiv is ⌈a·b/c⌉ without overflow in between, at most maxInteger. c must not be 0.
func ceilMulDiv(a, b, c uint64) int64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return maxInteger
	}
	q, rem := bits.Div64(hi, lo, c)
	if q >= maxInteger {
		return maxInteger
	}
	if rem > 0 {
		q++
	}
	return int64(q)
}
