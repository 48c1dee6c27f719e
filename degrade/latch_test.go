package degrade_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
)

var latchBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// latchStep is decisions at an instant, in milliseconds, and the state behind it.
type latchStep struct {
	at              int
	allowed, denied int
	on              bool
	wait            time.Duration
}

func TestLatchState(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		share float64
		steps []latchStep
	}{
		"too few": {0.5, []latchStep{{0, 0, 19, false, 0}, {100, 0, 1, true, 10 * s}}},
		"under":   {0.5, []latchStep{{0, 11, 10, false, 0}, {100, 0, 1, true, 10 * s}}},
		"all":     {1, []latchStep{{0, 1, 99, false, 0}, {5000, 0, 20, true, 10 * s}}},
		// A decision counts until its slot of half a second is 5 s old; the first reading begins a slot.
		"window": {0.5, []latchStep{{0, 0, 0, false, 0}, {499, 0, 19, false, 0}, {4999, 0, 0, false, 0}, {5000, 0, 1, false, 0}}},
		"within": {0.5, []latchStep{{0, 0, 0, false, 0}, {499, 0, 19, false, 0}, {4999, 0, 1, true, 10 * s}}},
		// The share falls to 20 of 81 at 1000, and the latch opens 10 s later and not a millisecond before.
		"opens": {0.5, []latchStep{
			{0, 0, 20, true, 10 * s},
			{1000, 60, 0, true, 10 * s},
			{1000, 1, 0, true, 10 * s},
			{4000, 0, 0, true, 7 * s},
			{10999, 0, 0, true, time.Millisecond},
			{11000, 0, 0, false, 0},
			{12000, 20, 19, false, 0},
			{12000, 0, 1, true, 10 * s},
		}},
		// Half of the share is over: 10 of 40 hold a latch of 0.5.
		"half holds": {0.5, []latchStep{
			{0, 10, 10, true, 10 * s},
			{1000, 20, 0, true, 10 * s},
			{4000, 30, 10, true, 10 * s},
		}},
		// Refusals within the 10 s begin them anew.
		"again over": {0.5, []latchStep{
			{0, 0, 20, true, 10 * s},
			{500, 100, 0, true, 10 * s},
			{9000, 0, 0, true, 1500 * time.Millisecond},
			{9000, 0, 19, true, 1500 * time.Millisecond},
			{9000, 0, 1, true, 10 * s},
			{10500, 0, 0, true, 10 * s},
			{14000, 0, 0, true, 10 * s}, // the window empties at this instant
			{23999, 0, 0, true, time.Millisecond},
			{24000, 0, 0, false, 0},
		}},
		// Nothing is asked while latched: the window is empty at 5000 though nobody looks, and 10 s later it opens.
		"silence":      {0.5, []latchStep{{0, 0, 20, true, 10 * s}, {14999, 0, 0, true, time.Millisecond}, {15000, 0, 0, false, 0}}},
		"long silence": {0.5, []latchStep{{0, 0, 20, true, 10 * s}, {1e9, 0, 0, false, 0}, {1e9, 0, 20, true, 10 * s}}},
		// A late reading counts at the newest instant, and takes nothing back.
		"late": {0.5, []latchStep{
			{3000, 0, 10, false, 0},
			{0, 0, 10, true, 10 * s},
			{7999, 0, 0, true, 10 * s},
			{17999, 0, 0, true, time.Millisecond},
			{18000, 0, 0, false, 0},
		}},
		// A clock set back by an hour is not waited for.
		"set back": {0.5, []latchStep{
			{3_600_000, 0, 20, true, 10 * s},
			{0, 0, 0, true, 10 * s},
			{5000, 0, 0, true, 10 * s},
			{14_999, 0, 0, true, time.Millisecond},
			{15_000, 0, 0, false, 0},
		}},
		// What was set back by less than a minute is late until it catches up.
		"set back a little": {0.5, []latchStep{
			{60_000, 0, 20, true, 10 * s},
			{0, 0, 0, true, 10 * s},
			{59_999, 0, 0, true, 10 * s},
			{75_000, 0, 0, false, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := degrade.NewLatchState(c.share)
			for k, x := range c.steps {
				now := latchBegin.Add(time.Duration(x.at) * time.Millisecond)
				l.Advance(now)
				for range x.allowed {
					l.Add(now, false)
				}
				for range x.denied {
					l.Add(now, true)
				}
				require.Equal(t, x.on, l.On(), "step %d", k)
				require.Equal(t, x.wait, l.Wait(), "step %d", k)
			}
		})
	}
}

