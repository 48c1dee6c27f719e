package redissource

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// server returns a client of one server that hears the channel: of a Cluster the master of the key, though every node
// would do, of a Ring the one that has the key.
func (s *Source) server(ctx context.Context) (*redis.Client, error) {
	if c, ok := s.rdb.(*redis.Client); ok {
		return c, nil
	}
	if node, ok := s.client.Node(ctx, s.key).(*redis.Client); ok {
		return node, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, errNoNode
}

// suspect asks a server of a Cluster that could not be subscribed to: where it does not answer, the client looks for who
// has its place.
func (s *Source) suspect(ctx context.Context) {
	if s.client.Sharded() {
		_, _ = s.client.Do(ctx, "strlen", s.key)
	}
}

var errOnce = errors.New("the connection is lost")

// options are those of node for one connection, whose every step is bounded, and which ends with ctx at once. go-redis has
// no other way to interrupt a subscription: it reads without looking at the context.
func (s *Source) options(ctx context.Context, node *redis.Client) *redis.Options {
	o := *node.Options()
	dial := o.Dialer
	var dialed atomic.Bool
	o.Dialer = func(dialing context.Context, network, addr string) (net.Conn, error) {
		// Of itself a subscription comes back on a new connection: without a pause, and to this server only.
		if dialed.Swap(true) {
			return nil, errOnce
		}
		in, cancel := context.WithTimeout(dialing, s.timeout)
		defer cancel()
		conn, err := dial(in, network, addr)
		if err != nil {
			return nil, err
		}
		c := &closer{Conn: conn}
		c.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		return c, nil
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = s.timeout, s.timeout, s.timeout
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.DialerRetries, o.MinIdleConns = -1, 1, 0
	// Of the client that the options are from: they would do nothing here, or be registered twice.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor = nil
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	o.Limiter = nil // it counts commands
	return &o
}

// closer is a connection that ends with a context.
type closer struct {
	net.Conn
	stop func() bool
}

func (c *closer) Close() error {
	c.stop()
	return c.Conn.Close()
}
