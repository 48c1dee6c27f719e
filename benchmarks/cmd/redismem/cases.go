package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/benchmarks/peer"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// kind is what keys are of.
type kind struct {
	name  string
	fewer int // so many times fewer keys are enough, as each is large
	takes int
	// processes are how many ask for each key.
	processes int
	fields    int // of each key, where it is a hash
	// start returns a function that makes the key of a client by so many takes, and one that ends what was started.
	start func(addrs []string) (fill, func(), error)
}

type fill func(ctx context.Context, client string, takes int) error

// Periods are so long that no key expires within a run.
const day = 24 * time.Hour

func cases() []kind {
	bucket := limiter.Per(10, time.Hour).WithBurst(1000)
	window := limiter.Per(1000, 300*day)
	log := limiter.Per(1000, day).With(limiter.SlidingLog)
	out := []kind{
		central("token_bucket", bucket, 1, 0),
		central("leaky_bucket", bucket.With(limiter.LeakyBucket), 1, 0),
		central("fixed_window", window.With(limiter.FixedWindow), 1, 0),
		central("fixed_window, calendar month", window.Aligned(limiter.Month, ""), 1, 0),
		central("sliding_window, 1 cell", limiter.Per(1000, day).WithCells(1), 1, 0),
		central("sliding_window, 10 cells", limiter.Per(1000, 10*day).WithCells(10), 10, day),
		central("sliding_window, 100 cells", limiter.Per(1000, 100*day).WithCells(100), 100, day),
		central("sliding_log, 1 take", log, 1, 0),
		central("sliding_log, 10 takes", log, 10, time.Second),
		central("sliding_log, 100 takes", log, 100, time.Second),
		fleet("leased, nothing held", 1, 1, 1),
		fleet("leased, held by 1", 1, takesOfALease, 20),
		fleet("leased, held by 10", 10, takesOfALease, 50),
		fleet("leased, held by 1000", 1000, takesOfALease, 10_000),
	}
	for _, name := range []string{"redis_rate", "ulule", "throttled", "valkeylimiter"} {
		for _, r := range peer.Redises() {
			if r.Name == name {
				out = append(out, other(r))
			}
		}
	}
	return out
}

func client(addrs []string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addrs[0], Protocol: 2, DisableIdentity: true})
}

// central are keys of redislimit after so many takes, an interval apart, the last of them now.
func central(name string, limit limiter.Limit, takes int, apart time.Duration) kind {
	return kind{name: name, fewer: max(1, takes/10), takes: takes, processes: 1, start: func(addrs []string) (fill, func(), error) {
		rdb := client(addrs)
		// Its clock is the caller's: so that a key can have a past.
		l, err := redislimit.New(redislimit.Config{Client: rdb, Prefix: "shop", CallerClock: true, Timeout: 5 * time.Second})
		if err != nil {
			return nil, nil, err
		}
		now := time.Now()
		return func(ctx context.Context, client string, takes int) error {
				for k := range takes {
					all := []limiter.Take{{Key: limiter.Key{Space: "client", ID: client}, Limit: limit, N: 1}}
					ok, err := l.AllowAll(ctx, now.Add(-apart*time.Duration(takes-1-k)), all)
					if err != nil {
						return err
					}
					if !ok {
						return fmt.Errorf("take %d was refused", k)
					}
				}
				return nil
			}, func() {
				_ = l.Close()
				_ = rdb.Close()
			}, nil
	}}
}

// takesOfALease are enough at once that a process leases more than it needs at the moment.
const takesOfALease = 8

// fleet are keys of leased that are asked for at so many processes.
func fleet(name string, processes, takes, fewer int) kind {
	fields := 1
	if takes == takesOfALease {
		fields += processes
	}
	return kind{name: name, fewer: fewer, takes: takes, processes: processes, fields: fields, start: func(addrs []string) (fill, func(), error) {
		rdb := client(addrs)
		var all []*leased.Limiter
		stop := func() {
			for _, l := range all {
				_ = l.Close()
			}
			_ = rdb.Close()
		}
		for range processes {
			l, err := leased.New(leased.Config{Client: rdb, Prefix: "shop", Sync: 10 * time.Second, Timeout: 5 * time.Second, MaxKeys: 1 << 20})
			if err != nil {
				stop()
				return nil, nil, err
			}
			all = append(all, l)
		}
		limit := limiter.PerHour(100_000_000).WithBurst(10_000_000)
		return func(ctx context.Context, client string, takes int) error {
			for _, l := range all {
				for range takes {
					if _, err := l.Allow(ctx, limiter.Key{Space: "client", ID: client}, limit, 1); err != nil {
						return err
					}
				}
			}
			return nil
		}, stop, nil
	}}
}

// other are keys of another library.
func other(r peer.Redis) kind {
	return kind{name: r.Name, fewer: 1, takes: 1, processes: 1, start: func(addrs []string) (fill, func(), error) {
		d, stop, err := r.New(addrs, peer.Profile{Rate: 1, Period: time.Minute, Burst: 1e6, WindowLimit: 1e6, Window: day}, 1)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, client string, _ int) error {
			_, err := d.Allow(ctx, client)
			return err
		}, stop, nil
	}}
}
