package fallback_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

// What fails together is one failure: a round trip that is shared and lost once is no outage.
func TestWhatFailsTogetherCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newStore(t), &watch{}
		l := newLimiter(t, fallback.Config{Primary: s, Observer: w})
		s.slow.Store(int64(50 * time.Millisecond))
		s.fail(errGone)
		storm := func() {
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					_, err := l.Allow(ctx, key, limit, 1)
					require.NoError(t, err)
				})
			}
			wg.Wait()
		}
		for range 4 {
			storm()
			require.Empty(t, w.told())
		}
		storm()
		require.Equal(t, []uint8{limiter.BreakerOpen}, w.told(), "five in turn are an outage")
	})
}

// An outage is told in the log once, whatever the breaker tries meanwhile, and its end.
func TestOutagesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newStore(t)
		l := newLimiter(t, fallback.Config{Primary: s, Name: "shared", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.fail(fmt.Errorf("%w: dial 192.0.2.9: %w", limiter.ErrUnavailable, syscall.ECONNREFUSED))
		for range 100 {
			take(t, l, limit, 1)
			time.Sleep(100 * time.Millisecond)
		}
		s.fail(nil)
		for range 100 {
			take(t, l, limit, 1)
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "is away")
		require.Contains(t, log.String(), "connection refused")
		require.NotContains(t, log.String(), "192.0.2.9")
		require.Contains(t, log.String(), "limiter=shared")
		require.Contains(t, log.String(), "is back")
	})
}

// The event of an opening says why.
func TestOpeningsTellTheCause(t *testing.T) {
	s := newStore(t)
	var opened []limiter.Event
	l := newLimiter(t, fallback.Config{Primary: s, Observer: limiter.ObserverFunc(func(e limiter.Event) {
		if e.Kind == limiter.EventBreaker && e.State != limiter.BreakerClosed {
			opened = append(opened, e)
		}
	})})
	s.fail(errGone)
	for range 5 {
		take(t, l, limit, 1)
	}
	require.Len(t, opened, 1)
	require.Equal(t, limiter.BreakerOpen, opened[0].State)
	require.ErrorIs(t, opened[0].Err, limiter.ErrUnavailable)
}

// The state of a breaker can be seen before its first change, and one that is no more is not open for ever. Who logs states
// himself is not helped.
func TestBreakersStand(t *testing.T) {
	var log bytes.Buffer
	var states []uint8
	s := newStore(t)
	l, err := fallback.New(fallback.Config{
		Primary: s, Failures: 1, Logger: slog.New(slog.NewTextHandler(&log, nil)), Observer: stateLogger(func(e limiter.Event) {
			if e.Kind == limiter.EventBreaker {
				states = append(states, e.State)
			}
		}),
	})
	require.NoError(t, err)
	require.Equal(t, []uint8{limiter.BreakerClosed}, states)
	s.fail(errGone)
	take(t, l, limiter.PerMinute(10), 1)
	l.Close()
	l.Close()
	require.Equal(t, []uint8{limiter.BreakerClosed, limiter.BreakerOpen, limiter.BreakerClosed}, states)
	require.Empty(t, log.String())
}

type stateLogger func(limiter.Event)

func (f stateLogger) Observe(e limiter.Event) { f(e) }
func (stateLogger) LogsStates() bool          { return true }
