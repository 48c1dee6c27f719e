package peer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Kept never denies within a run, and keeps every key alive in Redis between two decisions, as in production.
var Kept = Profile{Rate: 1, Period: time.Second, Burst: 1e8, WindowLimit: 1e8, Window: time.Hour}

// Redis is a limiter that keeps its state in Redis, or a bare command.
type Redis struct {
	Name      string
	Note      string
	Scenarios []string // of RedisScenarios
	// New connects to the servers, which are a cluster if there are several; the function releases what it started.
	New func(addrs []string, p Profile, policies int) (Decider, func(), error)
}

// In reports whether the case takes part in a scenario.
func (r Redis) In(s RedisScenario) bool { return slices.Contains(r.Scenarios, s.Name) }

// RedisScenario is what is asked of limiters in Redis.
type RedisScenario struct {
	Name        string
	What        string // told to the reader
	Concurrency []int  // goroutines that decide one thing after the other
	Keys        int
	Masters     int
	Policies    int // decided by each call, of the same client
	Profile     Profile
	Warm        bool // the load is there for a while before it is measured
}

// Names of the scenarios.
const (
	spreadKeys    = "spread"
	hotKey        = "hot"
	deniedKeys    = "denied"
	threePolicies = "3policies"
	onCluster     = "cluster"
	warmKeys      = "warm"
)

const redisKeys = 10_000

// RedisScenarios are measured one after the other in each round.
var RedisScenarios = []RedisScenario{
	{spreadKeys, "10,000 keys, nothing is denied", []int{1, 16, 64, 256}, redisKeys, 1, 1, Kept, false},
	{hotKey, "One key, nothing is denied", []int{64}, 1, 1, 1, Kept, false},
	{deniedKeys, "10,000 keys whose limit of one an hour is spent: everything is denied", []int{64}, redisKeys, 1, 1, Closed, false},
	{threePolicies, "Three policies for the same client: a decision of the table is three", []int{1, 64}, redisKeys, 1, 3, Kept, false},
	{onCluster, "10,000 keys on a Redis Cluster of three masters", []int{64, 256}, redisKeys, 3, 1, Kept, false},
	{warmKeys, "100 keys that have been busy for a while, nothing is denied: what leases are for", []int{1, 64}, 100, 1, 1, Kept, true},
}

// goRedis is a client as most programs have it, with the pool's default size.
func goRedis(addrs []string) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs, IsClusterMode: len(addrs) > 1, Protocol: 2, DisableIdentity: true,
	})
}

// overGoRedis makes the New of a case that stands on go-redis.
func overGoRedis(
	build func(redis.UniversalClient, Profile, int) (Decider, error),
) func([]string, Profile, int) (Decider, func(), error) {
	return func(addrs []string, p Profile, policies int) (Decider, func(), error) {
		rdb := goRedis(addrs)
		stop := func() { _ = rdb.Close() }
		d, err := build(rdb, p, policies)
		if err != nil {
			stop()
			return nil, nil, err
		}
		return d, stop, nil
	}
}

// autoPipelined is the client's face that joins commands of concurrent callers; the client's Close ends it.
func autoPipelined(rdb redis.UniversalClient) (*redis.AutoPipeliner, error) {
	c, ok := rdb.(interface {
		AutoPipeline() (*redis.AutoPipeliner, error)
	})
	if !ok {
		return nil, errors.New("the client has no AutoPipeline")
	}
	return c.AutoPipeline()
}

// each makes a decider of n policies from one of one policy, whose keys differ by a suffix.
func each(n int, d Decider) Decider {
	if n == 1 {
		return d
	}
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		all := true
		for i := range n {
			ok, err := d.Allow(ctx, policyKey(key, i))
			if err != nil {
				return false, err
			}
			all = all && ok
		}
		return all, nil
	})
}

// policyKey is the key of a client under policy i, in the slot of the client.
func policyKey(key string, i int) string { return "{" + key + "}" + string(rune('a'+i)) }
