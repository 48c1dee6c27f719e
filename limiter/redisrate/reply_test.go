package redisrate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// redis_rate reads replies without looking at their types, and would panic.
func TestWellFormed(t *testing.T) {
	require.True(t, wellFormed([]any{int64(1), int64(4), "-1", "0.2"}))
	for _, reply := range []any{
		nil, "OK",
		[]any{},
		[]any{int64(1), int64(4), "-1"},
		[]any{int64(1), int64(4), int64(-1), "0.2"},
		[]any{"1", int64(4), "-1", "0.2"},
		[]any{int64(1), nil, "-1", "0.2"},
		[]any{int64(1), int64(4), "-1", nil},
	} {
		require.False(t, wellFormed(reply), "%v", reply)
	}
}

func TestIsNumber(t *testing.T) {
	for text, want := range map[string]bool{"0.2": true, "1e+300": true, "inf": true, "-inf": true, "nan": false, "-nan": false, "": false} {
		require.Equal(t, want, isNumber([]any{int64(1), int64(4), "-1", text}), text)
	}
}
