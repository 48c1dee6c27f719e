// Command partner is twelve processes that send text messages through one provider, who allows so many and counts every
// violation. They share one limit on one Redis. README.md shows it, and what happens without.
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
	"sync"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/child"
	"github.com/spillway-go/spillway/limiter"
)

// contract is what the provider allows.
var contract = limiter.Per(60, 3*time.Second)

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
		log.Fatalf("partner: %v", err)
	}
}

// result is what a run came to.
type result struct{ accepted, violations, failed int }

func run(ctx context.Context, args []string, stdout io.Writer) (result, error) {
	flags := flag.NewFlagSet("partner", flag.ContinueOnError)
	url := flags.String("redis", "", "`URL` of a Redis to use; without it one is started")
	processes := flags.Int("processes", 12, "how many send, 1 to 50")
	messages := flags.Int("messages", 10, "how many each of them sends, 1 to 1000")
	without := flags.Bool("without", false, "send without package client, to see what the provider says")
	if err := flags.Parse(args); err != nil {
		return result{}, err
	}
	if flags.NArg() > 0 || *processes < 1 || *processes > 50 || *messages < 1 || *messages > 1000 {
		return result{}, errors.New("it takes no arguments, -processes from 1 to 50 and -messages from 1 to 1000")
	}
	out := log.New(stdout, "", 0)
	if *url == "" && !*without {
		redis, err := begin(ctx, roleRedis)
		if err != nil {
			return result{}, err
		}
		defer func() { _ = redis.End() }()
		*url = redis.Said
	}
	provider, err := newProvider()
	if err != nil {
		return result{}, err
	}
	defer provider.close()

	role := roleSender
	if *without {
		role = roleNaive
	}
	var fleet []*child.Process
	for range *processes {
		p, err := begin(ctx, role, redisVar+"="+*url, providerVar+"="+provider.url, fmt.Sprintf("%s=%d", messagesVar, *messages))
		if err != nil {
			return result{}, err
		}
		defer func() { _ = p.End() }() // it has said on stderr what it had to say
		fleet = append(fleet, p)
	}
	out.Printf("The provider allows %v in any %v. %d processes have %d messages each.", contract.Rate, contract.Period, *processes, *messages)
	began := time.Now()
	var wg sync.WaitGroup
	failed := make([]int, len(fleet))
	for i, p := range fleet { // all are ready, and begin at once
		wg.Go(func() { failed[i] = work(p) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return result{}, context.Cause(ctx)
	}
	r := provider.count()
	for _, n := range failed {
		r.failed += n
	}
	out.Printf("%d accepted, %d violations, %d not delivered, in %.1f s.", r.accepted, r.violations, r.failed, time.Since(began).Seconds())
	return r, nil
}
