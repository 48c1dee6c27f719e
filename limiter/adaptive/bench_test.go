package adaptive_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

func benchmark(b *testing.B) *adaptive.Controller {
	c, err := adaptive.New(adaptive.Config{Min: 5, Max: 10000, Fixed: 10000})
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	b.ReportAllocs()
	return c
}

func BenchmarkAcquireRelease(b *testing.B) {
	c := benchmark(b)
	now := time.Now()
	for b.Loop() {
		c.Acquire(now, 0)
		c.Release(now.Add(20*ms), now, adaptive.Succeeded)
	}
}

func BenchmarkAcquireReleaseParallel(b *testing.B) {
	c := benchmark(b)
	now := time.Now()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			c.Acquire(now, 0)
			c.Release(now.Add(20*ms), now, adaptive.Succeeded)
		}
	})
}

func BenchmarkRefuse(b *testing.B) {
	c := benchmark(b)
	now := time.Now()
	for b.Loop() {
		c.Acquire(now, 1)
	}
}

// What is left of the others when both clock readings of a request are counted.
func BenchmarkTwoClockReadings(b *testing.B) {
	for b.Loop() {
		now := time.Now()
		_ = time.Since(now)
	}
}

func BenchmarkStep(b *testing.B) {
	c, err := adaptive.NewManual(adaptive.Config{Max: 100, CPUSource: func() (float64, bool) { return 0.5, true }}, nil)
	require.NoError(b, err)
	b.ReportAllocs()
	for at := epoch; b.Loop(); at = at.Add(time.Second) {
		c.Advance(at)
	}
}
