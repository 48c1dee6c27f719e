package redisrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// clocked is what redis_rate is given in tests: its own script on a real server, but with a clock that stands where it is
// set, and keys that stay until the clock says that they are full.
type clocked struct {
	*redis.Client
	mu  sync.Mutex
	now time.Time
}

func (c *clocked) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.ErrNoScript)
	return cmd
}

func (c *clocked) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	for old, other := range map[string]string{
		`redis.call("TIME")`:     `{ARGV[5], ARGV[6]}`,
		`math.ceil(reset_after)`: `math.max(1000, math.ceil(reset_after))`,
	} {
		if strings.Count(source, old) != 1 {
			panic("redis_rate's script no longer has " + old)
		}
		source = strings.Replace(source, old, other, 1)
	}
	c.mu.Lock()
	us := c.now.UnixMicro()
	c.mu.Unlock()
	return c.Client.Eval(ctx, source, keys, append(args, us/1e6, us%1e6)...)
}

func (c *clocked) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// instants is a Limiter whose takes are decided at instants of the test's choice.
type instants struct {
	*Limiter
	clock *clocked
}

func newInstants(t testing.TB) *instants {
	rdb := redistest.Shared(t).Client()
	l, err := New(Config{Client: rdb, Prefix: redistest.Prefix(t)})
	require.NoError(t, err)
	c := &clocked{Client: rdb, now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
	l.rate = redis_rate.NewLimiter(c)
	return &instants{Limiter: l, clock: c}
}

// AllowAll makes the suite choose the instants. It decides single takes.
func (l *instants) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if len(takes) != 1 {
		return false, errors.ErrUnsupported
	}
	if at.UnixNano()%1000 != 0 {
		return false, fmt.Errorf("the server's clock has no %v", at)
	}
	l.clock.set(at)
	var err error
	t := &takes[0]
	t.Decision, err = l.Allow(ctx, t.Key, t.Limit, t.N)
	return t.Decision.Allowed, err
}
