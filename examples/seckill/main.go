// Command seckill is a flash sale, and the crowd that comes to it: once with a guard in front of the shop and once without.
// README.md shows what becomes of both.
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
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/middleware"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatalf("seckill: %v", err)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("seckill", flag.ContinueOnError)
	flags.SetOutput(stderr)
	limits := flags.String("limits", "examples/seckill/limits.yaml", "the document's `file`")
	users := flags.Int("users", 2000, "how many come, 10 to 5000; 1 in 20 of them is a bot. Each takes two file descriptors")
	length := flags.Duration("for", 10*time.Second, "how long the sale lasts, 1s to 1m")
	stock := flags.Int("stock", 500, "how many there are of each item, 1 to 10000")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *users < 10 || *users > 5000 || *length < time.Second || *length > time.Minute || *stock < 1 || *stock > 10000 {
		return errors.New("it takes no arguments, -users from 10 to 5000, -for from 1s to 1m and -stock from 1 to 10000")
	}
	c := crowd{users: *users, bots: *users / 20, length: *length}
	follower, closing, err := follow(ctx, *limits, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	defer closing()
	without, err := sale(ctx, c, *stock, nil)
	if err != nil {
		return err
	}
	with, err := sale(ctx, c, *stock, follower.Guard())
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Fprintf(stdout, "%d users, %d of them bots, %d of each item, %v:\n\n", c.users, c.bots, *stock, c.length)
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
		Degrade: map[string]degrade.Handler{"browsers_only": browsersOnly},
		Central: limiters.Central, Local: limiters.Local, Logger: logger,
	}
}

// front is the shop behind its guard, if it has one.
func front(s *shop, guard *middleware.Guard) http.Handler {
	if guard == nil {
		return authenticate(s.routes())
	}
	return authenticate(stdhttp.Middleware(guard.Stage(middleware.StageIdentity))(s.routes()))
}

// result is a sale seen from both sides.
type result struct {
	*tally
	shop  *shop
	stock int
	took  time.Duration
}

// sale opens a shop, sends a crowd, and closes it once nobody is inside.
func sale(ctx context.Context, c crowd, stock int, guard *middleware.Guard) (*result, error) {
	s := newShop(stock)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: front(s, guard), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	begin := time.Now()
	t := c.rush(ctx, "http://"+listener.Addr().String())
	r := &result{tally: t, shop: s, stock: stock, took: time.Since(begin)}
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
