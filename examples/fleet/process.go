package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// What the processes are told in their environment.
const (
	roleVar    = "FLEET_ROLE"
	urlVar     = "FLEET_REDIS_URL"
	addressVar = "FLEET_REDIS_ADDRESS"
	meterVar   = "FLEET_METER" // set: the limit is leased, and this is where to tell what passes
	roleRedis  = "redis"
	prefix     = "fleet-example"
)

// process is this command, started once more to play a role. It ends when its standard input does: with the parent,
// however that ends.
type process struct {
	url     string // what it said first: where it is
	stdin   io.Closer
	ended   chan struct{}
	byShare int // admissions it has told of
	stats   leased.Stats
}

// begin starts a process and returns when it is ready. What it says later is told.
func begin(ctx context.Context, role string, tell func(who, what string), env ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(append(os.Environ(), env...), roleVar+"="+role)
	cmd.Stderr = os.Stderr
	stdin, noStdin := cmd.StdinPipe()
	stdout, noStdout := cmd.StdoutPipe()
	if err := errors.Join(noStdin, noStdout); err != nil {
		return nil, err
	}
	cmd.Cancel, cmd.WaitDelay = stdin.Close, 5*time.Second // asked to end first, and killed if it does not
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	ready := lines.Scan()
	p := &process{url: lines.Text(), stdin: stdin, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for lines.Scan() {
			tell(role, lines.Text())
		}
		_ = cmd.Wait() // it has said on stderr what it had to say
	}()
	if !ready {
		p.end()
		return nil, fmt.Errorf("%s did not start", role)
	}
	return p, nil
}

func (p *process) end() {
	_ = p.stdin.Close()
	<-p.ended
}

// play is the life of a process that the parent has started.
func play(role string) error {
	signal.Ignore(os.Interrupt) // Ctrl-C goes to all; the parent ends us when it has heard it
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if role == roleRedis {
		return playRedis(ctx, os.Getenv(addressVar))
	}
	return playServer(ctx, role)
}

// playServer is what a service does: everything in it but the lines it says is as in a real one.
func playServer(ctx context.Context, framework string) error {
	logging.Disable() // go-redis logs every connection that fails; the breaker tells it once
	plan, shared, passed, end, err := playLimiter()
	if err != nil {
		return err
	}
	defer end()
	var open atomic.Bool
	safe := spillway.Must(fallback.New(fallback.Config{
		Primary: shared, Replicas: len(plan.servers),
		Logger: slog.New(slog.DiscardHandler), // the observer prints it; without both it is in the log
		Observer: limiter.ObserverFunc(func(e limiter.Event) {
			switch {
			case e.Kind != limiter.EventBreaker, e.Reason != "": // it is new, or no more
			case e.State == limiter.BreakerClosed:
				open.Store(false)
				fmt.Println("the breaker closes: Redis decides")
			case e.State == limiter.BreakerOpen && !open.Swap(true): // a trial that fails leaves it as it was
				fmt.Println("the breaker opens: the share decides")
			}
		}),
	}))
	defer safe.Close()
	var byShare atomic.Int64
	guard := spillway.Must(spillway.New(spillway.Config{
		Limiter: safe,
		Observer: limiter.ObserverFunc(func(e limiter.Event) {
			if e.Kind == limiter.EventDecision && e.Decision.Allowed {
				passed.note()
				if e.Decision.Via == limiter.ViaFallback {
					byShare.Add(1)
				}
			}
		}),
		Policies: []spillway.Policy{{Name: "everybody", Key: keyfunc.Global(), Limit: plan.limit}},
	}))
	mux := http.NewServeMux()
	mux.Handle("/", handler(framework, guard))
	mux.HandleFunc("GET /by-share", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, byShare.Load()) })
	if l, ok := shared.(*leased.Limiter); ok {
		mux.HandleFunc("GET /leases", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(l.Stats()) })
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// playLimiter makes what decides while Redis is there: it is asked for every request, or for leases.
func playLimiter() (p plan, shared limiter.Limiter, passed *stamps, end func(), err error) {
	address := os.Getenv(meterVar)
	if address == "" {
		l, err := redislimit.Open("env:"+urlVar, redislimit.Config{Prefix: prefix})
		if err != nil {
			return p, nil, nil, nil, err
		}
		return central, l, nil, func() { _ = l.Close() }, nil
	}
	options, err := redis.ParseURL(os.Getenv(urlVar))
	if err != nil {
		return p, nil, nil, nil, err
	}
	if passed, err = newStamps(address); err != nil {
		return p, nil, nil, nil, err
	}
	client := redis.NewClient(options)
	l, err := leased.New(leased.Config{
		Client: client, Prefix: prefix, Logger: slog.New(slog.DiscardHandler),
		Timeout: 250 * time.Millisecond, // ten processes and their clients share this machine
	})
	return leases, l, passed, func() {
		if l != nil {
			_ = l.Close()
		}
		_ = client.Close()
		passed.close()
	}, err
}

func handler(framework string, guard *spillway.Guard) http.Handler {
	switch framework {
	case "gin":
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.Use(gin.Recovery(), ginlimit.Middleware(guard))
		router.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
		return router
	case "echo":
		e := echo.New()
		e.Use(echolimit.Middleware(guard))
		e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
		return e
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	return stdhttp.Middleware(guard)(mux)
}

// playRedis is a redis-server without a disk, killed when ctx ends.
func playRedis(ctx context.Context, address string) error {
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(ctx, "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w; on Debian: apt-get install redis-server", err)
	}
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: 10}) // it takes a moment to listen
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	fmt.Println("redis://" + address)
	if err := cmd.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// freeAddress is one where nobody listens, below the ports that outgoing connections get: it stays free in an outage.
func freeAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 21000+rand.IntN(10000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
}
