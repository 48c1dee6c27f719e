package fallback_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

const (
	closed, halfOpen, open = 0, 1, 2
	limitOf                = 1000
)

var limit = limiter.PerHour(limitOf)

func TestTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newStore(t), &watch{}
		l := newLimiter(t, fallback.Config{Primary: s, Observer: w, Name: "main"})
		require.Equal(t, limiter.ViaStore, take(t, l, limit, 1).Via)

		s.fail(errGone)
		for k := range 5 {
			require.Empty(t, w.told(), "failure %d", k)
			require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
		}
		require.Equal(t, []uint8{open}, w.told())
		asked := s.asked.Load()
		for range 50 {
			require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, asked, s.asked.Load(), "the primary is not asked while the breaker is open")

		time.Sleep(time.Second) // 1.5 s in all: the longest cool-down
		require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via, "a probe that fails is answered all the same")
		require.Equal(t, asked+1, s.asked.Load())
		require.Equal(t, []uint8{open, halfOpen, open}, w.told())
		require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
		require.Equal(t, asked+1, s.asked.Load(), "one failed probe is enough to open again")

		s.fail(nil)
		time.Sleep(2 * time.Second)
		require.Equal(t, limiter.ViaStore, take(t, l, limit, 1).Via)
		require.Equal(t, []uint8{open, halfOpen, open, halfOpen, closed}, w.told())
		require.Equal(t, limiter.ViaStore, take(t, l, limit, 1).Via)
	})
}

// Only failures in a row count: a success between them, and whatever says nothing about the primary, open nothing.
func TestWhatTrips(t *testing.T) {
	gone, ended := context.WithCancel(ctx)
	ended()
	bad := limit
	bad.Rate = -1
	for _, c := range []struct {
		name  string
		trips bool
		call  func(t *testing.T, l *fallback.Limiter, s *store)
	}{
		{"unavailable", true, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.fail(errGone)
			take(t, l, limit, 1)
		}},
		{"slow", true, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.slow.Store(int64(251 * time.Millisecond))
			require.Equal(t, limiter.ViaStore, take(t, l, limit, 1).Via, "the decision counts")
		}},
		{"as slow as is allowed", false, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.slow.Store(int64(250 * time.Millisecond))
			take(t, l, limit, 1)
		}},
		{"failures with a success between", false, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.fail(errGone)
			take(t, l, limit, 1)
			s.fail(nil)
			take(t, l, limit, 1)
		}},
		{"denials", false, func(t *testing.T, l *fallback.Limiter, _ *store) {
			require.False(t, take(t, l, limiter.DenyAll, 1).Allowed)
		}},
		{"a caller who has left", false, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.slow.Store(int64(10 * time.Millisecond))
			_, err := l.Allow(gone, key, limit, 1)
			require.ErrorIs(t, err, context.Canceled)
		}},
		{"a deadline of the caller", false, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.slow.Store(int64(time.Second))
			short, cancel := context.WithTimeout(ctx, 19*time.Millisecond)
			defer cancel()
			_, err := l.Allow(short, key, limit, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}},
		{"a deadline of the caller that was long enough", true, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.slow.Store(int64(time.Second))
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err := l.Allow(short, key, limit, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}},
		{"a caller who leaves as late", false, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.slow.Store(int64(time.Second))
			leaving, leave := context.WithCancel(ctx)
			defer time.AfterFunc(100*time.Millisecond, leave).Stop()
			_, err := l.Allow(leaving, key, limit, 1)
			require.ErrorIs(t, err, context.Canceled)
		}},
		{"a deadline of the caller that the primary takes for its own", false, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.fail(errGone)
			_, err := l.Allow(gone, key, limit, 1)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, limiter.ErrUnavailable)
		}},
		{"callers who give a silent primary up", true, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.slow.Store(int64(time.Hour))
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			_, err := l.Allow(short, key, limit, 1)
			require.Error(t, err)
		}},
		{"a limit that is invalid", false, func(t *testing.T, l *fallback.Limiter, _ *store) {
			_, err := l.Allow(ctx, key, bad, 1)
			require.ErrorIs(t, err, limiter.ErrInvalid)
		}},
		{"a primary that is closed", false, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.fail(limiter.ErrClosed)
			_, err := l.Allow(ctx, key, limit, 1)
			require.ErrorIs(t, err, limiter.ErrClosed)
		}},
		{"an error of another kind", false, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.fail(errOdd)
			_, err := l.Allow(ctx, key, limit, 1)
			require.ErrorIs(t, err, errOdd)
		}},
		{"groups", true, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.fail(errGone)
			passed, err := l.AllowAll(ctx, time.Time{}, []limiter.Take{{Key: key, Limit: limit, N: 1}})
			require.NoError(t, err)
			require.True(t, passed)
		}},
		{"refunds", true, func(t *testing.T, l *fallback.Limiter, s *store) {
			s.fail(errGone)
			err := l.Refund(ctx, time.Time{}, &limiter.Take{Key: key, Limit: limit, N: 1, Decision: limiter.Decision{Mark: 1}})
			require.ErrorIs(t, err, limiter.ErrUnavailable)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := newStore(t), &watch{}
				l := newLimiter(t, fallback.Config{Primary: s, Observer: w})
				for k := range 20 {
					if c.trips && k == 5 {
						break
					}
					require.Empty(t, w.told(), "call %d", k)
					c.call(t, l, s)
				}
				if !c.trips {
					require.Empty(t, w.told())
					return
				}
				require.Equal(t, []uint8{open}, w.told())
			})
		})
	}
}

