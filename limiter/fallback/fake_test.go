package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/memory"
)

var (
	ctx     = context.Background()
	key     = limiter.Key{Space: "search", ID: "tenant=acme"}
	errGone = fmt.Errorf("%w: connection refused", limiter.ErrUnavailable)
)

func newMemory(t testing.TB) *memory.Limiter {
	l, err := memory.New(memory.Config{})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func newLimiter(t testing.TB, c fallback.Config) *fallback.Limiter {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := fallback.New(c)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// store is a primary that fails on request: memory behind a switch.
type store struct {
	*memory.Limiter
	err   atomic.Pointer[error] // nil: works
	slow  atomic.Int64          // ns a call takes, unless its context ends first
	asked atomic.Int64
}

func newStore(t testing.TB) *store { return &store{Limiter: newMemory(t)} }

func (s *store) fail(err error) {
	if err == nil {
		s.err.Store(nil)
		return
	}
	s.err.Store(&err)
}

func (s *store) call(ctx context.Context) error {
	s.asked.Add(1)
	if d := time.Duration(s.slow.Load()); d > 0 {
		wait := time.NewTimer(d)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *store) Allow(ctx context.Context, k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	if err := s.call(ctx); err != nil {
		return limiter.Decision{}, err
	}
	d, err := s.Limiter.Allow(ctx, k, l, n)
	d.Via = limiter.ViaStore
	return d, err
}

func (s *store) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if len(takes) == 0 {
		return true, nil
	}
	if err := s.call(ctx); err != nil {
		return false, err
	}
	return s.Limiter.AllowAll(ctx, at, takes)
}

func (s *store) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	if err := s.call(ctx); err != nil {
		return err
	}
	return s.Limiter.Refund(ctx, at, t)
}

func (s *store) Reset(ctx context.Context, k limiter.Key) error {
	if err := s.call(ctx); err != nil {
		return err
	}
	return s.Limiter.Reset(ctx, k)
}

// allowOnly hides everything but Allow.
type allowOnly struct{ limiter.Limiter }

// watch collects the states of the breaker that are told.
type watch struct {
	mu     sync.Mutex
	states []uint8
}

func (w *watch) Observe(e limiter.Event) {
	if e.Kind != limiter.EventBreaker {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.states) == 0 && e.State == limiter.BreakerClosed {
		return // it is new
	}
	w.states = append(w.states, e.State)
}

func (w *watch) told() []uint8 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]uint8{}, w.states...)
}

// take asks for n units and returns the decision, which there has to be.
func take(t testing.TB, l limiter.Limiter, limit limiter.Limit, n int) limiter.Decision {
	t.Helper()
	d, err := l.Allow(ctx, key, limit, n)
	require.NoError(t, err)
	return d
}

// trip makes the primary unavailable, and fails until it is not asked any more.
func trip(t testing.TB, l limiter.Limiter, s *store) {
	t.Helper()
	s.fail(errGone)
	for range 100 {
		before := s.asked.Load()
		_, err := l.Allow(ctx, limiter.Key{Space: "trip", ID: "x"}, limiter.Unlimited, 1)
		require.NoError(t, err)
		if s.asked.Load() == before {
			return
		}
	}
	require.FailNow(t, "the breaker never opened")
}

var errOdd = errors.New("WRONGPASS invalid username-password pair")
