// Command rediscost measures what a trip to Redis costs it, in CPU time and in bytes on the wire: for limiters that ask for each
// decision, by how many decisions share a trip, and for a key that so many processes lease from. Processes are limiters in this
// one. It starts its own server. Prints a line for each run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/benchmarks/internal/redisserver"
)

func main() {
	rounds := flag.Int("rounds", 3, "rounds")
	length := flag.Duration("d", 2*time.Second, "time of each run")
	only := flag.String("case", "", "run only cases that match this pattern")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *length, *only); err != nil {
		fmt.Fprintln(os.Stderr, "rediscost:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, length time.Duration, only string) error {
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
	fmt.Println("round\tname\tasked_per_s\tdecisions_per_trip\ttrips_per_s\tcpu_us_per_trip\tcpu_us_per_decision\tbusy\tin_bytes_per_trip\tout_bytes_per_trip\tuse\terrors")
	for round := range rounds {
		for _, c := range cases() {
			if !pattern.MatchString(c.name) {
				continue
			}
			if err := s.Flush(ctx); err != nil {
				return err
			}
			row, err := measure(ctx, rdb, s.Addrs, c, length)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Printf("%d\t%s\t%s\n", round, c.name, row)
		}
	}
	return nil
}

// measure returns the columns after the name.
func measure(ctx context.Context, rdb *redis.Client, addrs []string, c kind, length time.Duration) (string, error) {
	load, stop, err := c.start(addrs)
	if err != nil {
		return "", err
	}
	defer stop()
	load(ctx, length/2) // connections, scripts and leases are there before it counts
	before, err := read(ctx, rdb)
	if err != nil {
		return "", err
	}
	start := time.Now()
	t := load(ctx, length)
	seconds := time.Since(start).Seconds()
	after, err := read(ctx, rdb)
	if err != nil {
		return "", err
	}
	trips := after.trips - before.trips
	cpu := after.cpu - before.cpu
	asked := float64(t.asked)
	return fmt.Sprintf("%.0f\t%.2f\t%.0f\t%.2f\t%.3f\t%.3f\t%.0f\t%.0f\t%.4f\t%d", asked/seconds, asked/trips, trips/seconds,
		1e6*cpu/trips, 1e6*cpu/asked, cpu/seconds, (after.in-before.in)/trips, (after.out-before.out)/trips,
		float64(t.passed)/max(1, t.could), t.failed), ctx.Err()
}

// totals are what the server has done.
type totals struct{ trips, cpu, in, out float64 }

// read asks for them: one trip, whose answer is of one or two thousand bytes.
func read(ctx context.Context, rdb *redis.Client) (t totals, err error) {
	var stats, cpu string
	if cpu, err = rdb.Info(ctx, "cpu").Result(); err != nil {
		return t, err
	}
	if stats, err = rdb.Info(ctx, "stats").Result(); err != nil {
		return t, err
	}
	var errs []error
	field := func(info, name string) float64 {
		for line := range strings.SplitSeq(info, "\r\n") {
			if v, ok := strings.CutPrefix(line, name+":"); ok {
				x, err := strconv.ParseFloat(v, 64)
				errs = append(errs, err)
				return x
			}
		}
		errs = append(errs, fmt.Errorf("INFO has no %s", name))
		return 0
	}
	t.cpu = field(cpu, "used_cpu_sys") + field(cpu, "used_cpu_user")
	t.trips = field(stats, "total_reads_processed")
	t.in, t.out = field(stats, "total_net_input_bytes"), field(stats, "total_net_output_bytes")
	return t, errors.Join(errs...)
}
