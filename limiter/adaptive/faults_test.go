package adaptive_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// Faults that adaptive limits have had in the field, each with where it was reported.
func TestFieldFaults(t *testing.T) {
	t.Run("envoyproxy/envoy 9947: the limit falls below its floor", func(t *testing.T) {
		for name, law := range laws {
			s := newStage(t, adaptive.Config{Law: law, Min: 3, Max: 50, Fixed: 10, RTT: 40 * ms})
			s.load = 1
			for k := range 60 {
				s.c.Acquire(s.now, 0)
				began := s.now
				s.pass(10 * ms)
				s.traffic(40, adaptive.Result(k%2))
				s.pass(590 * ms) // ten times as slow, and half of it fails
				s.c.Release(s.now, began, adaptive.Succeeded)
				require.GreaterOrEqual(t, s.c.State().Limit, 3.0, name)
				require.LessOrEqual(t, s.c.State().Limit, 50.0, name)
			}
		}
	})
	t.Run("llm-simple-router 178: a limit of 0 leads to 0/0 and stays", func(t *testing.T) {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
			for _, c := range []adaptive.Config{{Max: v}, {Max: 100, Min: v}, {Max: 100, Fixed: v}} {
				_, err := adaptive.New(c)
				require.ErrorIs(t, err, limiter.ErrInvalid)
			}
		}
		_, err := adaptive.New(adaptive.Config{})
		require.ErrorContains(t, err, "Max")
	})
	t.Run("alibaba/Sentinel 3212: 100 a second at 5 ms are half a request, and two are congestion", func(t *testing.T) {
		s := newStage(t, adaptive.Config{Law: adaptive.BBR, Min: 1, Max: 100, Fixed: 50})
		s.load = 0.95
		refused := 0
		for range 30 {
			for range 50 {
				at := s.now
				_, _, first := s.c.Acquire(at, 0)
				_, _, second := s.c.Acquire(at, 0)
				s.pass(5 * ms)
				for _, ok := range []bool{first, second} {
					if ok {
						s.c.Release(s.now, at, adaptive.Succeeded)
					} else {
						refused++
					}
				}
				s.pass(15 * ms)
			}
		}
		require.Zero(t, refused)
	})
	t.Run("envoyproxy/envoy 9038: a cut on noise", func(t *testing.T) {
		l := adaptive.Hybrid(thresholds)
		cur := 100.0
		for k := range 100 {
			next, _ := l.Update(cur, window(50, []time.Duration{20 * ms, 25 * ms, 22 * ms}[k%3]), load(0.7))
			require.GreaterOrEqual(t, next, cur)
			cur = next
		}
	})
	t.Run("exaring/hoglet 35: places that leak when something inside refuses or panics", func(t *testing.T) {
		c, err := adaptive.NewManual(adaptive.Config{Max: 10, Fixed: 10}, nil)
		require.NoError(t, err)
		for k := range 100 {
			func() {
				defer func() { _ = recover() }()
				err := c.Do(0, func() error {
					if k%2 == 0 {
						panic(errBoom)
					}
					return errBoom
				})
				require.ErrorIs(t, err, errBoom)
			}()
		}
		require.Zero(t, c.InFlight())
	})
	t.Run("go-kratos/aegis 18: a sandbox that hides its quota", func(t *testing.T) {
		u, ok := adaptive.Measure("testdata/cgroups/none", 0.5)
		require.True(t, ok)
		require.Equal(t, 0.5, u.Cores)
	})
}
