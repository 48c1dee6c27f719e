package fallback_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

func TestShare(t *testing.T) {
	day := limiter.MaxPeriod / 366
	for _, c := range []struct {
		name  string
		limit limiter.Limit
		n     int
		want  limiter.Limit
	}{
		{"alone", limiter.PerMinute(7), 1, limiter.PerMinute(7)},
		{"a bucket that divides", limiter.PerMinute(600).WithBurst(100), 4, limiter.PerMinute(150).WithBurst(25)},
		{"a bucket that does not", limiter.PerMinute(10), 4, limiter.Per(5, 2*time.Minute).WithBurst(2)},
		{"a bucket of less than one each", limiter.PerSecond(1), 4, limiter.Per(1, 4*time.Second).WithBurst(1)},
		{"the default burst", limiter.PerSecond(9), 2, limiter.Per(9, 2*time.Second).WithBurst(4)},
		{"a period that cannot be stretched", limiter.Per(3, 100*day), 4, limiter.Per(2, 300*day).WithBurst(1)},
		{"nor divided", limiter.Per(1, 366*day), 4, limiter.Per(1, 366*day).WithBurst(1)},
		{"strict spacing", limiter.PerSecond(10).With(limiter.LeakyBucket), 2, limiter.PerSecond(5).With(limiter.LeakyBucket).WithBurst(1)},
		{"a queue", limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(7), 2, limiter.PerSecond(5).With(limiter.LeakyBucket).WithBurst(3)},
		{"a window", limiter.PerMinute(10).With(limiter.FixedWindow), 4, limiter.PerMinute(2).With(limiter.FixedWindow)},
		{"a window of less than one each", limiter.PerMinute(3).With(limiter.FixedWindow), 4, limiter.Per(1, 2*time.Minute).With(limiter.FixedWindow)},
		{"a day of the calendar", limiter.PerDay(10).Aligned(limiter.Day, "Asia/Shanghai"), 3, limiter.PerDay(3).Aligned(limiter.Day, "Asia/Shanghai")},
		{"that cannot be stretched", limiter.PerDay(2).Aligned(limiter.Day, ""), 3, limiter.PerDay(1).Aligned(limiter.Day, "")},
		{"cells", limiter.PerMinute(10).WithCells(6), 3, limiter.PerMinute(3).WithCells(6)},
		{"cells of less than one each", limiter.PerMinute(2).WithCells(6), 5, limiter.Per(1, 3*time.Minute).WithCells(6)},
		{"a log", limiter.PerHour(100).With(limiter.SlidingLog), 3, limiter.PerHour(33).With(limiter.SlidingLog)},
		{"nothing to divide", limiter.Unlimited, 3, limiter.Unlimited},
		{"nothing at all", limiter.DenyAll, 3, limiter.DenyAll},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, fallback.Share(c.limit, c.n)) })
	}
}

// anyLimit draws a limit, valid unless wild.
func anyLimit(t *rapid.T, wild bool) limiter.Limit {
	most := limiter.MaxRate
	l := limiter.Limit{Algorithm: rapid.SampledFrom(limiter.Algorithms()).Draw(t, "algorithm")}
	if l.Algorithm == limiter.SlidingLog {
		most = limiter.MaxLogRate
	}
	low, shortest, longest := 1, time.Microsecond, limiter.MaxPeriod
	if wild {
		low, most, shortest, longest = -2, most+5, -2*time.Second, longest*3
		l.Algorithm += limiter.Algorithm(rapid.IntRange(0, 1).Draw(t, "odd"))
	}
	l.Rate = rapid.OneOf(rapid.IntRange(low, 40), rapid.IntRange(low, most)).Draw(t, "rate")
	l.Period = rapid.OneOf(
		rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, 100 * 24 * time.Hour, limiter.MaxPeriod}),
		rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(int64(shortest), int64(longest)).Draw(t, "ns"))
		})).Draw(t, "period")
	switch {
	case l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket || wild:
		l.Burst = rapid.OneOf(rapid.IntRange(low-1, 40), rapid.IntRange(low-1, most)).Draw(t, "burst")
	case l.Algorithm == limiter.FixedWindow && rapid.Bool().Draw(t, "aligned"):
		l = l.Aligned(rapid.SampledFrom([]limiter.Unit{limiter.Day, limiter.Week, limiter.Month}).Draw(t, "unit"), "")
	case l.Algorithm == limiter.SlidingWindow:
		l.Cells = rapid.IntRange(0, 10).Draw(t, "cells")
		if cell := time.Duration(max(1, l.Cells)) * time.Microsecond; !wild {
			l.Period = max(l.Period.Truncate(cell), cell)
		}
	}
	if wild && rapid.Bool().Draw(t, "with cells") {
		l.Cells = rapid.IntRange(-1, 101).Draw(t, "cells of anything")
	}
	return l
}

// The table of the package comment: what all shares together promise is what the limit does, or what is said there.
func TestSharesSumUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, false)
		require.NoError(t, l.Validate())
		n := rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, fallback.MaxReplicas)).Draw(t, "replicas")
		s := fallback.Share(l, n)
		require.NoError(t, s.Validate())
		require.Equal(t, l.Algorithm, s.Algorithm)
		require.LessOrEqual(t, n*s.Quota(), max(l.Quota(), n), "quota")
		if n == 1 {
			require.Equal(t, l, s)
			return
		}
		if l.Quota() >= n {
			require.Greater(t, n*(s.Quota()+1), l.Quota(), "no more is lost than the division leaves")
		}
		if l.Align.Unit != limiter.Epoch {
			require.Equal(t, l.Align, s.Align)
			return
		}
		require.Zero(t, s.Period%l.Period, "windows begin where those of the limit do")
		// n·s.Rate/s.Period against l.Rate/l.Period, crosswise.
		all := new(big.Int).Mul(big.NewInt(int64(n)*int64(s.Rate)), big.NewInt(int64(l.Period)))
		nominal := new(big.Int).Mul(big.NewInt(int64(l.Rate)), big.NewInt(int64(s.Period)))
		isBucket := l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket
		switch fits := l.Period <= limiter.MaxPeriod/time.Duration(n); {
		case isBucket && fits:
			require.Zero(t, all.Cmp(nominal), "the rates are exact")
		case s.Rate == 1 && s.Period > limiter.MaxPeriod/2:
			// The least there is: 1 per replica in the longest period. That may be more.
		default:
			require.LessOrEqual(t, all.Cmp(nominal), 0, "the rates: %v of %v", s, l)
		}
	})
}

// A crafted limit does not become a valid one by being divided.
func TestShareKeepsWhatIsInvalid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, true)
		n := rapid.IntRange(-1, 50).Draw(t, "replicas")
		if l.Validate() != nil {
			require.Equal(t, l, fallback.Share(l, n))
		}
	})
}
