package redisrate

import (
	"context"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// The suite, with the instants of its choice.
func TestConformanceAtInstants(t *testing.T) {
	skip := map[string]string{
		"promise-token-bucket": "some of its limits are faster than redis_rate's range: see TestNeverMoreThanExact",
		"long-waits":           "out of range: see TestRange",
		"extreme-limits":       "out of range: see TestRange",
		"contention":           "out of range: see TestContention",
		"traces":               "see TestTraces",
		"model":                "some of its limits are out of range: see TestNeverMoreThanExact",
		"contention-batches":   "no groups",
		"cancelled":            "the clock of this test is not the limiter's own client",
	}
	for name := range limitertest.Rules() {
		if len(name) > 6 && name[:6] == "batch-" {
			skip[name] = "no groups"
		}
	}
	limitertest.Run(t, func(t *testing.T) limiter.Limiter { return newInstants(t) }, limitertest.Profile{
		Algorithms: []limiter.Algorithm{limiter.TokenBucket}, NoRefund: true, NoRelimit: true, ForeignClock: true,
		Tick: time.Microsecond, Late: 2 * time.Microsecond, Margin: 2 * time.Microsecond, FewerLeft: 1, Skip: skip,
	})
}

// inRange draws limits that redisrate serves.
func inRange(t *rapid.T) limiter.Limit {
	for {
		l := limiter.Limit{
			Rate:   rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(1, 1_000_000)).Draw(t, "rate"),
			Period: time.Duration(rapid.OneOf(rapid.Map(rapid.Int64Range(1, 60), func(s int64) int64 { return s * 1e9 }), rapid.Int64Range(1e5, 1e15)).Draw(t, "period")),
			Burst:  rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(1, 1_000_000)).Draw(t, "burst"),
		}
		if _, err := newBucket(l, time.Now()); err == nil {
			return l
		}
	}
}

// slower is the bucket that redisrate promises, without any floating point: time and level are counted in 1/15625 ticks,
// of which a microsecond has a whole number.
type slower struct {
	bucket
	full *big.Int // instant of the full bucket
	now  *big.Int
}

func (s *slower) parts(ticks int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(ticks), big.NewInt(15625))
}

func (s *slower) at(now time.Time) {
	s.now = new(big.Int).Mul(big.NewInt(now.UnixMicro()), big.NewInt(1<<18>>(fine-s.bits)))
	if s.full == nil || s.full.Cmp(s.now) < 0 {
		s.full = s.now
	}
}

// wait returns how many parts it takes until n units fit.
func (s *slower) wait(n int64) *big.Int {
	full := new(big.Int).Add(s.full, s.parts(n*s.unit))
	return full.Sub(full, new(big.Int).Add(s.now, s.parts(s.burst*s.unit)))
}

func (s *slower) book(n int64) { s.full = new(big.Int).Add(s.full, s.parts(n*s.unit)) }

func micros(parts *big.Int, bits uint) float64 {
	f, _ := new(big.Float).SetInt(parts).Float64()
	return f / float64(int64(1<<18>>(fine-bits)))
}

