package stores_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/leased"
)

// Limits are leased from the Redis of the store, by one limiter for each sync that is asked for.
func TestLeased(t *testing.T) {
	server := redistest.Start(t)
	store := config.Store{Prefix: prefix(t), Redis: &config.Redis{URL: "redis://" + server.Addr()}, Timeout: duration(time.Second)}
	one, two := made(t, stores.Config{}), made(t, stores.Config{})
	a, err := one.Leased(store, 0)
	require.NoError(t, err)
	require.IsType(t, (*leased.Limiter)(nil), a)
	again, err := one.Leased(store, 0)
	require.NoError(t, err)
	require.Same(t, a, again)
	slower, err := one.Leased(store, time.Second)
	require.NoError(t, err)
	require.NotSame(t, a, slower)
	b, err := two.Leased(store, 0)
	require.NoError(t, err)
	for k, l := range []limiter.Limiter{a, b, a} { // a take of more than half is a call, and both processes have one bucket
		d, err := l.Allow(t.Context(), key, limiter.PerDay(4), 2)
		require.NoError(t, err)
		require.Equal(t, k < 2, d.Allowed)
	}

	other := store
	other.Prefix += "x"
	_, err = one.Leased(other, 0)
	require.ErrorIs(t, err, config.ErrNeedsRestart)
	_, err = one.Leased(config.Store{}, 0)
	require.Error(t, err)
	_, err = one.Leased(store, time.Hour)
	require.Error(t, err)

	// With what decides while Redis is away, and one report of the process for all limiters.
	safe := store
	safe.Fallback = &config.Fallback{Replicas: 2, Census: true, Failures: 1, Cooldown: duration(time.Hour)}
	central, err := one.Central(safe)
	require.NoError(t, err)
	l, err := one.Leased(safe, 0)
	require.NoError(t, err)
	require.IsType(t, (*fallback.Limiter)(nil), l)
	require.NotSame(t, central, l)
	alone, err := one.Leased(store, 0)
	require.NoError(t, err)
	require.Same(t, a, alone)
	server.Kill()
	key := limiter.Key{Space: "other", ID: "ip=192.0.2.1"}
	for {
		d, err := l.Allow(t.Context(), key, limiter.PerDay(1000), 1)
		require.NoError(t, err)
		if d.Via == limiter.ViaFallback {
			require.Less(t, d.Remaining, 500)
			break
		}
	}
	require.NoError(t, one.Close())
	_, err = one.Leased(store, 0)
	require.ErrorIs(t, err, limiter.ErrClosed)
}
