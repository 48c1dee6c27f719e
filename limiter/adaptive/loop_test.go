package adaptive_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

func plantConfig(law adaptive.MakeLaw) adaptive.Config {
	return adaptive.Config{Name: "plant", Law: law, Min: 5, Max: 500, Fixed: 100, RTT: time.Second}
}

// A.3 of the closed loop: what each law makes of the same traffic, and how it must do.
func TestClosedLoop(t *testing.T) {
	classicRate := func() plantGuard { return newClassic(true, 2000, 50, 2000) }
	classicInFlight := func() plantGuard { return newClassic(false, 100, 4, 500) }
	run := func(g plantGuard) (out []plantStats) {
		p := newPlant(g)
		for _, phase := range plantPhases {
			out = append(out, p.run(phase))
		}
		return out
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-30s", "")
	for _, phase := range plantPhases {
		fmt.Fprintf(&table, " | %-34s", phase.name)
	}
	fmt.Fprintf(&table, "\n%-30s", "")
	for range plantPhases {
		fmt.Fprintf(&table, " | %8s %8s %8s %7s", "good/s", "settled", "late/s", "refused")
	}
	results := map[string][]plantStats{}
	for _, row := range []struct {
		name string
		make func() plantGuard
		slow bool // not under the race detector, which sees nothing in one goroutine and takes its time
	}{
		{"none", func() plantGuard { return unguarded{} }, true},
		{"fixed 900/s", func() plantGuard { return &fixedRate{rate: 900} }, true},
		{"fixed 100 in flight", func() plantGuard { return &fixedInFlight{bound: 100} }, true},
		{"fixed 500 in flight", func() plantGuard { return &fixedInFlight{bound: 500} }, true},
		{"classic on rate from 2000/s", classicRate, true},
		{"classic on in flight from 100", classicInFlight, true},
		{"hybrid", func() plantGuard { return newControlled(plantConfig(adaptive.Hybrid)) }, false},
		{"aimd", func() plantGuard { return newControlled(plantConfig(adaptive.AIMD)) }, true},
		{"bbr", func() plantGuard { return newControlled(plantConfig(adaptive.BBR)) }, true},
	} {
		if row.slow && raceEnabled {
			continue
		}
		g := row.make()
		stats := run(g)
		results[row.name] = stats
		fmt.Fprintf(&table, "\n%-30s", row.name)
		for k, s := range stats {
			fmt.Fprintf(&table, " | %8.0f %8.0f %8.1f %6.1f%%", s.goodput(plantPhases[k]), s.settledGoodput(plantPhases[k]),
				float64(s.late)/plantPhases[k].length.Seconds(), 100*s.rejectedRatio())
		}
		if c, ok := g.(*controlled); ok {
			require.LessOrEqual(t, c.highest, 0, "%s: in flight above the bound", row.name)
			s := c.c.State()
			fmt.Fprintf(&table, " | limit %.1f %s %s", s.Limit, s.Reason, s.Fallback)
		}
	}
	t.Log(table.String())

	// What a law has to reach, phase by phase: see reaches.
	for _, law := range []string{"hybrid", "aimd"} {
		if results[law] == nil {
			require.True(t, raceEnabled)
			continue
		}
		for k, ok := range reaches(results[law]) {
			require.True(t, ok, "%s: %s", law, plantPhases[k].name)
		}
	}
	if raceEnabled {
		return
	}
	for _, law := range []string{"classic on rate from 2000/s", "classic on in flight from 100", "none"} {
		missed := 0
		for _, ok := range reaches(results[law]) {
			if !ok {
				missed++
			}
		}
		require.GreaterOrEqual(t, missed, 2, "%s does as well: this plant cannot tell", law)
	}
	for k, s := range results["bbr"] {
		for _, fixed := range []string{"fixed 900/s", "fixed 100 in flight", "fixed 500 in flight"} {
			require.GreaterOrEqual(t, s.good, results[fixed][k].good*97/100, "bbr against %s: %s", fixed, plantPhases[k].name)
		}
	}
}

// reaches says for each phase whether a law did well enough: 75 % of the capacity and nothing late after 20 s; a tenth
// refused at most; 80 % of half the capacity; 80 % of the load once a minute is over.
func reaches(s []plantStats) [4]bool {
	return [4]bool{
		s[0].goodput(plantPhases[0]) >= 750 && s[0].settledGoodput(plantPhases[0]) >= 750 && s[0].lateSettled == 0,
		s[1].rejectedRatio() <= 0.1,
		s[2].goodput(plantPhases[2]) >= 400,
		s[3].settledGoodput(plantPhases[3]) >= 720,
	}
}

// A step from a fifth of the capacity to twice of it: the limit settles, and does not swing.
func TestStepResponse(t *testing.T) {
	for name, law := range laws {
		if raceEnabled && name != "hybrid" {
			continue
		}
		c := plantConfig(law)
		c.Fixed = 300 // far too much
		g := newControlled(c)
		p := newPlant(g)
		p.run(plantPhase{length: 30 * time.Second, rate: 200, cores: 8, wait: 12 * time.Millisecond})
		before := g.c.State().Limit
		g.states = nil
		stats := p.run(plantPhase{length: 120 * time.Second, rate: 2000, cores: 8, wait: 12 * time.Millisecond, settled: 60 * time.Second})
		var limits []float64
		for _, s := range g.states {
			require.Empty(t, s.Fallback, name)
			limits = append(limits, s.Limit)
		}
		require.Len(t, limits, 120)
		tail := limits[100:]
		low, high, sum := slices.Min(tail), slices.Max(tail), 0.0
		for _, l := range tail {
			sum += l
		}
		mean := sum / float64(len(tail))
		settling := len(limits)
		for settling > 0 && math.Abs(limits[settling-1]-mean) <= 0.3*mean {
			settling--
		}
		least := slices.Min(limits)
		t.Logf("%-10s from %.0f to %.1f (%.1f to %.1f), settled after %d s, undershoot %.0f %%, good %.0f/s, late %d",
			name, before, mean, low, high, settling, 100*(1-least/mean),
			stats.settledGoodput(plantPhase{length: 120 * time.Second, settled: 60 * time.Second}), stats.lateSettled)
		require.LessOrEqual(t, (high-low)/mean, 0.3, "%s swings", name)
		most, deepest := 20, 0.5
		switch name {
		case "aimd":
			most = 45 // a cut of a fifth in three windows
		case "bbr":
			most, deepest = 62, 0.55 // it is halved for a window then, to see how long requests take without a queue
		}
		require.LessOrEqual(t, settling, most, "%s is slow", name)
		require.Less(t, 1-least/mean, deepest, "%s falls too far", name)
		require.Zero(t, stats.lateSettled, name)
	}
}

// An overload of twenty minutes, which is longer than any law remembers what was before it: no limit drifts.
func TestLongOverload(t *testing.T) {
	for name, law := range laws {
		if raceEnabled {
			continue
		}
		g := newControlled(plantConfig(law))
		p := newPlant(g)
		for minutes := range 5 {
			stats := p.run(plantPhase{length: 4 * time.Minute, rate: 2000, cores: 8, wait: 12 * time.Millisecond, settled: time.Minute})
			require.Zero(t, stats.lateSettled, "%s after %d minutes", name, 4*minutes)
			require.Less(t, g.c.State().Limit, 100.0, name)
			require.GreaterOrEqual(t, stats.goodput(plantPhase{length: 4 * time.Minute}), 750.0, name)
		}
	}
}

// The same constants do for services of other sizes: most of what the processors can do is done in time, the governor has
// no reason to step in, and nothing is refused far below the capacity.
func TestServicesOfOtherSizes(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine: the race detector sees nothing here")
	}
	for name, law := range laws {
		for _, phase := range []plantPhase{
			{cores: 1, rate: 60, wait: 12 * time.Millisecond},
			{cores: 1, rate: 250},
			{cores: 2, rate: 500, wait: time.Millisecond},
			{cores: 32, rate: 1500, wait: 50 * time.Millisecond},
			{cores: 32, rate: 8000, wait: 50 * time.Millisecond},
		} {
			phase.length, phase.settled = 60*time.Second, 20*time.Second
			g := newControlled(plantConfig(law))
			p := newPlant(g)
			stats := p.run(phase)
			capacity := float64(phase.cores) / plantWork.Seconds()
			require.GreaterOrEqual(t, stats.settledGoodput(phase), 0.7*min(phase.rate*0.95, capacity), "%s: %+v", name, phase)
			if phase.rate < 0.6*capacity {
				require.Less(t, stats.rejectedRatio(), 0.01, "%s: %+v", name, phase)
			}
			for _, s := range g.states {
				require.Empty(t, s.Fallback, "%s: %+v", name, phase)
			}
		}
	}
}
