package live

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	table "github.com/spillway-go/spillway/limiter/memory"
)

// at is an event of what passed.
func at(l limiter.Limit, since time.Duration, n int) limiter.Event {
	e := limiter.Event{Kind: limiter.EventDecision, N: n, Time: time.Now()}
	e.Decision = limiter.Decision{Allowed: true, Limit: l, Mark: int64(time.Hour + since)}
	return e
}

// One key under several limits, in the order in which a limiter in this process decides: nothing above a limit is ever told. What a
// second limit lets back in is no overshoot of the first.
func TestNothingIsMeasuredOfMixedLimits(t *testing.T) {
	for name, texts := range map[string][]string{
		"plans": {"5/s burst 20", "500/s burst 100"}, "rates": {"5/s burst 20", "50/s burst 20", "7/s burst 3"},
		"windows of two periods": {"20/m fixed_window", "20/s fixed_window"}, "sliding": {"20/m sliding_window", "20/s sliding_window"},
		"logs": {"20/m sliding_log", "20/s sliding_log"}, "windows": {"5/s fixed_window", "50/s fixed_window"},
		"algorithms": {"5/s burst 20", "20/s fixed_window", "9/s sliding_window", "20/15ms fixed_window"}, "leaky": {"5/s leaky_bucket", "90/s burst 40"},
	} {
		t.Run(name, func(t *testing.T) {
			var limits []limiter.Limit
			for _, text := range texts {
				l, err := limiter.ParseLimit(text)
				require.NoError(t, err)
				limits = append(limits, l)
			}
			rapid.Check(t, func(t *rapid.T) {
				store, err := table.New(table.Config{})
				require.NoError(t, err)
				defer store.Close()
				start := time.Now() // with its monotonic part, which decides
				p := &policy{}
				now, next := time.Duration(0), time.Second
				step := func() {
					var o overshoot
					if p.measure(&o); o.worst > 1e-6 {
						t.Fatalf("%v too much at %v", o.worst, now)
					}
				}
				l := limits[0]
				for range rapid.IntRange(1, 200).Draw(t, "requests") {
					now += time.Duration(rapid.SampledFrom([]int{0, 1, 10, 40, 200, 1100, 5000}).Draw(t, "ms")) * time.Millisecond
					for ; now >= next; next += time.Second {
						step()
					}
					if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
						l = limits[rapid.IntRange(0, len(limits)-1).Draw(t, "limit")]
					}
					n := rapid.IntRange(1, 25).Draw(t, "n")
					for range rapid.IntRange(1, 3).Draw(t, "times") {
						key := limiter.Key{ID: "k"}
						takes := []limiter.Take{{Key: key, Limit: l, N: n}}
						_, err := store.AllowAll(t.Context(), start.Add(now), takes)
						require.NoError(t, err)
						require.Equal(t, l, takes[0].Decision.Limit)
						p.decision(&limiter.Event{Kind: limiter.EventDecision, Key: key, N: n, Decision: takes[0].Decision})
					}
				}
				for range 4 {
					step()
				}
			})
		})
	}
}

// The same in the order of people: visitors, a customer of the same address between them, and visitors again within a second.
func TestNothingIsMeasuredOfTwoPlans(t *testing.T) {
	for name, c := range map[string][2]string{
		"buckets": {"5/s burst 20", "500/s burst 100"}, "windows": {"20/m fixed_window", "20/s fixed_window"}, "sliding": {"20/m sliding_window", "20/s sliding_window"},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := limiter.ParseLimit(c[0])
			require.NoError(t, err)
			second, err := limiter.ParseLimit(c[1])
			require.NoError(t, err)
			store, err := table.New(table.Config{})
			require.NoError(t, err)
			defer store.Close()
			start, p, next := time.Now(), &policy{}, 1000
			step := func() {
				var o overshoot
				p.measure(&o)
				require.LessOrEqual(t, o.worst, 1e-6)
			}
			for _, x := range []struct {
				ms, n int
				l     limiter.Limit
			}{{20, 25, first}, {1050, 1, second}, {1200, 1, second}, {1250, 40, first}, {1400, 1, second}, {1450, 40, first}, {1930, 1, first}, {4500, 1, first}} {
				for ; x.ms >= next; next += 1000 {
					step()
				}
				for range x.n {
					takes := []limiter.Take{{Key: limiter.Key{ID: "k"}, Limit: x.l, N: 1}}
					_, err := store.AllowAll(t.Context(), start.Add(time.Duration(x.ms)*time.Millisecond), takes)
					require.NoError(t, err)
					p.decision(&limiter.Event{Kind: limiter.EventDecision, Key: takes[0].Key, N: 1, Decision: takes[0].Decision})
				}
			}
			for range 4 {
				step()
			}
		})
	}
}

