package redislimit_test

import (
	"context"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// remembering counts the answers that come from memory.
type remembering struct {
	*redislimit.Limiter
	cached, all atomic.Int64
}

func (r *remembering) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	ok, err := r.Limiter.AllowAll(ctx, at, takes)
	for i := range takes {
		r.all.Add(1)
		if takes[i].Decision.Via == limiter.ViaDenyCache {
			r.cached.Add(1)
		}
	}
	return ok, err
}

// Within a process no answer from memory differs from the store's own, in no number, whatever happens in between.
func TestDenyCacheIsNotNoticed(t *testing.T) {
	rounds, steps := uint64(10), 300
	if testing.Short() {
		rounds = 3
	}
	profile := limitertest.Profile{Tick: time.Microsecond, ForeignClock: true}
	for seed := range rounds {
		with := &remembering{Limiter: open(t, redislimit.Config{CallerClock: true})}
		limitertest.Differential(t, open(t, redislimit.Config{CallerClock: true, DenyCache: -1}), with, profile, 1000+seed, steps)
	}
}

// The same for floods, in which most answers come from memory.
func TestDenyCacheIsNotNoticedInAFlood(t *testing.T) {
	rounds, steps := uint64(10), 600
	if testing.Short() {
		rounds = 3
	}
	var cached, all int64
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(seed, 3))
		without := open(t, redislimit.Config{CallerClock: true, DenyCache: -1})
		with := &remembering{Limiter: open(t, redislimit.Config{CallerClock: true})}
		at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
		type counter struct {
			key    limiter.Key
			limit  limiter.Limit
			booked []limiter.Take
		}
		var counters []*counter
		for _, a := range limiter.Algorithms() {
			limit := limiter.Limit{Algorithm: a, Rate: 1 + rng.IntN(10), Period: time.Duration(1+rng.IntN(20)) * time.Second, Burst: 1 + rng.IntN(10)}
			counters = append(counters, &counter{key: limiter.Key{Space: a.String(), ID: "user=alice"}, limit: limit})
		}
		for step := range steps {
			c := counters[rng.IntN(len(counters))]
			at = at.Add(time.Duration(rng.IntN(3)*rng.IntN(3)) * time.Duration(rng.Int64N(int64(100*time.Millisecond)))).Truncate(time.Microsecond)
			now := at
			if rng.IntN(10) == 0 {
				now = at.Add(-time.Duration(rng.IntN(1_500_000)) * time.Microsecond) // another's clock
			}
			switch op := rng.IntN(60); {
			case op == 0:
				require.Equal(t, without.Reset(t.Context(), c.key), with.Reset(t.Context(), c.key))
				c.booked = nil
				continue
			case op < 3 && len(c.booked) > 0:
				take := c.booked[0]
				c.booked = c.booked[1:]
				require.NoError(t, without.Refund(t.Context(), now, &take))
				require.NoError(t, with.Refund(t.Context(), now, &take))
				continue
			case op == 4:
				c.limit.Rate = 1 + rng.IntN(10)
			}
			takes := []limiter.Take{{Key: c.key, Limit: c.limit, N: 1 + rng.IntN(2)*rng.IntN(3)}}
			if c.limit.Algorithm == limiter.LeakyBucket {
				takes[0].MaxDelay = time.Duration(rng.IntN(3)) * time.Second
			}
			if other := counters[rng.IntN(len(counters))]; rng.IntN(4) == 0 && other != c {
				takes = append(takes, limiter.Take{Key: other.key, Limit: other.limit, N: 1, Shadow: rng.IntN(4) == 0})
				if other.limit.Algorithm == limiter.LeakyBucket && c.limit.Algorithm == limiter.LeakyBucket {
					takes = takes[:1]
				}
			}
			twin := append([]limiter.Take(nil), takes...)
			want, err := without.AllowAll(t.Context(), now, twin)
			require.NoError(t, err)
			got, err := with.AllowAll(t.Context(), now, takes)
			require.NoError(t, err)
			require.Equal(t, want, got, "seed %d, step %d", seed, step)
			for i := range takes {
				d := takes[i].Decision
				d.Via = limiter.ViaStore
				require.Equal(t, twin[i].Decision, d, "seed %d, step %d, take %d: %+v", seed, step, i, takes[i])
			}
			if got && takes[0].Limit.Algorithm != limiter.LeakyBucket {
				c.booked = append(c.booked, takes[0])
			}
		}
		cached += with.cached.Load()
		all += with.all.Load()
	}
	t.Logf("%d of %d answers came from memory", cached, all)
	require.Greater(t, cached, all/4)
}

