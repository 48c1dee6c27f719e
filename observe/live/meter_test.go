package live

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// passed is what passed at an instant.
type passed struct {
	at   time.Duration
	n    int
	seen time.Duration // when it is told
}

// overBy is the true overshoot: of all intervals that begin and end with something that passed.
func overBy(all []passed, l limiter.Limit) (most float64) {
	for i := range all {
		sum := 0
		for j := i; j < len(all); j++ {
			sum += all[j].n
			most = max(most, float64(sum)-float64(l.Quota())-float64(l.Rate)*float64(all[j].at-all[i].at)/float64(l.Period))
		}
	}
	return most
}

// measureAll shows a meter what passed, in the order it is told, with a step each second.
func measureAll(l limiter.Limit, all []passed) float64 {
	m := newMeter(1, l)
	told := slices.Clone(all)
	slices.SortStableFunc(told, func(a, b passed) int { return cmp.Compare(a.seen, b.seen) })
	next := time.Duration(0)
	for _, p := range told {
		for ; p.seen >= next; next += time.Second {
			m.step()
		}
		m.add(int64((time.Hour+p.at)/grain), p.n)
	}
	m.step()
	return m.step()
}

// The promise of a meter: never above the truth, and below it by at most what the rate brings in two grains.
func TestMeterIsNearTheTruthAndNeverAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limiter.PerSecond(rapid.IntRange(1, 300).Draw(t, "rate")).WithBurst(rapid.IntRange(1, 40).Draw(t, "burst"))
		all := drawPassed(t)
		truth, got := overBy(all, l), measureAll(l, all)
		if got > truth+1e-6 {
			t.Fatalf("measured %v, and the truth is %v", got, truth)
		}
		if slack := float64(l.Rate) * (2 * grain).Seconds(); got < truth-slack-1e-6*float64(len(all)*10) {
			t.Fatalf("measured %v, and the truth is %v, with a slack of %v", got, truth, slack)
		}
	})
}

// drawPassed draws what passed in some seconds, told up to 300 ms later and in any order.
func drawPassed(t *rapid.T) (all []passed) {
	at := time.Duration(0)
	for range rapid.IntRange(1, 120).Draw(t, "events") {
		at += time.Duration(rapid.SampledFrom([]int{0, 1, 50, 900, 9_000, 10_000, 45_000, 700_000}).Draw(t, "gap")) * time.Microsecond
		late := time.Duration(rapid.IntRange(0, 300).Draw(t, "late")) * time.Millisecond
		all = append(all, passed{at: at, n: rapid.IntRange(1, 9).Draw(t, "n"), seen: at + late})
	}
	return all
}

// What a limiter admits is never measured as too much, in whatever order it is told.
func TestMeterOfWhatIsAdmitted(t *testing.T) {
	for name, l := range map[string]limiter.Limit{
		"bucket": limiter.PerSecond(40).WithBurst(7), "window": limiter.PerSecond(30).With(limiter.FixedWindow),
		"slow": limiter.PerMinute(50), "sliding": limiter.PerSecond(20).With(limiter.SlidingWindow), "log": limiter.PerSecond(20).With(limiter.SlidingLog),
	} {
		t.Run(name, func(t *testing.T) {
			rule, err := limiter.NewRule(l)
			require.NoError(t, err)
			rapid.Check(t, func(t *rapid.T) {
				var state limiter.State
				var admitted []passed
				for _, p := range drawPassed(t) {
					var d limiter.Decision
					rule.Decide(&d, &state, limiter.Reading{Now: int64(time.Hour + p.at)}, p.n, 0, true)
					if d.Allowed {
						admitted = append(admitted, p)
					}
				}
				if over := measureAll(l, admitted); over > 1e-9 {
					t.Fatalf("%v too much, of %v", over, admitted)
				}
			})
		})
	}
}

// A window counts what passed in it, and no more.
func TestMeterOfWindows(t *testing.T) {
	l := limiter.PerSecond(5).With(limiter.FixedWindow)
	at := func(ms, n int) passed {
		d := time.Duration(ms) * time.Millisecond
		return passed{at: d, n: n, seen: d}
	}
	for name, c := range map[string]struct {
		all  []passed
		want float64
	}{
		"full":            {[]passed{at(10, 5), at(1010, 5)}, 0},
		"over the edge":   {[]passed{at(990, 5), at(1000, 5)}, 0},
		"too much":        {[]passed{at(10, 5), at(990, 3), at(1000, 5)}, 3},
		"most of windows": {[]passed{at(10, 7), at(1000, 6), at(3000, 1)}, 2},
	} {
		require.Equal(t, c.want, measureAll(l, c.all), name)
	}
}

