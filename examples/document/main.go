// Command document is a server whose limits are a document, limits.yaml, which is followed while it serves. The document
// says how much; who a user is, only the application knows.
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
		log.Fatalf("document: %v", err)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("document", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:8096", "`host:port` of the service")
	path := flags.String("limits", "examples/document/limits.yaml", "the document's `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	source, err := filesource.New(filesource.Config{Path: *path, Logger: logger})
	if err != nil {
		return err
	}
	limiters := stores.New(stores.Config{Logger: logger})
	defer func() { err = errors.Join(err, limiters.Close()) }()

	// A document that is missing is waited for, one that is wrong is an error with everything that is wrong with it.
	starting, enough := context.WithTimeout(ctx, 10*time.Second)
	defer enough()
	follower, err := config.Open(starting, source, config.Deps{
		Keys:    map[string]keyfunc.Func{"user": keyfunc.User(userOf)},
		Central: limiters.Central, Local: limiters.Local, Leased: limiters.Leased, Logger: logger,
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler(follower.Guard()), ReadHeaderTimeout: 5 * time.Second}
	fmt.Fprintf(stdout, "try: curl -i -H 'X-Token: alice-token' http://%s/orders\n", listener.Addr())

	following, end := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer end()
	background.Go(func() { _ = follower.Follow(following) }) // a version that is refused is logged, the one before serves on
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
	case err = <-ended: // an accept has failed
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(drain))
}

// handler is the chain: addresses before authentication, users behind it.
func handler(guard *middleware.Guard) http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "fine") })
	api.HandleFunc("GET /orders", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "orders") })
	edge, identity := stdhttp.Middleware(guard), stdhttp.Middleware(guard.Stage(middleware.StageIdentity))
	return edge(authenticate(identity(api)))
}

type userKey struct{}

// authenticate stands for whatever verifies tokens.
func authenticate(next http.Handler) http.Handler {
	users := map[string]string{"alice-token": "alice", "bob-token": "bob"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := users[r.Header.Get("X-Token")]
		if user == "" && r.URL.Path != "/healthz" {
			http.Error(w, "unknown token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

func userOf(r *keyfunc.Request) string {
	user, _ := r.Context().Value(userKey{}).(string)
	return user
}
