package peer

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/response"
)

// spillwayRedis makes the New of a case; c has the settings that make it one. The time-out lets a decision pass on a
// machine that is overloaded on purpose.
func spillwayRedis(c redislimit.Config) func([]string, Profile, int) (Decider, func(), error) {
	c.Prefix, c.Timeout = "bench", 5*time.Second
	return func(addrs []string, p Profile, policies int) (Decider, func(), error) {
		rdb := goRedis(addrs)
		c := c
		c.Client = rdb
		l, err := redislimit.New(c)
		if err != nil {
			return nil, nil, err
		}
		d := spillwayRedisOne(l, tokenBucket(p))
		if policies > 1 {
			d = spillwayRedisAll(l, tokenBucket(p), policies)
		}
		return d, func() {
			_ = l.Close()
			_ = rdb.Close()
		}, nil
	}
}

// centralDecider is the default case on a client that stays the caller's.
func centralDecider(rdb redis.UniversalClient, p Profile) (Decider, func(), error) {
	l, err := redislimit.New(redislimit.Config{Client: rdb, Prefix: "bench", Timeout: 5 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	return spillwayRedisOne(l, tokenBucket(p)), func() { _ = l.Close() }, nil
}

func spillwayRedisOne(l limiter.Limiter, limit limiter.Limit) Decider {
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		d, err := l.Allow(ctx, limiter.Key{Space: "bench", ID: key}, limit, 1)
		return d.Allowed, err
	})
}

// spillwayRedisAll decides all policies of a client in one call, with takes that are reused, as a guard does.
func spillwayRedisAll(l limiter.Batcher, limit limiter.Limit, policies int) Decider {
	pool := sync.Pool{New: func() any { return new(make([]limiter.Take, policies)) }}
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		takes := pool.Get().(*[]limiter.Take)
		for i := range *takes {
			(*takes)[i] = limiter.Take{Key: limiter.Key{Space: spaces[i], ID: key}, Limit: limit, N: 1}
		}
		ok, err := l.AllowAll(ctx, time.Time{}, *takes)
		pool.Put(takes)
		return ok, err
	})
}

var spaces = [...]string{"bencha", "benchb", "benchc"}

func spillwayRedises() []Redis {
	return []Redis{
		{
			Name: "spillway", Scenarios: []string{spreadKeys, hotKey, deniedKeys, threePolicies, onCluster, warmKeys},
			New: spillwayRedis(redislimit.Config{}),
		},
		{
			Name: "spillway-unshared", Note: "a trip for each call, no deny cache",
			Scenarios: []string{spreadKeys, hotKey, deniedKeys, threePolicies, onCluster},
			New:       spillwayRedis(redislimit.Config{NoSharing: true, DenyCache: -1}),
		},
		{
			Name: "spillway-no-deny-cache", Scenarios: []string{deniedKeys},
			New: spillwayRedis(redislimit.Config{DenyCache: -1}),
		},
	}
}

func spillwayRedisMWs(addrs []string) (out []MW) {
	for _, v := range []struct {
		name, note string
		headers    response.Set
	}{
		{"spillway", "three headers", response.X},
		{"spillway-off", "sends no headers", response.Off},
	} {
		out = append(out, MW{Framework: "redis", Name: v.name, Note: v.note, Build: func(p Profile, n int) http.Handler {
			l := spillway.Must(redislimit.New(redislimit.Config{Client: goRedis(addrs), Prefix: "bench", Timeout: 5 * time.Second}))
			cfg := spillwayConfig(p, n, v.headers)
			cfg.Limiter = l
			return stdApp(1, func() func(http.Handler) http.Handler { return stdhttp.Middleware(spillway.Must(spillway.New(cfg))) })
		}})
	}
	return out
}
