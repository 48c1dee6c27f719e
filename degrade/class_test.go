package degrade_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
)

func TestClassString(t *testing.T) {
	require.Equal(t, "[sheddable sheddable_plus critical critical_plus Class(4)]",
		fmt.Sprint([]degrade.Class{degrade.Sheddable, degrade.SheddablePlus, degrade.Critical, degrade.CriticalPlus, 4}))
	require.Equal(t, degrade.Sheddable, *new(degrade.Class), "who is in no table gets no precedence")
}

// The reserves as numbers, for the default.
func TestShedReserve(t *testing.T) {
	for level, want := range map[int]float64{0: 0.7984, 124: 0.6, 125: 0.5984, 249: 0.4, 250: 0.3984, 374: 0.2, 375: 0, 499: 0} {
		require.InDelta(t, want, degrade.ShedReserve(level, 0.2), 1e-12, "level %d", level)
	}
}

// Higher levels never leave more, the highest class leaves nothing, all others leave what is kept, every class has a share
// that those below it cannot use, and the lowest level has the uppermost part.
func TestShedReserveProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.OneOf(rapid.Float64Range(1e-9, 1-1e-9), rapid.SampledFrom([]float64{0.2, 0.5, math.SmallestNonzeroFloat64, 1 - 1e-15})).Draw(t, "keep")
		const n = degrade.PlacesPerClass
		last := 1.0
		for level := range degrade.ShedLevels {
			x := degrade.ShedReserve(level, keep)
			require.LessOrEqual(t, x, last)
			last = x
			if level >= 3*n {
				require.Zero(t, x)
			} else {
				require.GreaterOrEqual(t, x, keep)
				require.LessOrEqual(t, x, 1.0)
			}
		}
		own := (1 - keep) / 4
		require.InDelta(t, keep, degrade.ShedReserve(3*n-1, keep), 1e-12)
		for class := 1; class < 3; class++ {
			require.InDelta(t, own, degrade.ShedReserve(class*n-1, keep)-degrade.ShedReserve((class+1)*n-1, keep), 1e-12)
		}
		require.GreaterOrEqual(t, 1-degrade.ShedReserve(0, keep), own-1e-12)
	})
}

// reserveUnits is a share of a quota as a guard keeps it: in whole units, rounded up.
func reserveUnits(share float64, quota int) int { return int(math.Ceil(share*float64(quota) - 1e-9)) }

// Whatever is asked in whatever order, classes up to one cannot take what is reserved to those above.
func TestShedGuarantees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quota := rapid.IntRange(20, 3000).Draw(t, "quota")
		remaining, taken := quota, [4]int{}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			level := rapid.IntRange(0, degrade.ShedLevels-1).Draw(t, "level")
			for range rapid.IntRange(1, quota).Draw(t, "n") {
				if remaining < 1 || remaining-1 < reserveUnits(degrade.ShedReserve(level, 0.2), quota) {
					break
				}
				remaining--
				taken[level/degrade.PlacesPerClass]++
			}
		}
		below := 0
		for class, n := range taken[:3] {
			below += n
			require.LessOrEqual(t, below, quota-reserveUnits(0.6-0.2*float64(class), quota), "class %d", class)
		}
	})
}

// From five times the cost on, everybody is served while nobody else asks.
func TestShedOfASmallQuota(t *testing.T) {
	for cost := range 20 {
		quota := 5 * (cost + 1)
		require.GreaterOrEqual(t, quota-(cost+1), reserveUnits(degrade.ShedReserve(0, 0.2), quota), "cost %d", cost+1)
	}
	require.Less(t, 4-1, reserveUnits(degrade.ShedReserve(0, 0.2), 4), "as documented")
}
