package adaptive_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// Faults that other adaptive limiters have had in the field, by their numbers in the collection of cases.

// ADP-01: latency ten times what it was takes a limit to its floor, and not below.
func TestFloorAndCap(t *testing.T) {
	for name, law := range map[string]adaptive.MakeLaw{"hybrid": adaptive.Hybrid, "aimd": adaptive.AIMD, "bbr": adaptive.BBR} {
		t.Run("ADP-01 "+name, func(t *testing.T) {
			c, err := adaptive.NewManual(adaptive.Config{Law: law, Min: 3, Max: 40, Fixed: 20, RTT: 100 * ms, CPUSource: func() (float64, bool) { return 0.95, true }}, nil)
			require.NoError(t, err)
			at := epoch
			for second := range 120 {
				rtt := 20 * ms
				if second > 10 && second < 60 {
					rtt = 200 * ms
				}
				var began []time.Time
				for range 50 {
					if _, _, ok := c.Acquire(at, 0); ok {
						began = append(began, at)
					}
				}
				for k, b := range began {
					result := adaptive.Succeeded
					if k%3 == 0 && second > 10 && second < 60 {
						result = adaptive.Failed
					}
					c.Release(b.Add(rtt), b, result)
				}
				at = at.Add(time.Second)
				c.Advance(at)
				require.GreaterOrEqual(t, c.Bound(), 3)
				require.LessOrEqual(t, c.Bound(), 40)
			}
			require.Zero(t, c.InFlight())
		})
	}
}

func TestFieldFaults(t *testing.T) {
	t.Run("ADP-03 no bound of nothing, and none that is no number", func(t *testing.T) {
		for _, limit := range []float64{0, -1, 0.5, math.NaN(), math.Inf(1)} {
			_, err := adaptive.New(adaptive.Config{Max: limit})
			require.ErrorIs(t, err, limiter.ErrInvalid)
		}
	})
	t.Run("ADP-07 half a request is not shed at a trivial load", func(t *testing.T) {
		next, _ := adaptive.BBR(thresholds).Update(100, window(2, 5*ms), load(0.9))
		require.GreaterOrEqual(t, next, 2.0)
	})
	t.Run("ADP-08 the load is that of the quota", func(t *testing.T) {
		p := newPlay()
		p.u.Cores = 0.13
		for range 20 {
			p.u.Busy += 30 * ms
			p.at = p.at.Add(time.Second)
			p.s.Sample(p.at)
		}
		require.InDelta(t, 0.03/0.13, p.s.Read(p.at).Value, 0.01)
		p.ok = false
		_, err := adaptive.New(adaptive.Config{Max: 10, CPUQuota: 0.13})
		require.NoError(t, err, "where it cannot be read it can be told")
	})
	t.Run("ADP-09 a quarter more is noise", func(t *testing.T) {
		l := adaptive.Hybrid(thresholds)
		for range 10 {
			l.Update(100, window(100, 20*ms), load(0.7))
		}
		next, why := l.Update(100, window(100, 25*ms), load(0.7))
		require.GreaterOrEqual(t, next, 100.0)
		require.Equal(t, adaptive.ReasonGrow, why)
	})
	t.Run("ADP-10 a place comes back whatever refuses further in", func(t *testing.T) {
		c, err := adaptive.New(adaptive.Config{Max: 10, Fixed: 10})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		breaker := errors.New("the breaker is open")
		for k := range 30 {
			func() {
				defer func() { _ = recover() }()
				require.ErrorIs(t, c.Do(0, func() error {
					if k%3 == 0 {
						panic("boom")
					}
					return breaker
				}), breaker)
			}()
		}
		require.Zero(t, c.InFlight())
	})
}
