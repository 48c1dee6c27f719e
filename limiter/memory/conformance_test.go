package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/limiter/memory"
)

func newLimiter(t testing.TB, c memory.Config) *memory.Limiter {
	l, err := memory.New(c)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func TestConformance(t *testing.T) {
	limitertest.Run(t, func(t *testing.T) limiter.Limiter { return newLimiter(t, memory.Config{}) }, limitertest.Exact)
}

// Random traces over all algorithms, with groups, refunds and live changes, are answered as the pure steps answer them.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		limitertest.Differential(t, limitertest.NewModel(), newLimiter(t, memory.Config{}), limitertest.Exact, seed, 400)
	}
}
