// Command redismem measures the memory of Redis for each client of a limiter: what the server says that it has allocated more for
// so many clients, expiry and tables included, and what MEMORY USAGE says of a key. It starts its own server. The heap of a process
// for each client is measured as well, and a connection. Prints a line for each run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/benchmarks/internal/probe"
	"github.com/spillway-go/spillway/benchmarks/internal/redisserver"
)

const connections = 1000

func main() {
	keys := flag.Int("keys", 100_000, "keys of each limiter")
	rounds := flag.Int("rounds", 1, "rounds")
	only := flag.String("case", "", "measure only cases that match this pattern")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *keys, *only); err != nil {
		fmt.Fprintln(os.Stderr, "redismem:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds, keys int, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	s, err := redisserver.Start(ctx, 1)
	if err != nil {
		return err
	}
	defer s.Stop()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addrs[0], Protocol: 2, DisableIdentity: true})
	defer rdb.Close() //nolint:errcheck // the server ends as well
	fmt.Println("round\tname\tclients\tkeys\tname_bytes\tusage_bytes\tredis_bytes\tprocess_bytes")
	for round := range rounds {
		for _, c := range cases() {
			if !pattern.MatchString(c.name) {
				continue
			}
			row, err := measure(ctx, s, rdb, c, max(1, keys/c.fewer))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Printf("%d\t%s\t%s\n", round, c.name, row)
		}
		row, err := connected(ctx, rdb, s.Addrs[0])
		if err != nil {
			return err
		}
		fmt.Printf("%d\tconnection\t%s\n", round, row)
	}
	return nil
}

// measure returns the columns after the name.
func measure(ctx context.Context, s *redisserver.Servers, rdb *redis.Client, c kind, n int) (string, error) {
	heap := probe.LiveHeap()
	fill, stop, err := c.start(s.Addrs)
	if err != nil {
		return "", err
	}
	defer stop()
	// Connections and scripts are there before it counts. Of one take no lease is left that would be given back meanwhile.
	if err := each(ctx, max(1, 1000/c.processes), func(k int) error { return fill(ctx, "warm"+strconv.Itoa(k), 1) }); err != nil {
		return "", err
	}
	if err := s.Flush(ctx); err != nil {
		return "", err
	}
	before, err := used(ctx, rdb)
	if err != nil {
		return "", err
	}
	if err := each(ctx, n, func(k int) error { return fill(ctx, address(k), c.takes) }); err != nil {
		return "", err
	}
	after, err := used(ctx, rdb)
	if err != nil {
		return "", err
	}
	there, err := rdb.DBSize(ctx).Result()
	if err != nil {
		return "", err
	}
	if there < int64(n) { // some libraries keep several for a client
		return "", fmt.Errorf("%d keys are there instead of %d", there, n)
	}
	names, usage, err := sample(ctx, rdb, c.fields)
	if err != nil {
		return "", err
	}
	heap = probe.LiveHeap() - heap
	runtime.KeepAlive(fill)
	return fmt.Sprintf("%d\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f", n, float64(there)/float64(n), names, usage, (after-before)/float64(n),
		max(0, heap)/float64(n*c.processes)), nil
}

// address is what clients are known by, of about the length that addresses have.
func address(k int) string { return fmt.Sprintf("ip=10.%d.%d.%d", k>>16&255, k>>8&255, k&255) }

// each calls f for 0…n−1 from several goroutines, and returns the first error.
func each(ctx context.Context, n int, f func(int) error) error {
	const goroutines = 64
	var next atomic.Int64
	var once sync.Once
	var first error
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for k := int(next.Add(1)) - 1; k < n && ctx.Err() == nil; k = int(next.Add(1)) - 1 {
				if err := f(k); err != nil {
					once.Do(func() { first = err })
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(first, ctx.Err())
}

// used is what the server has allocated, in bytes.
func used(ctx context.Context, rdb *redis.Client) (float64, error) {
	info, err := rdb.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(info, "\r\n") {
		if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, errors.New("INFO has no used_memory")
}

// sample returns the mean length of names, and what MEMORY USAGE says, of some keys. Those that are hashes of so many fields must
// be whole: what is leased is given back after a while.
func sample(ctx context.Context, rdb *redis.Client, fields int) (names, usage float64, err error) {
	keys, _, err := rdb.Scan(ctx, 0, "*", 1000).Result()
	if err != nil || len(keys) == 0 {
		return 0, 0, errors.Join(err, errors.New("no keys"))
	}
	for _, key := range keys {
		u, err := rdb.MemoryUsage(ctx, key, 0).Result()
		if err != nil {
			return 0, 0, err
		}
		if fields > 0 {
			if n, err := rdb.HLen(ctx, key).Result(); err != nil || n != int64(fields) {
				return 0, 0, errors.Join(err, fmt.Errorf("%s has %d fields instead of %d", key, n, fields))
			}
		}
		names, usage = names+float64(len(key)), usage+float64(u)
	}
	n := float64(len(keys))
	return names / n, usage / n, nil
}

// connected is a row about connections that have asked once and are idle.
func connected(ctx context.Context, rdb *redis.Client, addr string) (string, error) {
	before, err := used(ctx, rdb)
	if err != nil {
		return "", err
	}
	for range connections {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return "", err
		}
		defer c.Close() //nolint:errcheck // nothing is to be read any more
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			return "", err
		}
		if _, err := c.Read(make([]byte, 16)); err != nil {
			return "", err
		}
	}
	after, err := used(ctx, rdb)
	return fmt.Sprintf("%d\t0\t0\t0\t%.1f\t0", connections, (after-before)/connections), err
}
