// Command gin guards a Gin engine: every client address, and one route more strictly.
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/spillway-go/spillway"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func main() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerSecond(20)},
			{
				Name: "report", Match: spillway.Match{Routes: []string{"GET /reports/{id}"}},
				Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route()), Limit: limiter.PerMinute(6).WithBurst(2),
			},
		},
	}))
	router := gin.New()
	router.Use(gin.Recovery(), ginlimit.Middleware(guard))
	router.GET("/reports/:id", func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"report": c.Param("id")}) })

	log.Print("try: curl -i http://127.0.0.1:8091/reports/7")
	log.Fatal(router.Run("127.0.0.1:8091"))
}
