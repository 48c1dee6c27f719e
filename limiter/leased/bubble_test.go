package leased

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// One process alone has the whole quota, at any time and not a token more: where replies take time, not more than what comes
// back in it.
func TestConformanceInBubbles(t *testing.T) {
	for delay, bounds := range map[time.Duration]limitertest.Bounds{
		0: {Under: 1},
		// What a group sets aside that is refused may be refused to another group meanwhile.
		time.Microsecond: {Under: 0.9, Slack: 1},
	} {
		t.Run(delay.String(), func(t *testing.T) {
			p := limitertest.Bounded(bounds, limiter.TokenBucket)
			p.NoInstants, p.Tick = true, time.Microsecond
			limitertest.Run(t, func(t *testing.T) limiter.Limiter { return onModel(t, &modelStore{delay: delay}, Config{}) }, p)
		})
	}
}

// What nobody asks for goes back by itself, by the timer that a user's process has.
func TestIdleLeasesAreReturnedByTheTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		warm(t, l, alice, limit, 60)
		require.Positive(t, s.out())
		time.Sleep(150 * time.Millisecond)
		require.Positive(t, s.out(), "not before two ticks")
		time.Sleep(200 * time.Millisecond)
		require.Zero(t, s.out())
		require.Zero(t, l.Stats().Held)
		require.Positive(t, l.Stats().Returned)
		require.Zero(t, l.Stats().Stranded)
		before := s.count()
		time.Sleep(time.Minute)
		require.Equal(t, before, s.count(), "and then there is quiet")
		l.mu.Lock()
		require.Nil(t, l.timer, "the timer rests as well")
		l.mu.Unlock()
	})
}

func TestCloseReturnsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		for k := range 40 {
			warm(t, l, limiter.Key{Space: "s", ID: fmt.Sprint(k)}, limiter.PerSecond(10000), 60)
		}
		require.Positive(t, s.out())
		require.NoError(t, l.Close())
		require.Zero(t, s.out())
		require.NoError(t, l.Close(), "again")
		_, err := l.Allow(t.Context(), alice, limiter.PerSecond(10), 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
		require.ErrorIs(t, l.Reset(t.Context(), alice), limiter.ErrClosed)
	})
}

// Who waits when the limiter is closed has an answer, and no goroutine is left. (The bubble sees to that.)
func TestCloseWhileMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: 3 * time.Millisecond}
		l := onModel(t, s, Config{})
		var wg sync.WaitGroup
		for k := range 300 {
			wg.Go(func() {
				for i := range 20 {
					key := limiter.Key{Space: "s", ID: fmt.Sprint(k % 7)}
					takes := []limiter.Take{{Key: key, Limit: limiter.PerSecond(1000), N: 1}, {Key: bob, Limit: limiter.PerSecond(5000), N: 1 + i%3}}
					if _, err := l.AllowAll(context.Background(), time.Time{}, takes); err != nil {
						require.ErrorIs(t, err, limiter.ErrClosed)
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, l.Close())
		wg.Wait()
	})
}

// When Redis is away what is leased is spent to the deadline, then decisions fail; and all is well soon after it is back.
func TestRedisAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		warm(t, l, alice, limit, 60)
		held := l.Stats().Held
		s.set(func() { s.away = true })
		for range held {
			d := allow(t, l, limit, 1)
			require.True(t, d.Allowed)
			require.Equal(t, limiter.ViaLease, d.Via)
		}
		_, err := l.Allow(t.Context(), alice, limit, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		time.Sleep(time.Millisecond)
		before := l.Stats().Calls
		begin := time.Now()
		for range 1000 { // nobody waits for what is known to be away
			_, err = l.Allow(t.Context(), alice, limit, 1)
			require.ErrorIs(t, err, limiter.ErrUnavailable)
		}
		require.Zero(t, time.Since(begin))
		require.Equal(t, before, l.Stats().Calls)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			_, _ = l.Allow(t.Context(), alice, limit, 1)
		}
		require.LessOrEqual(t, l.Stats().Calls-before, uint64(14), "it asks less and less often")
		s.set(func() { s.away = false })
		time.Sleep(16 * 100 * time.Millisecond)
		d := allow(t, l, limit, 1)
		require.True(t, d.Allowed)
	})
}

// A lease that cannot be renewed ends for the node before it ends for the script.
func TestLeaseEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		warm(t, l, alice, limit, 60)
		s.set(func() { s.away = true })
		held := l.Stats().Held
		time.Sleep(985 * time.Millisecond)
		require.Positive(t, held)
		time.Sleep(100 * time.Millisecond)
		_, err := l.Allow(t.Context(), alice, limit, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Zero(t, l.Stats().Held)
		require.Positive(t, l.Stats().Stranded)
	})
}

