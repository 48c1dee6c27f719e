package probe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/benchmarks/internal/probe"
)

func TestHist(t *testing.T) {
	var h probe.Hist
	require.Zero(t, h.Max())
	for i := range 10_000 {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	require.Equal(t, 9_999*time.Microsecond, h.Max())
	for _, q := range []float64{0.001, 0.5, 0.9, 0.999} {
		require.InEpsilon(t, q*float64(10_000*time.Microsecond), float64(h.Quantile(q)), 0.04, "quantile %v", q)
	}
	require.InEpsilon(t, 5_000, float64(h.Over(5*time.Millisecond)), 0.04)
	require.Zero(t, h.Over(time.Second))

	var small probe.Hist // below 32 ns each value has a bucket of its own
	for i := range 32 {
		small.Add(time.Duration(i))
	}
	require.Equal(t, time.Duration(16), small.Quantile(0.5))
	require.Equal(t, uint64(2), small.Over(30))

	small.Merge(&h)
	require.Equal(t, uint64(10_032), small.Count())
	require.Equal(t, h.Max(), small.Max())
	require.InEpsilon(t, float64(h.Quantile(0.5)), float64(small.Quantile(0.5)), 0.04)
}
