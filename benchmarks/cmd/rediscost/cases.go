package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/benchmarks/peer"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/leased"
)

// kind is a way to ask.
type kind struct {
	name string
	// start returns a function that asks for a while, and one that ends what was started.
	start func(addrs []string) (func(ctx context.Context, d time.Duration) tally, func(), error)
}

// tally is what was asked for: could is what one bucket would have let pass of it.
type tally struct {
	asked, passed, failed int64
	could                 float64
}

func cases() (out []kind) {
	for _, name := range []string{"spillway-unshared", "spillway", "redis_rate", "ulule"} {
		for _, r := range peer.Redises() {
			if r.Name != name {
				continue
			}
			for _, callers := range []int{1, 64, 256} {
				out = append(out, closed(r, callers))
			}
		}
	}
	for _, processes := range []int{10, 100, 1000} {
		out = append(out, fleet(processes, 100*time.Millisecond))
	}
	return append(out, fleet(1000, 500*time.Millisecond))
}

// closed are so many callers of one process, each of whom asks for the next decision when it has one; 10,000 keys.
func closed(r peer.Redis, callers int) kind {
	keys := peer.Keys(10_000)
	name := fmt.Sprintf("%s, %d callers", r.Name, callers)
	return kind{name: name, start: func(addrs []string) (func(context.Context, time.Duration) tally, func(), error) {
		d, stop, err := r.New(addrs, peer.Kept, 1)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, length time.Duration) tally {
			var asked, passed, failed atomic.Int64
			var wg sync.WaitGroup
			start := time.Now()
			for k := range callers {
				wg.Go(func() {
					draw := rand.New(rand.NewPCG(uint64(k), 42))
					for time.Since(start) < length && ctx.Err() == nil {
						ok, err := d.Allow(ctx, keys[draw.IntN(len(keys))])
						asked.Add(1)
						count(ok, err, &passed, &failed)
					}
				})
			}
			wg.Wait()
			return tally{asked.Load(), passed.Load(), failed.Load(), float64(asked.Load())}
		}, stop, nil
	}}
}

func count(ok bool, err error, passed, failed *atomic.Int64) {
	switch {
	case err != nil:
		if failed.Add(1) == 1 {
			fmt.Fprintln(os.Stderr, "rediscost: the first error:", err)
		}
	case ok:
		passed.Add(1)
	}
}

// fleetRate is what is asked of one key at all processes together, in a second: a twentieth less than its limit.
const fleetRate = 1_000_000

// fleet are processes that lease one key, each of which is asked for as much as any other, at a pace.
func fleet(processes int, sync time.Duration) kind {
	name := fmt.Sprintf("leased, %d processes, Sync %v", processes, sync)
	return kind{name: name, start: func(addrs []string) (func(context.Context, time.Duration) tally, func(), error) {
		rdb := redis.NewClient(&redis.Options{Addr: addrs[0], Protocol: 2, DisableIdentity: true})
		var all []*leased.Limiter
		for range processes {
			l, err := leased.New(leased.Config{Client: rdb, Prefix: "bench", Sync: sync, Timeout: 500 * time.Millisecond})
			if err != nil {
				return nil, nil, err
			}
			all = append(all, l)
		}
		return func(ctx context.Context, length time.Duration) tally { return paced(ctx, all, length) }, func() {
			for _, l := range all {
				_ = l.Close()
			}
			_ = rdb.Close()
		}, nil
	}}
}

// paced asks each process as often as is its part, several takes every 20 ms, begun at another instant for each.
func paced(ctx context.Context, all []*leased.Limiter, length time.Duration) tally {
	const step = 20 * time.Millisecond
	limit := limiter.Per(fleetRate, 950*time.Millisecond)
	key := limiter.Key{Space: "bench", ID: "hot"}
	perSecond := float64(fleetRate) / float64(len(all))
	var asked, passed, failed atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for k, l := range all {
		wg.Go(func() {
			tick := time.NewTicker(step * time.Duration(k+1) / time.Duration(len(all)))
			defer tick.Stop()
			<-tick.C
			tick.Reset(step)
			mine, n := time.Now(), int64(0)
			for time.Since(start) < length && ctx.Err() == nil {
				for due := int64(time.Since(mine).Seconds() * perSecond); n < due; n++ {
					d, err := l.Allow(ctx, key, limit, 1)
					count(d.Allowed, err, &passed, &failed)
				}
				<-tick.C
			}
			asked.Add(n)
		})
	}
	wg.Wait()
	return tally{asked.Load(), passed.Load(), failed.Load(), float64(asked.Load())}
}
