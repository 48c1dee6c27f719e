package fallback_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// gone is a primary that is never there.
type gone struct{}

func (gone) Allow(context.Context, limiter.Key, limiter.Limit, int) (limiter.Decision, error) {
	return limiter.Decision{}, errGone
}

func (gone) AllowAll(_ context.Context, _ time.Time, takes []limiter.Take) (bool, error) {
	if len(takes) == 0 {
		return true, nil
	}
	return false, errGone
}

func (gone) Refund(context.Context, time.Time, *limiter.Take) error { return errGone }

func (gone) Reset(context.Context, limiter.Key) error { return errGone }

// local hands refunds to the secondary: the suite makes some up for bookings that it says nothing more about, and with a
// primary that is never there, all bookings are the secondary's.
type local struct{ *fallback.Limiter }

func (l local) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	booked := *t
	booked.Decision.Via = limiter.ViaFallback
	return l.Limiter.Refund(ctx, at, &booked)
}

// A primary that works decides everything, and one that does not leaves everything to the share: alone, that is the limit.
func TestConformance(t *testing.T) {
	healthy := func(replicas int) func(t *testing.T) limiter.Limiter {
		return func(t *testing.T) limiter.Limiter {
			return newLimiter(t, fallback.Config{Primary: newMemory(t), Replicas: replicas})
		}
	}
	away := func(replicas int) func(t *testing.T) limiter.Limiter {
		return func(t *testing.T) limiter.Limiter {
			return local{newLimiter(t, fallback.Config{Primary: gone{}, Replicas: replicas})}
		}
	}
	onlyHere := limitertest.Profile{NoReset: true} // a key that the primary may remember is not forgotten
	bounded := limitertest.Bounded(limitertest.Bounds{Under: 0.99})
	shared := limitertest.Bounded(limitertest.Bounds{})
	shared.NoReset = true
	shared.Skip = map[string]string{"batch-two-queues": "takes 3 units, which is more than a third of its queue has places"}
	t.Run("healthy", func(t *testing.T) { limitertest.Run(t, healthy(1), limitertest.Exact) })
	t.Run("healthy, bounded", func(t *testing.T) { limitertest.Run(t, healthy(3), bounded) })
	t.Run("away", func(t *testing.T) { limitertest.Run(t, away(1), onlyHere) })
	t.Run("away, one of three", func(t *testing.T) { limitertest.Run(t, away(3), shared) })
}

// Random traces through a primary that works are answered as it answers them, and through one that does not as the
// secondary does.
func TestModel(t *testing.T) {
	for seed := range uint64(10) {
		l := newLimiter(t, fallback.Config{Primary: newMemory(t), Replicas: 5})
		limitertest.Differential(t, limitertest.NewModel(), l, limitertest.Exact, seed, 300)
		away := local{newLimiter(t, fallback.Config{Primary: gone{}})}
		limitertest.Differential(t, limitertest.NewModel(), away, limitertest.Profile{NoReset: true}, seed, 300)
	}
}
