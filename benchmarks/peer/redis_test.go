package peer_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/benchmarks/internal/redisserver"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

func servers(t *testing.T, masters int) *redisserver.Servers {
	t.Helper()
	if redisserver.Missing() {
		t.Skip("redis-server is not installed")
	}
	s, err := redisserver.Start(context.Background(), masters)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

func TestRedises(t *testing.T) {
	ctx := context.Background()
	byMasters := map[int]*redisserver.Servers{}
	for _, sc := range peer.RedisScenarios {
		if testing.Short() && sc.Masters > 1 {
			continue // a cluster takes seconds to form
		}
		if byMasters[sc.Masters] == nil {
			byMasters[sc.Masters] = servers(t, sc.Masters)
		}
		s := byMasters[sc.Masters]
		for _, r := range peer.Redises() {
			if !r.In(sc) {
				continue
			}
			t.Run(sc.Name+"/"+r.Name, func(t *testing.T) {
				require.Regexp(t, `^[a-z0-9_:+-]+$`, r.Name, "fit for a benchmark's name")
				require.NoError(t, s.Flush(ctx))
				d, stop, err := r.New(s.Addrs, sc.Profile, sc.Policies)
				require.NoError(t, err)
				defer stop()
				for i := range 30 {
					ok, err := d.Allow(ctx, peer.Key(i%10))
					require.NoError(t, err)
					require.Equal(t, i < 10 || !sc.Profile.Denies(), ok, "request %d", i)
				}
			})
		}
	}
}

func TestNodes(t *testing.T) {
	s := servers(t, 1)
	p := peer.Profile{Rate: 20, Period: time.Second, Burst: 20}
	for _, n := range peer.Nodes() {
		t.Run(n.Name, func(t *testing.T) {
			require.NoError(t, s.Flush(t.Context()))
			rdb := redis.NewClient(&redis.Options{Addr: s.Addrs[0], Protocol: 2})
			defer func() { _ = rdb.Close() }()
			d, stop, err := n.New(rdb, p, 0)
			require.NoError(t, err)
			defer stop()
			passed, refused := 0, 0
			require.Eventually(t, func() bool { // the hash has no quota before its first trip
				ok, err := d.Allow(t.Context(), "one")
				require.NoError(t, err)
				if ok {
					passed++
				} else {
					refused++
				}
				return passed > 0 && refused > 0
			}, 10*time.Second, time.Millisecond)
		})
	}
}

func TestRedisMWs(t *testing.T) {
	s := servers(t, 1)
	for _, m := range peer.RedisMWs(s.Addrs) {
		t.Run(m.FullName(), func(t *testing.T) {
			require.Regexp(t, `^redis/[a-z0-9_-]+$`, m.FullName())
			for _, p := range []peer.Profile{peer.Kept, peer.Closed} {
				require.NoError(t, s.Flush(context.Background()))
				h := m.Build(p, 1)
				for i := range 3 {
					want := http.StatusOK
					if i > 0 && p.Denies() && m.Name != "none" {
						want = http.StatusTooManyRequests
					}
					require.Equal(t, want, status(h), "request %d", i)
				}
			}
		})
	}
}
