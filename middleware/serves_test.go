package middleware

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// buckets counts token buckets alone.
type buckets struct{ *limitertest.Model }

func (buckets) Serves(l limiter.Limit) error {
	if l.Algorithm != limiter.TokenBucket {
		return fmt.Errorf("%w: no %v", limiter.ErrInvalid, l.Algorithm)
	}
	return nil
}

// A limit that its limiter cannot count by is found when the guard is made, not by the first request.
func TestLimitersThatServeSomeLimits(t *testing.T) {
	_, err := New(Config{Limiter: buckets{limitertest.NewModel()}, Policies: []Policy{
		{Name: "fine", Key: keyfunc.Global(), Limit: limiter.PerSecond(10)},
		{Name: "wrong", Key: keyfunc.Global(), Limit: limiter.PerSecond(10).With(limiter.SlidingLog)},
	}})
	require.ErrorContains(t, err, `policy "wrong"`)
	require.ErrorContains(t, err, "sliding_log")
	require.NotContains(t, err.Error(), `"fine"`)
}
