package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// try sends requests to a handler and prints the statuses.
func try(h http.Handler, n int, method, target string) {
	statuses := make([]any, n)
	for k := range statuses {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, target, http.NoBody))
		statuses[k] = w.Code
	}
	fmt.Println(statuses...)
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })

// One limit for every client address, around a whole mux.
func Example() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerMinute(3)},
		},
	}))
	mux := http.NewServeMux()
	mux.Handle("GET /", ok)
	try(stdhttp.Middleware(guard)(mux), 4, "GET", "/")
	// Output: 200 200 200 429
}

func Example_gin() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerMinute(3)},
		},
	}))
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery(), ginlimit.Middleware(guard))
	router.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "ok") })
	try(router, 4, "GET", "/")
	// Output: 200 200 200 429
}

func Example_echo() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerMinute(3)},
		},
	}))
	e := echo.New()
	e.Use(echolimit.Middleware(guard))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "ok") })
	try(e, 4, "GET", "/")
	// Output: 200 200 200 429
}

// Several policies on one request: all are charged, or none.
func Example_policies() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Response: response.Options{Headers: response.Both},
		Policies: []spillway.Policy{
			{Name: "client", Key: keyfunc.IP(), Limit: limiter.PerHour(100).WithBurst(10)},
			{
				Name: "search", Match: spillway.Match{Routes: []string{"GET /search"}},
				Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route()), Limit: limiter.PerMinute(2).With(limiter.FixedWindow),
			},
		},
	}))
	h := stdhttp.Middleware(guard)(ok)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/search", http.NoBody))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	try(h, 3, "GET", "/search?q=x")
	try(h, 2, "GET", "/other")
	// Output:
	// "client";q=10;w=360, "search";q=2;w=60
	// 200 429 429
	// 200 200
}

// A limit that the operator changes while serving.
func Example_liveLimit() {
	limit := limiter.NewVar(limiter.PerHour(1).With(limiter.FixedWindow))
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{{Name: "live", Key: keyfunc.IP(), Limit: limit}},
	}))
	h := stdhttp.Middleware(guard)(ok)
	try(h, 2, "GET", "/")
	if err := limit.Set(limiter.PerHour(3).With(limiter.FixedWindow)); err != nil {
		log.Fatal(err) // an invalid limit changes nothing
	}
	try(h, 4, "GET", "/")
	// Output:
	// 200 429
	// 200 200 429 429
}

// Plans: the limit depends on who is asking.
func Example_plans() {
	plans := map[string]limiter.Limit{"gold": limiter.Unlimited, "free": limiter.PerHour(1)}
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{{
			Name:  "plan",
			Key:   keyfunc.User(func(r *keyfunc.Request) string { return r.URL.Query().Get("user") }), // verified, in real life
			Limit: plans["free"],
			Plan: func(r *keyfunc.Request) (limiter.Limit, bool) {
				l, known := plans[r.URL.Query().Get("plan")]
				return l, known
			},
		}},
	}))
	h := stdhttp.Middleware(guard)(ok)
	try(h, 2, "GET", "/?user=bob&plan=free")
	try(h, 2, "GET", "/?user=eve&plan=gold")
	// Output:
	// 200 429
	// 200 200
}

// Two places in the chain: addresses before authentication, users behind it.
func Example_stages() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "address", Key: keyfunc.IP(), Limit: limiter.PerMinute(5)},
			{
				Name: "user", Stage: middleware.StageIdentity, Limit: limiter.PerMinute(1),
				Key: keyfunc.User(func(r *keyfunc.Request) string { return r.Header.Get("X-Verified-User") }),
			},
		},
	}))
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("X-Verified-User", "bob")
			next.ServeHTTP(w, r)
		})
	}
	h := stdhttp.Middleware(guard)(authenticate(stdhttp.Middleware(guard.Stage(middleware.StageIdentity))(ok)))
	try(h, 6, "GET", "/")
	// Output: 200 429 429 429 429 429
}

