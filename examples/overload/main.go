// Command overload is a service that is asked for more than it can do, once without a guard, once with a fixed bound and once
// with one that moves; and a probe that finds numbers for such a bound. README.md shows what becomes of it.
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
	"slices"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatalf("overload: %v", err)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.SetOutput(stderr)
	length := flags.Duration("for", 10*time.Second, "how long each of the five phases lasts, 1s to 1m")
	law := flags.String("law", "hybrid", "the `law` that moves the bound: hybrid, aimd or bbr")
	probed := flags.String("probe", "", "find numbers for the service at this `URL`, which should have no guard")
	factor := flags.Float64("factor", 2, "-probe: how much slower than when idle is still well, 1.1 to 10")
	step := flags.Duration("step", 2*time.Second, "-probe: how long each measurement lasts, 100ms to 1m")
	highest := flags.Int("highest", 256, "-probe: the most requests at once, 1 to 4096. Each takes a file descriptor")
	served := flags.String("serve", "", "be the service at this `address`, and do nothing else")
	guard := flags.String("guard", guardAdaptive, "-serve: none, fixed or adaptive")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := adaptive.LawNamed(*law); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return errors.New("it takes no arguments")
	case *length < time.Second || *length > time.Minute:
		return errors.New("-for is outside 1s…1m")
	case !(*factor >= 1.1 && *factor <= 10):
		return errors.New("-factor is outside 1.1…10")
	case *step < 100*time.Millisecond || *step > time.Minute:
		return errors.New("-step is outside 100ms…1m")
	case *highest < 1 || *highest > 4096:
		return errors.New("-highest is outside 1…4096")
	case !slices.Contains(guards, *guard):
		return fmt.Errorf("-guard is none of %v", guards)
	case *served != "" && *probed != "":
		return errors.New("-serve and -probe are two commands")
	case *served != "":
		return serve(ctx, *served, *guard, *law, stdout)
	case *probed != "":
		transport := &http.Transport{MaxIdleConnsPerHost: *highest}
		defer transport.CloseIdleConnections()
		return probe{
			target: target{*probed, clientOf(transport)}, factor: *factor, step: *step, highest: *highest,
		}.run(ctx, stdout)
	}
	var all []*result
	for _, name := range guards {
		r, err := put(ctx, name, *law, *length)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	table(stdout, all)
	return errors.Join(all[0].audit(), all[1].audit(), all[2].audit(), compare(all[0], all[2]))
}

// clientOf follows no redirects: an answer is an answer.
func clientOf(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// put puts a service behind a guard to all phases.
func put(ctx context.Context, guard, law string, length time.Duration) (*result, error) {
	p, err := begin(ctx, "-serve", "127.0.0.1:0", "-guard", guard, "-law", law)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	defer transport.CloseIdleConnections()
	t := &target{p.url, clientOf(transport)}
	r := &result{guard: guard, length: length}
	if r.seen, err = t.play(ctx, length); err == nil {
		r.stood, err = t.settle(ctx)
	}
	return r, errors.Join(err, p.end())
}
