package ginlimit_test

import (
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/spillway-go/spillway"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

func Example() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "address", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)},
			{Name: "user", Stage: middleware.StageIdentity, Key: keyfunc.Value("user"), Limit: limiter.PerMinute(2)},
		},
	}))
	authenticate := func(c *gin.Context) { c.Set("user", "alice") }

	router := gin.New()
	router.Use(gin.Recovery(), ginlimit.Middleware(guard))
	api := router.Group("/api", authenticate, ginlimit.Middleware(guard.Stage(middleware.StageIdentity)))
	api.GET("/users/:id", func(c *gin.Context) { c.String(200, "hello") })

	for range 3 {
		w := get(router, "/api/users/1")
		fmt.Printf("%d remaining=%s retry=%s\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 remaining=1 retry=
	// 200 remaining=0 retry=
	// 429 remaining=0 retry=30
}

func ExampleWithDenied() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{{Name: "address", Key: keyfunc.IP(), Limit: limiter.PerMinute(1)}},
	}))
	router := gin.New()
	router.Use(ginlimit.Middleware(guard, ginlimit.WithDenied(func(c *gin.Context, v *middleware.Verdict) {
		c.JSON(v.Status, gin.H{"code": "too_fast", "wait": v.Refusal.RetryAfter.Seconds()})
	})))
	router.GET("/", func(c *gin.Context) { c.String(200, "hello") })

	fmt.Println(get(router, "/").Body)
	fmt.Println(get(router, "/").Body)
	// Output:
	// hello
	// {"code":"too_fast","wait":60}
}
