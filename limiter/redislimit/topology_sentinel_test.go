package redislimit_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// A master that is killed under load costs errors until its replica has its place, and lets pass at most one more burst: what
// the replica has not received is a state that is younger, whose bucket at worst is full.
func TestSentinelFailOver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a fail-over takes seconds")
	}
	const timeout = 200 * time.Millisecond
	s := redistest.StartSentinel(t)
	heeds := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName(), SentinelAddrs: s.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = heeds.Close() })
	var loads []*load
	limit := limiter.PerSecond(200).WithBurst(50)
	for prefix, rdb := range map[string]*redis.Client{"default": s.Client(), "heeds-contexts": heeds} {
		l := open(t, redislimit.Config{Client: rdb, Prefix: prefix, Timeout: timeout})
		loads = append(loads, startLoad(t, l, limit, timeout, 4, alice))
	}
	for _, x := range loads {
		x.denied(100)
	}
	s.Master().Kill()
	for _, x := range loads {
		x.broken()
	}
	for _, x := range loads {
		x.recover(busy)
		x.denied(100)
		x.end()
		to := x.of[alice]
		t.Logf("%v; decisions again after %v; at most %d", to, to.again.Sub(x.fault).Round(time.Millisecond), x.bound(to))
		require.LessOrEqual(t, to.admitted, x.bound(to))
		require.Positive(t, to.failed)
	}
}
