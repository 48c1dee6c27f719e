package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// With hardly any room, whatever is refused for it, no key passes more than it would alone: each admitted take fits a
// state of the key's own that has seen only what was admitted.
func TestTinyTablesKeepTheBounds(t *testing.T) {
	start := time.Now().Add(-24 * time.Hour)
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom(limiter.Algorithms()).Draw(t, "algorithm")
		limit := limiter.Per(rapid.IntRange(1, 8).Draw(t, "rate"), 2*time.Second).With(a)
		if a == limiter.SlidingWindow && rapid.Bool().Draw(t, "cells") {
			limit = limit.WithCells(4)
		}
		rule, err := limiter.NewRule(limit)
		require.NoError(t, err)
		l, err := memory.New(memory.Config{MaxKeys: rapid.IntRange(1, 4).Draw(t, "keys"), MaxLogEntries: rapid.IntRange(4, 64).Draw(t, "entries")})
		require.NoError(t, err)
		var states [8]limiter.State
		at := start
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			at = at.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 50, 700, 4000}).Draw(t, "pause")) * time.Millisecond)
			k := rapid.IntRange(0, len(states)-1).Draw(t, "key")
			if rapid.IntRange(0, 20).Draw(t, "tend") == 0 {
				l.Tend(at)
			}
			takes := []limiter.Take{{Key: id(k), Limit: limit, N: rapid.IntRange(0, 3).Draw(t, "n"), MaxDelay: time.Minute}}
			ok, err := l.AllowAll(ctx, at, takes)
			require.NoError(t, err)
			if !ok {
				continue
			}
			own := rule.Take(&states[k], limiter.Reading{Now: at.UnixNano(), Caller: true}, takes[0].N, time.Minute)
			require.True(t, own.Allowed, "%v passed, alone it would not have", takes[0])
			require.LessOrEqual(t, takes[0].Decision.Remaining, own.Remaining)
		}
		require.NoError(t, l.Verify())
	})
}
