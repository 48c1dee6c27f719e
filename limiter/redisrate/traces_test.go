package redisrate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// follows reports whether redisrate has all that a trace uses: one limit in range for each key, no refunds, and a
// clock that never goes back: where it does, redis_rate waits until it has caught up.
func follows(trace limitertest.Trace) bool {
	limits := map[string]limiter.Limit{}
	at := int64(0)
	for _, s := range trace.Steps {
		if s.Op == limitertest.OpRefund || s.Op == limitertest.OpAllowAll || s.At < at {
			return false
		}
		if l, ok := limits[s.Key]; ok && l != s.Limit {
			return false
		}
		limits[s.Key], at = s.Limit, s.At
		if _, err := newBucket(s.Limit, time.Now()); err != nil {
			return false
		}
	}
	return true
}

// Every trace in range is answered as the exact bucket answers it: waits are at most two microseconds longer, and what
// rounding the interval up costs for the units of the trace.
func TestTraces(t *testing.T) {
	l, ctx := newInstants(t), context.Background()
	followed := 0
	for _, trace := range limitertest.Traces() {
		if !follows(trace) {
			continue
		}
		followed++
		t.Run(trace.ID, func(t *testing.T) {
			units := 0
			for i, s := range trace.Steps {
				l.clock.set(time.Unix(0, s.At))
				key, n := limiter.Key{Space: trace.ID, ID: s.Key}, s.N
				if s.Op == limitertest.OpReset {
					require.NoError(t, l.Reset(ctx, key))
				}
				if s.Op != limitertest.OpAllow {
					n = 0
				}
				d, err := l.Allow(ctx, key, s.Limit, n)
				require.NoError(t, err)
				if s.Want.Allowed && !d.Allowed {
					late := 2*time.Microsecond + time.Duration(120*units)
					require.LessOrEqual(t, d.RetryAfter, late, "step %d is refused: %+v", i, d)
					return // the states differ from here on
				}
				require.Equal(t, s.Want.Allowed, d.Allowed, "step %d", i)
				if d.Allowed {
					units += n
				}
				require.GreaterOrEqual(t, s.Want.Remaining, d.Remaining, "step %d", i)
				require.LessOrEqual(t, s.Want.Remaining, d.Remaining+1, "step %d", i)
				near(t, s.Want.RetryAfter, d.RetryAfter, units+n, "step %d: RetryAfter", i)
				near(t, s.Want.ResetAfter, d.ResetAfter, units, "step %d: ResetAfter", i)
			}
		})
	}
	require.Greater(t, followed, 15)
}

func near(t *testing.T, want, got time.Duration, units int, what string, args ...any) {
	t.Helper()
	args = append([]any{what}, args...)
	if want == limiter.Never {
		require.Equal(t, want, got, args...)
		return
	}
	require.GreaterOrEqual(t, got, want, args...)
	require.LessOrEqual(t, got, want+2*time.Microsecond+time.Duration(120*units), args...)
}
