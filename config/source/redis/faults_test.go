package redissource_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redissource "github.com/spillway-go/spillway/config/source/redis"
	"github.com/spillway-go/spillway/internal/redistest"
)

// One Watch outlives a server that goes away and comes back.
func TestRestart(t *testing.T) {
	noLeaks(t)
	server := redistest.Start(t)
	c := server.Client()
	w := watch(t, newSource(t, redissource.Config{Client: c, Key: "policies", Poll: -1}))
	w.called()
	for _, doc := range []string{"version: 1", "version: 2"} {
		server.Restart() // and has lost everything
		w.called()       // it has subscribed again
		put(t, c, "policies", []byte(doc))
		w.becomes(doc)
	}
	w.cancel()
	require.ErrorIs(t, w.ended(), context.Canceled)
}

// What changes while the subscription is lost is noticed when it is back.
func TestLostConnection(t *testing.T) {
	noLeaks(t)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	src := newSource(t, redissource.Config{Client: c, Key: "policies", Poll: -1, Timeout: 200 * time.Millisecond})
	src.SetBeat(100 * time.Millisecond)
	w := watch(t, src)
	w.called()
	lose := map[string]func(){"refused": proxy.Refuse, "silent": proxy.Silent, "cut": proxy.CutAll}
	for how, f := range lose {
		w.quiet()
		f()
		put(t, server.Client(), "policies", []byte(how))
		proxy.Pass()
		w.becomes(how)
	}
}

// A subscription that cannot be had again is an error in the end, and ctx ends the attempts.
func TestGivesUp(t *testing.T) {
	noLeaks(t)
	server := redistest.Start(t)
	src := newSource(t, redissource.Config{Client: server.Client(), Key: "policies", Poll: -1})
	other := watch(t, newSource(t, redissource.Config{Client: server.Client(), Key: "policies"}))
	src.SetPatience(time.Millisecond)
	w := watch(t, src)
	w.called()
	other.called()
	server.Kill()
	require.ErrorContains(t, w.ended(), `redissource: channel "policies:changed": `)
	other.cancel()
	require.ErrorIs(t, other.ended(), context.Canceled)
}

// Nothing is waited for once ctx has ended, however long the time-out is and wherever the server has stopped.
func TestEndsAtOnce(t *testing.T) {
	server := redistest.Start(t)
	src := newSource(t, redissource.Config{Client: server.Client(), Key: "policies", Timeout: time.Hour})
	w := watch(t, src)
	w.called() // subscribed
	server.Pause()
	t.Cleanup(server.Resume)
	w.cancel()
	require.ErrorIs(t, w.ended(), context.Canceled)

	w = watch(t, src) // stays in the middle of its handshake
	w.cancel()
	require.ErrorIs(t, w.ended(), context.Canceled)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, src.Watch(ctx, func() {}), context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := src.Load(ctx)
		result <- err
	}()
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
}

// A server that accepts connections and says nothing is an error after the time-out.
func TestSilentServer(t *testing.T) {
	noLeaks(t)
	server := redistest.Start(t)
	server.Pause()
	t.Cleanup(server.Resume)
	src := newSource(t, redissource.Config{Client: server.Client(), Key: "policies", Timeout: 100 * time.Millisecond})
	_, err := src.Load(t.Context())
	require.ErrorContains(t, err, "redissource: ")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "it is not the caller's")
	err = watch(t, src).ended()
	require.ErrorContains(t, err, "redissource: ")
}

func TestSentinelFailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("a fail-over takes seconds")
	}
	s := redistest.StartSentinel(t)
	c := s.Client()
	w := watch(t, newSource(t, redissource.Config{Client: c, Key: "policies", Poll: -1}))
	w.called()
	s.Master().Kill()
	w.called() // subscribed to a replica that is the master now
	settle(t, c, "version: 1")
	w.becomes("version: 1")
}

func TestClusterFailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("a fail-over takes seconds")
	}
	s := redistest.StartCluster(t)
	c := s.Client()
	w := watch(t, newSource(t, redissource.Config{Client: c, Key: "policies", Poll: -1}))
	w.called()
	s.KillMaster("policies")
	w.called()
	s.Wait()
	c.ReloadState(t.Context())
	settle(t, c, "version: 1")
	w.becomes("version: 1")
}

// settle sets the document as soon as there is a master that takes it.
func settle(t *testing.T, c redis.UniversalClient, doc string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return c.Set(t.Context(), "policies", doc, 0).Err() == nil && c.Publish(t.Context(), "policies:changed", "").Err() == nil
	}, patience, 50*time.Millisecond)
}
