package redislimit_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// The few entries of a log that the script sends give the numbers of the whole: the model has it all. The traces have takes
// of several units, lowered limits, groups and shadows.
func TestAbridgedLogs(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		limitertest.Differential(t, limitertest.NewModel(), open(t, redislimit.Config{CallerClock: true, DenyCache: -1}),
			limitertest.Profile{Algorithms: []limiter.Algorithm{limiter.SlidingLog}, Tick: time.Microsecond, ForeignClock: true},
			1000+seed, 300)
	}
}

// The commands of a take grow with the logarithm of a log's length.
func TestCostOfALongLog(t *testing.T) {
	cost := map[int]int{}
	for _, size := range []int{10, 50_000} {
		s, limit := newScene(t, redislimit.Config{}), limiter.Per(size, 100_000*time.Second).With(limiter.SlidingLog)
		key := s.v.key(who, limit.Algorithm)
		require.True(t, s.take(0, limit, 1).Allowed)
		// The other entries are written as the script writes them, 100 ms apart.
		stored, err := s.v.Get(t.Context(), key).Bytes()
		require.NoError(t, err)
		head := stored[:35]
		for k := range size {
			head = instants(head, float64(midnight.UnixMicro()+int64(k)*100_000))
			n := k + 1
			head = append(head, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
		}
		end := time.Duration(size) * 100 * ms
		copy(head[11:], instants(nil, float64(midnight.Add(end-100*ms).UnixMicro())))
		require.NoError(t, s.v.Set(t.Context(), key, head, 0).Err())
		s.v.persist(key) // the refusal gives it its end
		s.v.commands()
		d := s.take(end, limit, size/2)
		require.False(t, d.Allowed)
		require.Equal(t, 100_000*sec-end+time.Duration(size/2-1)*100*ms, d.RetryAfter)
		require.Equal(t, size/2, s.take(100_000*sec+time.Duration(size/2)*100*ms-1*ms, limit, 0).Remaining)
		require.True(t, s.take(100_000*sec+time.Duration(size/2)*100*ms-1*ms, limit, size/4).Allowed)
		require.NoError(t, s.l.Refund(t.Context(), time.Time{}, &limiter.Take{
			Key: who, Limit: limit, N: 1, Decision: limiter.Decision{Mark: midnight.Add(end - 200*ms).UnixNano()},
		}))
		cost[size] = len(s.v.commands())
	}
	require.LessOrEqual(t, cost[50_000], 5*60+50)
	require.Less(t, cost[10], cost[50_000])
	t.Log(cost)
}

// A log holds at most the entries that count and as many that are over, and 64 more.
func TestMemoryOfALog(t *testing.T) {
	for _, rate := range []int{1, 40, 200} {
		s, limit := newScene(t, redislimit.Config{}), limiter.PerSecond(rate).With(limiter.SlidingLog)
		key, longest := s.v.key(who, limit.Algorithm), int64(0)
		for k := range 1200 {
			s.take(time.Duration(k)*sec/time.Duration(rate), limit, 1)
			if k%10 == 0 {
				longest = max(longest, s.v.StrLen(t.Context(), key).Val())
			}
		}
		require.LessOrEqual(t, longest, int64(35+12*(2*rate+66)), strconv.Itoa(rate))
	}
}