// Callers whose deadlines are all shorter than the time-out of a silent primary are decided by the share, once a few have
// waited in vain.
func TestShortDeadlinesEndInTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		l := newLimiter(t, fallback.Config{Primary: s})
		s.slow.Store(int64(time.Hour))
		for k := range 50 {
			short, cancel := context.WithTimeout(ctx, 40*time.Millisecond)
			d, err := l.Allow(short, key, limit, 1)
			cancel()
			if k < 5 {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, limiter.ViaFallback, d.Via)
		}
	})
}

func TestSlownessCanBeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newStore(t), &watch{}
		l := newLimiter(t, fallback.Config{Primary: s, Observer: w, SlowCall: -1})
		s.slow.Store(int64(time.Minute))
		for range 10 {
			take(t, l, limit, 1)
		}
		require.Empty(t, w.told())
	})
}

// While one call tries the primary, nobody else does, and nobody waits for it.
func TestOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newStore(t), &watch{}
		l := newLimiter(t, fallback.Config{Primary: s, Observer: w})
		trip(t, l, s)
		s.fail(nil)
		s.slow.Store(int64(100 * time.Millisecond))
		time.Sleep(2 * time.Second)
		before := s.asked.Load()
		var viaStore, viaFallback atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for range 200 {
			wg.Go(func() {
				d, err := l.Allow(ctx, key, limit, 1)
				if err != nil {
					return
				}
				if d.Via == limiter.ViaStore {
					viaStore.Add(1)
					return
				}
				if time.Since(began) == 0 {
					viaFallback.Add(1)
				}
			})
		}
		wg.Wait()
		require.Equal(t, before+1, s.asked.Load())
		require.EqualValues(t, 1, viaStore.Load())
		require.EqualValues(t, 199, viaFallback.Load(), "all others are answered at once")
		require.Equal(t, []uint8{open, halfOpen, closed}, w.told())
	})
}

// A probe whose caller leaves has proved nothing: the next call is a probe again.
func TestProbeOfACallerWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newStore(t), &watch{}
		l := newLimiter(t, fallback.Config{Primary: s, Observer: w})
		trip(t, l, s)
		s.fail(nil)
		time.Sleep(2 * time.Second)
		s.slow.Store(int64(50 * time.Millisecond))
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_, err := l.Allow(short, key, limit, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []uint8{open, halfOpen}, w.told())
		require.Equal(t, limiter.ViaStore, take(t, l, limit, 1).Via)
		require.Equal(t, []uint8{open, halfOpen, closed}, w.told())
	})
}

// Refunds and resets are no probes: nobody waits for them, and they say little about decisions.
func TestOnlyDecisionsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newStore(t), &watch{}
		l := newLimiter(t, fallback.Config{Primary: s, Observer: w})
		booked := limiter.Take{Key: key, Limit: limit, N: 1, Decision: take(t, l, limit, 1)}
		trip(t, l, s)
		s.fail(nil)
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, l.Refund(ctx, time.Time{}, &booked), limiter.ErrUnavailable)
		require.ErrorIs(t, l.Reset(ctx, key), limiter.ErrUnavailable)
		require.Equal(t, []uint8{open}, w.told())
		take(t, l, limit, 1)
		require.NoError(t, l.Refund(ctx, time.Time{}, &booked))
		require.NoError(t, l.Reset(ctx, key))
		require.Equal(t, []uint8{open, halfOpen, closed}, w.told())
	})
}

// Replicas that lose a store at one moment do not come back to it in step.
func TestProbesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const replicas = 50
		var stores [replicas]*store
		var limiters [replicas]*fallback.Limiter
		for i := range replicas {
			stores[i] = newStore(t)
			limiters[i] = newLimiter(t, fallback.Config{Primary: stores[i]})
			trip(t, limiters[i], stores[i])
		}
		began := time.Now()
		probes := map[time.Duration]int{}
		var first [replicas]bool
		for time.Since(began) < 1600*time.Millisecond {
			time.Sleep(10 * time.Millisecond)
			for i, l := range limiters {
				before := stores[i].asked.Load()
				take(t, l, limit, 1)
				if at := time.Since(began); stores[i].asked.Load() > before {
					require.GreaterOrEqual(t, at, time.Second)
					require.False(t, first[i], "one probe in a cool-down")
					first[i] = true
					probes[at]++
				}
			}
		}
		for i := range replicas {
			require.True(t, first[i], "replica %d has not tried within 1.5 s", i)
		}
		require.Greater(t, len(probes), 10, "probes at %v", probes)
	})
}

// An observer is called with no lock held: it may call the limiter, and its panic costs nobody a decision.
func TestObserverMayCall(t *testing.T) {
	s := newStore(t)
	var l *fallback.Limiter
	var seen []string
	l = newLimiter(t, fallback.Config{Primary: s, Failures: 1, Name: "main", Observer: limiter.ObserverFunc(func(e limiter.Event) {
		d, err := l.Allow(ctx, key, limit, 1)
		seen = append(seen, fmt.Sprint(e.Kind, " ", e.Name, " ", e.State, " ", d.Via, " ", err))
		panic("odd observer")
	})})
	s.fail(errGone)
	require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
	require.Equal(t, []string{"breaker main 2 fallback <nil>"}, seen[:1])
}

func TestPanicOfThePrimary(t *testing.T) {
	w := &watch{}
	l := newLimiter(t, fallback.Config{Primary: panics{}, Observer: w})
	for range 5 {
		require.PanicsWithValue(t, "broken", func() { _, _ = l.Allow(ctx, key, limit, 1) })
	}
	require.Equal(t, []uint8{open}, w.told())
	require.Equal(t, limiter.ViaFallback, take(t, l, limit, 1).Via)
}

type panics struct{}

func (panics) Allow(context.Context, limiter.Key, limiter.Limit, int) (limiter.Decision, error) {
	panic("broken")
}
