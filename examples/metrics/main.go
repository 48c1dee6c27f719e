// Command metrics is a guarded server with everything that watches it: metrics for Prometheus, a log, and the clients that
// are refused most. With -shadow it refuses nobody and tells who would have been, which is how limits are tried out.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
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
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/observe"
	"github.com/spillway-go/spillway/observe/prom"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatalf("metrics: %v", err)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("metrics", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:8094", "`host:port` of the service")
	admin := flags.String("admin", "127.0.0.1:8095", "`host:port` of /metrics and /top, which are not for clients")
	shadow := flags.Bool("shadow", false, "refuse nobody, and tell who would have been refused")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("it takes no arguments, but got %q", flags.Args())
	}
	service, watching, err := handlers(*shadow, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil {
		return err
	}
	serviceAt, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	adminAt, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *admin)
	if err != nil {
		return errors.Join(err, serviceAt.Close())
	}
	fmt.Fprintf(stdout, "service  http://%s/\nmetrics  http://%[2]s/metrics\ntop      http://%[2]s/top\n", serviceAt.Addr(), adminAt.Addr())

	servers := []*http.Server{
		{Handler: service, ReadHeaderTimeout: 5 * time.Second},
		{Handler: watching, ReadHeaderTimeout: 5 * time.Second},
	}
	ended := make(chan error, len(servers))
	for k, l := range []net.Listener{serviceAt, adminAt} {
		go func() { ended <- servers[k].Serve(l) }()
	}
	select {
	case <-ctx.Done():
	case err = <-ended: // an accept has failed
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, s := range servers {
		err = errors.Join(err, s.Shutdown(drain))
	}
	return err
}

// handlers returns what clients see, and what operators see of it.
func handlers(shadow bool, logger *slog.Logger) (service, admin http.Handler, err error) {
	registry := prometheus.NewRegistry()
	metrics, noMetrics := prom.New(registry)
	secret := make([]byte, 32) // keys are shown hashed with it, the same in both. A fleet has one from its configuration
	_, _ = rand.Read(secret)   // never fails
	top, noTop := observe.NewTop(observe.TopConfig{Secret: secret})
	lines, noLog := observe.NewLog(observe.LogConfig{Logger: logger, Secret: secret})
	if err := errors.Join(noMetrics, noTop, noLog); err != nil {
		return nil, nil, err
	}
	watch := observe.Tee(metrics, top, lines)

	store, noStore := memory.New(memory.Config{Observer: watch})
	guard, noGuard := spillway.New(spillway.Config{
		Limiter: store, Observer: watch, Logger: logger,
		Policies: []spillway.Policy{
			// The busiest minute of 99 in 100 clients has 180 requests, and their busiest second 29: docs/operations.md.
			{Name: "client", Key: keyfunc.IP(), Limit: limiter.PerMinute(300).WithBurst(60), Shadow: shadow},
			// Four fifths of what the service bears. It is on trial: who would have been refused is told, nobody is.
			{Name: "service", Key: keyfunc.Global(), Limit: limiter.PerSecond(580).WithBurst(58), Shadow: true},
		},
	})
	if err := errors.Join(noStore, noGuard); err != nil {
		return nil, nil, err
	}
	pages := http.NewServeMux()
	pages.HandleFunc("GET /{$}", page)

	watching := http.NewServeMux()
	watching.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	watching.HandleFunc("GET /top", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string][]observe.TopKey{"refused": top.Refused(20), "near": top.Near(20)})
	})
	return stdhttp.Middleware(guard)(pages), watching, nil
}

// backend stands for a database: 8 connections, each busy with a request for 10 ms, so at most 800 requests a second.
var backend = make(chan struct{}, 8)

func page(w http.ResponseWriter, r *http.Request) {
	select {
	case backend <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	defer func() { <-backend }()
	select {
	case <-time.After(10 * time.Millisecond):
		fmt.Fprintln(w, "a page")
	case <-r.Context().Done():
	}
}
