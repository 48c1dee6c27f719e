// Command worker is three processes that drain one queue of jobs. Each job is a call to a service that takes so many a
// second; together they send as many, evenly, whoever finds a job. README.md shows it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/internal/child"
	"github.com/spillway-go/spillway/limiter"
)

const (
	workers = 3
	queue   = "worker-example:{jobs}"
)

// allowed is what the service takes.
var allowed = limiter.Per(20, 2*time.Second)

func main() {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role); err != nil {
			log.Fatalf("%s: %v", role, err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	_, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatalf("worker: %v", err)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) (calls []call, err error) {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	url := flags.String("redis", "", "`URL` of a Redis to use; without it one is started")
	jobs := flags.Int("jobs", 40, "how many, 1 to 10000")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 || *jobs < 1 || *jobs > 10000 {
		return nil, errors.New("it takes no arguments, and -jobs from 1 to 10000")
	}
	if *url == "" {
		server, err := begin(ctx, roleRedis)
		if err != nil {
			return nil, err
		}
		defer func() { _ = server.End() }()
		*url = server.Said
	}
	if err := fill(ctx, *url, *jobs); err != nil {
		return nil, err
	}
	s, err := newService()
	if err != nil {
		return nil, err
	}
	defer s.close()
	var fleet []*child.Process
	for i := range workers {
		p, err := begin(ctx, roleWorker, redisVar+"="+*url, serviceVar+"="+s.url, fmt.Sprintf("%s=worker %d", nameVar, i+1))
		if err != nil {
			return nil, err
		}
		defer func() { _ = p.End() }() // it has said on stderr what it had to say
		fleet = append(fleet, p)
	}
	out := log.New(stdout, "", 0)
	out.Printf("%d jobs for %d workers. The service takes %d in any %v, so one leaves each %v.",
		*jobs, workers, allowed.Rate, allowed.Period, (allowed.Period * 10 / 9 / time.Duration(allowed.Rate)).Round(time.Millisecond))
	var wg sync.WaitGroup
	for _, p := range fleet {
		wg.Go(func() { work(p) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	calls = s.seen()
	report(out, calls)
	return calls, nil
}

// fill puts the jobs into the queue, in place of what was there.
func fill(ctx context.Context, url string, jobs int) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	store := redis.NewClient(options)
	defer func() { _ = store.Close() }()
	_, err = store.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Del(ctx, queue)
		for i := range jobs {
			tx.RPush(ctx, queue, fmt.Sprintf("job %d", i+1))
		}
		return nil
	})
	return err
}

// report prints who did how much, and how evenly the calls came.
func report(out *log.Logger, calls []call) {
	by, gaps, refused := map[string]int{}, []time.Duration{}, 0
	for i, c := range calls {
		by[c.worker]++
		if i > 0 {
			gaps = append(gaps, c.at.Sub(calls[i-1].at))
		}
		if c.refused {
			refused++
		}
	}
	for i := range workers {
		name := fmt.Sprint("worker ", i+1)
		out.Printf("  %s made %d calls", name, by[name])
	}
	if len(gaps) == 0 {
		return
	}
	slices.Sort(gaps)
	out.Printf("%d calls, %d refused. Between two: %v at least, %v as a rule, %v at most.", len(calls), refused,
		gaps[0].Round(time.Millisecond), gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond))
}
