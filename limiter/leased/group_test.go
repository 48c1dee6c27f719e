package leased

import (
	"fmt"
	"sync"
	"sync/atomic"
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

// Who waits while the burst is lowered is decided under the limit it came with, and nobody asks for ever.
func TestBurstLoweredUnderAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: 5 * time.Millisecond}
		l := onModel(t, s, Config{})
		wide, narrow := limiter.PerSecond(10), limiter.PerSecond(5)
		var wg sync.WaitGroup
		wg.Go(func() { allow(t, l, wide, 1) })
		time.Sleep(time.Millisecond)
		wg.Go(func() {
			d := allow(t, l, wide, 9)
			require.Equal(t, wide, d.Limit)
			require.True(t, d.Allowed, "%+v", d)
		})
		time.Sleep(time.Millisecond)
		wg.Go(func() { require.Equal(t, narrow, allow(t, l, narrow, 1).Limit) })
		wg.Wait()
		require.LessOrEqual(t, s.count(), 4)
	})
}

// Two limits of one key in one process, as a document is exchanged or by mistake: each take is decided under its own, and none is
// told that it can never pass.
func TestTwoLimitsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := onModel(t, &modelStore{delay: 500 * time.Microsecond}, Config{})
		wide, narrow := limiter.PerSecond(1000), limiter.PerSecond(1000).WithBurst(2)
		var passed [2]atomic.Int64
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				limit, n := wide, 5
				if g%2 == 1 {
					limit, n = narrow, 1
				}
				for range 100 {
					d := allow(t, l, limit, n)
					require.Equal(t, limit, d.Limit)
					require.LessOrEqual(t, d.Remaining, limit.Quota())
					if d.Allowed {
						passed[g%2].Add(1)
					} else {
						require.LessOrEqual(t, d.RetryAfter, time.Second)
					}
					time.Sleep(time.Duration(1+g) * 300 * time.Microsecond)
				}
			})
		}
		wg.Wait()
		// While the narrow one is asked for all the time the bucket may never hold the five that the wide one needs.
		require.Positive(t, passed[1].Load())
		time.Sleep(time.Second)
		require.True(t, allow(t, l, wide, 5).Allowed, "and then it does")
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

// A shadow take that cannot be decided refuses nobody: where Redis does not answer for its key the real takes are booked without
// it, and where it can never be decided the error says so and nothing is booked.
func TestShadowTakesThatCannotBeDecided(t *testing.T) {
	wide, narrow := limiter.Per(10, time.Hour), limiter.Per(2, time.Hour)
	foreign := fmt.Errorf("%w: %w", limiter.ErrInvalid, errForeign)
	for name, c := range map[string]struct {
		err  error
		real bool
		pass bool
	}{
		"away":               {errAway, true, true},
		"away, and alone":    {errAway, false, false},
		"foreign":            {foreign, true, false},
		"foreign, and alone": {foreign, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &modelStore{delay: time.Microsecond, broken: map[string]error{bob.Render("", suffix): c.err}}
				l := onModel(t, s, Config{})
				for i := range 3 { // the second finds it away already
					takes := []limiter.Take{{Key: bob, Limit: narrow, N: 1, Shadow: true}}
					if c.real {
						takes = append(takes, limiter.Take{Key: alice, Limit: wide, N: 1})
					}
					ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
					require.Equal(t, c.pass, ok)
					if !c.pass {
						require.ErrorIs(t, err, c.err)
						continue
					}
					require.NoError(t, err)
					require.True(t, takes[0].Decision.Allowed)
					require.Equal(t, narrow, takes[0].Decision.Limit)
					require.Zero(t, takes[0].Decision.Mark, "and is not booked")
					require.Equal(t, 9-i, takes[1].Decision.Remaining)
					require.NotZero(t, takes[1].Decision.Mark)
				}
				if !c.pass {
					require.True(t, allow(t, l, wide, 10).Allowed, "nothing was booked")
				}
			})
		})
	}
}

// A lease that ends while the last of a group is waited for is asked for again; what was spent meanwhile stays spent once.
func TestGroupIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: 5 * time.Millisecond}
		l := onModel(t, s, Config{})
		limit, narrow := limiter.PerSecond(1000), limiter.Per(10, time.Hour)
		for range 30 {
			allow(t, l, limit, 5)
			time.Sleep(5 * time.Millisecond)
		}
		e := l.table.get(&alice, l.table.hash(&alice))
		e.mu.Lock()
		require.Positive(t, e.node.held)
		e.node.low, e.node.deadline = -1, l.now()+int64(time.Millisecond)
		e.mu.Unlock()
		takes := []limiter.Take{{Key: alice, Limit: limit, N: 1}, {Key: bob, Limit: narrow, N: 1}}
		ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
		require.NoError(t, err)
		require.True(t, ok)
		require.Positive(t, l.Stats().Stranded, "it did end")
		d, err := l.Allow(t.Context(), bob, narrow, 9)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	})
}
