package prove_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

// rig is the store of a cell.
type rig struct {
	server   *redistest.Server
	proxy    *redistest.Proxy
	clock    *redistest.Clock
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster
	split    bool // the first guard alone is behind the proxy
}

// fault is what happens under load. begin and end may wait.
type fault struct {
	name  string
	start func(t *testing.T) rig
	begin func(c *cell)
	end   func(c *cell) // nil: it is over when begin returns
	long  time.Duration // between the two

	// What docs/guarantees.md lets it add to the limits.
	losses   int           // full quotas: data that are gone, or a fail-over
	jump     time.Duration // of the store's clock, ahead
	setBack  bool          // at the beginning: what a key had earned since its last take is lost with the clock it was earned by
	restarts int           // of a guard process: a share each
	absent   int           // guards that are killed
	burnt    bool          // a guard's leases end without a word: nobody knows what of them was spent
}

func plain(args ...string) func(*testing.T) rig {
	return func(t *testing.T) rig { return rig{server: redistest.Start(t, args...)} }
}

// durable is a Redis that writes before it answers: whoever kills the process takes nothing.
var durable = plain("--appendonly", "yes", "--appendfsync", "everysec")

func proxied(t *testing.T) rig {
	s := redistest.Start(t)
	return rig{server: s, proxy: redistest.StartProxy(t, s.Addr())}
}

func split(t *testing.T) rig {
	r := proxied(t)
	r.split = true
	return r
}

func clocked(t *testing.T) rig {
	s, c := redistest.StartClock(t)
	return rig{server: s, clock: c}
}

const brief = 1500 * time.Millisecond

var faults = []fault{
	{
		name: "Redis killed, its data lost", start: plain(), long: brief, losses: 1,
		begin: func(c *cell) { c.server.Kill() }, end: func(c *cell) { c.server.Restart() },
	},
	{
		name: "Redis killed, append-only file", start: durable, long: brief,
		begin: func(c *cell) { c.server.Kill() }, end: func(c *cell) { c.server.Restart() },
	},
	{
		name: "Redis paused", start: plain(), long: brief,
		begin: func(c *cell) { c.server.Pause() }, end: func(c *cell) { c.server.Resume() },
	},
	{
		name: "replies 20 ms late", start: proxied, long: brief,
		begin: func(c *cell) { c.proxy.Delay(20 * time.Millisecond) }, end: func(c *cell) { c.proxy.Pass() },
	},
	{
		name: "replies 200 ms late", start: proxied, long: brief,
		begin: func(c *cell) { c.proxy.Delay(200 * time.Millisecond) }, end: func(c *cell) { c.proxy.Pass() },
	},
	{
		name: "cut in the middle of each reply", start: proxied, long: brief,
		begin: func(c *cell) { c.proxy.CutReply() }, end: func(c *cell) { c.proxy.Pass() },
	},
	{
		name: "a partition: one guard cut off", start: split, long: brief, burnt: true,
		begin: func(c *cell) { c.proxy.Silent() },
		end: func(c *cell) {
			c.proxy.Pass()
			c.proxy.CutAll() // what has lost something stays silent
		},
	},
	{name: "memory full, noeviction", start: plain(), long: brief, begin: (*cell).fill, end: (*cell).empty},
	{name: "memory full, allkeys-lru", start: plain(), begin: (*cell).evict}, // losses are counted
	{name: "fail-over by Sentinel", start: sentinels, losses: 1, begin: (*cell).failOver},
	{name: "fail-over by Sentinel, and the old master is back", start: sentinels, losses: 1, begin: (*cell).failOverAndBack},
	{name: "a Cluster's master killed", start: clusters, losses: 1, begin: (*cell).killMaster},
	{name: "a Cluster's slot moved", start: clusters, begin: (*cell).reshard},
	{
		name: "Redis' clock 1 h ahead, then right", start: clocked, long: brief, jump: time.Hour,
		begin: func(c *cell) { c.clock.Set(time.Hour) }, end: func(c *cell) { c.clock.Set(0) },
	},
	{
		name: "Redis' clock 1 h behind, then right", start: clocked, long: brief, jump: time.Hour, setBack: true,
		begin: func(c *cell) { c.clock.Set(-time.Hour) }, end: func(c *cell) { c.clock.Set(0) },
	},
	{name: "scripts flushed", start: plain(), begin: (*cell).flushScripts},
	{
		name: "a guard paused, longer than leases live", start: plain(), long: brief, burnt: true,
		begin: func(c *cell) { c.guards[0].signal(c.t, "STOP") }, end: func(c *cell) { c.guards[0].signal(c.t, "CONT") },
	},
	{
		name: "a guard killed, started again", start: plain(), absent: 1, restarts: 1, burnt: true,
		begin: func(c *cell) {
			c.killGuard()
			pause(brief / 3)
			c.startGuard()
		},
	},
	{
		name: "Redis killed, append-only file, and a guard in the outage", start: durable, absent: 1, restarts: 1, burnt: true,
		begin: func(c *cell) {
			c.server.Kill()
			pause(brief / 2)
			c.killGuard()
			c.startGuard()
			pause(brief)
			c.server.Restart()
		},
	},
}

