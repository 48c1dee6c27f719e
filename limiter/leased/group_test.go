package leased

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// A refused group leaves every key as it was, and what it had set aside can be spent at once.
func TestGroupsGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		wide, narrow := limiter.Per(100, time.Hour), limiter.Per(3, time.Hour)
		passed := 0
		for range 50 {
			takes := []limiter.Take{{Key: alice, Limit: wide, N: 2}, {Key: bob, Limit: narrow, N: 1}}
			ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
			require.NoError(t, err)
			if ok {
				passed++
			} else {
				require.True(t, takes[0].Decision.Allowed)
				require.False(t, takes[1].Decision.Allowed)
				require.Positive(t, takes[1].Decision.RetryAfter)
				require.Zero(t, takes[0].Decision.Mark)
			}
		}
		require.Equal(t, 3, passed)
		d := allow(t, l, wide, 94)
		require.True(t, d.Allowed, "%+v", d)
		require.False(t, allow(t, l, wide, 1).Allowed)
	})
}

// A group whose takes are all leased makes no call, and a group of which one is not spends nothing of the others.
func TestGroupsFromLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		for range 12 { // in turns, so that neither is idle
			warm(t, l, alice, limit, 5)
			warm(t, l, bob, limit, 5)
		}
		s.set(func() { s.away = true }) // so that nothing comes beside
		calls, held := s.count(), l.Stats().Held
		takes := []limiter.Take{{Key: bob, Limit: limit, N: 1}, {Key: alice, Limit: limit, N: 2}}
		ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, held-3, l.Stats().Held)
		for _, k := range takes {
			require.Equal(t, limiter.ViaLease, k.Decision.Via)
			require.Positive(t, k.Decision.Mark)
		}
		require.Equal(t, calls, s.count())
		held = l.Stats().Held
		takes[0].Key.ID = "user=carol"
		_, err = l.AllowAll(t.Context(), time.Time{}, takes)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Equal(t, held, l.Stats().Held)
	})
}

// A burst that is lowered below what somebody waits for: he is refused, and nobody asks for ever.
func TestBurstLoweredUnderAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: 5 * time.Millisecond}
		l := onModel(t, s, Config{})
		var wg sync.WaitGroup
		wg.Go(func() { allow(t, l, limiter.PerSecond(10), 1) })
		time.Sleep(time.Millisecond)
		wg.Go(func() {
			d := allow(t, l, limiter.PerSecond(10), 9)
			require.False(t, d.Allowed)
			require.Equal(t, limiter.Never, d.RetryAfter)
		})
		time.Sleep(time.Millisecond)
		wg.Go(func() { allow(t, l, limiter.PerSecond(5), 1) })
		wg.Wait()
		require.LessOrEqual(t, s.count(), 3)
	})
}

// Groups of keys that have no leases get the whole rate: what they took is reported at once, for until then a bucket of one token
// cannot fill up.
func TestGroupsOfColdKeysGetTheirRate(t *testing.T) {
	for _, cold := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			l := onModel(t, &modelStore{delay: 100 * time.Microsecond}, Config{})
			limit := limiter.PerSecond(10).WithBurst(1)
			for i := range 100 {
				takes := []limiter.Take{{Key: alice, Limit: limiter.Unlimited, N: 1}}
				for k := range cold {
					takes = append(takes, limiter.Take{Key: limiter.Key{Space: "cold", ID: fmt.Sprint(k)}, Limit: limit, N: 1})
				}
				ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
				require.NoError(t, err)
				require.True(t, ok, "group %d of %d cold keys", i, cold)
				time.Sleep(101 * time.Millisecond)
			}
		})
	}
}

func TestShadowTakesNeverRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := onModel(t, &modelStore{delay: time.Microsecond}, Config{})
		wide, narrow := limiter.Per(10, time.Hour), limiter.Per(2, time.Hour)
		for i := range 12 {
			takes := []limiter.Take{{Key: alice, Limit: wide, N: 1}, {Key: bob, Limit: narrow, N: 1, Shadow: true}}
			ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
			require.NoError(t, err)
			require.Equal(t, i < 10, ok)
			require.Equal(t, i < 10, takes[0].Decision.Allowed)
			require.Equal(t, i < 2, takes[1].Decision.Allowed, "at %d", i)
		}
		carol := limiter.Key{Space: "api", ID: "user=carol"}
		takes := []limiter.Take{{Key: alice, Limit: wide, N: 1}, {Key: carol, Limit: narrow, N: 1, Shadow: true}}
		ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
		require.NoError(t, err)
		require.False(t, ok)
		require.True(t, takes[1].Decision.Allowed)
		d, err := l.Allow(t.Context(), carol, narrow, 2)
		require.NoError(t, err)
		require.True(t, d.Allowed, "nothing of a refused group was booked")
	})
}
