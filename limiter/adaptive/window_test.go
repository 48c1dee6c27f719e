package adaptive_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

func TestBucketsAreInOrder(t *testing.T) {
	for i := range adaptive.Buckets {
		low, high := adaptive.BucketEdge(i), adaptive.BucketEdge(i+1)
		require.Less(t, low, high)
		require.Equal(t, i, adaptive.BucketOf(low))
		require.Equal(t, i, adaptive.BucketOf(high-1))
		if i >= 8 {
			require.LessOrEqual(t, float64(high-low), 0.126*float64(low))
		}
	}
	require.Equal(t, adaptive.Buckets-1, adaptive.BucketOf(math.MaxInt64))
	require.Equal(t, 0, adaptive.BucketOf(-time.Hour))
	require.Greater(t, adaptive.BucketEdge(adaptive.Buckets), time.Hour)
}

// Quantiles are within a bucket of the exact ones, and all numbers in their order.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(math.Pow(10, rapid.Float64Range(3, 12.5).Draw(t, "exponent")))
		}), 1, 300).Draw(t, "times")
		w := adaptive.Quantiles(times)
		slices.Sort(times)
		sum := time.Duration(0)
		for _, d := range times {
			sum += d
		}
		require.Equal(t, len(times), w.Measured)
		require.Equal(t, times[0], w.Min)
		require.Equal(t, sum/time.Duration(len(times)), w.Mean)
		for q, got := range map[float64]time.Duration{0.5: w.P50, 0.9: w.P90} {
			exact := times[int(math.Ceil(q*float64(len(times))))-1]
			require.InDelta(t, float64(exact), float64(got), 0.13*float64(exact)+2*float64(time.Microsecond), "%v", q)
		}
		require.LessOrEqual(t, w.Min, w.P50)
		require.LessOrEqual(t, w.P50, w.P90)
	})
}

// The ring against a list: it may be off by a slot, and forgets nobody.
func TestAges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threshold := time.Duration(rapid.Int64Range(int64(20*ms), int64(10*time.Second)).Draw(t, "threshold"))
		slot := max(threshold/16, 2*ms)
		a := adaptive.NewAges(threshold)
		var there []time.Duration
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(threshold)/4).Draw(t, "pass"))
			if len(there) > 0 && rapid.Bool().Draw(t, "end") {
				k := rapid.IntRange(0, len(there)-1).Draw(t, "which")
				a.End(there[k])
				there = slices.Delete(there, k, k+1)
			} else {
				a.Begin(now)
				there = append(there, now)
			}
			oldest, overdue := a.Look(now, threshold)
			if len(there) == 0 {
				require.Zero(t, oldest)
				require.Zero(t, overdue)
				continue
			}
			exact := now - slices.Min(there)
			require.GreaterOrEqual(t, oldest, exact, "an old one is forgotten")
			if exact < 3*threshold {
				require.LessOrEqual(t, oldest, exact+slot, "young ones look old")
			}
			sure, perhaps := 0, 0
			for _, at := range there {
				if now-at >= threshold+slot {
					sure++
				}
				if now-at >= threshold {
					perhaps++
				}
			}
			require.GreaterOrEqual(t, overdue, sure)
			require.LessOrEqual(t, overdue, perhaps)
		}
		for _, at := range there {
			a.End(at)
		}
		oldest, overdue := a.Look(now, threshold)
		require.Zero(t, oldest, "a place is left over")
		require.Zero(t, overdue)
	})
}

// A request that stays for long does not make the slot it began in look old for those that come after it.
func TestAgesOfLongAndShort(t *testing.T) {
	a := adaptive.NewAges(time.Second)
	a.Begin(0)
	for at := ms; at < 100*time.Second; at += 5 * ms {
		a.Begin(at)
		a.End(at)
	}
	a.Begin(100 * time.Second)
	oldest, overdue := a.Look(100*time.Second+ms, time.Second)
	require.Equal(t, 1, overdue)
	require.InDelta(t, float64(100*time.Second), float64(oldest), float64(100*ms))
	a.End(0)
	oldest, overdue = a.Look(100*time.Second+ms, time.Second)
	require.Zero(t, overdue)
	require.Less(t, oldest, 100*ms)
}
