package redisrate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/limiter/redisrate"
)

// patient is long enough for a thousand goroutines on a busy machine.
const patient = 30 * time.Second

func newLimiter(t testing.TB, c redisrate.Config) *redisrate.Limiter {
	t.Helper()
	l, err := redisrate.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestConformance(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	limitertest.Run(t, func(t *testing.T) limiter.Limiter {
		return newLimiter(t, redisrate.Config{Client: rdb, Prefix: redistest.Prefix(t), Timeout: patient})
	}, limitertest.Profile{
		Algorithms: []limiter.Algorithm{limiter.TokenBucket},
		NoBatch:    true, NoRefund: true, NoRelimit: true, ForeignClock: true,
		Tick: time.Microsecond, Late: 2 * time.Microsecond, Margin: 2 * time.Microsecond, FewerLeft: 1,
		Skip: map[string]string{
			"long-waits":     "its limit takes a billion years to refill: see TestRange",
			"extreme-limits": "most of its limits are out of range: see TestRange",
			"contention":     "its limit takes 300 years to refill: see TestContention",
		},
	})
}
