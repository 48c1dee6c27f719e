package memory_test

import (
	"context"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

var ctx = context.Background()

func id(i int) limiter.Key { return limiter.Key{Space: "test", ID: strconv.Itoa(i)} }

func allow(t testing.TB, l *memory.Limiter, k limiter.Key, limit limiter.Limit, n int) limiter.Decision {
	t.Helper()
	d, err := l.Allow(ctx, k, limit, n)
	require.NoError(t, err)
	return d
}

// traffic is calls on one key for a while, to carry the sweep along. Its own key stays.
func traffic(t testing.TB, l *memory.Limiter, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		allow(t, l, limiter.Key{ID: "traffic"}, limiter.PerSecond(1e6), 1)
	}
}

func verify(t testing.TB, l *memory.Limiter) {
	t.Helper()
	require.NoError(t, l.Verify())
}

// bubbles runs each case in a bubble of its own.
func bubbles(t *testing.T, cases map[string]func(t *testing.T)) {
	for name, f := range cases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
}

func TestInTime(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T){
		"expiry empties the table": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			for i := range 20_000 {
				allow(t, l, id(i), limiter.PerSecond(10), 1)
			}
			require.Equal(t, 20_000, l.Len())
			verify(t, l)
			full := l.Stats().Segments
			time.Sleep(2 * time.Second)
			require.Equal(t, 20_000, l.Len(), "nothing runs by itself")
			traffic(t, l, 2*memory.PassTime)
			require.LessOrEqual(t, l.Len(), 1)
			require.Greater(t, full, 30)
			require.LessOrEqual(t, l.Stats().Segments, 2)
			verify(t, l)
		},
		"a key in debt is kept": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			slow := limiter.PerHour(1)
			for i := range 5000 {
				limit := limiter.PerSecond(10)
				if i%10 == 0 {
					limit = slow
				}
				allow(t, l, id(i), limit, 1)
			}
			traffic(t, l, 4*memory.PassTime)
			require.InDelta(t, 500, l.Len(), 1)
			verify(t, l)
			for i := 0; i < 5000; i += 10 {
				require.False(t, allow(t, l, id(i), slow, 1).Allowed)
			}
			time.Sleep(time.Hour)
			for i := 0; i < 5000; i += 10 {
				require.True(t, allow(t, l, id(i), slow, 1).Allowed)
			}
		},
		"an hour of refill is exact": func(t *testing.T) {
			time.Sleep(17 * time.Millisecond)
			for _, limit := range []limiter.Limit{limiter.PerSecond(3), limiter.Per(7, 11*time.Second).WithBurst(2), limiter.PerMinute(100)} {
				l := newLimiter(t, memory.Config{})
				passed := 0
				for end := time.Now().Add(time.Hour); !time.Now().After(end); time.Sleep(37 * time.Millisecond) {
					if allow(t, l, id(0), limit, 1).Allowed {
						passed++
					}
				}
				want := float64(limit.Quota()) + float64(limit.Rate)*float64(time.Hour)/float64(limit.Period)
				require.InDelta(t, want, passed, 1.01)
				require.LessOrEqual(t, float64(passed), want)
			}
		},
		"the wait that was named is enough and one less is not": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			for _, a := range limiter.Algorithms() {
				limit := limiter.PerSecond(3).With(a)
				for range 20 {
					d := allow(t, l, id(1), limit, 1)
					if d.Allowed {
						continue
					}
					time.Sleep(d.RetryAfter - 1)
					require.False(t, allow(t, l, id(1), limit, 1).Allowed, a)
					time.Sleep(time.Nanosecond)
					require.True(t, allow(t, l, id(1), limit, 1).Allowed, a)
				}
			}
		},
		"the cap reuses idle keys": func(t *testing.T) {
			l := newLimiter(t, memory.Config{MaxKeys: 500})
			for round := range 20 {
				for i := range 500 {
					require.True(t, allow(t, l, id(1000*round+i), limiter.PerSecond(1), 1).Allowed)
				}
				require.LessOrEqual(t, l.Len(), 500)
				time.Sleep(3 * time.Second)
			}
			require.Zero(t, l.Overflow())
			verify(t, l)
		},
		"nobody gains by overflow": func(t *testing.T) {
			for _, a := range limiter.Algorithms() {
				if a == limiter.LeakyBucket {
					continue
				}
				limit := limiter.Per(5, time.Hour).With(a)
				l := newLimiter(t, memory.Config{MaxKeys: 10})
				for i := range 10 {
					require.Equal(t, 4, allow(t, l, id(i), limiter.PerSecond(5), 1).Remaining)
				}
				passed := 0
				for range 50 {
					if allow(t, l, id(99), limit, 1).Allowed {
						passed++
					}
				}
				require.Equal(t, 5, passed, a)
				require.EqualValues(t, 50, l.Overflow())
				require.Equal(t, 1, l.OverflowCells())
				verify(t, l)
				// The others have gone: there is room for a cell of its own, which starts with what was charged.
				time.Sleep(10 * time.Second)
				d := allow(t, l, id(99), limit, 1)
				require.False(t, d.Allowed, a)
				require.EqualValues(t, 50, l.Overflow())
				require.Equal(t, 0, d.Remaining)
				verify(t, l)
				require.NoError(t, l.Reset(ctx, id(99)))
				require.True(t, allow(t, l, id(99), limit, 1).Allowed, "an own cell can be reset")
				time.Sleep(3 * time.Hour)
				require.True(t, allow(t, l, id(99), limit, 5).Allowed)
				traffic(t, l, 3*memory.PassTime)
				require.Zero(t, l.OverflowCells(), "full, so forgotten")
				verify(t, l)
			}
		},
		"overflow cells are bounded": func(t *testing.T) {
			l := newLimiter(t, memory.Config{MaxKeys: 1})
			allow(t, l, id(0), limiter.PerHour(1), 1)
			passed := 0
			for i := range 3000 {
				k := limiter.Key{Space: strconv.Itoa(i), ID: "x"}
				if allow(t, l, k, limiter.PerHour(1), 1).Allowed {
					passed++
				}
				require.False(t, allow(t, l, k, limiter.PerHour(1), 1).Allowed)
			}
			require.LessOrEqual(t, l.OverflowCells(), memory.MostOverflow)
			require.LessOrEqual(t, passed, memory.MostOverflow)
			require.Greater(t, passed, memory.MostOverflow/2)
			require.Equal(t, 1, l.Len())
			verify(t, l)
		},
		"a look creates nothing": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			for i := range 100 {
				require.Equal(t, 10, allow(t, l, id(i), limiter.PerSecond(10), 0).Remaining)
				d := allow(t, l, id(i), limiter.PerSecond(10), 11)
				require.Equal(t, limiter.Never, d.RetryAfter)
				require.Equal(t, 10, d.Remaining)
			}
			require.Zero(t, l.Len())
		},
		"logs are bounded together": func(t *testing.T) {
			l := newLimiter(t, memory.Config{MaxLogEntries: 1000})
			limit := limiter.Per(100, time.Minute).With(limiter.SlidingLog)
			passed := map[int]int{}
			for range 150 {
				time.Sleep(time.Millisecond)
				for i := range 20 {
					if allow(t, l, id(i), limit, 1).Allowed {
						passed[i]++
					}
				}
				require.LessOrEqual(t, l.Stats().LogEntries, 1000)
			}
			for i := range 20 {
				require.LessOrEqual(t, passed[i], 100)
				require.GreaterOrEqual(t, passed[i], 100, "fewer entries, not fewer units, while time is short of the period")
			}
			verify(t, l)
			time.Sleep(3 * time.Minute)
			traffic(t, l, 2*memory.PassTime)
			require.Zero(t, l.Stats().LogEntries)
		},
		"new log keys overflow when the logs are full": func(t *testing.T) {
			l := newLimiter(t, memory.Config{MaxLogEntries: 8})
			limit := limiter.PerHour(5).With(limiter.SlidingLog)
			for i := range 100 {
				allow(t, l, id(i), limit, 1)
			}
			require.LessOrEqual(t, l.Len(), 2)
			require.NotZero(t, l.Overflow())
			require.True(t, allow(t, l, id(1000), limiter.PerHour(5), 1).Allowed, "others are not concerned")
			verify(t, l)
		},
		"limits that come and go are forgotten": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			n := 1_000_000
			if testing.Short() {
				n = 20_000
			}
			for i := range n {
				allow(t, l, id(0), limiter.Per(1+i, time.Hour), 1)
			}
			require.LessOrEqual(t, l.Rules(), 256)
			require.LessOrEqual(t, l.Stats().Limits, 256)
			verify(t, l)
		},
		"events": func(t *testing.T) {
			var events []limiter.Event
			l := newLimiter(t, memory.Config{
				MaxKeys: 10, Name: "store",
				Observer: limiter.ObserverFunc(func(e limiter.Event) { events = append(events, e) }),
			})
			for i := range 10 {
				allow(t, l, id(i), limiter.PerHour(1), 1)
			}
			require.Empty(t, events)
			for i := range 10 {
				allow(t, l, id(10+i), limiter.PerHour(1), 1)
			}
			require.Len(t, events, 1, "overflow begins")
			require.Equal(t, limiter.EventMemory, events[0].Kind)
			require.Equal(t, "store", events[0].Name)
			require.EqualValues(t, 10, events[0].Keys)
			require.EqualValues(t, 1, events[0].Overflow)
			time.Sleep(2 * memory.PassTime)
			allow(t, l, id(0), limiter.PerHour(1), 1)
			require.Len(t, events, 2, "a pass")
			require.EqualValues(t, 10, events[1].Overflow)
		},
		"instants of callers": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			limit := limiter.PerSecond(1)
			try := func(at time.Time) bool {
				ok, err := l.AllowAll(ctx, at, []limiter.Take{{Key: id(0), Limit: limit, N: 1}})
				require.NoError(t, err)
				return ok
			}
			for _, absurd := range []time.Time{time.Unix(1<<60, 0), time.Unix(-1<<60, 0), time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64), {}} {
				require.NoError(t, l.Reset(ctx, id(0)))
				require.True(t, try(absurd), absurd)
				require.False(t, try(absurd), absurd)
			}
			verify(t, l)
			time.Sleep(2 * memory.PassTime)
			traffic(t, l, 2*memory.PassTime)
			verify(t, l)
		},
	})
}
