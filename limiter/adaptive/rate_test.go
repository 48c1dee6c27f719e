package adaptive_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

func TestScale(t *testing.T) {
	month := limiter.Limit{Rate: 1000}.Aligned(limiter.Month, "Asia/Shanghai")
	half := month
	half.Rate = 500
	for _, c := range []struct {
		nominal limiter.Limit
		share   float64
		want    limiter.Limit
	}{
		{limiter.PerSecond(100), 1, limiter.PerSecond(100)},
		{limiter.PerSecond(100), 0.5, limiter.PerSecond(50)},
		{limiter.PerSecond(100).WithBurst(30), 0.5, limiter.PerSecond(50).WithBurst(15)},
		{limiter.PerSecond(100).WithBurst(30), 1.5, limiter.PerSecond(150).WithBurst(45)},
		{limiter.PerSecond(3).WithBurst(3), 0.1, limiter.PerSecond(1).WithBurst(1)},
		{limiter.PerSecond(100), 0.29, limiter.PerSecond(29)}, // the product is below 29 in floating point
		{limiter.PerSecond(10).With(limiter.LeakyBucket), 0.5, limiter.PerSecond(5).With(limiter.LeakyBucket)},
		{limiter.PerSecond(10).WithCells(10), 0.55, limiter.PerSecond(5).WithCells(10)},
		{limiter.PerSecond(limiter.MaxRate), 10, limiter.PerSecond(limiter.MaxRate)},
		{limiter.PerSecond(90_000).With(limiter.SlidingLog), 2, limiter.PerSecond(limiter.MaxLogRate).With(limiter.SlidingLog)},
		{month, 0.5, half},
		{limiter.Unlimited, 0.5, limiter.Unlimited},
		{limiter.DenyAll, 5, limiter.DenyAll},
		{limiter.Limit{}, 0.5, limiter.Limit{}},
		{limiter.PerSecond(-5), 0.5, limiter.PerSecond(-5)}, // left to be found as invalid
	} {
		require.Equal(t, c.want, adaptive.Scale(c.nominal, c.share), "%v by %v", c.nominal, c.share)
	}
	rapid.Check(t, func(t *rapid.T) {
		l := limiter.Limit{
			Algorithm: rapid.SampledFrom(limiter.Algorithms()).Draw(t, "algorithm"), Rate: rapid.IntRange(1, limiter.MaxRate).Draw(t, "rate"),
			Burst: rapid.IntRange(0, limiter.MaxRate).Draw(t, "burst"), Period: time.Duration(rapid.Int64Range(1, 1000).Draw(t, "period")) * time.Second,
		}
		if l.Validate() != nil {
			t.Skip()
		}
		share := rapid.Float64Range(1e-12, 1000).Draw(t, "share")
		got := adaptive.Scale(l, share)
		require.NoError(t, got.Validate())
		if share <= 1 {
			require.LessOrEqual(t, got.Rate, l.Rate, "never above nominal")
			require.LessOrEqual(t, got.Quota(), l.Quota())
		}
		require.LessOrEqual(t, float64(got.Rate), max(1, share*float64(l.Rate)+1e-6))
	})
}

func TestShare(t *testing.T) {
	require.Equal(t, 0.1, adaptive.Share(limiter.PerSecond(10), limiter.PerSecond(100)))
	require.Equal(t, 0.5, adaptive.Share(limiter.PerMinute(30), limiter.PerSecond(1)))
	require.Equal(t, 2.0, adaptive.Share(limiter.PerSecond(20), limiter.PerMinute(600)))
	day := limiter.Limit{Rate: 10}.Aligned(limiter.Day, "")
	require.Equal(t, 1.0, adaptive.Share(day, day))
	for _, l := range []limiter.Limit{{}, limiter.Unlimited, limiter.DenyAll, day, limiter.PerSecond(-1)} {
		require.Zero(t, adaptive.Share(l, limiter.PerSecond(1)))
		require.Zero(t, adaptive.Share(limiter.PerSecond(1), l))
	}
}

// A rate falls while the processors are busy, grows only while requests are refused, and never goes above nominal.
func TestRateMoves(t *testing.T) {
	nominal := limiter.PerSecond(1000).WithBurst(200)
	for name, law := range laws {
		if name == "bbr" {
			_, err := adaptive.New(adaptive.Config{Law: law, Target: adaptive.Rate})
			require.ErrorIs(t, err, limiter.ErrInvalid)
			require.ErrorContains(t, err, "bbr")
			continue
		}
		s := newStage(t, adaptive.Config{Law: law, Target: adaptive.Rate, Min: 0.05})
		require.Equal(t, nominal, s.c.Adjust(s.now, nominal), name)
		require.Equal(t, math.MaxInt, s.c.Bound())
		second := func(n int, refused int) {
			for range n {
				for range refused {
					s.c.Reject(s.now)
				}
				s.traffic(100, adaptive.Succeeded)
			}
		}
		s.load = 1
		second(10, 0)
		require.Less(t, s.c.State().Limit, 0.65, name)
		l := s.c.Adjust(s.now, nominal)
		require.InDelta(t, 1000*s.c.State().Limit, l.Rate, 1)
		require.InDelta(t, 200*s.c.State().Limit, l.Burst, 1)
		require.Equal(t, limiter.EventAdapt, s.events[len(s.events)-1].Kind)
		require.Equal(t, l, s.events[len(s.events)-1].Decision.Limit)
		s.load = 0.1
		second(3, 0)
		low := s.c.State().Limit
		second(20, 0)
		require.Equal(t, low, s.c.State().Limit, "%s: nobody asks for more", name)
		second(200, 1)
		require.Equal(t, 1.0, s.c.State().Limit, name)
		require.Equal(t, nominal, s.c.Adjust(s.now, nominal))
		s.load = 1
		second(200, 100)
		require.GreaterOrEqual(t, s.c.State().Limit, 0.05, name)
		l = s.c.Adjust(s.now.Add(time.Hour), nominal)
		require.Equal(t, nominal, l, "%s: nobody runs it: the fixed limit", name)
	}
}

// Without a rate to scale, or without requests shown, nothing happens and nothing is told.
func TestRateOfNobody(t *testing.T) {
	s := newStage(t, adaptive.Config{Target: adaptive.Rate})
	s.load = 1
	s.pass(time.Minute)
	require.Empty(t, s.events)
	require.Equal(t, 1.0, s.c.State().Limit)
	c := newStage(t, adaptive.Config{})
	require.Equal(t, limiter.PerSecond(3), c.c.Adjust(epoch, limiter.PerSecond(3)), "a bound on requests in flight scales no rate")
}

func BenchmarkAdjust(b *testing.B) {
	c, err := adaptive.New(adaptive.Config{Target: adaptive.Rate, Fixed: 0.5})
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	nominal := [2]limiter.Limit{limiter.PerSecond(100), limiter.PerSecond(200)}
	for name, n := range map[string]int{"one limit": 1, "two in turn": 2} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			now := time.Now()
			for k := 0; b.Loop(); k++ {
				c.Adjust(now, nominal[k%n])
			}
		})
	}
}
