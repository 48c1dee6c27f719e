package rediscall

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node names the server of a Cluster or a Ring that a call for key goes to now, by a value to compare; nil where there is one
// server alone, or where it is not known within the bound of a call. The first call may ask a Cluster.
func (c *Client) Node(ctx context.Context, key string) any {
	var node *redis.Client
	switch rdb := c.rdb.(type) {
	case *redis.ClusterClient:
		b, err := c.begin(ctx)
		if err != nil {
			return nil
		}
		defer b.end()
		if node, err = rdb.MasterForKey(b, key); err != nil {
			_ = c.fault(b, err)
			return nil
		}
	case *redis.Ring:
		node, _ = rdb.GetShardClientForKey(key)
	}
	if node == nil {
		return nil
	}
	return node
}

// Left is how much of the time-out of a call under ctx is left. See [Since].
func (c *Client) Left(ctx context.Context) time.Duration {
	if s, ok := ctx.(since); ok {
		return c.timeout - time.Since(s.start)
	}
	return c.timeout
}
