package leased_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/leased"
)

// On a Cluster each key is asked for where it is, groups may hold keys of any slots, and everything is given back everywhere.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Cluster")
	}
	c := redistest.StartCluster(t)
	rdb := c.Client()
	l, err := leased.New(leased.Config{Client: rdb, Prefix: "clustered", Timeout: 500 * time.Millisecond, Sync: 10 * time.Second})
	require.NoError(t, err)
	limit := limiter.PerSecond(100_000)
	var keys []limiter.Key
	for i := range 12 {
		keys = append(keys, limiter.Key{Space: "p", ID: fmt.Sprintf("user=%d", i)})
	}
	for range 60 {
		for _, k := range keys {
			d, err := l.Allow(t.Context(), k, limit, 20)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
	}
	require.Len(t, keys, l.Stats().Leases)
	takes := []limiter.Take{{Key: limiter.Key{Space: "p", ID: "cold"}, Limit: limiter.PerDay(2), N: 1}}
	for _, k := range keys {
		takes = append(takes, limiter.Take{Key: k, Limit: limit, N: 1})
	}
	for i := range 4 {
		ok, err := l.AllowAll(t.Context(), time.Time{}, takes)
		require.NoError(t, err)
		require.Equal(t, i < 2, ok)
	}
	require.NoError(t, l.Reset(t.Context(), keys[0]))
	require.NoError(t, l.Close())
	for _, k := range keys[1:] {
		require.Equal(t, []string{"h"}, rdb.HKeys(t.Context(), k.Render("clustered", "lease")).Val(), k.ID)
	}
}