// A client that leaves is no failure of the store, and takes nothing that another could have.
func TestClientsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: 10 * time.Millisecond}
		l := onModel(t, s, Config{})
		limit := limiter.Per(10, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, err := l.Allow(ctx, alice, limit, 1)
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, limiter.ErrUnavailable)
			})
		}
		wg.Go(func() {
			short, stop := context.WithTimeout(t.Context(), 3*time.Millisecond)
			defer stop()
			_, err := l.Allow(short, alice, limit, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		time.Sleep(5 * time.Millisecond)
		cancel()
		wg.Wait()
		time.Sleep(time.Second)
		passed := 0
		for range 20 {
			if allow(t, l, limit, 1).Allowed {
				passed++
			}
		}
		require.GreaterOrEqual(t, passed, 9, "one had been asked for")
		require.Zero(t, l.Stats().Failed)
	})
}

// Units come back to the lease they are of, never above it, and not when it is over.
func TestRefunds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		warm(t, l, alice, limit, 60)
		held := l.Stats().Held
		d := allow(t, l, limit, 3)
		require.Equal(t, limiter.ViaLease, d.Via)
		take := limiter.Take{Key: alice, Limit: limit, N: 3, Decision: d}
		require.NoError(t, l.Refund(t.Context(), time.Time{}, &take))
		require.Equal(t, held, l.Stats().Held)
		for range 50 {
			require.NoError(t, l.Refund(t.Context(), time.Time{}, &take))
		}
		require.LessOrEqual(t, l.Stats().Held, s.out())
		require.NoError(t, l.Refund(t.Context(), time.Time{}, &limiter.Take{Key: bob, Limit: limit, N: 3, Decision: d}))
		s.set(func() { s.away = true })
		time.Sleep(time.Second)
		require.NoError(t, l.Refund(t.Context(), time.Time{}, &take))
		require.Zero(t, l.Stats().Held)
	})
}

// After a reset a key is as if never seen; what another process holds is dropped when it next asks.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l, other := onModel(t, s, Config{}), onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		warm(t, l, alice, limit, 60)
		warm(t, other, alice, limit, 60)
		warm(t, l, alice, limit, 60)
		require.NoError(t, l.Reset(t.Context(), alice))
		require.Zero(t, l.Stats().Held)
		require.Zero(t, s.out())
		require.True(t, allow(t, l, limit, 1000).Allowed)
		require.False(t, allow(t, l, limit, 1).Allowed)
		time.Sleep(300 * time.Millisecond)
		require.Zero(t, other.Stats().Held)
		s.set(func() { s.away = true })
		require.ErrorIs(t, l.Reset(t.Context(), alice), limiter.ErrUnavailable)
	})
}

// More keys than there is room for: those that go give back what they hold.
func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{MaxKeys: 100})
		hot := limiter.PerSecond(1000)
		for k := range 20 {
			warm(t, l, limiter.Key{Space: "hot", ID: fmt.Sprint(k)}, hot, 60)
		}
		for k := range 20_000 {
			_, err := l.Allow(t.Context(), limiter.Key{Space: "cold", ID: fmt.Sprint(k)}, hot, 1)
			require.NoError(t, err)
		}
		synctest.Wait()
		require.LessOrEqual(t, l.Stats().Keys, 200)
		require.Zero(t, l.Stats().Held)
		require.Zero(t, s.out())
	})
}

// A denial is remembered until the wait it named is over: the bucket that is empty is not asked again and again.
func TestDenialsAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(100).WithBurst(10)
		for range 10 {
			require.True(t, allow(t, l, limit, 1).Allowed)
		}
		calls, refused := s.count(), 0
		for range 10_000 {
			if d := allow(t, l, limit, 1); !d.Allowed {
				refused++
				require.Positive(t, d.RetryAfter)
				require.LessOrEqual(t, d.RetryAfter, time.Second)
			}
			time.Sleep(100 * time.Microsecond)
		}
		require.InDelta(t, 9900, refused, 15)
		require.LessOrEqual(t, s.count()-calls, 130, "about one in a tick or for each token")
		d := allow(t, l, limit, 11)
		require.Equal(t, limiter.Never, d.RetryAfter)
	})
}

