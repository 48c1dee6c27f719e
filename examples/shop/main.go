// Command shop is a shop that degrades, and an hour of it in ten seconds: browsers, a scraper and buyers, once with a guard
// in front of the shop and once without. README.md shows what becomes of both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/config"
	filesource "github.com/spillway-go/spillway/config/source/file"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/middleware"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatalf("shop: %v", err)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	flags.SetOutput(stderr)
	limits := flags.String("limits", "examples/shop/shop.yaml", "the document's `file`")
	browsers := flags.Int("browsers", 1000, "how many look around, 10 to 5000. Each takes two file descriptors")
	length := flags.Duration("for", 10*time.Second, "how long each run lasts, 1s to 1m")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *browsers < 10 || *browsers > 5000 || *length < time.Second || *length > time.Minute {
		return errors.New("it takes no arguments, -browsers from 10 to 5000 and -for from 1s to 1m")
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	follower, closing, err := follow(ctx, *limits, logger)
	if err != nil {
		return err
	}
	defer closing()
	l := load{browsers: *browsers, length: *length}
	without, err := open(ctx, l, nil)
	if err != nil {
		return err
	}
	with, err := open(ctx, l, follower.Guard())
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Fprintf(stdout, "%d browsers, a scraper and %d buyers at a time, %v:\n\n", l.browsers, buyers, l.length)
	table(stdout, without, with)
	return errors.Join(without.audit(false), with.audit(true))
}

// follow makes the guard of a document, which is followed until closing is called.
func follow(ctx context.Context, path string, logger *slog.Logger) (f *config.Follower, closing func(), err error) {
	source, err := filesource.New(filesource.Config{Path: path, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	limiters := stores.New(stores.Config{Logger: logger})
	starting, enough := context.WithTimeout(ctx, 10*time.Second)
	defer enough()
	if f, err = config.Open(starting, source, deps(limiters, logger)); err != nil {
		return nil, nil, errors.Join(err, limiters.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { _ = f.Follow(ctx) })
	return f, func() {
		stop()
		following.Wait()
		_ = limiters.Close()
	}, nil
}

// deps is what the document names.
func deps(limiters *stores.Stores, logger *slog.Logger) config.Deps {
	return config.Deps{
		Keys:    map[string]keyfunc.Func{"user": user},
		Central: limiters.Central, Local: limiters.Local, Logger: logger,
	}
}

// front is the shop behind its guard, if it has one: addresses before the login, all else behind it.
func front(s *shop, guard *middleware.Guard) http.Handler {
	if guard == nil {
		return authenticate(s.routes())
	}
	edge, identity := stdhttp.Middleware(guard), stdhttp.Middleware(guard.Stage(middleware.StageIdentity))
	return edge(authenticate(identity(s.routes())))
}

// result is a run seen from both sides.
type result struct {
	*seen
	shop *shop
	took time.Duration
}

// open opens a shop for a load, and closes it once nobody is inside.
func open(ctx context.Context, l load, guard *middleware.Guard) (*result, error) {
	s := newShop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: front(s, guard), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	transport := &http.Transport{MaxIdleConnsPerHost: l.browsers + buyers + scrapers}
	begin := time.Now()
	r := &result{seen: l.run(ctx, transport, "http://"+listener.Addr().String()), shop: s}
	r.took = time.Since(begin)
	transport.CloseIdleConnections()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		return nil, err
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return nil, err
	}
	return r, nil
}
