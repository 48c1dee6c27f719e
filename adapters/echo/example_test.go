package echolimit_test

import (
	"fmt"

	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
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
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("user", "alice")
			return next(c)
		}
	}

	e := echo.New()
	e.Use(echomiddleware.Recover(), echolimit.Middleware(guard))
	api := e.Group("/api", authenticate, echolimit.Middleware(guard.Stage(middleware.StageIdentity)))
	api.GET("/users/:id", func(c echo.Context) error { return c.String(200, "hello") })

	for range 3 {
		w := get(e, "/api/users/1")
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
	e := echo.New()
	e.Use(echolimit.Middleware(guard, echolimit.WithDenied(func(_ echo.Context, v *middleware.Verdict) error {
		return echo.NewHTTPError(v.Status, "slow down")
	})))
	e.GET("/", func(c echo.Context) error { return c.String(200, "hello") })

	fmt.Println(get(e, "/").Body)
	fmt.Print(get(e, "/").Body)
	// Output:
	// hello
	// {"message":"slow down"}
}
