// Command redisload measures limiters on Redis in a closed loop: each of so many goroutines asks for its next decision
// when the last one is answered. It starts its own servers. The cases of a scenario run one after the other in each
// round, so that a disturbance hits all of them alike. Prints a line for each run.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/benchmarks/internal/probe"
	"github.com/spillway-go/spillway/benchmarks/internal/redisserver"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

func main() {
	rounds := flag.Int("rounds", 8, "rounds")
	length := flag.Duration("d", 300*time.Millisecond, "time of each run")
	keys := flag.Int("keys", math.MaxInt, "no scenario has more keys than this")
	only := flag.String("case", "", "run only cases, as SCENARIO-cCONCURRENCY/NAME, that match this pattern")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *length, *keys, *only); err != nil {
		fmt.Fprintln(os.Stderr, "redisload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, length time.Duration, keys int, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	servers := map[int]*redisserver.Servers{} // by the number of masters
	for _, sc := range peer.RedisScenarios {
		if servers[sc.Masters] == nil {
			s, err := redisserver.Start(ctx, sc.Masters)
			if err != nil {
				return err
			}
			defer s.Stop()
			servers[sc.Masters] = s
		}
	}
	fmt.Println("round\tname\tdecisions_per_s\tp50_us\tp99_us\tredis_cpu_us\tclient_cpu_us\tallocs\twrong\terrors")
	cases := peer.Redises()
	for round := range rounds {
		for _, sc := range peer.RedisScenarios {
			for i := range cases {
				r := cases[(i+round)%len(cases)] // another one begins in each round
				if !r.In(sc) {
					continue
				}
				l := load{ctx: ctx, servers: servers[sc.Masters], scenario: sc, keys: peer.Keys(min(sc.Keys, keys))}
				if err := l.measure(r, length, round, pattern); err != nil {
					return fmt.Errorf("%s, %s: %w", sc.Name, r.Name, err)
				}
			}
		}
	}
	return nil
}

type load struct {
	ctx      context.Context
	servers  *redisserver.Servers
	scenario peer.RedisScenario
	keys     []string
}

// measure runs one case at every concurrency of the scenario that the pattern picks.
func (l load) measure(r peer.Redis, length time.Duration, round int, pattern *regexp.Regexp) error {
	var d peer.Decider
	for _, conc := range l.scenario.Concurrency {
		name := fmt.Sprintf("%s-c%d/%s", l.scenario.Name, conc, r.Name)
		if !pattern.MatchString(name) {
			continue
		}
		if d == nil {
			if err := l.servers.Flush(l.ctx); err != nil {
				return err
			}
			var stop func()
			var err error
			if d, stop, err = r.New(l.servers.Addrs, l.scenario.Profile, l.scenario.Policies); err != nil {
				return err
			}
			defer stop()
			l.fill(d)
		}
		row, err := l.once(d, conc, length)
		if err != nil {
			return err
		}
		fmt.Printf("%d\t%s\t%s\n", round, name, row)
	}
	return nil
}

// once returns the columns after the name.
func (l load) once(d peer.Decider, conc int, length time.Duration) (string, error) {
	tallies := make([]tally, conc)
	if l.scenario.Warm {
		l.loop(d, make([]tally, conc), time.Now().Add(length))
	}
	runtime.GC()
	redisBefore, err := l.servers.CPU(l.ctx)
	if err != nil {
		return "", err
	}
	var before, after runtime.MemStats
	clientBefore := probe.CPU()
	runtime.ReadMemStats(&before)
	start := time.Now()
	l.loop(d, tallies, start.Add(length))
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	clientCPU := probe.CPU() - clientBefore
	redisAfter, err := l.servers.CPU(l.ctx)
	if err != nil {
		return "", err
	}
	total := &tallies[0]
	for i := range tallies[1:] {
		total.add(&tallies[i+1])
	}
	n := float64(total.delays.Count())
	return fmt.Sprintf("%.0f\t%.1f\t%.1f\t%.3f\t%.3f\t%.2f\t%.5f\t%d", n/elapsed.Seconds(),
		micros(total.delays.Quantile(0.5)), micros(total.delays.Quantile(0.99)), micros(redisAfter-redisBefore)/n,
		micros(clientCPU)/n, float64(after.Mallocs-before.Mallocs)/n, float64(total.wrong)/n, total.errors), l.ctx.Err()
}

// fill asks for every key, and often enough that connections are open and scripts are loaded.
func (l load) fill(d peer.Decider) {
	const goroutines = 64
	decisions := int64(max(1000, len(l.keys)))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := next.Add(1); i <= decisions && l.ctx.Err() == nil; i = next.Add(1) {
				_, _ = d.Allow(l.ctx, l.keys[int(i)%len(l.keys)])
			}
		})
	}
	wg.Wait()
}

// tally is what one goroutine has seen.
type tally struct {
	delays        probe.Hist
	wrong, errors int
}

func (t *tally) add(o *tally) {
	t.delays.Merge(&o.delays)
	t.wrong += o.wrong
	t.errors += o.errors
}

func (l load) loop(d peer.Decider, tallies []tally, end time.Time) {
	want := !l.scenario.Profile.Denies()
	var wg sync.WaitGroup
	for i := range tallies {
		wg.Go(func() {
			t, draw := &tallies[i], rand.New(rand.NewPCG(uint64(i), 42))
			for now := time.Now(); now.Before(end); {
				ok, err := d.Allow(l.ctx, l.keys[draw.IntN(len(l.keys))])
				asked := now
				now = time.Now()
				t.delays.Add(now.Sub(asked))
				switch {
				case err != nil:
					t.errors++
				case ok != want:
					t.wrong++
				}
			}
		})
	}
	wg.Wait()
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
