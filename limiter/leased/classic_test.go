package leased

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// classic is the design that is found most often: every interval each node adds what it consumed to one hash, reads the hash, and
// may consume an equal part of the rest in the next. It is repaired so far that the hash starts anew each second; as written it
// would stop for good after as many takes as a second allows.
type classic struct {
	*world
	window   int64
	consumed map[int]int64 // the hash
	quota    []float64
	spent    []int64
	served   []int64
	asked    []int64
	commands int64
}

func runClassic(t testing.TB, n int, l limiter.Limit, of func(n, k int, now int64) float64, d time.Duration) (r result) {
	c := &classic{
		world: newWorld(t, uint64(n), 0, l, sync100, network{}), consumed: map[int]int64{},
		quota: make([]float64, n), spent: make([]int64, n), served: make([]int64, n), asked: make([]int64, n),
	}
	for k := range n {
		c.after(c.rng.Int64N(int64(sync100)), func() { c.syncNode(k) })
		most := 0.0
		for at := time.Duration(0); at < d; at += time.Second {
			most = max(most, of(n, k, int64(at)))
		}
		most *= float64(l.Rate)
		var come func()
		come = func() {
			if c.rng.Float64()*most < of(n, k, c.now)*float64(l.Rate) {
				c.take(k)
			}
			c.after(int64(c.rng.ExpFloat64()*1e9/most), come)
		}
		c.after(0, come)
	}
	c.runUntil(d)
	r.over, r.use = c.meter.worst, float64(c.went)/float64(c.passed)
	r.perThousand = 1000 * float64(c.commands) / float64(c.came)
	return r
}

func (c *classic) take(k int) {
	c.came++
	c.asked[k]++
	c.ideal.to(c.now)
	if c.ideal.level >= 1-rounding {
		c.ideal.level--
		c.passed++
	}
	if c.quota[k] >= 1 {
		c.quota[k]--
		c.spent[k]++
		c.served[k]++
		c.went++
		c.meter.admit(c.now, 1)
	}
}

func (c *classic) syncNode(k int) {
	if w := c.now / int64(time.Second); w != c.window {
		c.window, c.consumed = w, map[int]int64{}
	}
	c.commands += 2
	c.consumed[k] += c.spent[k]
	c.spent[k] = 0
	rest := float64(c.limit.Rate)
	for _, v := range c.consumed {
		rest -= float64(v)
	}
	c.quota[k] = max(0, rest/float64(len(c.consumed)))
	c.after(int64(c.sync), func() { c.syncNode(k) })
}

// The classic design lets through what it should not, or holds back what it should let through; leases do neither, with fewer
// calls. That is what they are for.
func TestTheClassicDesignLoses(t *testing.T) {
	l, d := limiter.PerSecond(2000), 8*time.Second
	for _, c := range []struct {
		n     int
		load  load
		over  float64 // by at least so much of a burst
		below float64 // or its use is below
	}{
		{2, loads[2], 1, 0},
		{10, loads[2], 2, 0},
		{10, loads[3], 0, 0.9},
		{50, loads[4], 0, 0.6},
	} {
		t.Run(fmt.Sprintf("%d nodes, %s", c.n, c.load.name), func(t *testing.T) {
			was := runClassic(t, c.n, l, c.load.of, d)
			is := simulate(t, uint64(c.n), c.n, l, sync100, network{}, c.load.of, d)
			t.Logf("classic: over %.0f %% of the burst, use %.0f %%, %.0f calls per 1000", was.over/20, 100*was.use, was.perThousand)
			t.Logf("leased: %v", is)
			if c.over > 0 {
				require.Greater(t, was.over, c.over*2000)
			} else {
				require.Less(t, was.use, c.below)
			}
			require.LessOrEqual(t, is.over, rounding)
			require.GreaterOrEqual(t, is.use, 0.95)
			require.Less(t, is.perThousand, was.perThousand)
		})
	}
	small := limiter.PerSecond(100)
	require.Less(t, runClassic(t, 200, small, even(2), d).use, 0.3, "less than one token a node: it admits next to nothing")
}
