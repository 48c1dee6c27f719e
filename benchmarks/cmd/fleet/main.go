// Command fleet lets ten processes, which are goroutines with clients of their own, decide about one key of 2,000 a second, and
// measures at the processes: how much of what one ideal bucket lets pass does pass, how much more in the fullest interval, and
// what Redis has to do for it. It starts its own server. Prints a line for each run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/benchmarks/internal/redisserver"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

const (
	nodes   = 10
	callers = 8 // of each node, that ask one after the other
)

var limit = peer.Profile{Rate: 2000, Period: time.Second, Burst: 2000}

// scenarios are what each node asks for, in units of the limit.
var scenarios = []struct {
	name string
	of   func(node int) float64
}{
	{"even-x0.95", func(int) float64 { return 0.95 / nodes }},
	{"even-x2", func(int) float64 { return 2.0 / nodes }},
	{"skewed-x0.95", func(node int) float64 {
		if node == 0 {
			return 0.9 * 0.95
		}
		return 0.1 * 0.95 / (nodes - 1)
	}},
}

func main() {
	rounds := flag.Int("rounds", 3, "rounds")
	length := flag.Duration("d", 3*time.Second, "time of each run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *length); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, length time.Duration) error {
	s, err := redisserver.Start(ctx, 1)
	if err != nil {
		return err
	}
	defer s.Stop()
	fmt.Println("round\tname\tasked\tadmitted\tuse\tover\ttrips_per_1000\tredis_cpu_us\terrors")
	for round := range rounds {
		for _, sc := range scenarios {
			for _, n := range peer.Nodes() {
				if err := s.Flush(ctx); err != nil {
					return err
				}
				row, err := measure(ctx, s, n, sc.of, length)
				if err != nil {
					return fmt.Errorf("%s/%s: %w", sc.name, n.Name, err)
				}
				fmt.Printf("%d\t%s/%s\t%s\n", round, sc.name, n.Name, row)
			}
		}
	}
	return nil
}

// decision is one request: when it came, and when it passed, in nanoseconds of the run; passed is negative where it did not.
type decision struct{ asked, passed int64 }

// measure returns the columns after the name.
func measure(ctx context.Context, s *redisserver.Servers, n peer.Node, of func(int) float64, length time.Duration) (string, error) {
	var deciders []peer.Decider
	var stops []func()
	end := sync.OnceFunc(func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	})
	defer end()
	for k := range nodes {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addrs[0], Protocol: 2, DisableIdentity: true})
		stops = append(stops, func() { _ = rdb.Close() })
		d, stop, err := n.New(rdb, limit, k)
		if err != nil {
			return "", err
		}
		deciders, stops = append(deciders, d), append(stops, stop)
	}
	before, err := s.CPU(ctx)
	if err != nil {
		return "", err
	}
	trips, err := s.Reads(ctx)
	if err != nil {
		return "", err
	}
	all, failed := load(ctx, deciders, of, length)
	after, err := s.CPU(ctx)
	if err != nil {
		return "", err
	}
	more, err := s.Reads(ctx)
	if err != nil {
		return "", err
	}
	end()
	asked := float64(len(all))
	admitted, use, over := judge(all)
	return fmt.Sprintf("%d\t%d\t%.4f\t%.1f\t%.1f\t%.2f\t%d", len(all), admitted, use, over,
		1000*float64(more-trips)/asked, float64(after-before)/float64(time.Microsecond)/asked, failed), ctx.Err()
}

// load lets requests come at their pace; one that waits long makes fewer.
func load(ctx context.Context, deciders []peer.Decider, of func(int) float64, length time.Duration) (all []decision, failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for k, d := range deciders {
		for range callers {
			wg.Go(func() {
				var mine []decision
				errors := 0
				tick := time.NewTicker(time.Duration(float64(time.Second) * callers / (of(k) * float64(limit.Rate))))
				defer tick.Stop()
				for time.Since(start) < length && ctx.Err() == nil {
					asked := time.Since(start)
					ok, err := d.Allow(ctx, "one")
					one := decision{int64(asked), -1}
					switch {
					case err != nil:
						errors++
					case ok:
						one.passed = int64(time.Since(start))
					}
					mine = append(mine, one)
					<-tick.C
				}
				mu.Lock()
				defer mu.Unlock()
				all, failed = append(all, mine...), failed+errors
			})
		}
	}
	wg.Wait()
	return all, failed
}

// judge says how many passed, which share that is of what one ideal bucket lets pass of the same requests, and by how much it was
// too much in the fullest interval.
func judge(all []decision) (admitted int, use, over float64) {
	var asked, passed []int64
	for _, d := range all {
		asked = append(asked, d.asked)
		if d.passed >= 0 {
			passed = append(passed, d.passed)
		}
	}
	slices.Sort(asked)
	slices.Sort(passed)
	ideal, meter, could := newBucket(), newBucket(), 0
	for _, at := range asked {
		if ideal.to(at); ideal.level >= 1 {
			ideal.level--
			could++
		}
	}
	for _, at := range passed {
		meter.to(at)
		meter.level--
		over = max(over, -meter.level)
	}
	return len(passed), float64(len(passed)) / float64(max(1, could)), over
}

type bucket struct {
	level float64
	at    int64
}

func newBucket() bucket { return bucket{level: float64(limit.Burst)} }

func (b *bucket) to(at int64) {
	b.level = min(float64(limit.Burst), b.level+float64(limit.Rate)*float64(at-b.at)/float64(limit.Period))
	b.at = at
}
