package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// The processes are this test binary, started once more.
func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Twelve processes have 96 messages at once, the provider takes 60 in three seconds: none is too many, all arrive.
func TestNoViolation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	server := redistest.Start(t)
	var out bytes.Buffer
	r, err := run(t.Context(), []string{"-redis", "redis://" + server.Addr(), "-messages", "8"}, &out)
	require.NoError(t, err)
	require.Equal(t, result{accepted: 96}, r, "%s", &out)
}

// Without the client the same provider finds violations: it does count them.
func TestTheProviderCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	var out bytes.Buffer
	r, err := run(t.Context(), []string{"-without", "-messages", "8", "-processes", "10"}, &out)
	require.NoError(t, err)
	require.Positive(t, r.violations)
	require.Equal(t, r.violations, r.failed)
	require.Equal(t, 80, r.accepted+r.violations)
}

func TestItStartsARedis(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil || testing.Short() {
		t.Skip("takes a moment, and redis-server: ", err)
	}
	r, err := run(t.Context(), []string{"-processes", "2", "-messages", "3"}, new(bytes.Buffer))
	require.NoError(t, err)
	require.Equal(t, result{accepted: 6}, r)
}

// The contract, at explicit instants.
func TestProvider(t *testing.T) {
	p, start := new(provider), time.Unix(0, 0)
	for i := range 60 {
		require.True(t, p.admit(start.Add(time.Duration(i)*time.Millisecond)))
	}
	require.False(t, p.admit(start.Add(3*time.Second-1)))
	require.True(t, p.admit(start.Add(3*time.Second)))
	require.False(t, p.admit(start.Add(3*time.Second)))
	require.Equal(t, result{accepted: 61, violations: 2}, p.count())
}

// A pause gets longer and never shorter, and is one key's.
func TestPauses(t *testing.T) {
	server := redistest.Shared(t)
	store := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = store.Close() }()
	p, ctx := pauses{redis: store, prefix: redistest.Prefix(t)}, context.Background()
	a, b := limiter.Key{Space: "sms", ID: "a"}, limiter.Key{Space: "sms", ID: "b"}
	left := func(k limiter.Key) time.Duration {
		d, err := p.Paused(ctx, k)
		require.NoError(t, err)
		return d
	}
	require.Zero(t, left(a))
	require.NoError(t, p.Pause(ctx, a, time.Hour))
	require.NoError(t, p.Pause(ctx, a, time.Minute))
	require.Greater(t, left(a), time.Minute)
	require.NoError(t, p.Pause(ctx, a, 3*time.Hour))
	require.Greater(t, left(a), time.Hour)
	require.Zero(t, left(b))
	require.NoError(t, store.Close())
	_, err := p.Paused(ctx, a)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.ErrorIs(t, p.Pause(ctx, a, time.Second), limiter.ErrUnavailable)
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-processes", "0"}, {"-messages", "1001"}, {"-nope"}} {
		_, err := run(t.Context(), args, new(bytes.Buffer))
		require.Error(t, err, "%v", args)
	}
}
