package leased

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// Faults that other limiters for clusters have had in the field, by their numbers in the collection of cases.
func TestFieldFaults(t *testing.T) {
	two := func(t *testing.T) [2]*Limiter {
		s := &modelStore{delay: time.Millisecond}
		return [2]*Limiter{onModel(t, s, Config{}), onModel(t, s, Config{})}
	}
	t.Run("QTA-01 1 in 30 s is 1, whoever is asked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes, passed := two(t), 0
			for k := range 30 {
				if allow(t, nodes[k%2], limiter.Per(1, 30*time.Second), 1).Allowed {
					passed++
				}
			}
			require.Equal(t, 1, passed)
		})
	})
	t.Run("QTA-02 looking moves nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes, limit := two(t), limiter.PerMinute(6)
			for range 6 {
				require.True(t, allow(t, nodes[0], limit, 1).Allowed)
			}
			for range 60 {
				time.Sleep(time.Second)
				for _, l := range nodes {
					allow(t, l, limit, 0)
				}
			}
			passed := 0
			for k := range 12 {
				if allow(t, nodes[k%2], limit, 1).Allowed {
					passed++
				}
			}
			require.Equal(t, 6, passed, "all is back after a minute of looks")
		})
	})
	t.Run("QTA-03 the second request is decided like any other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes := two(t)
			for _, l := range nodes {
				require.True(t, allow(t, l, limiter.PerMinute(100), 1).Allowed) // which fails on an error
				require.True(t, allow(t, l, limiter.PerMinute(100), 1).Allowed)
			}
		})
	})
	t.Run("QTA-05 the real timer brings back what is not used", TestIdleLeasesAreReturnedByTheTimer)
}