// The sampler may come late, and clocks may jump: too little is measured then, and never too much.
func TestMeterLosesAndInventsNothing(t *testing.T) {
	l := limiter.PerSecond(100)
	m := newMeter(1, l)
	for g := range int64(2000) { // 20 s without a step, of exactly the rate
		m.add(360_000+g, 1)
	}
	require.Zero(t, m.step())
	m.add(360_000, 1000) // far too late
	require.Zero(t, m.step())
	m.add(99_360_000, 100) // a clock is set ahead
	m.step()
	require.Zero(t, m.step())
	m.add(99_360_000+50, 1<<31)
	m.add(99_360_000+50, 1<<31)
	m.add(99_360_000+50, 1<<31) // as many as a cell can hold
	m.step()
	require.InDelta(t, 1<<32, m.step(), 200)
}

func TestWhatIsMeasurable(t *testing.T) {
	for text, want := range map[string]bool{
		"5/s": true, "5/1us burst 3": true, "5/s fixed_window": true, "5/15ms fixed_window": false, "5/1us fixed_window": false, "unlimited": false,
		"deny_all": false, "25 fixed_window align day": false, "5/s leaky_bucket": true, "10/s sliding_log": true, "10/500ms sliding_window cells 10": true,
	} {
		l, err := limiter.ParseLimit(text)
		require.NoError(t, err)
		require.Equal(t, want, measurable(&l), text)
	}
	require.False(t, measurable(&limiter.Limit{Burst: 5}), "a bound on requests in flight")
}

func TestSharesOfWhatIsLeft(t *testing.T) {
	for _, c := range []struct{ remaining, quota, want int }{
		{0, 10, 0}, {-1, 10, 0}, {1, 10, 1}, {2, 10, 2}, {9, 10, 9}, {10, 10, 10}, {11, 10, 10}, {1, 1000, 1}, {999, 1000, 10}, {1, 1, 10},
	} {
		require.Equal(t, c.want, share(c.remaining, c.quota), c)
	}
}

// The most frequent keys have the meters, whatever came first.
func TestMetersGoToTheFrequent(t *testing.T) {
	p := &policy{}
	e := limiter.Event{Kind: limiter.EventDecision, N: 1, Time: time.Now()}
	e.Decision = limiter.Decision{Allowed: true, Limit: limiter.PerSecond(1000), Mark: int64(time.Hour)}
	w := &p.watches[0]
	w.see(1, &e, e.Decision.Mark)
	for range 3 {
		for k := range 100 {
			w.see(2, &e, e.Decision.Mark) // a frequent one among many
			if k%4 == 0 {
				w.see(uint64(100+k), &e, e.Decision.Mark)
			}
		}
		w.step()
	}
	require.Equal(t, uint64(2), w.meter.Load().hash)
	require.Equal(t, e.Decision.Limit, w.meter.Load().limit)
	e.Decision.Limit = limiter.PerSecond(7)
	w.see(2, &e, e.Decision.Mark)
	w.step()
	require.Equal(t, limiter.PerSecond(7), w.meter.Load().limit, "another limit begins anew")
}

// Points are those of the last quarter of an hour, in order, and none is lost or counted twice where they get coarse.
func TestSeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s series
		var c clock
		n := int64(rapid.IntRange(0, 2500).Draw(t, "ticks"))
		for k := range n + 1 {
			s.put(k, [kinds]float32{float32(1 + k%7), 0, 1})
			c.put(k, 1000+k)
		}
		times, values := c.times(n, false), s.values(n, false, sAllowed)
		if len(times) != len(values) || len(times) > fine+coarse {
			t.Fatalf("%d times and %d values", len(times), len(values))
		}
		for k := 1; k < len(times); k++ {
			switch step := times[k] - times[k-1]; {
			case step == 1 || step == ratio:
			case step > ratio && step < 2*ratio && k == len(times)-fine: // the coarse one under way is left out
			default:
				t.Fatalf("a step of %d at %d of %d", step, k, len(times))
			}
		}
		if times[len(times)-1] != 1000+n {
			t.Fatal("the newest is missing")
		}
		if got := s.values(n, false, sDegraded); slices.ContainsFunc(got, func(v float64) bool { return v != 1 }) {
			t.Fatalf("a constant is %v", got)
		}
		if s.values(n, false, sRefused) != nil {
			t.Fatal("nothing is sent as something")
		}
		if short := s.values(n, true, sDegraded); int64(len(short)) != min(n+1, fine) {
			t.Fatalf("%d short ones", len(short))
		}
	})
}
