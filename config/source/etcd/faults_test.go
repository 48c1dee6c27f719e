package etcdsource_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/spillway-go/spillway/config"
	etcdsource "github.com/spillway-go/spillway/config/source/etcd"
	"github.com/spillway-go/spillway/config/source/etcd/internal/etcdtest"
)

// One Watch outlives a server that restarts.
func TestRestart(t *testing.T) {
	noLeaks(t)
	server := etcdtest.Start(t)
	client := server.Client(clientv3.Config{})
	w := watch(t, newSource(t, etcdsource.Config{Client: client, Key: key, Poll: -1}))
	w.called()
	for _, doc := range []string{"version: 1", "version: 2"} {
		server.Restart()
		put(t, client, key, []byte(doc))
		w.becomes(doc)
	}
	w.cancel()
	require.ErrorIs(t, w.ended(), context.Canceled)
}

// What happens while the connection is lost is told when it is back.
func TestLostConnection(t *testing.T) {
	noLeaks(t)
	server := etcdtest.Start(t)
	other := server.Client(clientv3.Config{})
	proxy := etcdtest.StartProxy(t, server.Addr())
	client := server.Client(clientv3.Config{Endpoints: []string{proxy.Addr()}})
	w := watch(t, newSource(t, etcdsource.Config{Client: client, Key: key, Poll: -1}))
	w.called()
	put(t, other, key, []byte("version: 1"))
	w.becomes("version: 1")

	proxy.Cut()
	put(t, other, key, []byte("version: 2"))
	proxy.Pass()
	w.becomes("version: 2")

	// Where the client would go on is gone.
	proxy.Cut()
	put(t, other, key, []byte("version: 3"))
	resp, err := other.Put(t.Context(), "/another", "")
	require.NoError(t, err)
	_, err = other.Compact(t.Context(), resp.Header.Revision)
	require.NoError(t, err)
	proxy.Pass()
	w.becomes("version: 3")
	put(t, other, key, []byte("version: 4"))
	w.becomes("version: 4")
}

// A connection that hangs without an error is found out.
func TestSilentConnection(t *testing.T) {
	noLeaks(t)
	server := etcdtest.Start(t)
	proxy := etcdtest.StartProxy(t, server.Addr())
	client := server.Client(clientv3.Config{Endpoints: []string{proxy.Addr()}})
	src := newSource(t, etcdsource.Config{Client: client, Key: key, Poll: time.Second, Timeout: 200 * time.Millisecond})
	w := watch(t, src)
	w.called()
	proxy.Silent()
	err := w.ended()
	require.ErrorContains(t, err, "no answer within 200ms")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "it is not the caller's")
}

// deaf is a watcher that leaves out every event.
type deaf struct{ clientv3.Watcher }

func (d deaf) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return d.Watcher.Watch(ctx, key, append(opts, clientv3.WithFilterPut())...)
}

// A watch that hangs while other calls work is made up for, and found out.
func TestWatchThatMissesChanges(t *testing.T) {
	noLeaks(t)
	client := etcdtest.Start(t).Client(clientv3.Config{})
	half := *client
	half.Watcher = deaf{client.Watcher}
	w := watch(t, newSource(t, etcdsource.Config{Client: &half, Key: key, Poll: time.Second}))
	w.called()
	put(t, client, key, []byte("version: 1"))
	w.becomes("version: 1")
	require.ErrorContains(t, w.ended(), "does not tell of changes")
}

// Looks alone end no watch that works.
func TestPollFindsNothing(t *testing.T) {
	client := etcdtest.Start(t).Client(clientv3.Config{})
	looks := make(chan struct{}, 1)
	half := *client
	half.KV = counting{client.KV, looks}
	w := watch(t, newSource(t, etcdsource.Config{Client: &half, Key: key, Poll: time.Second}))
	w.called()
	put(t, client, key, []byte("version: 1"))
	w.becomes("version: 1")
	put(t, client, key, nil)
	w.called()
	for range 3 {
		select {
		case <-looks:
		case err := <-w.result:
			require.FailNow(t, "Watch has ended", "%v", err)
		}
	}
	put(t, client, key, []byte("version: 2"))
	w.becomes("version: 2")
}

// counting tells of each look.
type counting struct {
	clientv3.KV
	looks chan struct{}
}

func (c counting) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if clientv3.OpGet(key, opts...).IsKeysOnly() {
		select {
		case c.looks <- struct{}{}:
		default:
		}
	}
	return c.KV.Get(ctx, key, opts...)
}

// A member without a leader tells of nothing: that ends the watch, and Load does not pass off what it has as new.
func TestNoLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	noLeaks(t)
	servers := etcdtest.StartCluster(t, 3)
	client := servers[0].Client(clientv3.Config{})
	src := newSource(t, etcdsource.Config{Client: client, Key: key, Poll: -1, Timeout: time.Second})
	put(t, client, key, []byte("version: 1"))
	w := watch(t, src)
	w.becomes("version: 1")
	servers[1].Kill()
	servers[2].Kill()
	require.ErrorContains(t, w.ended(), "no leader")
	_, err := src.Load(t.Context())
	require.ErrorContains(t, err, "etcdsource: ")
	require.NotErrorIs(t, err, config.ErrIncomplete)
	require.ErrorContains(t, watch(t, src).ended(), "etcdsource: ")

	servers[1].Restart() // waits for a majority
	w = watch(t, src)
	w.becomes("version: 1")
}

// A member that is gone is not missed where the client knows others.
func TestMemberGone(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	noLeaks(t)
	servers := etcdtest.StartCluster(t, 3)
	client := servers[0].Client(clientv3.Config{Endpoints: []string{servers[0].Addr(), servers[1].Addr(), servers[2].Addr()}})
	w := watch(t, newSource(t, etcdsource.Config{Client: client, Key: key, Poll: -1, Timeout: 10 * time.Second}))
	w.called()
	for i, doc := range []string{"version: 1", "version: 2", "version: 3"} {
		servers[i].Kill()
		put(t, servers[(i+1)%3].Client(clientv3.Config{}), key, []byte(doc))
		w.becomes(doc)
		servers[i].Restart()
	}
}

// Nothing is waited for once ctx has ended, however long the time-out is and wherever the server has stopped.
func TestEndsAtOnce(t *testing.T) {
	server := etcdtest.Start(t)
	proxy := etcdtest.StartProxy(t, server.Addr())
	client := server.Client(clientv3.Config{Endpoints: []string{proxy.Addr()}})
	src := newSource(t, etcdsource.Config{Client: client, Key: key, Timeout: time.Hour})
	w := watch(t, src)
	w.called()
	proxy.Silent()
	w.cancel()
	require.ErrorIs(t, w.ended(), context.Canceled)

	w = watch(t, src)
	w.cancel()
	require.ErrorIs(t, w.ended(), context.Canceled)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, src.Watch(ctx, func() {}), context.DeadlineExceeded)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := src.Load(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A server that is away is an error after the time-out.
func TestAwayFromTheStart(t *testing.T) {
	noLeaks(t)
	server := etcdtest.Start(t)
	server.Kill()
	src := newSource(t, etcdsource.Config{Client: server.Client(clientv3.Config{}), Key: key, Timeout: 100 * time.Millisecond})
	_, err := src.Load(t.Context())
	require.ErrorContains(t, err, "etcdsource: ")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, watch(t, src).ended(), "etcdsource: ")
}
