package fallback_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

// Faults of published limiters, and those reported in the field, that this package has to make impossible.

// A published fault: an error of the store is dropped and its zero answer taken for a denial, so that everybody gets 429.
func TestAnErrorNeverBecomesADenial(t *testing.T) {
	for name, failure := range map[string]error{
		"away": errGone, "odd": errOdd, "invalid": limiter.ErrInvalid, "closed": limiter.ErrClosed, "ended": context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			first, second := newStore(t), newStore(t)
			l := newLimiter(t, fallback.Config{Primary: first, Secondary: second})
			first.fail(failure)
			for _, both := range []bool{false, true} {
				if both {
					second.fail(failure)
				}
				for range 20 {
					d, err := l.Allow(ctx, key, limit, 1)
					if name == "away" && !both {
						require.NoError(t, err)
						require.True(t, d.Allowed)
						continue
					}
					require.ErrorIs(t, err, failure)
					require.Zero(t, d, "an error comes with a decision")
				}
			}
		})
	}
}

// DOWN-07: a store that died while a call waits holds the request for ever. The primary bounds its calls; a call that ends
// so is answered by the secondary at once.
func TestADeadStoreIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := timesOut{newStore(t), 50 * time.Millisecond}
		s.slow.Store(int64(time.Hour))
		l := newLimiter(t, fallback.Config{Primary: s})
		began := time.Now()
		require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
		require.Equal(t, 50*time.Millisecond, time.Since(began))
	})
}

// DOWN-08: a store accepts connections and never answers, and every request waits for it before it is answered otherwise.
// DOWN-11: or the retries and time-outs of a client add up for every request.
func TestAnOpenBreakerAddsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := timesOut{newStore(t), 50 * time.Millisecond}
		s.slow.Store(int64(time.Hour))
		l := newLimiter(t, fallback.Config{Primary: s, Cooldown: 10 * time.Second})
		began := time.Now()
		for range 100 {
			require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
		}
		require.Equal(t, 5*50*time.Millisecond, time.Since(began), "five calls wait, ninety-five do not")
		require.EqualValues(t, 5, s.asked.Load())

		time.Sleep(15 * time.Second)
		began = time.Now()
		for range 100 {
			take(t, l, limit, 1)
		}
		require.Equal(t, 50*time.Millisecond, time.Since(began), "then one of a hundred")
	})
}

// timesOut is a store that bounds its calls.
type timesOut struct {
	*store
	timeout time.Duration
}

func (s timesOut) Allow(ctx context.Context, k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	d, err := s.store.Allow(bounded, k, l, n)
	if err != nil && ctx.Err() == nil {
		return limiter.Decision{}, fmt.Errorf("%w: %w", limiter.ErrUnavailable, &net.OpError{Op: "read", Err: err})
	}
	return d, err
}

// DOWN-12: a wrong password, a missing permission and clients that leave look like an outage, and open the gate for good.
func TestOnlyOutagesLeadToTheSecondary(t *testing.T) {
	s, second, w := newStore(t), newStore(t), &watch{}
	l := newLimiter(t, fallback.Config{Primary: s, Secondary: second, Observer: w})
	for _, failure := range []error{errOdd, fmt.Errorf("NOPERM this user has no permissions"), limiter.ErrInvalid, limiter.ErrClosed} {
		s.fail(failure)
		for range 20 {
			_, err := l.Allow(ctx, key, limit, 1)
			require.ErrorIs(t, err, failure)
			require.NotErrorIs(t, err, limiter.ErrUnavailable)
		}
	}
	s.fail(nil)
	ended, end := context.WithCancel(ctx)
	end()
	for range 20 {
		_, err := l.Allow(ended, key, limit, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, limiter.ErrUnavailable)
	}
	require.Zero(t, second.asked.Load(), "nobody was sent to the secondary")
	require.Empty(t, w.told())
}

