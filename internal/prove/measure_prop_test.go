package prove_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// tiny is a difference that comes from adding floats alone.
const tiny = 1e-6

// drawn are requests that took up to 100 ms, in no order.
func drawn(t *rapid.T) []pass {
	n := rapid.IntRange(1, 40).Draw(t, "n")
	passes := make([]pass, n)
	for k := range passes {
		began := rapid.Int64Range(0, 2e9).Draw(t, "began")
		passes[k] = pass{began, began + rapid.Int64Range(0, 1e8).Draw(t, "took")}
	}
	return passes
}

var someBound = bound{units: 4, rate: 7}

// The measures are what their words say, by the plain way: every pair of instants.
func TestMeasuresAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		passes, outside, inside := drawn(t), math.Inf(-1), math.Inf(-1)
		for _, first := range passes {
			for _, last := range passes {
				out, in := 0.0, 0.0
				for _, p := range passes {
					if p.at >= first.at && p.at <= last.at {
						out++
					}
					if p.began >= first.began && p.at <= last.at {
						in++
					}
				}
				if last.at >= first.at {
					outside = max(outside, out-someBound.over(time.Duration(last.at-first.at)))
				}
				if in > 0 {
					inside = max(inside, in-someBound.over(time.Duration(last.at-first.began)))
				}
			}
		}
		worst, length := excess(passes, someBound)
		require.InDelta(t, outside, worst, tiny)
		require.GreaterOrEqual(t, length, time.Duration(0))
		certain := certainExcess(passes, someBound)
		require.InDelta(t, inside, certain, tiny)
		require.LessOrEqual(t, certain, worst+tiny, "what is certain is also seen")
		longest := int64(0)
		for _, p := range passes {
			longest = max(longest, p.at-p.began)
		}
		require.LessOrEqual(t, worst, certain+someBound.rate*seconds(longest)+tiny, "and delays add no more than the rate brings in them")
	})
}

// A bucket that decides at any instant in the span of each request is acquitted of everything, and one unit more than it
// admits is found where requests take no time.
func TestABucketIsAcquitted(t *testing.T) {
	l := limiter.Limit{Rate: 7, Period: time.Second, Burst: 4}
	require.Equal(t, someBound, boundOf(l))
	rapid.Check(t, func(t *rapid.T) {
		requests := drawn(t)
		for k := range 3 { // a fixed share of fast ones
			requests = append(requests, pass{int64(k), int64(k)})
		}
		instants := make([]int64, len(requests))
		for k, r := range requests {
			instants[k] = rapid.Int64Range(r.began, r.at).Draw(t, "decided")
		}
		order := make([]int, len(requests))
		for k := range order {
			order[k] = k
		}
		slices.SortFunc(order, func(x, y int) int { return int(instants[x] - instants[y]) })
		var passed, refused, exact []pass
		level, before, missing, at := someBound.units, instants[order[0]], 0.0, int64(0)
		for _, k := range order {
			level = min(someBound.units, level+someBound.rate*seconds(instants[k]-before))
			before = instants[k]
			if level < 1 {
				if refused = append(refused, requests[k]); len(refused) == 1 {
					missing, at = 1-level, instants[k]
				}
				continue
			}
			level--
			passed = append(passed, requests[k])
			exact = append(exact, pass{instants[k], instants[k]})
		}
		require.LessOrEqual(t, certainExcess(passed, someBound), tiny)
		require.Empty(t, wronglyRefused(refused, passed, someBound, 0))
		if len(refused) > 0 { // and the first of them let through after all
			got, _ := excess(append(exact, pass{at, at}), someBound)
			require.GreaterOrEqual(t, got, missing-tiny)
		}
	})
}

func TestMeasures(t *testing.T) {
	at := func(ms ...int64) (out []pass) {
		for _, k := range ms {
			out = append(out, pass{k * 1e6, k * 1e6})
		}
		return out
	}
	one := bound{units: 3, rate: 1}
	for name, c := range map[string]struct {
		passes []pass
		want   float64
		length time.Duration
	}{
		"less than the burst": {at(0, 0), -1, 0},
		"the burst":           {at(0, 0, 0), 0, 0},
		"and one":             {at(0, 0, 0, 0), 1, 0},
		"one a second later":  {at(0, 0, 0, 500), 0.5, 500 * time.Millisecond},
		"after idle time":     {at(0, 9000, 9000, 9000, 9500, 9500, 20000), 1.5, 500 * time.Millisecond},
		"in any order":        {at(20000, 9500, 9000, 0, 9000, 9500, 9000), 1.5, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			worst, length := excess(c.passes, one)
			require.InDelta(t, c.want, worst, tiny)
			require.Equal(t, c.length, length)
			require.InDelta(t, c.want, certainExcess(c.passes, one), tiny)
		})
	}

	refused := at(600)
	require.Len(t, wronglyRefused(refused, nil, one, 0), 1, "of a bucket that is full")
	require.Len(t, wronglyRefused(refused, at(0, 0), one, 0), 1, "one is left")
	require.Empty(t, wronglyRefused(refused, at(0, 0), one, 0.7), "unless 0.7 were lost")
	require.Empty(t, wronglyRefused(refused, at(0, 0, 0), one, 0), "0.6 are left")
	require.Len(t, wronglyRefused(at(1001), at(0, 0, 0), one, 0), 1)
	require.Empty(t, wronglyRefused(at(1001), append(at(0, 0, 0), pass{500e6, 2000e6}), one, 0), "booked in time, or not")
	require.Len(t, wronglyRefused(at(1001), append(at(0, 0, 0), pass{1002e6, 2000e6}), one, 0), 1, "not yet")
}

// At 2,000 requests a cell takes no time.
func BenchmarkCertainExcess(b *testing.B) {
	passes := make([]pass, 2000)
	for k := range passes {
		began := rand.Int64N(8e9)
		passes[k] = pass{began, began + rand.Int64N(1e7)}
	}
	for b.Loop() {
		certainExcess(passes, someBound)
	}
}
