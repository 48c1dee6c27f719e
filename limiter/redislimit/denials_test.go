package redislimit

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// However many keys are denied, some thousands are remembered, and forgetting leaves nothing.
func TestDenialsAreBounded(t *testing.T) {
	const keys, workers = 100_000, 4
	d := newDenials(time.Second)
	r, err := newRule(limiter.PerHour(1))
	require.NoError(t, err)
	name := func(i int) string { return fmt.Sprintf("api:{user=%d}:tb", i) }
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < keys; i += workers {
				g := &group{parts: []part{{key: name(i), rule: r, n: 1}}, now: 1, verdict: refused}
				if d.refuses(g, false) {
					t.Errorf("key %d was never seen", i)
					return
				}
				d.see(g, &g.parts[0], &limiter.State{Rule: r.Rule, At: 1}, true, false)
			}
		})
	}
	wg.Wait()
	kept := 0
	for i := range d.shards {
		require.LessOrEqual(t, len(d.shards[i].byKey), maxSightings)
		kept += len(d.shards[i].byKey)
	}
	require.Equal(t, int64(kept), d.known.Load())
	require.Equal(t, denialShards*maxSightings, kept)
	// The last of one worker may have made room for one of another.
	g := &group{parts: []part{{key: name(keys), rule: r, n: 1}}, now: 1, verdict: refused}
	require.False(t, d.refuses(g, false))
	d.see(g, &g.parts[0], &limiter.State{Rule: r.Rule, At: 1}, true, false)
	require.True(t, d.refuses(g, false), "the last is remembered")
	require.Equal(t, limiter.ViaDenyCache, g.parts[0].decision.Via)
	for i := range keys + 1 {
		d.forget(name(i))
	}
	require.Zero(t, d.known.Load())
	require.False(t, d.refuses(g, false))
}

// sighted makes d see that a bucket is empty, by a reply that took so long.
func sighted(t *testing.T, d *denials, l limiter.Limit, took time.Duration, meanwhile func()) *rule {
	t.Helper()
	r, err := newRule(l)
	require.NoError(t, err)
	g := &group{parts: []part{{key: "k", rule: r, n: 1}}}
	require.False(t, d.refuses(g, false))
	time.Sleep(took)
	meanwhile()
	g.now, g.verdict = 1_000_000, refused
	d.see(g, &g.parts[0], &limiter.State{Rule: r.Rule, At: g.now}, true, false)
	return r
}

// The server's clock is known to within the time that its reply took: a denial is remembered only if it is one at the latest
// instant that may be now, and the wait told is that of the earliest.
func TestDenialIsSure(t *testing.T) {
	const took = 100 * time.Millisecond
	for _, c := range []struct {
		period, later time.Duration
		refuses       bool
	}{
		{period: took + 2*time.Microsecond, refuses: true},
		{period: took + time.Microsecond}, // instants are rounded down
		{period: took / 2},
		{period: 2 * took, later: took - 2*time.Microsecond, refuses: true},
		{period: 2 * took, later: took},
		{period: time.Hour, later: time.Second - took - 1, refuses: true},
		{period: time.Hour, later: time.Second - took}, // what it tells may be as old as the question
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDenials(time.Second)
			r := sighted(t, d, limiter.Per(1, c.period), took, func() {})
			time.Sleep(c.later)
			g := &group{parts: []part{{key: "k", rule: r, n: 1}}}
			require.Equal(t, c.refuses, d.refuses(g, false), "%+v", c)
			if c.refuses {
				require.Equal(t, c.period-c.later.Truncate(time.Microsecond), g.parts[0].decision.RetryAfter, "%+v", c)
			}
		})
	}
}

// What was asked for before units came back is not remembered after.
func TestDenialOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDenials(time.Second)
		r := sighted(t, d, limiter.PerHour(1), time.Millisecond, func() { d.forget("k") })
		require.False(t, d.refuses(&group{parts: []part{{key: "k", rule: r, n: 1}}}, false))
		require.Zero(t, d.known.Load())
	})
}