// Units are given back where the response says that nothing was done.
func Example_refund() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{{
			Name: "work", Key: keyfunc.IP(), Limit: limiter.PerHour(1),
			Refund: func(status int) bool { return status >= 500 },
		}},
	}))
	failing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mw := stdhttp.Middleware(guard)
	try(mw(failing), 3, "GET", "/")
	try(mw(ok), 2, "GET", "/")
	// Output:
	// 502 502 502
	// 200 429
}

// Something useful when the answer is no.
func Example_degrade() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{{
			Name: "page", Key: keyfunc.IP(), Limit: limiter.PerHour(1),
			Degrade: degrade.First(
				degrade.Within(limiter.PerHour(1), degrade.Func(func(_ http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
					return degrade.Proceed // once an hour more, marked as degraded
				})),
				degrade.Func(func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write([]byte("come back soon"))
					return degrade.Done
				}),
			),
		}},
	}))
	h := stdhttp.Middleware(guard)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, degraded := degrade.FromContext(r.Context())
		fmt.Println("served, degraded:", degraded)
	}))
	try(h, 3, "GET", "/")
	// Output:
	// served, degraded: false
	// served, degraded: true
	// 200 200 503
}

// One limit for a fleet of four processes, on the Redis that they share. While that is away, as here where nobody listens,
// each process has a quarter of the limit.
func Example_fleet() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DialerRetries: 1})
	shared := spillway.Must(redislimit.New(redislimit.Config{Client: rdb, Prefix: "shop"}))
	guard := spillway.Must(spillway.New(spillway.Config{
		Limiter: spillway.Must(fallback.New(fallback.Config{Primary: shared, Replicas: 4})),
		Policies: []spillway.Policy{
			{Name: "client", Key: keyfunc.IP(), Limit: limiter.PerMinute(8)},
		},
	}))
	try(stdhttp.Middleware(guard)(ok), 3, "GET", "/")
	// Output: 200 200 429
}

// What an observer sees of an outage: calls to Redis, with what they took, and what the breaker makes of them.
func Example_observer() {
	watch := limiter.ObserverFunc(func(e limiter.Event) {
		switch e.Kind {
		case limiter.EventStore: // rounded, for every run to print the same
			fmt.Println("redis:", e.Op, e.Duration.Round(time.Minute), "failed:", e.Err != nil)
		case limiter.EventBreaker: // when it is made, too; Err is the cause; the other states are BreakerHalfOpen and BreakerClosed
			fmt.Println("breaker open:", e.State == limiter.BreakerOpen, "outage:", errors.Is(e.Err, limiter.ErrUnavailable))
		}
	})
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DialerRetries: 1}) // nobody listens
	shared := spillway.Must(redislimit.New(redislimit.Config{Client: rdb, Observer: watch}))
	safe := spillway.Must(fallback.New(fallback.Config{Primary: shared, Failures: 2, Observer: watch}))
	for range 3 {
		_, _ = safe.Allow(context.Background(), limiter.Key{Space: "mail", ID: "user=bob"}, limiter.PerMinute(8), 1)
	}
	// Output:
	// breaker open: false outage: false
	// redis: take 0s failed: true
	// redis: take 0s failed: true
	// breaker open: true outage: true
}

// A limit whose key is known only inside a handler.
func ExampleGuard_take() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "sms", Stage: middleware.StageManual, Limit: limiter.PerHour(1).With(limiter.SlidingLog)},
		},
	}))
	for range 2 {
		d, err := guard.Take(context.Background(), "sms", "+41 79 000 00 00", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.RetryAfter.Round(time.Hour))
	}
	// Output:
	// true 0s
	// false 1h0m0s
}

// A limiter without HTTP.
func Example_limiter() {
	store := spillway.Must(memory.New(memory.Config{}))
	key := limiter.Key{Space: "mail", ID: "user=bob"}
	for range 3 {
		d, err := store.Allow(context.Background(), key, limiter.PerDay(2), 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}
