package fallback_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

// yes is a primary that costs nothing.
type yes struct{}

func (yes) Allow(_ context.Context, _ limiter.Key, l limiter.Limit, _ int) (limiter.Decision, error) {
	return limiter.Decision{Allowed: true, Limit: l, Mark: 1, Via: limiter.ViaStore}, nil
}

func (y yes) AllowAll(ctx context.Context, _ time.Time, takes []limiter.Take) (bool, error) {
	for k := range takes {
		takes[k].Decision, _ = y.Allow(ctx, takes[k].Key, takes[k].Limit, takes[k].N)
	}
	return true, nil
}

var (
	wide  = limiter.PerSecond(limiter.MaxRate)
	queue = limiter.Limit{Algorithm: limiter.LeakyBucket, Rate: limiter.MaxRate, Period: time.Second, Burst: limiter.MaxRate}
)

func ways(t testing.TB) map[string]func() error {
	healthy := newLimiter(t, fallback.Config{Primary: yes{}, Replicas: 4})
	away := newLimiter(t, fallback.Config{Primary: gone{}, Replicas: 4, Cooldown: time.Hour})
	for range 5 {
		take(t, away, wide, 1)
	}
	group := []limiter.Take{{Key: key, Limit: wide, N: 1}, {Key: limiter.Key{Space: "all", ID: "x"}, Limit: wide, N: 1}}
	ask := func(l *fallback.Limiter, limit limiter.Limit) func() error {
		return func() error { _, err := l.Allow(ctx, key, limit, 1); return err }
	}
	return map[string]func() error{
		"healthy":        ask(healthy, wide),
		"healthy, queue": ask(healthy, queue),
		"healthy, group": func() error { _, err := healthy.AllowAll(ctx, time.Time{}, group); return err },
		"away":           ask(away, wide),
		"away, group":    func() error { _, err := away.AllowAll(ctx, time.Time{}, group); return err },
		"memory alone":   func() error { return nil },
	}
}

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop what they are given at random under the race detector")
	}
	for name, f := range ways(t) {
		require.NoError(t, f())
		require.Zero(t, testing.AllocsPerRun(200, func() { _ = f() }), name)
	}
}

func BenchmarkAllow(b *testing.B) {
	second := newMemory(b)
	all := ways(b)
	all["memory alone"] = func() error { _, err := second.Allow(ctx, key, wide, 1); return err }
	for _, name := range []string{"memory alone", "healthy", "healthy, queue", "healthy, group", "away", "away, group"} {
		f := all[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = f()
			}
		})
	}
	b.Run("healthy in parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				_ = all["healthy"]()
			}
		})
	})
}