// DOWN-13: a rate of zero, typed by mistake, is taken for an outage and allows all.
func TestARateOfZeroOpensNothing(t *testing.T) {
	for _, isAway := range []bool{false, true} {
		s := newStore(t)
		l := newLimiter(t, fallback.Config{Primary: s, Replicas: 3})
		if isAway {
			trip(t, l, s)
		}
		for _, bad := range []limiter.Limit{{}, limiter.PerSecond(0), limiter.PerSecond(2 * limiter.MaxRate), limiter.PerSecond(1).WithBurst(2 * limiter.MaxRate)} {
			d, err := l.Allow(ctx, key, bad, 1)
			require.ErrorIs(t, err, limiter.ErrInvalid)
			require.NotErrorIs(t, err, limiter.ErrUnavailable)
			require.Zero(t, d)
			_, err = l.AllowAll(ctx, time.Time{}, []limiter.Take{{Key: key, Limit: bad, N: 1}})
			require.ErrorIs(t, err, limiter.ErrInvalid)
			require.NotErrorIs(t, err, limiter.ErrUnavailable)
		}
	}
}

// DOWN-15: what was counted here while the store was away is counted by it once more when it is back, and clients are
// blocked. Nothing is queued for it and nothing replayed.
func TestNothingIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		l := newLimiter(t, fallback.Config{Primary: s})
		limit := limiter.PerDay(100)
		require.True(t, take(t, l, limit, 10).Allowed)
		trip(t, l, s)
		asked := s.asked.Load()
		for range 40 {
			require.True(t, take(t, l, limit, 1).Allowed)
		}
		require.Equal(t, asked, s.asked.Load())
		s.fail(nil)
		time.Sleep(2 * time.Second)
		d := take(t, l, limit, 1)
		require.Equal(t, limiter.ViaStore, d.Via)
		require.Equal(t, 89, d.Remaining, "10 before the outage and this one")
	})
}

// DOWN-16: one switch for all lifts the protection of logins, and nothing shows it. Here every decision of the share
// says so, it is a share and not an open gate, and where the share is not wanted, a policy takes the primary alone.
func TestAnOutageIsNoOpenGate(t *testing.T) {
	s := newStore(t)
	l := newLimiter(t, fallback.Config{Primary: s, Replicas: 2})
	trip(t, l, s)
	allowed := 0
	for range 100 {
		d := take(t, l, limiter.PerHour(10), 1)
		require.Equal(t, limiter.ViaFallback, d.Via)
		if d.Allowed {
			allowed++
		}
	}
	require.Equal(t, 5, allowed)
}

// Everything at once, for the race detector; the limit is kept while the primary comes and goes.
func TestConcurrently(t *testing.T) {
	s, w := newStore(t), &watch{}
	l := newLimiter(t, fallback.Config{Primary: s, Replicas: 2, Observer: w, Failures: 2, Cooldown: time.Millisecond})
	limit := limiter.PerDay(500)
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := map[limiter.Via]int{}
	for i := range 8 {
		wg.Go(func() {
			for k := range 300 {
				switch {
				case i == 0 && k%20 == 0:
					s.fail(errGone)
				case i == 0 && k%20 == 10:
					s.fail(nil)
				}
				takes := []limiter.Take{{Key: key, Limit: limit, N: 1}}
				var err error
				if k%3 == 0 {
					_, err = l.AllowAll(ctx, time.Time{}, takes)
				} else {
					takes[0].Decision, err = l.Allow(ctx, key, limit, 1)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if d := takes[0].Decision; d.Allowed {
					mu.Lock()
					admitted[d.Via]++
					mu.Unlock()
				}
				_ = l.Refund(ctx, time.Time{}, &limiter.Take{Key: limiter.Key{ID: "other"}, Limit: limit, N: 1, Decision: limiter.Decision{Mark: 1}})
				if k%50 == 0 {
					_ = l.Reset(ctx, limiter.Key{ID: "other"})
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, admitted[limiter.ViaFallback], 250)
	require.LessOrEqual(t, admitted[limiter.ViaStore]+admitted[limiter.ViaMemory], 500)
	// Told in the order in which they happened.
	before := uint8(closed)
	for _, now := range w.told() {
		require.Contains(t, map[uint8][]uint8{closed: {open}, open: {halfOpen}, halfOpen: {open, closed}}[before], now)
		before = now
	}
}