// At any instants: nothing passes that the exact bucket refuses, Remaining is never too high, no wait too short. And it is
// the bucket whose interval is rounded up to ticks: within a microsecond, two for waits, one for Remaining.
func TestNeverMoreThanExact(t *testing.T) {
	l := newInstants(t)
	trial := 0
	rapid.Check(t, func(t *rapid.T) {
		trial++
		limit, key := inRange(t), limiter.Key{Space: "exact", ID: fmt.Sprint(trial)}
		rule, err := limiter.NewRule(limit)
		require.NoError(t, err)
		var state limiter.State
		now := time.Date(2026, 3, 4, 5, 6, 7, 300_001_000, time.UTC)
		b, err := newBucket(limit, time.Now())
		require.NoError(t, err)
		model := &slower{bucket: b}
		last := limiter.Decision{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			pauses := []time.Duration{0, time.Microsecond, last.RetryAfter, last.NextAfter, last.RetryAfter - time.Microsecond, last.NextAfter - 2*time.Microsecond, last.ResetAfter, limit.Period / 3, limit.Period / time.Duration(limit.Rate)}
			if p := rapid.SampledFrom(pauses).Draw(t, "pause").Truncate(time.Microsecond); p > 0 && p < 100*366*24*time.Hour && now.Year() < 2030 {
				now = now.Add(p)
			}
			n := rapid.SampledFrom([]int{0, 1, 1, 1, 2, limit.Burst, limit.Burst/3 + 1, last.Remaining, last.Remaining + 1, limit.Burst + 1}).Draw(t, "n")
			l.clock.set(now)
			got, err := l.Allow(context.Background(), key, limit, n)
			require.NoError(t, err)
			reading := limiter.Reading{Now: now.UnixNano()}
			want := rule.Peek(&state, reading, n, 0)
			require.False(t, got.Allowed && !want.Allowed, "passed what the exact bucket refuses: %+v, %+v", got, want)
			model.at(now)
			if n > limit.Burst {
				require.Equal(t, limiter.Never, got.RetryAfter)
			} else {
				wait := micros(model.wait(int64(n)), b.bits)
				if got.Allowed {
					require.Less(t, wait, 1.0, "passed too early")
					rule.Take(&state, reading, n, 0)
					model.book(int64(n))
				} else {
					require.Greater(t, wait, -1.0, "refused what fits: %+v", got)
					require.GreaterOrEqual(t, got.RetryAfter, want.RetryAfter)
					require.InDelta(t, wait, float64(got.RetryAfter)/1e3, 2+tolerance(limit))
				}
			}
			after := rule.Peek(&state, reading, 0, 0)
			require.LessOrEqual(t, got.Remaining, after.Remaining)
			require.GreaterOrEqual(t, got.ResetAfter, after.ResetAfter)
			used := new(big.Int).Sub(model.full, model.now)
			require.InDelta(t, micros(used, b.bits), float64(got.ResetAfter)/1e3, 2+tolerance(limit))
			left := (micros(model.parts(b.burst*b.unit), b.bits) - micros(used, b.bits)) / micros(model.parts(b.unit), b.bits)
			require.LessOrEqual(t, float64(got.Remaining), left+0.1)
			require.Greater(t, float64(got.Remaining), left-2.1)
			require.LessOrEqual(t, got.NextAfter, got.ResetAfter)
			last = got
		}
	})
}

// tolerance is what a bucket of more than a million seconds may be off beyond the rest, in microseconds: redis_rate tells
// waits with 14 digits.
func tolerance(l limiter.Limit) float64 {
	us := float64(l.Burst) * float64(l.Period) / float64(l.Rate) / 1e3
	return us * 2e-13
}

// redis_rate by itself counts in seconds, and the instant it stores is a multiple of 60 ns. This is why fast limits are
// refused here, and why redis_rate is told ticks.
func TestWhyTicks(t *testing.T) {
	l := newInstants(t)
	raw := redis_rate.NewLimiter(l.clock)
	ctx, prefix := context.Background(), redistest.Prefix(t)
	pass := func(limit redis_rate.Limit, step time.Duration, takes int) (passed int) {
		key := fmt.Sprint(prefix, limit, step)
		for range takes {
			r, err := raw.Allow(ctx, key, limit)
			require.NoError(t, err)
			passed += r.Allowed
			l.clock.set(l.clock.now.Add(step))
		}
		return passed
	}
	// 40 million per second, burst 1, at one instant: one may pass, all do.
	require.Equal(t, 100, pass(redis_rate.Limit{Rate: 40_000_000, Burst: 1, Period: time.Second}, 0, 100))
	// Emptied one by one at one instant: the intervals, rounded down, add up, and the bucket is full too early.
	for limit, early := range map[redis_rate.Limit]float64{
		{Rate: 3, Burst: 10_000, Period: time.Second}:         190e-6 / 3333,
		{Rate: 1_600_000, Burst: 10_000, Period: time.Second}: 0.045,
	} {
		require.Equal(t, 10_000, pass(limit, 0, 10_000))
		r, err := raw.AllowN(ctx, fmt.Sprint(prefix, limit, time.Duration(0)), limit, 0)
		require.NoError(t, err)
		require.Less(t, r.ResetAfter.Seconds(), float64(limit.Burst)/float64(limit.Rate)*(1-early))
	}
	// The whole burst of a fresh key, 40 years of it, is refused at every second instant or so.
	long := redis_rate.Limit{Rate: 1, Burst: 40, Period: 366 * 24 * time.Hour}
	refused := 0
	for k := range 40 {
		l.clock.set(l.clock.now.Add(time.Microsecond))
		r, err := raw.AllowN(ctx, fmt.Sprint(prefix, long, k), long, 40)
		require.NoError(t, err)
		if r.Allowed == 0 {
			refused++
		}
	}
	require.Greater(t, refused, 5)
}

// Rounding up costs as much of the rate as the package comment says.
func TestRateLost(t *testing.T) {
	for rate, most := range map[int]float64{1: 1e-7, 10: 1e-6, 1000: 1e-4, 10_000: 1.2e-3} {
		b, err := newBucket(limiter.PerSecond(rate), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		require.NoError(t, err)
		lost := float64(b.unit)*float64(rate)/(1<<fine) - 1
		require.Greater(t, lost, 0.0)
		require.Less(t, lost, most, rate)
	}
}
