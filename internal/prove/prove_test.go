package prove_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

// sample are the cells of ordinary tests: as many kinds of faults as fit into half a minute.
var sample = map[string][]string{
	"Redis killed, its data lost":        {byFallback},
	"cut in the middle of each reply":    {central},
	"Redis' clock 1 h ahead, then right": {leases},
}

// everywhere are the cells in which each adapter has a guard of its own, all three behind one limit.
var everywhere = map[string][]string{
	"Redis killed, its data lost":        {byFallback},
	"Redis paused":                       {central},
	"fail-over by Sentinel":              {leases},
	"Redis' clock 1 h ahead, then right": {central},
	"scripts flushed":                    {byFallback},
}

// Under every fault, in every mode: no more passes than docs/guarantees.md promises, nobody is refused that it says passes,
// nothing that was taken is forgotten, decisions come back, and nothing is left behind.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	atOnce(t)
	var results []result
	next := 0
	for _, f := range faults {
		for _, mode := range modes {
			guards := adapters
			if !slices.Contains(everywhere[f.name], mode) {
				one := adapters[next%len(adapters)]
				next++
				guards = []string{one, one}
			}
			if !*whole && !slices.Contains(sample[f.name], mode) {
				continue
			}
			t.Run(f.name+"/"+mode, func(t *testing.T) {
				atOnce(t)
				c := &cell{t: t, fault: f, mode: mode, adapters: guards}
				r := c.run()
				t.Logf("%s; the longest answer took %v, a guard was starved for %v; decisions were back after %v",
					told(r.statuses), r.longest, r.starved, r.back)
				for _, what := range c.broken {
					t.Error(what)
				}
				if *whole {
					results = append(results, r)
				}
			})
		}
	}
	if *whole && !t.Failed() && len(results) == len(faults)*len(modes) {
		require.NoError(t, writeTable("../../docs/guarantees.md", section(results, versionOf(t, redistest.Shared(t)))))
	}
}

// atOnce: cells wait most of the time. Each is alone where its numbers are told.
func atOnce(t *testing.T) {
	if !*whole {
		t.Parallel()
	}
}

// A fleet whose guards count each by itself is found out: what is measured here can fail.
func TestTheMeterFindsWhatIsNotPromised(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	atOnce(t)
	c := &cell{t: t, fault: fault{start: plain(), begin: func(*cell) {}, long: brief}, mode: alone, adapters: []string{"net/http", "gin"}}
	c.run()
	require.NotEmpty(t, c.broken)
	found := func(what string) bool {
		return slices.ContainsFunc(c.broken, func(b string) bool { return len(b) > len(what) && b[:len(what)] == what })
	}
	for _, name := range []string{busy, early, late, both, drain} {
		require.True(t, found(name+":"), "%s in %q", name, c.broken)
	}
}
