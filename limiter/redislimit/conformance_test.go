package redislimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// open returns a limiter on the test process's server, whose keys no other test has.
func open(t *testing.T, c redislimit.Config) *redislimit.Limiter {
	t.Helper()
	if c.Client == nil {
		c.Client = redistest.Shared(t).Client()
	}
	if c.Prefix == "" {
		c.Prefix = fmt.Sprintf("t%d", time.Now().UnixNano())
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second // a busy machine is not what is tested
	}
	l, err := redislimit.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestServerClock(t *testing.T) {
	limitertest.Run(t, func(t *testing.T) limiter.Limiter {
		return open(t, redislimit.Config{})
	}, limitertest.Profile{Tick: time.Microsecond, ForeignClock: true, NoInstants: true})
}

func TestCallerClock(t *testing.T) {
	limitertest.Run(t, func(t *testing.T) limiter.Limiter {
		return open(t, redislimit.Config{CallerClock: true})
	}, limitertest.Profile{Tick: time.Microsecond, ForeignClock: true})
}

func TestSameAsTheModel(t *testing.T) {
	steps := 300
	if testing.Short() {
		steps = 100
	}
	for seed := range uint64(60) {
		limitertest.Differential(t, limitertest.NewModel(), open(t, redislimit.Config{CallerClock: true}),
			limitertest.Profile{Tick: time.Microsecond, ForeignClock: true}, seed, steps)
	}
}

// Neither the deny cache nor shared trips make a difference.
func TestSameWithoutDenyCache(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs twice already")
	}
	limitertest.Run(t, func(t *testing.T) limiter.Limiter {
		return open(t, redislimit.Config{CallerClock: true, DenyCache: -1, NoSharing: true})
	}, limitertest.Profile{Tick: time.Microsecond, ForeignClock: true})
}
