package etcdsource_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"

	"github.com/spillway-go/spillway/config"
	etcdsource "github.com/spillway-go/spillway/config/source/etcd"
	"github.com/spillway-go/spillway/config/source/etcd/internal/etcdtest"
	"github.com/spillway-go/spillway/config/source/sourcetest"
)

func TestContract(t *testing.T) {
	noLeaks(t)
	client := etcdtest.Start(t).Client(clientv3.Config{})
	var n atomic.Int64
	table := func(src *clientv3.Client, prefix string) func(t *testing.T) {
		return func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
				key := fmt.Sprint("/policies/", n.Add(1))
				// Without polling, so that the watch alone has to do.
				return newSource(t, etcdsource.Config{Client: src, Key: key, Poll: -1}),
					func(doc []byte) { put(t, client, prefix+key, doc) }
			})
		}
	}
	t.Run("as it comes", table(client, ""))
	inside := *client
	inside.KV = namespace.NewKV(client.KV, "/shop")
	inside.Watcher = namespace.NewWatcher(client.Watcher, "/shop")
	t.Run("namespace", table(&inside, "/shop"))
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	_, err := etcdsource.New(etcdsource.Config{Poll: time.Millisecond, Timeout: -1})
	require.ErrorContains(t, err, "etcdsource: Client is missing")
	require.ErrorContains(t, err, "Key is missing")
	require.ErrorContains(t, err, "Poll 1ms is below 1s")
	require.ErrorContains(t, err, "Timeout -1ns is negative")
}

func TestStringAndClosedClient(t *testing.T) {
	noLeaks(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	src := newSource(t, etcdsource.Config{Client: client, Key: key})
	require.Equal(t, "etcd:/shop/policies", src.String())
	require.NoError(t, client.Close())
	_, err = src.Load(t.Context())
	require.ErrorContains(t, err, "the client is closed")
	require.NotErrorIs(t, err, context.Canceled, "it is not the caller's")
	require.ErrorContains(t, watch(t, src).ended(), "the client is closed")
}

// The role that the package documents is enough, and what is taken from it ends the watch.
func TestRights(t *testing.T) {
	server := etcdtest.Start(t)
	open := server.Client(clientv3.Config{})
	ctx := t.Context()
	steps := []func() error{
		func() error { _, err := open.RoleAdd(ctx, "reader"); return err },
		func() error {
			_, err := open.RoleGrantPermission(ctx, "reader", key, "", clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		func() error { _, err := open.UserAdd(ctx, "replica", "s3cr3t"); return err },
		func() error { _, err := open.UserGrantRole(ctx, "replica", "reader"); return err },
		func() error { _, err := open.UserAdd(ctx, "nobody", "s3cr3t"); return err },
		func() error { _, err := open.UserAdd(ctx, "root", "s3cr3t"); return err },
		func() error { _, err := open.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := open.AuthEnable(ctx); return err },
	}
	for _, step := range steps {
		require.NoError(t, step())
	}
	root := server.Client(clientv3.Config{Username: "root", Password: "s3cr3t"})
	reader := server.Client(clientv3.Config{Username: "replica", Password: "s3cr3t"})
	src := newSource(t, etcdsource.Config{Client: reader, Key: key, Poll: time.Second})
	w := watch(t, src)
	w.called()
	put(t, root, key, []byte("version: 1"))
	w.becomes("version: 1")

	for who, c := range map[string]*clientv3.Client{"nobody": server.Client(clientv3.Config{Username: "nobody", Password: "s3cr3t"}), "not said": open} {
		src := newSource(t, etcdsource.Config{Client: c, Key: key})
		_, err := src.Load(ctx)
		require.ErrorContains(t, err, "etcdsource: ", who)
		require.NotErrorIs(t, err, config.ErrIncomplete, who)
		require.NotContains(t, err.Error(), "s3cr3t")
		require.ErrorContains(t, watch(t, src).ended(), "etcdsource: ", who)
	}

	_, err := root.RoleRevokePermission(ctx, "reader", key, "")
	require.NoError(t, err)
	require.ErrorContains(t, w.ended(), "permission denied")
}

// A value of more than any document is no reason to keep it.
func TestTooLarge(t *testing.T) {
	client := etcdtest.Start(t).Client(clientv3.Config{})
	put(t, client, key, bytes.Repeat([]byte("x"), config.MaxDocument+1))
	_, err := newSource(t, etcdsource.Config{Client: client, Key: key}).Load(t.Context())
	require.ErrorContains(t, err, "1048577 bytes, which is above 1048576")
}