// A client that waits as it is told is served, also for takes that cost much.
func TestRetryAfterComesTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := onModel(t, &modelStore{delay: time.Microsecond}, Config{})
		for k, limit := range []limiter.Limit{
			limiter.PerMinute(5), limiter.PerSecond(5), limiter.Per(7, 3*time.Second), limiter.PerSecond(1).WithBurst(1),
		} {
			key := limiter.Key{Space: "s", ID: fmt.Sprint(k)}
			for _, n := range []int{1, 3, limit.Quota()} {
				n = min(n, limit.Quota())
				for range 20 {
					d, err := l.Allow(t.Context(), key, limit, n)
					require.NoError(t, err)
					if !d.Allowed {
						time.Sleep(d.RetryAfter)
						d, err = l.Allow(t.Context(), key, limit, n)
						require.NoError(t, err)
						require.True(t, d.Allowed, "%v, %d: %+v", limit, n, d)
					}
				}
			}
		}
	})
}

// Limits that are raised and lowered while they serve: a lowered burst bites at once for what is not leased, a raised one counts
// at once, and the script hears of it with the next take.
func TestLimitsChangeLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		wide := limiter.PerSecond(1000)
		warm(t, l, alice, wide, 60)
		low := limiter.PerSecond(5)
		allow(t, l, low, 1)
		time.Sleep(10 * time.Millisecond)
		require.LessOrEqual(t, l.Stats().Held, int64(5))
		require.Equal(t, int64(5), s.buckets[alice.Render("", suffix)].burst)
		passed := 0
		for range 100 {
			if allow(t, l, low, 1).Allowed {
				passed++
			}
		}
		require.LessOrEqual(t, passed, 5)
		time.Sleep(time.Second)
		require.True(t, allow(t, l, wide, 1).Allowed)
		time.Sleep(time.Second)
		require.True(t, allow(t, l, wide, 900).Allowed)
	})
}

// Numbers are never above the burst, and fall while nothing comes back.
func TestNumbersAreHonest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := onModel(t, &modelStore{}, Config{})
		limit := limiter.Per(500, time.Hour)
		last := 500
		for range 600 {
			d := allow(t, l, limit, 1)
			require.LessOrEqual(t, d.Remaining, last)
			require.Equal(t, d.Allowed, d.RetryAfter == 0)
			if d.Allowed {
				require.Equal(t, last-1, d.Remaining)
				require.Positive(t, d.Mark)
			}
			last = d.Remaining
		}
		require.Zero(t, last)
		time.Sleep(24 * time.Hour)
		d := allow(t, l, limit, 0)
		require.Equal(t, 500, d.Remaining)
		require.Zero(t, d.ResetAfter)
	})
}

// Many goroutines, several processes and replies that are lost: what passes is at most one bucket's, by an independent meter.
func TestTogetherNeverTooMuch(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			s := &modelStore{delay: 100 * time.Microsecond}
			limit := limiter.PerSecond(500).WithBurst(100)
			m := newMeter(limit)
			begin := time.Now()
			var mu sync.Mutex
			var wg sync.WaitGroup
			over := time.Now().Add(3 * time.Second)
			for k := range 5 {
				l := onModel(t, s, Config{})
				for g := range 4 {
					wg.Go(func() {
						rng := rand.New(rand.NewPCG(seed, uint64(10*k+g)))
						for time.Now().Before(over) {
							n, ok := 1+rng.IntN(3), false
							var err error
							if rng.IntN(3) == 0 {
								takes := []limiter.Take{{Key: alice, Limit: limit, N: n}, {Key: bob, Limit: limiter.PerSecond(300), N: 1}}
								ok, err = l.AllowAll(t.Context(), time.Time{}, takes)
							} else {
								var d limiter.Decision
								d, err = l.Allow(t.Context(), alice, limit, n)
								ok = d.Allowed
							}
							if err != nil && !errors.Is(err, limiter.ErrUnavailable) {
								t.Error(err)
							}
							if ok {
								mu.Lock()
								m.admit(int64(time.Since(begin)), int64(n))
								mu.Unlock()
							}
							time.Sleep(time.Duration(rng.IntN(int(8*time.Millisecond) * (1 + k))))
						}
					})
				}
			}
			wg.Go(func() {
				for i := range 6 {
					time.Sleep(400 * time.Millisecond)
					s.set(func() { s.deaf = i%2 == 0 })
				}
			})
			wg.Wait()
			// The reply takes 100 µs, in which a twentieth of a token comes back.
			require.LessOrEqual(t, m.worst, 500*200e-6+1)
		})
	}
}