// A key that was under another limit is measured once it has been under one for a span.
func TestMeasuredAgainAfterASpan(t *testing.T) {
	l, other := limiter.PerSecond(10).WithBurst(20), limiter.PerSecond(500)
	w := &watch{}
	see := func(l limiter.Limit, since time.Duration, n int) {
		e := at(l, since, n)
		w.see(1, &e, e.Decision.Mark)
	}
	see(l, 0, 1)
	see(other, 100*time.Millisecond, 1)
	see(l, 200*time.Millisecond, 60)
	w.step()
	for k := range 5 {
		see(l, time.Second+time.Duration(k)*time.Second, 60-10*k)
		worst, _, _ := w.step()
		require.Zero(t, worst)
	}
	see(l, 9*time.Second, 10)
	w.step()
	_, _, on := w.step()
	require.True(t, on, "20 units at 10 a second are 2 s")
	see(l, 10*time.Second, 90)
	w.step()
	w.step()
	worst, _, _ := w.step()
	require.InDelta(t, 70, worst, 0.2)
}

// The clock of those that decide is set back: measuring begins anew, and what is too much by the new clock is found.
func TestMeterAfterAClockIsSetBack(t *testing.T) {
	l := limiter.PerSecond(10).WithBurst(10)
	w := &watch{}
	see := func(since time.Duration, n int) {
		e := at(l, since, n)
		w.see(1, &e, e.Decision.Mark)
	}
	see(time.Hour, 1)
	w.step()
	w.step()
	worst := 0.0
	for k := range 5 {
		see(time.Duration(k)*time.Second, 50)
		found, _, _ := w.step()
		worst = max(worst, found)
	}
	for range 3 {
		found, _, _ := w.step()
		worst = max(worst, found)
	}
	require.Greater(t, worst, 100.0)
}

// The wall clock is set back and ahead: the points of charts move with it, and everybody gets them anew.
func TestTheWallClockIsSet(t *testing.T) {
	p, err := New(Config{})
	require.NoError(t, err)
	p.Close() // no ticks but those of the test
	s := p.sampler
	now := p.epoch
	tick := func(ahead time.Duration) string {
		now = now.Add(time.Second)
		s.tickAt(now, now.Add(ahead).UnixNano())
		frames, _, _, _ := p.ticks.after(p.ticks.last - 1)
		event, _, _ := strings.Cut(string(frames[0][strings.IndexByte(string(frames[0]), '\n')+1:]), "\n")
		return event
	}
	for range 200 {
		require.Equal(t, "event: tick", tick(0))
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		require.Equal(t, "event: full", tick(ahead))
		for range 20 {
			require.Equal(t, "event: tick", tick(ahead))
		}
		times := s.clock.times(s.n-1, false)
		require.Equal(t, now.Add(ahead).Unix(), times[len(times)-1])
		for k := 1; k < len(times); k++ {
			require.LessOrEqual(t, times[k-1], times[k])
			require.Less(t, times[k]-times[k-1], int64(25))
		}
	}
}

// An adaptive limit that moves costs no allocation.
func TestAdaptedAllocatesNothing(t *testing.T) {
	p := &policy{}
	e := limiter.Event{Kind: limiter.EventAdapt, Reason: "latency", Decision: limiter.Decision{Limit: limiter.PerSecond(9)}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		e.Decision.Limit.Rate++
		p.Observe(e)
	}))
}

// The decision by another limit may be told after those that it explains, as replies of a store come when they like.
func TestAnotherLimitIsToldLate(t *testing.T) {
	l := limiter.PerSecond(5).WithBurst(20)
	w := &watch{}
	see := func(l limiter.Limit, since time.Duration, n int) {
		e := at(l, since, n)
		w.see(1, &e, e.Decision.Mark)
	}
	see(l, 20*time.Millisecond, 20)
	see(l, 100*time.Millisecond, 20)
	see(l, 900*time.Millisecond, 1)
	worst, _, _ := w.step()
	require.Zero(t, worst)
	see(limiter.PerSecond(500), 50*time.Millisecond, 1)
	for range 4 {
		worst, _, _ = w.step()
		require.Zero(t, worst)
	}
}
