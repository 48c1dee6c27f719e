package redislimit_test

import (
	"errors"
	"fmt"
	"slices"
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

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	heeds := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true, ReadTimeout: busy})
	t.Cleanup(func() { _ = heeds.Close() })
	t.Run("conformance", func(t *testing.T) { conforms(t, heeds) })
	t.Run("groups", func(t *testing.T) { groupsOfManyPlaces(t, c.Client()) })
	t.Run("cases", func(t *testing.T) { casesOfClusters(t, c) })
	if testing.Short() {
		t.Skip("what follows takes seconds")
	}
	t.Run("a slot moves", func(t *testing.T) { slotMoves(t, c, heeds) })
	t.Run("a master dies", func(t *testing.T) { masterDies(t, c, heeds) }) // last, as it stays dead
}

func TestRing(t *testing.T) {
	t.Parallel()
	servers := map[string]string{}
	for _, name := range []string{"a", "b"} {
		servers[name] = redistest.Start(t).Addr()
	}
	ring := func(t *testing.T) redis.UniversalClient {
		rdb := redis.NewRing(&redis.RingOptions{Addrs: servers})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	t.Run("conformance", func(t *testing.T) { conforms(t, ring(t)) })
	t.Run("groups", func(t *testing.T) { groupsOfManyPlaces(t, ring(t)) })
}

func conforms(t *testing.T, rdb redis.UniversalClient) {
	p := limitertest.Profile{Tick: time.Microsecond, ForeignClock: true, NoInstants: true, Skip: map[string]string{
		"contention-batches": "while units come back, others may be refused: see groupsOfManyPlaces",
	}}
	limitertest.Run(t, func(t *testing.T) limiter.Limiter { return open(t, redislimit.Config{Client: rdb}) }, p)
}

// While callers race for two keys that have different places and quotas, units that come back are missing for a moment, so
// some may be refused. But in the end each key is charged with what passed and nothing else.
func groupsOfManyPlaces(t *testing.T, rdb redis.UniversalClient) {
	for _, a := range limiter.Algorithms() {
		for _, queue := range []bool{false, true} {
			if a == limiter.LeakyBucket {
				continue
			}
			l := open(t, redislimit.Config{Client: rdb})
			takes := []limiter.Take{
				{Key: alice, Limit: limiter.Per(200, 200*time.Hour).With(a), N: 1},
				{Key: bob, Limit: limiter.Per(80, 80*time.Hour).With(a), N: 1},
			}
			if queue { // decided last, as a place cannot be given back
				takes = append(takes, limiter.Take{
					Key: limiter.Key{Space: "api", ID: "user=carol"}, N: 1, MaxDelay: 10_000 * time.Hour,
					Limit: limiter.Limit{Algorithm: limiter.LeakyBucket, Rate: 1, Period: time.Hour, Burst: 40},
				})
			}
			least := takes[len(takes)-1].Limit.Quota()
			var passed atomic.Int64
			var wg sync.WaitGroup
			for w := range crowd {
				wg.Go(func() {
					for i := range 4 {
						mine := append([]limiter.Take(nil), takes...)
						if (w+i)%2 == 0 {
							mine[0], mine[1] = mine[1], mine[0]
						}
						ok, err := l.AllowAll(t.Context(), time.Time{}, mine)
						if err != nil {
							t.Error(err)
						}
						if ok {
							passed.Add(1)
						}
					}
				})
			}
			wg.Wait()
			n := int(passed.Load())
			t.Logf("%v, queue %v: %d of %d passed", a, queue, n, least)
			require.Positive(t, n)
			require.LessOrEqual(t, n, least)
			for _, take := range takes {
				d, err := l.Allow(t.Context(), take.Key, take.Limit, 0)
				require.NoError(t, err)
				require.Equal(t, take.Limit.Quota()-n, d.Remaining, "%v %v", a, take.Key)
			}
		}
	}
}

// A slot is moved while callers ask for its keys: nobody notices, and a day's quota is admitted exactly.
func slotMoves(t *testing.T, c *redistest.Cluster, heeds *redis.ClusterClient) {
	const quota, workers = 2000, 4
	rendered := alice.Render("", "")
	from, to := c.MasterOf(rendered), c.OtherMaster(rendered)
	type run struct {
		loads   []*load
		l       *redislimit.Limiter
		patient *redislimit.Limiter
	}
	var runs []run
	for i, rdb := range []*redis.ClusterClient{c.Client(), heeds} {
		config := redislimit.Config{Client: rdb, Prefix: fmt.Sprintf("move%d", i), DenyCache: -1}
		l := open(t, config)
		config.Timeout, config.NoSharing = time.Minute, true // a busy machine moves slots slowly
		r := run{l: l, patient: open(t, config)}
		for _, a := range limiter.Algorithms() {
			if a != limiter.LeakyBucket {
				k := alice
				k.Space = a.String()
				r.loads = append(r.loads, startLoad(t, l, limiter.Per(quota, limiter.MaxPeriod).With(a), busy, workers, k))
			}
		}
		runs = append(runs, r)
	}
	asked := func(n int) {
		for _, r := range runs {
			for _, x := range r.loads {
				require.Eventually(t, func() bool {
					x.mu.Lock()
					defer x.mu.Unlock()
					return x.of[x.keys[0]].admitted >= n
				}, busy, time.Millisecond)
			}
		}
	}
	asked(50)
	move := c.BeginMove(c.Slot(rendered), to)
	// Keys that come together while one is here and the other would be there are waited for.
	var wg sync.WaitGroup
	for _, r := range runs {
		wg.Go(func() {
			ok, err := r.patient.AllowAll(t.Context(), time.Time{}, []limiter.Take{
				{Key: r.loads[0].keys[0], Limit: r.loads[0].limit, N: 1},
				{Key: limiter.Key{Space: "new", ID: alice.ID}, Limit: limiter.PerDay(1), N: 1},
			})
			if err != nil || !ok {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
	asked(100)
	move.Keys()
	asked(150)
	move.Finish()
	wg.Wait()
	asked(200)
	require.Same(t, to, c.MasterOf(rendered))
	for _, r := range runs {
		for i, x := range r.loads {
			x.end()
			k := x.keys[0]
			told := x.of[k]
			require.Zero(t, told.failed, "MOVED and ASK are followed")
			require.Zero(t, told.expired)
			admitted := told.admitted
			for n := 64; n > 0; {
				d, err := r.l.Allow(t.Context(), k, x.limit, n)
				require.NoError(t, err)
				if d.Allowed {
					admitted += n
				} else {
					n /= 2
				}
			}
			if i == 0 {
				admitted++ // with the new key
			}
			require.Equal(t, quota, admitted, "%v", k)
		}
	}
	c.MoveSlot(c.Slot(rendered), from)
}

// A master is killed while callers ask for keys of all slots. Its replica's decisions come as soon as it has its place, not
// when the client next asks who has which slot. Keys of the others lose nothing.
func masterDies(t *testing.T, c *redistest.Cluster, heeds *redis.ClusterClient) {
	const timeout = 200 * time.Millisecond
	var keys, lost []limiter.Key
	dead := c.MasterOf(alice.ID)
	for i := range 24 {
		k := limiter.Key{Space: "api", ID: fmt.Sprint("user=", i)}
		keys = append(keys, k)
		if c.MasterOf(k.ID) == dead {
			lost = append(lost, k)
		}
	}
	require.NotEmpty(t, lost)
	limit := limiter.PerSecond(20).WithBurst(10)
	var loads []*load
	for i, rdb := range []*redis.ClusterClient{c.Client(), heeds} {
		l := open(t, redislimit.Config{Client: rdb, Prefix: fmt.Sprintf("dies%d", i), Timeout: timeout})
		loads = append(loads, startLoad(t, l, limit, timeout, 8, keys...))
	}
	for _, x := range loads {
		x.denied(20)
	}
	dead.Kill()
	start := time.Now()
	for _, x := range loads {
		x.broken()
	}
	c.Wait()
	over := time.Now()
	for _, x := range loads {
		x.recover(5 * time.Second) // by itself the client would need up to a minute
	}
	for _, x := range loads {
		x.denied(20)
		x.end()
		for _, k := range keys {
			to := x.of[k]
			most := x.exact()
			if slices.Contains(lost, k) {
				most = x.bound(to)
				t.Logf("%v: %v; decisions again after %v, %v after the fail-over; at most %d", k.ID, to,
					to.again.Sub(start).Round(time.Millisecond), to.again.Sub(over).Round(time.Millisecond), most)
			}
			require.LessOrEqual(t, to.admitted, most, k)
		}
	}
}

// A node that is silent fails those who ask it, and nobody else, though all come at once.
func TestSilentNodeHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	addrs := map[string]string{}
	for name, s := range servers {
		addrs[name] = s.Addr()
	}
	rdb := redis.NewRing(&redis.RingOptions{Addrs: addrs, HeartbeatFrequency: time.Hour}) // does not notice
	t.Cleanup(func() { _ = rdb.Close() })
	l := open(t, redislimit.Config{Client: rdb, Timeout: timeout})
	limit := limiter.PerHour(1000)
	var of [2][]limiter.Key // by node
	for i := range 64 {
		k := limiter.Key{Space: "api", ID: fmt.Sprint("user=", i)}
		node, err := rdb.GetShardClientForKey(k.ID)
		require.NoError(t, err)
		at := 0
		if node.Options().Addr == addrs["b"] {
			at = 1
		}
		of[at] = append(of[at], k)
		_, err = l.Allow(t.Context(), k, limit, 1)
		require.NoError(t, err)
	}
	servers["b"].Pause()
	var vain, served sync.WaitGroup
	for _, k := range of[1] {
		vain.Go(func() {
			_, err := l.Allow(t.Context(), k, limit, 1)
			if !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("%v: %v", k, err)
			}
		})
	}
	for _, k := range of[0] {
		served.Go(func() {
			for range 20 {
				if _, err := l.Allow(t.Context(), k, limit, 1); err != nil {
					t.Errorf("%v: %v", k, err)
				}
			}
		})
	}
	served.Wait()
	vain.Wait()
	servers["b"].Resume()
}
