package limiter_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

func TestLimitValidate(t *testing.T) {
	second := limiter.PerSecond
	tests := []struct {
		name  string
		limit limiter.Limit
		says  []string // empty: valid
	}{
		{"plain", second(5), nil},
		{"least", limiter.Per(1, limiter.MinPeriod), nil},
		{"most", limiter.Per(limiter.MaxRate, limiter.MaxPeriod).WithBurst(limiter.MaxRate), nil},
		{"unlimited", limiter.Unlimited, nil},
		{"deny all", limiter.DenyAll, nil},
		{"every algorithm's default", second(5).With(limiter.LeakyBucket), nil},
		{"log at its most", second(limiter.MaxLogRate).With(limiter.SlidingLog), nil},
		{"cells at their most", second(5).WithCells(limiter.MaxCells), nil},
		{"burst of a window is ignored", second(5).With(limiter.FixedWindow).WithBurst(9), nil},
		{"day in UTC", second(5).Aligned(limiter.Day, ""), nil},
		{"month in a zone", second(5).Aligned(limiter.Month, "Asia/Shanghai"), nil},
		{"period of a calendar window is ignored", limiter.Limit{Rate: 5}.Aligned(limiter.Week, "UTC"), nil},

		{"zero limit", limiter.Limit{}, []string{"zero limit", "Unlimited or DenyAll"}},
		{"rate negative", second(-1), []string{"rate -1"}},
		{"rate over the range", second(limiter.MaxRate + 1), []string{"rate 1000000001"}},
		{"rate of a log", second(limiter.MaxLogRate + 1).With(limiter.SlidingLog), []string{"outside 1…100000"}},
		{"rate at its extremes", second(math.MinInt), []string{"rate -9223372036854775808"}},
		{"no period", limiter.Limit{Rate: 5}, []string{"period 0s"}},
		{"period negative", limiter.Per(5, -time.Second), []string{"period -1s"}},
		{"period too short", limiter.Per(5, 999), []string{"period 999ns"}},
		{"period too long", limiter.Per(5, limiter.MaxPeriod+1), []string{"366 days"}},
		{"burst negative", second(5).WithBurst(-1), []string{"burst -1"}},
		{"burst over the range", second(5).WithBurst(limiter.MaxRate + 1), []string{"burst 1000000001"}},
		{"cells negative", second(5).WithCells(-1), []string{"cells -1"}},
		{"cells over the range", second(5).WithCells(limiter.MaxCells + 1), []string{"cells 101"}},
		{"cells that do not divide", second(5).WithCells(7), []string{"not 7 cells of whole microseconds"}},
		{"one cell of half microseconds", limiter.Per(5, 1500).With(limiter.SlidingWindow), []string{"whole microseconds"}},
		{"cells of a bucket", second(5).WithCells(5).With(limiter.TokenBucket), []string{"cells belong to sliding_window"}},
		{"algorithm unknown", second(5).With(77), []string{"algorithm 77"}},
		{"unlimited with a rate", second(5).With(limiter.Unlimited.Algorithm), []string{"algorithm 254"}},
		{"deny all with a burst", limiter.DenyAll.WithBurst(1), []string{"algorithm 255"}},
		{"align of a bucket", second(5).Aligned(limiter.Day, "").With(limiter.TokenBucket), []string{"align belongs to fixed_window"}},
		{"align unit unknown", second(5).Aligned(9, ""), []string{"align unit Unit(9)"}},
		{"zone without unit", second(5).Aligned(limiter.Epoch, "UTC"), []string{"align unit epoch"}},
		{"zone unknown", second(5).Aligned(limiter.Day, "Asia/Atlantis"), []string{"Asia/Atlantis"}},
		{"zone of the machine", second(5).Aligned(limiter.Day, "Local"), []string{"differs between machines"}},
		{
			"everything at once",
			limiter.Limit{Algorithm: limiter.LeakyBucket, Rate: -1, Burst: -2, Cells: 3},
			[]string{"rate -1", "period 0s", "burst -2", "cells belong"},
		},

		{"ZERO-02 rate 0, burst 1", second(0).WithBurst(1), []string{"rate 0"}},
		{"ZERO-06 nothing per minute", limiter.PerMinute(0), []string{"rate 0"}},
		{"ZERO-09 zero in both places", limiter.Per(0, time.Minute).WithBurst(0), []string{"rate 0"}},
		{"OVF-02 120 per second", second(120), nil},
		{"OVF-04 65535 per second", second(65535), nil},
		{"OVF-08 2000 per second", second(2000), nil},
		{"OVF-08 a million per second", second(1_000_000), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.limit.Validate()
			if len(tt.says) == 0 {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, limiter.ErrInvalid)
			for _, says := range tt.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

func TestLimitQuota(t *testing.T) {
	tests := []struct {
		limit limiter.Limit
		want  int
	}{
		{limiter.PerSecond(5), 5},
		{limiter.PerSecond(5).WithBurst(20), 20},
		{limiter.PerSecond(5).With(limiter.LeakyBucket), 1},
		{limiter.PerSecond(5).With(limiter.LeakyBucket).WithBurst(3), 3},
		{limiter.PerSecond(5).With(limiter.FixedWindow).WithBurst(20), 5},
		{limiter.PerSecond(5).WithCells(5).WithBurst(20), 5},
		{limiter.PerSecond(5).With(limiter.SlidingLog).WithBurst(20), 5},
		{limiter.Unlimited, math.MaxInt},
		{limiter.DenyAll, 0},
	}
	for _, tt := range tests {
		t.Run(tt.limit.String(), func(t *testing.T) {
			require.Equal(t, tt.want, tt.limit.Quota())
			require.Equal(t, tt.limit, tt.limit.Current())
		})
	}
}

func TestLimitConstructors(t *testing.T) {
	require.Equal(t, limiter.Limit{Rate: 3, Period: time.Second}, limiter.PerSecond(3))
	require.Equal(t, limiter.Limit{Rate: 3, Period: time.Minute}, limiter.PerMinute(3))
	require.Equal(t, limiter.Limit{Rate: 3, Period: time.Hour}, limiter.PerHour(3))
	require.Equal(t, limiter.Limit{Rate: 3, Period: hours24}, limiter.PerDay(3))
	l := limiter.PerSecond(3)
	_ = l.WithBurst(9).WithCells(4).Aligned(limiter.Day, "UTC")
	require.Equal(t, limiter.PerSecond(3), l, "the With methods return copies")
}
