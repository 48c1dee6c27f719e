package limitertest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

func newModel(*testing.T) limiter.Limiter { return limitertest.NewModel() }

func TestModel(t *testing.T) {
	limitertest.Run(t, newModel, limitertest.Exact)
}

// ownTime is a limiter that batches and does not let its callers say when.
type ownTime struct{ *limitertest.Model }

func (o ownTime) AllowAll(ctx context.Context, _ time.Time, takes []limiter.Take) (bool, error) {
	return o.Model.AllowAll(ctx, time.Time{}, takes)
}

func (o ownTime) Refund(ctx context.Context, _ time.Time, t *limiter.Take) error {
	return o.Model.Refund(ctx, time.Time{}, t)
}

func TestOwnClock(t *testing.T) {
	newLimiter := func(*testing.T) limiter.Limiter { return ownTime{limitertest.NewModel()} }
	limitertest.Run(t, newLimiter, limitertest.Profile{NoInstants: true})
}

// With a clock the suite cannot move, only rules without a need for time are left; real time passes between their takes.
func TestForeignClock(t *testing.T) {
	newLimiter := func(*testing.T) limiter.Limiter { return ownTime{limitertest.NewModel()} }
	limitertest.Run(t, newLimiter, limitertest.Profile{NoInstants: true, ForeignClock: true, Tick: time.Microsecond})
}

// micro is a limiter whose clock counts microseconds, as a Redis script's does.
type micro struct{ *limitertest.Model }

func (m micro) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	ok, err := m.Model.AllowAll(ctx, at, takes)
	up := func(d *time.Duration) {
		if *d < 9_000_000_000_000_000_000 && *d%1000 != 0 {
			*d += 1000 - *d%1000
		}
	}
	for k := range takes {
		d := &takes[k].Decision
		for _, wait := range []*time.Duration{&d.RetryAfter, &d.ResetAfter, &d.NextAfter, &d.Delay} {
			up(wait)
		}
	}
	return ok, err
}

func (m micro) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	takes := []limiter.Take{{Key: key, Limit: limit, N: n}}
	_, err := m.AllowAll(ctx, time.Time{}, takes)
	return takes[0].Decision, err
}

func TestMicroseconds(t *testing.T) {
	newLimiter := func(*testing.T) limiter.Limiter { return micro{limitertest.NewModel()} }
	limitertest.Run(t, newLimiter, limitertest.Profile{Tick: time.Microsecond, ForeignClock: true})
}

// loose keeps bounds and nothing else: of one node's quota some is away, and what is away may be spent elsewhere.
type loose struct {
	*limitertest.Model
	mu    sync.Mutex
	count map[limiter.Key]int
}

func (l *loose) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	if limit.Validate() == nil && limit.Algorithm != limiter.TokenBucket && limit != limiter.Unlimited && limit != limiter.DenyAll {
		return limiter.Decision{}, errors.ErrUnsupported
	}
	d, err := l.Model.Allow(ctx, key, limit, n)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || !d.Allowed || n == 0 || limit == limiter.Unlimited {
		return d, err
	}
	if l.count[key]++; l.count[key]%4 == 0 {
		d = limiter.Decision{Limit: limit, RetryAfter: 10 * time.Millisecond, ResetAfter: d.ResetAfter}
	}
	return d, err
}

func TestBounded(t *testing.T) {
	p := limitertest.Bounded(limitertest.Bounds{Under: 0.3}, limiter.TokenBucket)
	p.NoBatch, p.NoRefund, p.NoReset = true, true, true
	limitertest.Run(t, func(*testing.T) limiter.Limiter {
		return &loose{Model: limitertest.NewModel(), count: map[limiter.Key]int{}}
	}, p)
}

// greedy gives away half as much again.
type greedy struct{ limiter.Limiter }

func (g greedy) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	if limit.Rate > 0 && limit.Burst > 0 {
		limit.Burst += limit.Burst / 2
	}
	return g.Limiter.Allow(ctx, key, limit, n)
}

func TestBoundsAreChecked(t *testing.T) {
	p := limitertest.Bounded(limitertest.Bounds{Over: 1.2}, limiter.TokenBucket)
	p.NoBatch, p.NoRefund, p.NoReset = true, true, true
	failed := limitertest.Failures(t, func(*testing.T) limiter.Limiter { return greedy{limitertest.NewModel()} }, p)
	require.Contains(t, failed, "whole-quota")
	require.Contains(t, failed, "contention")
	require.Contains(t, failed, "promise-token-bucket")

	p.Bounds = &limitertest.Bounds{Over: 1.5}
	failed = limitertest.Failures(t, func(*testing.T) limiter.Limiter { return greedy{limitertest.NewModel()} }, p,
		"whole-quota", "contention", "promise-token-bucket")
	require.Empty(t, failed)
}

func TestDifferential(t *testing.T) {
	one, other := limitertest.NewModel(), micro{limitertest.NewModel()}
	for seed := range uint64(10) {
		limitertest.Differential(t, one, other, limitertest.Profile{Tick: time.Microsecond}, seed, 300)
	}
	err := limitertest.Compare(one, &mutant{Model: limitertest.NewModel(), before: func(_ *mutant, _ time.Time, t *limiter.Take) { grow(t, 1) }}, limitertest.Exact, 1, 300)
	require.Error(t, err)
	require.Error(t, limitertest.Compare(one, &audited{Limiter: one}, limitertest.Exact, 1, 1), "the second is no Batcher")
}

// The traces whose own clock is stepped back belong to a limiter on one clock, such as the model on its own.
func TestModelOnItsOwnSteppedClock(t *testing.T) {
	m := limitertest.NewModel()
	key, ctx := limiter.Key{Space: "clock", ID: "k"}, context.Background()
	eight := time.Date(2026, 3, 4, 8, 0, 0, 0, time.UTC)
	allow := func(at time.Time) limiter.Decision {
		m.SetClock(at)
		d, err := m.Allow(ctx, key, limiter.PerSecond(10).WithBurst(1), 1)
		require.NoError(t, err)
		return d
	}
	require.True(t, allow(eight).Allowed)
	require.Equal(t, 100*time.Millisecond, allow(eight.Add(-8*time.Hour)).RetryAfter)
	require.True(t, allow(eight.Add(-8*time.Hour+100*time.Millisecond)).Allowed)
}

func TestEveryRuleHasItsReason(t *testing.T) {
	for name, why := range limitertest.Rules() {
		require.NotEmpty(t, why, name)
		require.Regexp(t, `^[a-z0-9-]+$`, name)
	}
}
