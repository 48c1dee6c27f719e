package redislimit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

func TestOpen(t *testing.T) {
	server := redistest.Shared(t)
	t.Setenv("SPILLWAY_TEST_REDIS", "redis://"+server.Addr()+"/0")
	l, err := redislimit.Open("env:SPILLWAY_TEST_REDIS", redislimit.Config{Prefix: "open"})
	require.NoError(t, err)
	d, err := l.Allow(context.Background(), limiter.Key{Space: "open", ID: "all=-"}, limiter.PerHour(2), 1)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.Equal(t, 1, d.Remaining)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err = l.Allow(context.Background(), limiter.Key{Space: "open", ID: "all=-"}, limiter.PerHour(2), 1)
	require.ErrorIs(t, err, limiter.ErrClosed)

	_, err = redislimit.Open("redis://:hunter2@host:none", redislimit.Config{})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestNewSaysAllThatIsWrong(t *testing.T) {
	_, err := redislimit.New(redislimit.Config{Prefix: "a b", Timeout: -1, DenyCache: 1 << 40})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	for _, what := range []string{"prefix", "time-out", "deny cache", "Client is missing"} {
		require.ErrorContains(t, err, what)
	}
}
