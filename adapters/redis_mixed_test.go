package adapters_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/limiter/redisrate"
)

// mixed is a site whose policies are on three limiters: an edge in memory, a quota on Redis and a queue on Redis. The queue
// and the quota are on one store or on two.
type mixed struct {
	*site
	calls *witness // to Redis
	redis *redistest.Server
}

// newMixed configures the policies in the order in which they should not be asked.
func newMixed(t *testing.T, m mount, isShared bool, edge, quota int, queue limiter.Limit) *mixed {
	t.Helper()
	x := &mixed{calls: new(witness), redis: redistest.Start(t)}
	store := func(name string) limiter.Limiter {
		return onRedis(t, x.redis.Addr(), redislimit.Config{Prefix: name, Name: name, Timeout: patient, Observer: x.calls})
	}
	onQuota := store("quota")
	onQueue := onQuota
	if !isShared {
		onQueue = store("queue")
	}
	inMemory := near(t)
	inMemory.Name, inMemory.Limit = "edge", limiter.PerDay(edge)
	x.site = newSite(t, m, spillway.Config{Policies: []spillway.Policy{
		{Name: "queue", Key: keyfunc.IP(), Limit: queue, MaxDelay: -1, Limiter: onQueue},
		{Name: "quota", Key: keyfunc.IP(), Limit: limiter.PerDay(quota), Limiter: onQuota},
		inMemory,
	}})
	return x
}

// asked says which stores were called and for what, since the last time.
func (x *mixed) asked() (out []string) {
	for _, e := range x.calls.of(limiter.EventStore) {
		out = append(out, e.Name+" "+e.Op)
	}
	x.calls.forget()
	return out
}

// left is what the policies have left, without a say in it.
func (x *mixed) left(t *testing.T) map[string]int {
	t.Helper()
	v, err := x.guard.Peek(httptest.NewRequest(http.MethodGet, "/users/1", nil))
	require.NoError(t, err)
	out := map[string]int{}
	for _, p := range v.Policies {
		out[p.Policy] = p.Decision.Remaining
	}
	x.calls.forget()
	return out
}

// wide and narrow are queues with room for all of a test, and for its first request.
var (
	wide   = limiter.Per(1_000_000, time.Second).With(limiter.LeakyBucket).WithBurst(100) // no trip is as short as a place
	narrow = limiter.PerDay(1).With(limiter.LeakyBucket).WithBurst(10)
)

// Whatever the order of configuration, memory is asked first and the queue last.
func TestLimitersAreAskedInOrder(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		t.Run("all pass", func(t *testing.T) {
			x := newMixed(t, m, false, 5, 5, wide)
			require.Equal(t, http.StatusOK, x.status(t))
			require.Equal(t, []string{"quota take", "queue take"}, x.asked())
			require.Equal(t, map[string]int{"edge": 4, "quota": 4, "queue": 100}, x.left(t))
			require.Equal(t, map[string]limiter.Via{"edge": limiter.ViaMemory, "quota": limiter.ViaStore, "queue": limiter.ViaStore}, x.vias())
		})
		t.Run("memory refuses", func(t *testing.T) {
			x := newMixed(t, m, false, 1, 5, wide)
			require.Equal(t, http.StatusOK, x.status(t))
			before := x.left(t)
			did := commands(t, x.redis.Client(), func() {
				for range 20 {
					require.Equal(t, http.StatusTooManyRequests, x.status(t))
				}
			})
			for name := range did { // of the one that counts
				require.Contains(t, []string{"info", "config|resetstat", "hello", "client|setinfo", "client|maint_notifications"}, name)
			}
			require.Empty(t, x.asked())
			require.Equal(t, before, x.left(t))
		})
		t.Run("Redis refuses", func(t *testing.T) {
			x := newMixed(t, m, false, 5, 1, wide)
			require.Equal(t, http.StatusOK, x.status(t))
			x.asked()
			require.Equal(t, http.StatusTooManyRequests, x.status(t))
			require.Equal(t, []string{"quota take"}, x.asked(), "and not the queue")
			until(t, "the denial is remembered", func() bool { return x.status(t) == http.StatusTooManyRequests && len(x.asked()) == 0 })
			require.Equal(t, map[string]int{"edge": 4, "quota": 0, "queue": 100}, x.left(t), "memory has its units back")
		})
		t.Run("the queue refuses", func(t *testing.T) {
			x := newMixed(t, m, false, 5, 5, narrow)
			require.Equal(t, http.StatusOK, x.status(t))
			x.asked()
			require.Equal(t, http.StatusTooManyRequests, x.status(t))
			require.Equal(t, []string{"quota take", "queue take", "quota refund"}, x.asked())
			require.Equal(t, map[string]int{"edge": 4, "quota": 4, "queue": 9}, x.left(t), "all have theirs back")
		})
		t.Run("the queue refuses, on the store of the quota", func(t *testing.T) {
			x := newMixed(t, m, true, 5, 5, narrow)
			require.Equal(t, http.StatusOK, x.status(t))
			x.asked()
			require.Equal(t, http.StatusTooManyRequests, x.status(t))
			require.Equal(t, []string{"quota take"}, x.asked(), "one trip, in which nothing is booked")
			require.Equal(t, map[string]int{"edge": 4, "quota": 4, "queue": 9}, x.left(t))
		})
	})
}