// What another process gives back is noticed when a denial has been remembered for as long as it may: no later call is
// answered from what was before.
func TestAnotherProcessGivesBack(t *testing.T) {
	const remembered = 50 * time.Millisecond
	limit := limiter.PerHour(2)
	for what, giveBack := range map[string]func(*redislimit.Limiter, *limiter.Take) error{
		"reset":  func(b *redislimit.Limiter, _ *limiter.Take) error { return b.Reset(t.Context(), alice) },
		"refund": func(b *redislimit.Limiter, take *limiter.Take) error { return b.Refund(t.Context(), time.Time{}, take) },
		"raise": func(b *redislimit.Limiter, take *limiter.Take) error {
			_, err := b.Allow(t.Context(), alice, limiter.PerHour(5).With(take.Limit.Algorithm), 1)
			return err
		},
	} {
		for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.SlidingLog} {
			prefix := "two" + what + a.Tag()
			l := open(t, redislimit.Config{Prefix: prefix, DenyCache: remembered})
			b := open(t, redislimit.Config{Prefix: prefix})
			limit := limit.With(a)
			take := limiter.Take{Key: alice, Limit: limit, N: 2}
			taken := []limiter.Take{take}
			ok, err := l.AllowAll(t.Context(), time.Time{}, taken)
			require.NoError(t, err)
			require.True(t, ok)
			for range 3 {
				d, err := l.Allow(t.Context(), alice, limit, 1)
				require.NoError(t, err)
				require.False(t, d.Allowed)
			}
			if what == "raise" && a == limiter.TokenBucket {
				continue // mints nothing
			}
			require.NoError(t, giveBack(b, &taken[0]))
			given := time.Now()
			require.Eventually(t, func() bool {
				asked := time.Now()
				ask := limit
				if what == "raise" {
					ask = limiter.PerHour(5).With(a)
				}
				d, err := l.Allow(t.Context(), alice, ask, 1)
				if err != nil || d.Via == limiter.ViaDenyCache && asked.Sub(given) >= remembered {
					t.Errorf("%s, %v: %+v, %v after %v", what, a, d, err, asked.Sub(given))
					return true
				}
				return d.Allowed
			}, busy, time.Millisecond, "%s, %v", what, a)
		}
	}
}

var evals = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)

// asked returns how often a server ran scripts.
func asked(t *testing.T, rdb *redis.Client) (n int) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, m := range evals.FindAllStringSubmatch(info, -1) {
		calls, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		n += calls
	}
	return n
}

// A flood on a spent quota hardly reaches Redis, but takes that must be decided there do.
func TestFloodHardlyReachesRedis(t *testing.T) {
	const flood = 10_000
	rdb := redistest.Start(t).Client()
	for _, a := range limiter.Algorithms() {
		l := open(t, redislimit.Config{Client: rdb})
		limit := limiter.Limit{Algorithm: a, Rate: 5, Period: time.Hour}
		start := time.Now()
		before := asked(t, rdb)
		var passed atomic.Int64
		var wg sync.WaitGroup
		for range crowd {
			wg.Go(func() {
				for range flood / crowd {
					d, err := l.Allow(t.Context(), alice, limit, 1)
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		n := asked(t, rdb) - before
		t.Logf("%v: %d calls, %d scripts in %v", a, flood, n, time.Since(start).Round(time.Millisecond))
		require.Equal(t, limit.Quota(), int(passed.Load()))
		require.LessOrEqual(t, n, 20+10*int(1+time.Since(start)/time.Second), "once a second, and in the crowd at the beginning")

		before = asked(t, rdb)
		for range 20 {
			takes := []limiter.Take{{Key: alice, Limit: limit, N: 1, NoCache: true}}
			ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
			require.NoError(t, err)
			require.False(t, ok)
			require.Equal(t, limiter.ViaStore, takes[0].Decision.Via)
			d, err := l.Allow(t.Context(), alice, limit, 0)
			require.NoError(t, err)
			require.Equal(t, limiter.ViaStore, d.Via)
		}
		require.Equal(t, 40, asked(t, rdb)-before, a)
	}
}

// Two processes that take, give back and peek at once admit together what one would.
func TestDenyCacheUnderRaces(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		if a == limiter.LeakyBucket {
			continue
		}
		const quota = 50
		limit := limiter.Limit{Algorithm: a, Rate: quota, Period: limiter.MaxPeriod}
		prefix := "races" + a.Tag()
		both := []*redislimit.Limiter{open(t, redislimit.Config{Prefix: prefix}), open(t, redislimit.Config{Prefix: prefix})}
		var out atomic.Int64
		var wg sync.WaitGroup
		for w := range crowd {
			l := both[w%2]
			wg.Go(func() {
				for i := range 30 {
					takes := []limiter.Take{{Key: alice, Limit: limit, N: 1, NoCache: i%7 == 0}}
					ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
					if err != nil {
						t.Error(err)
					}
					if !ok {
						continue
					}
					if n := out.Add(1); n > quota {
						t.Errorf("%d of %d are out", n, quota)
					}
					if i%3 > 0 {
						out.Add(-1)
						err = l.Refund(t.Context(), time.Time{}, &takes[0])
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for _, l := range both {
			d, err := l.Allow(t.Context(), alice, limit, 0)
			require.NoError(t, err)
			require.Equal(t, quota-int(out.Load()), d.Remaining)
		}
	}
}
