package leased_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// open returns a limiter on the test process's server, whose keys no other test has.
func open(t *testing.T, c leased.Config) *leased.Limiter {
	t.Helper()
	if c.Client == nil {
		c.Client = redistest.Shared(t).Client()
	}
	if c.Prefix == "" {
		c.Prefix = fmt.Sprintf("t%d", time.Now().UnixNano())
	}
	if c.Timeout == 0 {
		c.Timeout = 500 * time.Millisecond // a busy machine is not what is tested
	}
	l, err := leased.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// One process alone has the whole quota, but for what groups set aside that are refused: it may be refused to others meanwhile.
func TestConformance(t *testing.T) {
	p := limitertest.Bounded(limitertest.Bounds{Under: 0.9}, limiter.TokenBucket)
	p.ForeignClock, p.NoInstants = true, true
	limitertest.Run(t, func(t *testing.T) limiter.Limiter { return open(t, leased.Config{}) }, p)
}