// latchModel remembers every decision, and counts them anew at each instant that anything can change at.
type latchModel struct {
	share     float64
	at        []time.Duration
	refused   []bool
	now       time.Duration
	on, quiet bool
	since     time.Duration
}

func (m *latchModel) judge(at time.Duration) {
	asked, refused := 0, 0
	for k, x := range m.at {
		if at/(500*time.Millisecond)-x/(500*time.Millisecond) < 10 {
			asked++
			if m.refused[k] {
				refused++
			}
		}
	}
	known := asked >= 20
	over := func(x float64) bool { return known && float64(refused) >= x*float64(asked) }
	switch {
	case !m.on:
		m.on, m.quiet = over(m.share), false
	case over(m.share / 2):
		m.quiet = false
	case !m.quiet:
		m.quiet, m.since = true, at
	}
	if m.on && m.quiet && at-m.since >= 10*time.Second {
		m.on = false
	}
}

func (m *latchModel) advance(now time.Duration) {
	const slot = 500 * time.Millisecond
	for at := (m.now/slot + 1) * slot; at <= now; at += slot {
		m.judge(at)
	}
	m.now = max(m.now, now)
	m.judge(m.now)
}

// At every instant the switch is as the model's, whose times never go back.
func TestLatchStateProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Powers of two, so that shares are exact.
		share := rapid.SampledFrom([]float64{1, 0.5, 0.25, 0.125}).Draw(t, "share")
		l, m := degrade.NewLatchState(share), latchModel{share: share}
		l.Advance(latchBegin)
		now := time.Duration(0)
		switches := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			step := rapid.OneOf(rapid.IntRange(0, 700), rapid.IntRange(0, 6000), rapid.Just(500), rapid.Just(10_000), rapid.IntRange(0, 40_000))
			now += time.Duration(step.Draw(t, "ms")) * time.Millisecond
			was := l.On()
			l.Advance(latchBegin.Add(now))
			m.advance(now)
			require.Equal(t, m.on, l.On())
			for range rapid.IntRange(0, 30).Draw(t, "n") {
				refused := rapid.Bool().Draw(t, "refused") || rapid.Bool().Draw(t, "too")
				at := now - time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 700, 59_000}).Draw(t, "late"))*time.Millisecond
				l.Add(latchBegin.Add(at), refused)
				m.at, m.refused = append(m.at, now), append(m.refused, refused)
				m.judge(now)
				require.Equal(t, m.on, l.On())
			}
			wait := time.Duration(0)
			if m.on {
				if wait = 10 * time.Second; m.quiet {
					wait -= now - m.since
				}
			}
			require.Equal(t, wait, l.Wait())
			require.Equal(t, l.On(), wait > 0)
			if was != l.On() {
				switches++
			}
		}
		t.Logf("%d switches", switches)
	})
}

// Whatever the clock does, a latch that nobody refuses any more opens after 15 s and a minute at most.
func TestLatchStateAlwaysOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := degrade.NewLatchState(0.5)
		now := latchBegin
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-7_200_000, 7_200_000).Draw(t, "ms")) * time.Millisecond)
			for range 20 {
				l.Add(now, true)
			}
			require.True(t, l.On())
		}
		now = now.Add(time.Duration(rapid.IntRange(-7_200_000, 7_200_000).Draw(t, "ms")) * time.Millisecond)
		for range 76 {
			l.Advance(now)
			now = now.Add(time.Second)
		}
		require.False(t, l.On())
	})
}