func sentinels(t *testing.T) rig { return rig{sentinel: redistest.StartSentinel(t)} }
func clusters(t *testing.T) rig  { return rig{cluster: redistest.StartCluster(t)} }

// setup is what leads a guard to the store.
func (r rig) setup(guard int) setup {
	switch {
	case r.sentinel != nil:
		return setup{Kind: "sentinel", Addrs: r.sentinel.Addrs(), Master: r.sentinel.MasterName()}
	case r.cluster != nil:
		return setup{Kind: "cluster", Addrs: r.cluster.Addrs()}
	case r.proxy != nil && (guard == 0 || !r.split):
		return setup{Kind: "single", Addrs: []string{r.proxy.Addr()}}
	}
	return setup{Kind: "single", Addrs: []string{r.server.Addr()}}
}

// fill leaves the server no memory for a write.
func (c *cell) fill() {
	ctx, client := context.Background(), c.server.Client()
	require.NoError(c.t, client.Set(ctx, "filler", strings.Repeat("x", 4<<20), 0).Err())
	require.NoError(c.t, client.ConfigSet(ctx, "maxmemory", "1mb").Err())
	require.ErrorContains(c.t, client.Set(ctx, "more", "x", 0).Err(), "OOM")
}

func (c *cell) empty() {
	ctx, client := context.Background(), c.server.Client()
	require.NoError(c.t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	require.NoError(c.t, client.Del(ctx, "filler").Err())
}

// evict writes more than fits, so that keys go, and counts which: the server tells. One sample makes its choice blind, as
// it is among millions of keys.
func (c *cell) evict() {
	ctx, client := context.Background(), c.server.Client()
	for name, value := range map[string]string{"notify-keyspace-events": "Ee", "maxmemory-samples": "1", "maxmemory-policy": "allkeys-lru"} {
		require.NoError(c.t, client.ConfigSet(ctx, name, value).Err())
	}
	sub := client.PSubscribe(ctx, "__keyevent@0__:evicted")
	_, err := sub.Receive(ctx)
	require.NoError(c.t, err)
	var counting sync.WaitGroup
	counting.Go(func() {
		for m := range sub.Channel(redis.WithChannelSize(10_000)) {
			for name := range limits {
				if strings.HasPrefix(m.Payload, prefix+":"+name+":") {
					c.evictions[name]++
				}
			}
		}
	})
	used, err := client.InfoMap(ctx, "memory").Result()
	require.NoError(c.t, err)
	var now int64
	for _, section := range used {
		if text := section["used_memory"]; text != "" {
			now = atoi(c.t, text)
		}
	}
	const value = 64 << 10
	require.NoError(c.t, client.ConfigSet(ctx, "maxmemory", itoa(now+30*value)).Err())
	text := strings.Repeat("x", value)
	for k := range 300 {
		_ = client.Set(ctx, "filler"+itoa(int64(k)), text, 0).Err() // OOM where what was evicted is not free yet
		pause(5 * time.Millisecond)
	}
	require.NoError(c.t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	require.NoError(c.t, client.Ping(ctx).Err())
	pause(100 * time.Millisecond) // for what the server has told
	require.NoError(c.t, sub.Close())
	counting.Wait()
	require.NotEmpty(c.t, c.evictions, "nothing of ours was evicted, so nothing was tried")
}

// failOver kills the master, and returns when a replica has its place.
func (c *cell) failOver() {
	old := c.sentinel.Master()
	old.Kill()
	require.Eventually(c.t, func() bool { return c.sentinel.Master() != old }, patience, 10*time.Millisecond)
}

// failOverAndBack stops the master, and lets it go on when a replica has its place: it believes to be the master until it is
// told, and whoever still has a connection may ask it.
func (c *cell) failOverAndBack() {
	old := c.sentinel.Master()
	old.Pause()
	require.Eventually(c.t, func() bool { return c.sentinel.Master() != old }, patience, 10*time.Millisecond)
	pause(brief / 3)
	old.Resume()
}

// killMaster kills the master that has everything but what everybody shares, and returns when its replica has its place.
func (c *cell) killMaster() {
	c.cluster.KillMaster(c.storeKey())
	c.cluster.Wait()
}

// reshard moves the slot of the one client to another master and back, with a moment in each state.
func (c *cell) reshard() {
	key := c.storeKey()
	from, to := c.cluster.MasterOf(key), c.cluster.OtherMaster(key)
	for _, master := range []*redistest.Server{to, from} {
		move := c.cluster.BeginMove(c.cluster.Slot(key), master)
		pause(brief / 5)
		move.Keys()
		pause(brief / 5)
		move.Finish()
		pause(brief / 5)
	}
}

// storeKey is a key of the one client in the store.
func (c *cell) storeKey() string {
	c.t.Helper()
	for _, s := range c.cluster.Servers() {
		if keys, _ := s.Client().Keys(context.Background(), prefix+":"+busy+":*").Result(); len(keys) > 0 {
			return keys[0]
		}
	}
	require.Fail(c.t, "no node has a key of ours")
	return ""
}

func (c *cell) flushScripts() {
	client := c.server.Client()
	for range 150 {
		require.NoError(c.t, client.ScriptFlush(context.Background()).Err())
		pause(10 * time.Millisecond)
	}
}
