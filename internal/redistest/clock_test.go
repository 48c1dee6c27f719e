package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

func TestClockIsSet(t *testing.T) {
	s, clock := redistest.StartClock(t)
	c, ctx := s.Client(), t.Context()
	isAhead := func(d time.Duration) {
		t.Helper()
		for what, at := range map[string]time.Time{
			"TIME":     must(c.Time(ctx).Result())(t),
			"a script": time.Unix(must(c.Eval(ctx, "return tonumber(redis.call('TIME')[1])", nil).Int64())(t), 0),
		} {
			require.WithinDuration(t, time.Now().Add(d), at, 20*time.Minute, what)
		}
	}
	isAhead(0)
	require.NoError(t, c.Set(ctx, "k", "v", 30*time.Minute).Err())
	clock.Set(-time.Hour)
	isAhead(-time.Hour)
	require.Equal(t, "v", c.Get(ctx, "k").Val())
	clock.Set(time.Hour)
	isAhead(time.Hour)
	require.Empty(t, c.Get(ctx, "k").Val(), "keys expire by it")
	s.Restart()
	isAhead(time.Hour)
}
