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
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe"
	"github.com/spillway-go/spillway/observe/live"
	"github.com/spillway-go/spillway/response"
)

// drain is how long requests in service may take once the demo is told to stop.
const drain = 5 * time.Second

// demo serves until ctx ends.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	servers := []*demoServer{
		{framework: "net/http", flag: "http", build: serveStd},
		{framework: "Gin", flag: "gin", build: serveGin},
		{framework: "Echo", flag: "echo", build: serveEcho},
	}
	for k, s := range servers {
		flags.StringVar(&s.addr, s.flag, fmt.Sprintf("127.0.0.1:%d", 8080+k), "`host:port` of the "+s.framework+" server")
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "spillway: demo takes no arguments, but got %q\n", flags.Args())
		return errUsage
	}
	// All ports are taken before anything is printed: a demo that half starts explains nothing.
	for _, s := range servers {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
		if err != nil {
			closeAll(servers)
			return fmt.Errorf("%s server: %w; choose another address with -%s host:port", s.framework, err, s.flag)
		}
		s.listener = l
	}
	failed := make(chan error, len(servers))
	for _, s := range servers {
		handler, page, err := s.guarded(stderr)
		if err != nil {
			closeAll(servers)
			return err
		}
		defer page.Close()
		s.server = &http.Server{
			Handler: handler, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(stderr, "", log.LstdFlags),
		}
		s.server.RegisterOnShutdown(page.Close) // its streams do not end by themselves
		go func() { failed <- s.server.Serve(s.listener) }()
	}
	explain(stdout, servers)
	var err error
	select {
	case <-ctx.Done():
		fmt.Fprintln(stdout, "\nstopping")
	case err = <-failed:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	for _, s := range servers {
		err = errors.Join(err, s.server.Shutdown(stop))
	}
	return err
}

type demoServer struct {
	framework, flag, addr string
	build                 func(*spillway.Guard) http.Handler
	listener              net.Listener
	server                *http.Server
}

func closeAll(servers []*demoServer) {
	for _, s := range servers {
		if s.listener != nil {
			_ = s.listener.Close()
		}
	}
}

// livePath is where each server shows what its guard does.
const livePath = "/live/"

// guarded is the handler of one server: its guard, and beside it a page that shows it.
func (s *demoServer) guarded(stderr io.Writer) (http.Handler, *live.Page, error) {
	top, err := observe.NewTop(observe.TopConfig{})
	if err != nil {
		return nil, nil, err
	}
	page, err := live.New(live.Config{Title: "spillway demo, " + s.framework, Top: top}) // for this machine alone
	if err != nil {
		return nil, nil, err
	}
	guard, err := demoGuard(observe.Tee(page, top), stderr)
	if err != nil {
		page.Close()
		return nil, nil, err
	}
	page.Watch(guard, nil)
	mux := http.NewServeMux()
	mux.Handle("/", s.build(guard))
	mux.Handle(livePath, page)
	return mux, page, nil
}

// demoGuard is the guard of one server, with a memory store of its own.
func demoGuard(watch limiter.Observer, stderr io.Writer) (*spillway.Guard, error) {
	return spillway.New(spillway.Config{
		Observer: watch,
		Response: response.Options{Headers: response.Both},
		Logger:   slog.New(slog.NewTextHandler(stderr, nil)),
		Policies: []spillway.Policy{
			{
				Name: "hello", Match: spillway.Match{Routes: []string{"GET /hello"}},
				Key: keyfunc.IP(), Limit: limiter.Per(5, 10*time.Second),
			},
			{
				Name: "search-client", Match: spillway.Match{Routes: []string{"GET /search"}},
				Key: keyfunc.IP(), Limit: limiter.PerSecond(2).WithBurst(4),
			},
			{
				Name: "search-all", Match: spillway.Match{Routes: []string{"GET /search"}},
				Key: keyfunc.Global(), Limit: limiter.PerMinute(30).With(limiter.SlidingWindow),
			},
			{
				Name: "paced", Match: spillway.Match{Routes: []string{"GET /paced"}},
				Key: keyfunc.IP(), Limit: limiter.PerSecond(2).With(limiter.LeakyBucket).WithBurst(10),
			},
		},
	})
}

func hello() string    { return "hello\n" }
func found() string    { return "found it\n" }
func pacedNow() string { return time.Now().Format("15:04:05.000") + "\n" }

func serveStd(guard *spillway.Guard) http.Handler {
	mux := http.NewServeMux()
	for pattern, text := range map[string]func() string{"GET /hello": hello, "GET /search": found, "GET /paced": pacedNow} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text()) })
	}
	return stdhttp.Middleware(guard)(mux)
}

func serveGin(guard *spillway.Guard) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery(), ginlimit.Middleware(guard))
	for path, text := range map[string]func() string{"/hello": hello, "/search": found, "/paced": pacedNow} {
		router.GET(path, func(c *gin.Context) { c.String(http.StatusOK, "%s", text()) })
	}
	return router
}

func serveEcho(guard *spillway.Guard) http.Handler {
	e := echo.New()
	e.Use(echolimit.Middleware(guard))
	for path, text := range map[string]func() string{"/hello": hello, "/search": found, "/paced": pacedNow} {
		e.GET(path, func(c echo.Context) error { return c.String(http.StatusOK, text()) })
	}
	return e
}

// explain prints what to try, with the addresses as they are.
func explain(w io.Writer, servers []*demoServer) {
	fmt.Fprintln(w, "Three servers, each behind a guard with a memory store of its own:")
	fmt.Fprintln(w)
	for _, s := range servers {
		fmt.Fprintf(w, "  %-9s http://%s\n", s.framework, s.listener.Addr())
	}
	first := servers[0].listener.Addr()
	fmt.Fprintf(w, `
Watch, in a browser on this machine: http://%[1]s%[2]s (each has its own)

Try (each works on all three):

  # 5 per 10 s per client, one more every 2 s: the sixth in a row is a 429 with Retry-After
  for i in 1 2 3 4 5 6; do curl -i http://%[1]s/hello; done

  # two policies, 2/s with bursts of 4 per client and 30 a minute for all: both are told, a refusal charges neither
  for i in 1 2 3 4 5 6; do curl -si http://%[1]s/search | grep -i -e ^HTTP -e ratelimit -e retry; done

  # a leaky bucket, 2 per second with 10 places: ten at once are answered evenly, half a second apart
  for i in 1 2 3 4 5 6 7 8 9 10; do curl -s http://%[1]s/paced & done; wait

Stop with Ctrl-C.
`, first, livePath)
}
