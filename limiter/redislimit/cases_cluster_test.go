package redislimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// Faults that Clusters have brought to others.
func casesOfClusters(t *testing.T, c *redistest.Cluster) {
	config := redislimit.Config{Client: c.Client(), Prefix: "cases"}
	identities := []string{"user=1", "tenant=acme|ip=203.0.113.7", "route=GET%20/users/:id", "all=-", ""}

	t.Run("CLU-02 CLU-03 CLU-04 the keys of one identity share a slot", func(t *testing.T) {
		l := open(t, config)
		for _, id := range identities[:4] {
			slots := map[int]bool{}
			var takes []limiter.Take
			for _, space := range []string{"burst", "identity.search", "daily"} {
				for _, a := range limiter.Algorithms() {
					k := limiter.Key{Space: space, ID: id}
					slots[c.Slot(k.Render("cases", a.Tag()))] = true
					if a != limiter.LeakyBucket {
						takes = append(takes, limiter.Take{Key: k, Limit: limiter.PerDay(5).With(a), N: 1})
					}
				}
			}
			require.Len(t, slots, 1, id)
			ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
			require.NoError(t, err)
			require.True(t, ok)
		}
	})

	t.Run("CLU-05 a client of one server is told apart from an outage", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: c.Servers()[0].Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		l := open(t, redislimit.Config{Client: rdb, Prefix: "single"})
		told := 0
		for i := range 30 {
			_, err := l.Allow(t.Context(), limiter.Key{Space: "p", ID: fmt.Sprintf("user=%d", i)}, limiter.PerDay(5), 1)
			if err != nil {
				require.ErrorIs(t, err, limiter.ErrUnavailable)
				require.ErrorContains(t, err, "ClusterClient")
				told++
			}
		}
		require.NotZero(t, told)
	})

	t.Run("CLU-07 every call goes to the slot of its own keys", func(t *testing.T) {
		l := open(t, config)
		var takes []limiter.Take
		for i := range 40 {
			takes = append(takes, limiter.Take{Key: limiter.Key{Space: "own", ID: fmt.Sprintf("user=%d", i)}, Limit: limiter.PerDay(5), N: 1})
		}
		ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
		require.NoError(t, err)
		require.True(t, ok)
	})

	t.Run("NOS-04 every server learns the script", func(t *testing.T) {
		l := open(t, config)
		for _, s := range c.Servers() {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
			require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
			require.NoError(t, rdb.Close())
		}
		for i := range 30 {
			_, err := l.Allow(t.Context(), limiter.Key{Space: "flush", ID: fmt.Sprintf("user=%d", i)}, limiter.PerDay(5), 1)
			require.NoError(t, err)
		}
	})

	t.Run("keys without an identity are reset where they are", func(t *testing.T) {
		l := open(t, config)
		for _, id := range append(identities, "}x") {
			k := limiter.Key{Space: "reset", ID: id}
			for _, a := range limiter.Algorithms() {
				d, err := l.Allow(t.Context(), k, limiter.PerDay(1).With(a), 1)
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
			require.NoError(t, l.Reset(t.Context(), k))
			for _, a := range limiter.Algorithms() {
				d, err := l.Allow(t.Context(), k, limiter.PerDay(1).With(a), 1)
				require.NoError(t, err)
				require.True(t, d.Allowed, "%v of %q", a, id)
			}
		}
	})
}
