package peer

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/memory"
)

func leasedDecider(rdb redis.UniversalClient, p Profile) (Decider, func(), error) {
	// As in the other cases, a decision is to pass on a machine that is overloaded on purpose.
	l, err := leased.New(leased.Config{Client: rdb, Prefix: "bench", Timeout: 500 * time.Millisecond})
	if err != nil {
		return nil, nil, err
	}
	return spillwayRedisOne(l, tokenBucket(p)), func() { _ = l.Close() }, nil
}

func spillwayLeasedRedises() []Redis {
	return []Redis{
		{
			Name: "spillway-leased", Note: "decides by what it has leased", Scenarios: []string{warmKeys},
			New: func(addrs []string, p Profile, _ int) (Decider, func(), error) {
				rdb := goRedis(addrs)
				d, stop, err := leasedDecider(rdb, p)
				if err != nil {
					_ = rdb.Close()
					return nil, nil, err
				}
				return d, func() {
					stop()
					_ = rdb.Close()
				}, nil
			},
		},
		{
			Name: "spillway-memory", Note: "no Redis: the limit is each process's own", Scenarios: []string{warmKeys},
			New: func(_ []string, p Profile, _ int) (Decider, func(), error) {
				l, err := memory.New(memory.Config{})
				if err != nil {
					return nil, nil, err
				}
				limit := tokenBucket(p)
				return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
					d, err := l.Allow(ctx, limiter.Key{Space: "bench", ID: key}, limit, 1)
					return d.Allowed, err
				}), func() { l.Close() }, nil
			},
		},
	}
}
