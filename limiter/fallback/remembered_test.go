package fallback_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

// remembering is a store that answers one key from the memory of the process, as one with a deny cache does.
type remembering struct {
	*store
	spent limiter.Key
}

func (r remembering) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	if key == r.spent {
		return limiter.Decision{Limit: limit, RetryAfter: time.Second, Via: limiter.ViaDenyCache}, nil
	}
	return r.store.Allow(ctx, key, limit, n)
}

func (r remembering) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if len(takes) == 1 && takes[0].Key == r.spent {
		var err error
		takes[0].Decision, err = r.Allow(ctx, takes[0].Key, takes[0].Limit, takes[0].N)
		return false, err
	}
	return r.store.AllowAll(ctx, at, takes)
}

// A denial that is remembered says nothing about a store that is away: a flood on a spent key must neither keep the breaker
// from opening nor close it.
func TestRememberedDenialsSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watch{}
		r := remembering{newStore(t), limiter.Key{Space: "search", ID: "tenant=spent"}}
		l := newLimiter(t, fallback.Config{Primary: r, Observer: w})
		flood := func() {
			d, err := l.Allow(ctx, r.spent, limit, 1)
			require.NoError(t, err)
			require.False(t, d.Allowed)
			takes := []limiter.Take{{Key: r.spent, Limit: limit, N: 1}}
			ok, err := l.AllowAll(ctx, time.Time{}, takes)
			require.NoError(t, err)
			require.False(t, ok)
		}
		r.fail(errGone)
		for range 5 {
			flood()
			require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
		}
		require.Equal(t, []uint8{open}, w.told())
		time.Sleep(2 * time.Second)
		require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
		require.Equal(t, []uint8{open, halfOpen, open}, w.told())
		time.Sleep(2 * time.Second)
		d, err := l.Allow(ctx, r.spent, limit, 1)
		require.NoError(t, err)
		require.Equal(t, limiter.ViaDenyCache, d.Via)
		require.NotContains(t, w.told()[3:], uint8(closed), "a remembered denial is no probe that succeeded")
		r.fail(nil)
		require.Equal(t, limiter.ViaStore, take(t, l, limit, 1).Via)
		require.Equal(t, uint8(closed), w.told()[len(w.told())-1])
	})
}