// However many policies there are on one Redis, a request is one script. So is a refusal, and others like it are none.
func TestOneTripForARequest(t *testing.T) {
	ip, all := keyfunc.IP(), keyfunc.Global()
	some := func(key keyfunc.Func) []spillway.Policy {
		return []spillway.Policy{
			{Name: "second", Key: ip, Limit: limiter.PerSecond(10_000)},
			{Name: "day", Key: ip, Limit: limiter.PerDay(8).With(limiter.SlidingWindow)},
			{Name: "window", Key: key, Limit: limiter.PerDay(1000).With(limiter.FixedWindow)},
		}
	}
	for name, c := range map[string]struct {
		policies []spillway.Policy
		asks     bool // for denials too: none is remembered
	}{
		"one policy":                  {some(ip)[1:2], false},
		"three policies":              {some(ip), false},
		"three policies and a shadow": {append(some(ip), spillway.Policy{Name: "trial", Key: ip, Limit: limiter.PerDay(2), Shadow: true}), true},
		"two identities":              {some(all), false},
		"a queue among them":          {append(some(ip), spillway.Policy{Name: "queue", Key: ip, Limit: wide, MaxDelay: -1}), false},
		"a log among them":            {append(some(ip), spillway.Policy{Name: "log", Key: ip, Limit: limiter.PerDay(100).With(limiter.SlidingLog)}), false},
		"units that may come back": {append(some(ip), spillway.Policy{
			Name: "failures", Key: ip, Limit: limiter.PerDay(100), Refund: func(status int) bool { return status >= 500 },
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			eachAdapter(t, func(t *testing.T, m mount) {
				require.NoError(t, server.Client().FlushAll(t.Context()).Err())
				s := newSite(t, m, spillway.Config{Limiter: onRedis(t, server.Addr(), redislimit.Config{Timeout: patient}), Policies: c.policies})
				require.Equal(t, http.StatusOK, s.status(t)) // the script is there from now on
				require.Equal(t, 7, trips(t, server, func() {
					for range 7 {
						require.Equal(t, http.StatusOK, s.status(t))
					}
				}))
				const refusals = 20
				made := trips(t, server, func() {
					for range refusals {
						require.Equal(t, http.StatusTooManyRequests, s.status(t))
					}
				})
				if c.asks {
					require.Equal(t, refusals, made)
				} else {
					require.Contains(t, []int{1, 2, 3}, made, "one a second")
				}
			})
		})
	}
}

// A policy's StoreKey is the key in Redis, and there is no other.
func TestStoreKeysOnRedis(t *testing.T) {
	old := func(k limiter.Key) string { return "old/" + k.Space + "/" + k.ID }
	server := redistest.Start(t)
	store := func(t *testing.T) limiter.Limiter {
		t.Helper()
		return onRedis(t, server.Addr(), redislimit.Config{Prefix: "shop", Timeout: patient})
	}
	rate := func(t *testing.T) limiter.Limiter {
		t.Helper()
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		l, err := redisrate.New(redisrate.Config{Client: rdb, Prefix: "shop", Timeout: patient})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	ip, limit := keyfunc.IP(), limiter.PerDay(10)
	for name, c := range map[string]struct {
		store    func(*testing.T) limiter.Limiter
		policies []spillway.Policy
		keys     []string // sorted
	}{
		"redislimit": {store, []spillway.Policy{{Name: "a", Key: ip, Limit: limit, StoreKey: old}}, []string{"old/a/ip=192.0.2.1"}},
		"redislimit, by default": {store, []spillway.Policy{
			{Name: "a", Key: ip, Limit: limit}, {Name: "b", Key: ip, Limit: limit.With(limiter.SlidingLog)},
		}, []string{"shop:a:{ip=192.0.2.1}:tb", "shop:b:{ip=192.0.2.1}:sl"}},
		"redislimit, one of several": {store, []spillway.Policy{
			{Name: "a", Key: ip, Limit: limit, StoreKey: old},
			{Name: "b", Key: ip, Limit: limit, StoreKey: old, Shadow: true},
			{Name: "c", Key: keyfunc.Global(), Limit: limit.With(limiter.FixedWindow)},
		}, []string{"old/a/ip=192.0.2.1", "old/b/ip=192.0.2.1", "shop:c:{all=-}:fw"}},
		"redisrate":             {rate, []spillway.Policy{{Name: "a", Key: ip, Limit: limit, StoreKey: old}}, []string{"rate:old/a/ip=192.0.2.1"}},
		"redisrate, by default": {rate, []spillway.Policy{{Name: "a", Key: ip, Limit: limit}}, []string{"rate:shop:a:{ip=192.0.2.1}"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachAdapter(t, func(t *testing.T, m mount) {
				admin := server.Client()
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				l := c.store(t)
				s := newSite(t, m, spillway.Config{Limiter: l, Policies: c.policies})
				keys := func() []string {
					found, err := admin.Keys(t.Context(), "*").Result()
					require.NoError(t, err)
					slices.Sort(found)
					return found
				}
				for range 2 {
					require.Equal(t, http.StatusOK, s.status(t))
					require.Equal(t, c.keys, keys())
				}
				// Who counts by the key itself counts along.
				if c.policies[0].StoreKey != nil {
					d, err := l.Allow(t.Context(), limiter.Key{ID: "old/a/ip=192.0.2.1"}, limit, 3)
					require.NoError(t, err)
					require.Equal(t, 5, d.Remaining)
					require.Equal(t, http.StatusOK, s.status(t))
					require.Equal(t, c.keys, keys())
				}
				// A take outside of a request is another identity, spelled alike.
				if name == "redislimit" {
					_, err := s.guard.Take(t.Context(), "a", "+49", 1)
					require.NoError(t, err)
					require.Equal(t, append(slices.Clone(c.keys), "old/a/key=%2B49"), keys())
				}
			})
		})
	}
}
