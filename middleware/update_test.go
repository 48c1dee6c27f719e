package middleware_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// 200 updates under load lose no count: a policy that stays the same admits its limit exactly.
func TestUpdateUnderLoad(t *testing.T) {
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	set := func(k int) []policy {
		p := byIP(policy{Name: "same", Limit: limiter.Per(5000, 366*24*time.Hour).With(limiter.FixedWindow), Key: keyfunc.Global()},
			policy{Name: "changes", Limit: limiter.PerSecond(1_000_000 + k), InFlight: 100 + k%7})
		switch k % 3 {
		case 1:
			p = append(p, byIP(policy{Name: fmt.Sprintf("p%d", k), Limit: limiter.PerSecond(1_000_000), Stage: "edge", Refund: failed})...)
		case 2:
			p[0], p[1] = p[1], p[0]
		}
		return p
	}
	g := newGuard(t, config{Limiter: store, Policies: set(0)})
	var admitted, done atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for done.Load() == 0 || admitted.Load() < 5000 {
				if w := get(g, "192.0.2.7"); w.Code == 200 {
					admitted.Add(1)
				} else if w.Code != 429 {
					t.Error(w.Code)
				}
			}
			for range 50 {
				if get(g, "192.0.2.7").Code == 200 {
					admitted.Add(1)
				}
			}
		})
	}
	for k := range 200 {
		require.NoError(t, g.Update(set(k)))
		require.Error(t, g.Update([]policy{{Name: "?"}}))
	}
	done.Store(1)
	wg.Wait()
	require.EqualValues(t, 5000, admitted.Load())
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(2)})
	get(g, "192.0.2.7")
	err := g.Update([]policy{{Name: "b", Key: keyfunc.IP(), Limit: perMinute}, {Name: "c"}, {Name: "B", Key: keyfunc.IP(), Limit: limiter.Limit{}}})
	for _, want := range []string{`"c": Key is required`, `"c": Limit is required`, `"B" is taken`, `"B": Limit`} {
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, []string{"a"}, g.Policies())
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, 429, get(g, "192.0.2.7").Code)
}

// Rate and burst change in place; another algorithm is another counter.
func TestCountersLiveOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOf(t, policy{Name: "a", Limit: limiter.PerHour(5).With(limiter.FixedWindow)})
		for range 3 {
			get(g, "192.0.2.7")
		}
		for limit, want := range map[limiter.Limit]int{
			limiter.PerHour(10).With(limiter.FixedWindow): 7, limiter.PerHour(2).With(limiter.FixedWindow): 0, limiter.PerHour(4): 4,
		} {
			require.NoError(t, g.Update(byIP(policy{Name: "a", Limit: limit})))
			require.Equal(t, want, left(t, g, request("GET", "/"), "a"), limit.String())
		}
		v := limiter.NewVar(limiter.PerHour(5).With(limiter.FixedWindow))
		require.NoError(t, g.Update(byIP(policy{Name: "a", Limit: v})))
		require.Equal(t, 2, left(t, g, request("GET", "/"), "a"))
		require.NoError(t, v.Set(limiter.PerHour(8).With(limiter.FixedWindow)))
		require.Equal(t, "8", get(g, "192.0.2.7").Header().Get("X-RateLimit-Limit"))
		require.Equal(t, 4, left(t, g, request("GET", "/"), "a"))
	})
}

func TestStages(t *testing.T) {
	log := new(logged)
	g := newGuard(t, config{Logger: log.logger(), Policies: byIP(
		policy{Name: "a", Limit: limiter.PerDay(10)},
		policy{Name: "b", Limit: limiter.PerDay(1), Stage: middleware.StageIdentity},
		policy{Name: "c", Limit: limiter.PerDay(1), Stage: "late"},
		policy{Name: "d", Limit: limiter.PerDay(1), Stage: middleware.StageManual})})
	identity := g.Stage(middleware.StageIdentity)
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	lines := log.take()
	require.Equal(t, 1, strings.Count(lines, "\n"), lines)
	require.Contains(t, lines, "stage=late", "nobody mounts it")
	get(g, "192.0.2.7")
	require.Empty(t, log.take())

	require.Equal(t, 200, get(identity, "192.0.2.7").Code)
	require.Equal(t, 429, get(identity, "192.0.2.7").Code)
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.Equal(t, 7, left(t, g, request("GET", "/"), "a"), "a stage takes of its own policies")
	require.Equal(t, 200, get(g.Stage("unknown"), "192.0.2.7").Code)

	// All stages see an update, and warn anew.
	require.NoError(t, g.Update(byIP(policy{Name: "b", Limit: limiter.PerDay(3), Stage: middleware.StageIdentity}, policy{Name: "e", Limit: perMinute, Stage: "later"})))
	require.Equal(t, "3", get(identity, "192.0.2.8").Header().Get("X-RateLimit-Limit"))
	require.Contains(t, log.take(), "stage=later")
	require.Empty(t, fields(get(g, "192.0.2.7").Header()), "no policy at the edge any more")
	require.Equal(t, []string{"b", "e"}, identity.Policies())
	require.Equal(t, 200, get(g.Stage(""), "192.0.2.7").Code)
}

// All-or-nothing holds for one stage: what an earlier one took was taken for a request that had come that far.
func TestStagesAreApart(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(10)}, policy{Name: "b", Limit: limiter.DenyAll, Stage: "identity"})
	get(g, "192.0.2.7")
	require.Equal(t, 429, get(g.Stage("identity"), "192.0.2.7").Code)
	require.Equal(t, 9, left(t, g, request("GET", "/"), "a"))
}

// Two stages may have counters of the same key without sharing them.
func TestStageIsPartOfTheKey(t *testing.T) {
	g := guardOf(t, policy{Name: "a", Limit: limiter.PerDay(1)})
	require.Equal(t, 200, get(g, "192.0.2.7").Code)
	require.NoError(t, g.Update(byIP(policy{Name: "a", Limit: limiter.PerDay(1), Stage: "identity"})))
	require.Equal(t, 200, get(g.Stage("identity"), "192.0.2.7").Code)
	require.Equal(t, 429, get(g.Stage("identity"), "192.0.2.7").Code)
}

// A migrating guard keeps the keys it is told.
func TestStoreKey(t *testing.T) {
	f := newFake()
	seen := limiter.Key{}
	g := newGuard(t, config{Limiter: spy{f, func(k limiter.Key) { seen = k }}, Policies: byIP(policy{
		Name: "a", Limit: limiter.PerDay(1), Stage: "identity",
		StoreKey: func(k limiter.Key) string { return "old:" + k.Space + ":" + k.ID },
	})})
	get(g.Stage("identity"), "192.0.2.7")
	require.Equal(t, limiter.Key{ID: "old:identity.a:ip=192.0.2.7"}, seen)
}
