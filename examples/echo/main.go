// Command echo guards an Echo instance and lets its HTTPErrorHandler answer refusals.
package main

import (
	"log"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

func main() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerSecond(20)},
		},
	}))
	e := echo.New()
	e.HideBanner = true
	e.Use(echolimit.Middleware(guard, echolimit.WithDenied(func(_ echo.Context, v *middleware.Verdict) error {
		return echo.NewHTTPError(v.Status, "slow down")
	})))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })

	log.Print("try: curl -i http://127.0.0.1:8092/")
	log.Fatal(e.Start("127.0.0.1:8092"))
}
