// Command spillway-serve is "spillway serve" with two more places where the policy document may be. It is a module of its
// own, as the libraries of both are large.
//
//	spillway-serve -config etcd://127.0.0.1:2379#shop/policies -upstream http://127.0.0.1:3000
//	spillway-serve -config nacos://127.0.0.1:8848/NAMESPACE/GROUP#shop.yaml -upstream http://127.0.0.1:3000
//
// Several servers are separated by commas; etcds:// and nacoss:// speak TLS. A user is written before the servers, and
// the password comes from the variable SPILLWAY_CONFIG_PASSWORD, as command lines can be read by others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/spillway-go/spillway/config"
	etcdsource "github.com/spillway-go/spillway/config/source/etcd"
	nacossource "github.com/spillway-go/spillway/config/source/nacos"
	"github.com/spillway-go/spillway/internal/serve"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve.Run(ctx, os.Args[1:], os.Stdout, os.Stderr, sources())
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, serve.ErrUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "spillway-serve:", err)
		os.Exit(1)
	}
}

func sources() serve.Sources {
	s := serve.Builtin()
	s["etcd"], s["etcds"] = openEtcd, openEtcd
	s["nacos"], s["nacoss"] = openNacos, openNacos
	return s
}

func openEtcd(location string) (config.Source, func(), error) {
	p, err := serve.ParsePlace(location, "etcd", "etcd://HOST:2379#KEY")
	if err != nil {
		return nil, nil, err
	}
	src := &etcd{place: p}
	return src, src.close, nil
}

// etcd is a source whose client is made when it is first asked: a client with a user logs in as it is made, and the
// server may be away for longer than this program takes to start.
type etcd struct {
	place serve.Place

	mu     sync.Mutex
	client *clientv3.Client
	source *etcdsource.Source
}

func (e *etcd) open() (*etcdsource.Source, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.source != nil {
		return e.source, nil
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: e.place.Hosts, TLS: e.place.TLSConfig(), Username: e.place.User, Password: serve.Password(),
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 30 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	if e.source, err = etcdsource.New(etcdsource.Config{Client: client, Key: e.place.Name}); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	e.client = client
	return e.source, nil
}

func (e *etcd) Load(ctx context.Context) ([]byte, error) {
	src, err := e.open()
	if err != nil {
		return nil, err
	}
	return src.Load(ctx)
}

func (e *etcd) Watch(ctx context.Context, changed func()) error {
	src, err := e.open()
	if err != nil {
		return err
	}
	return src.Watch(ctx, changed)
}

func (e *etcd) String() string { return "etcd:" + e.place.Name }

func (e *etcd) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		_ = e.client.Close()
	}
}

func openNacos(location string) (config.Source, func(), error) {
	p, err := serve.ParsePlace(location, "nacos", "nacos://HOST:8848/NAMESPACE/GROUP#DATAID; namespace and group may be left out")
	if err != nil {
		return nil, nil, err
	}
	c := nacossource.Config{Servers: p.URLs(), DataID: p.Name, Username: p.User, TLS: p.TLSConfig()}
	if p.User != "" {
		c.Password = serve.Password()
	}
	switch len(p.Path) {
	case 0:
	case 1:
		c.Group = p.Path[0]
	case 2:
		c.Namespace, c.Group = p.Path[0], p.Path[1]
	default:
		return nil, nil, errors.New("want nacos://HOST:8848/NAMESPACE/GROUP#DATAID")
	}
	src, err := nacossource.New(c)
	return src, func() {}, err
}
