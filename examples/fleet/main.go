// Command fleet is three processes behind one limit on one Redis, a net/http, a Gin and an Echo server, and a load that
// falls on them unevenly; with -leased it is ten that lease the limit. With -kill it takes Redis away while they serve.
// README.md shows all of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

// plan is a fleet and its load.
type plan struct {
	limit   limiter.Limit // what all processes together may let through
	servers []server
	calm    int // requests a second that every process has room for in its share: nobody may be refused, whatever becomes of Redis
	busy    int // more than the limit
}

// server is a process, and how many of 100 requests it gets.
type server struct {
	name  string
	share int
}

var central = plan{
	limit: limiter.PerSecond(50), calm: 20, busy: 200,
	servers: []server{{"net/http", 70}, {"gin", 20}, {"echo", 10}},
}

// stage is a part of the run.
type stage struct {
	title     string
	prepare   func() error // nil: nothing
	perSecond int
}

func main() {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role); err != nil {
			log.Fatalf("%s: %v", role, err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatalf("fleet: %v", err)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	url := flags.String("redis", "", "`URL` of a Redis to use; without it one is started")
	kill := flags.Bool("kill", false, "kill the Redis that was started, and start it again")
	lease := flags.Bool("leased", false, "ten processes that lease the limit")
	length := flags.Duration("for", 3*time.Second, "how long each stage lasts, 1s to 1m")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0 || *length < time.Second || *length > time.Minute:
		return errors.New("it takes no arguments, and -for from 1s to 1m")
	case *kill && *url != "":
		return errors.New("-kill kills only a Redis that it has started itself")
	}

	out, start := log.New(stdout, "", 0), time.Now() // a Logger prints whole lines, whoever else does
	tell := func(who, what string) { out.Printf("%6.2f s  %s: %s", time.Since(start).Seconds(), who, what) }
	var redis *process
	address := freeAddress()
	startRedis := func() error {
		p, err := begin(ctx, roleRedis, tell, addressVar+"="+address)
		if err == nil {
			redis = p
		}
		return err
	}
	if *url == "" {
		if err := startRedis(); err != nil {
			return err
		}
		defer func() { redis.end() }()
		*url = redis.url
	}
	plan, env := central, []string{urlVar + "=" + *url}
	var passed *meter
	if *lease {
		m, err := newMeter()
		if err != nil {
			return err
		}
		defer m.close()
		plan, passed, env = leases, m, append(env, meterVar+"="+m.address())
	}
	var fleet []*process
	for _, s := range plan.servers {
		p, err := begin(ctx, s.name, tell, env...)
		if err != nil {
			return err
		}
		defer p.end()
		fleet = append(fleet, p)
	}

	stages := []stage{{title: "More than the limit, unevenly", perSecond: plan.busy}}
	if *kill {
		stages = []stage{
			{title: "Redis works", perSecond: plan.calm},
			{title: "Redis is killed", perSecond: plan.calm, prepare: func() error {
				redis.end()
				return nil
			}},
			{title: "Redis is away, and everybody wants more", perSecond: plan.busy},
			{title: "Redis is started again, without data", perSecond: plan.busy, prepare: startRedis},
		}
	}
	out.Printf("%d processes, one limit: %v. Of 100 requests they get %v.", len(fleet), plan.limit, plan.shares())
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	var broken error
	for _, s := range stages {
		out.Printf("\n%s: %d requests a second for %v", s.title, s.perSecond, *length)
		if s.prepare != nil {
			if err := s.prepare(); err != nil {
				return err
			}
		}
		began := time.Now()
		counts := plan.load(ctx, client, fleet, s.perSecond, *length)
		took := time.Since(began)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		broken = errors.Join(broken, plan.report(out, s, counts, took))
		if passed != nil {
			broken = errors.Join(broken, passed.report(ctx, out, s, client, fleet, counts, began))
		}
	}
	if broken == nil {
		out.Print("\nAll promises were kept.")
	}
	return broken
}

func (p plan) shares() string {
	var each []string
	for _, s := range p.servers {
		each = append(each, strconv.Itoa(s.share))
	}
	last := len(each) - 1
	return strings.Join(each[:last], ", ") + " and " + each[last]
}

// most is what n limiters of l may admit together in any interval of that length: the bursts, and what the rates bring.
func most(l limiter.Limit, n int, t time.Duration) float64 {
	return float64(n) * (float64(l.Quota()) + float64(l.Rate)*float64(t)/float64(l.Period))
}

// report prints what became of a stage's requests. The error names every promise that was not kept.
func (p plan) report(out *log.Logger, s stage, counts []count, took time.Duration) (err error) {
	const row = "  %-8s %6d %9d %8d %7d %9d"
	out.Printf("  %-8s %6s %9s %8s %7s %9s", "process", "sent", "admitted", "refused", "errors", "by share")
	for k, c := range counts {
		out.Printf(row, p.servers[k].name, c.sent, c.admitted, c.refused, c.errors, c.byShare)
	}
	all := sum(counts)
	// Whoever was not asked has admitted nothing.
	n := len(p.servers)
	redis, shares, bound := most(p.limit, 1, took), most(fallback.Share(p.limit, n), n, took), 0.0
	if all.admitted > all.byShare {
		bound += redis
	}
	if all.byShare > 0 {
		bound += shares
	}
	out.Printf(row+"   at most %d in %.2f s", "all", all.sent, all.admitted, all.refused, all.errors, all.byShare, int(bound), took.Seconds())

	broken := func(is bool, what string) {
		if is {
			err = errors.Join(err, fmt.Errorf("%s: %s", s.title, what))
		}
	}
	broken(float64(all.admitted-all.byShare) > redis, "Redis admitted more than the limit")
	broken(float64(all.byShare) > shares, "the shares admitted more than they are")
	broken(all.admitted == 0, "nothing was admitted")
	broken(all.errors > 0, "requests were answered neither 200 nor 429")
	broken(s.perSecond == p.calm && all.refused > 0, "requests were refused that every share has room for")
	return err
}
