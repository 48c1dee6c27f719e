package rediscall_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A bound costs one allocation: the context. Its timer and channel are borrowed.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and empties pools at random")
	}
	rdb := plain(t, server(t))
	c := bound(t, rdb, generous)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	keys, args := []string{"key"}, []any{"one", "two"}
	_, err := c.Run(ctx, echo, keys, args...)
	require.NoError(t, err)
	mine := testing.AllocsPerRun(200, func() { _, err = c.Run(ctx, echo, keys, args...) })
	require.NoError(t, err)
	sha := echo.SHA()
	theirs := testing.AllocsPerRun(200, func() { err = rdb.EvalSha(ctx, sha, keys, args...).Err() })
	require.NoError(t, err)
	t.Logf("Run %v, EvalSha %v", mine, theirs)
	require.LessOrEqual(t, mine, 12.0)
	require.LessOrEqual(t, mine, theirs+1)
}

func BenchmarkRun(b *testing.B) {
	rdb := plain(b, server(b))
	c := bound(b, rdb, generous)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	keys, args := []string{"key"}, []any{"one", "two"}
	if _, err := c.Run(ctx, echo, keys, args...); err != nil {
		b.Fatal(err)
	}
	b.Run("rediscall", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.Run(ctx, echo, keys, args...)
		}
	})
	b.Run("go-redis", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = rdb.EvalSha(ctx, echo.SHA(), keys, args...).Err()
		}
	})
	b.Run("context.WithTimeout", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(ctx, generous)
			_ = rdb.EvalSha(ctx, echo.SHA(), keys, args...).Err()
			cancel()
		}
	})
}
