package response

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// The short way writes what the long one does.
func TestWriteOneAgreesWithWrite(t *testing.T) {
	long, err := New(Options{})
	require.NoError(t, err)
	long.plain = false
	short, err := New(Options{})
	require.NoError(t, err)
	require.True(t, short.plain)
	durations := rapid.OneOf(
		rapid.Int64Range(-5, 5e9), rapid.Int64Range(0, 9e18), rapid.SampledFrom([]int64{0, 1, 1e9, 1e9 + 1, math.MaxInt64}))
	rapid.Check(t, func(t *rapid.T) {
		limits := []limiter.Limit{
			limiter.PerMinute(60), limiter.PerSecond(limiter.MaxRate), limiter.PerDay(3).With(limiter.FixedWindow), limiter.DenyAll,
			limiter.Unlimited,
		}
		l := rapid.SampledFrom(limits).Draw(t, "limit")
		p, err := NewPolicy("api", l, rapid.SampledFrom([]string{"", "content-bytes"}).Draw(t, "unit"))
		require.NoError(t, err)
		d := &limiter.Decision{
			Limit:      l,
			Remaining:  rapid.OneOf(rapid.IntRange(-3, 100), rapid.Int()).Draw(t, "remaining"),
			RetryAfter: time.Duration(durations.Draw(t, "retry")),
			ResetAfter: time.Duration(durations.Draw(t, "reset")),
			NextAfter:  time.Duration(durations.Draw(t, "next")),
		}
		if rapid.Bool().Draw(t, "unknown") {
			d = nil
		}
		items := []Item{{
			Policy: p, Decision: d, Violated: rapid.Bool().Draw(t, "violated"),
			Set: rapid.SampledFrom([]Set{{}, X, Both, Off, Draft11Set}).Draw(t, "set"),
		}}
		r := &http.Request{Header: http.Header{}, Host: "api.example"}
		if rapid.Bool().Draw(t, "cross-origin") {
			r.Header.Set("Origin", "https://app.example")
		}
		now := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "now"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		want, got := http.Header{}, http.Header{}
		long.WriteHeaders(want, r, now, items)
		short.WriteHeaders(got, r, now, items)
		require.Equal(t, want, got)
		for name, values := range got {
			require.Equal(t, len(values), cap(values), name)
		}
	})
}
