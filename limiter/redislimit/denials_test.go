package redislimit

import (
	"fmt"
	"sync"
	"testing"
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
