package limitertest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// audited is a limiter of one's own: it counts refusals and passes everything else on.
type audited struct {
	limiter.Limiter
	refused atomic.Int64
}

func (a *audited) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	d, err := a.Limiter.Allow(ctx, key, limit, n)
	if err == nil && !d.Allowed {
		a.refused.Add(1)
	}
	return d, err
}

func TestAudited(t *testing.T) {
	limitertest.Run(t, func(*testing.T) limiter.Limiter {
		return &audited{Limiter: limitertest.NewModel()}
	}, limitertest.Profile{NoBatch: true, NoRefund: true, NoReset: true})
}

// A limiter of one's own is proved in five lines, those of TestAudited. This one hides the optional methods of what it
// wraps, and says so; its rules about time then run in bubbles.
func ExampleRun() {
	_ = func(t *testing.T) { // TestAudited
		limitertest.Run(t, func(*testing.T) limiter.Limiter {
			return &audited{Limiter: limitertest.NewModel()}
		}, limitertest.Profile{NoBatch: true, NoRefund: true, NoReset: true})
	}
}

// A model is the oracle of a test: its clock stands where it is set.
func ExampleModel() {
	m, key := limitertest.NewModel(), limiter.Key{Space: "login", ID: "user=7"}
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for _, after := range []time.Duration{0, 0, 0, 20 * time.Second, 30 * time.Second} {
		m.SetClock(noon.Add(after))
		d, _ := m.Allow(context.Background(), key, limiter.PerMinute(2), 1)
		fmt.Println(after, d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// 0s true 1 0s
	// 0s true 0 0s
	// 0s false 0 30s
	// 20s false 0 10s
	// 30s true 0 0s
}
