package peer

import (
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
)

var okBody = []byte("ok")

func okHandler(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(okBody) }

// stdApp is an "ok" handler behind n middlewares, each built anew.
func stdApp(n int, build func() func(http.Handler) http.Handler) http.Handler {
	var h http.Handler = http.HandlerFunc(okHandler)
	for range n {
		h = build()(h)
	}
	return h
}

// ginApp is the same in Gin.
func ginApp(n int, build func() gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	for range n {
		e.Use(build())
	}
	e.GET("/", func(c *gin.Context) {
		c.Status(http.StatusOK)
		_, _ = c.Writer.Write(okBody)
	})
	return e
}

// echoApp is the same in Echo.
func echoApp(n int, build func() echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect()
	for range n {
		e.Use(build())
	}
	e.GET("/", func(c echo.Context) error {
		_, err := c.Response().Write(okBody)
		return err
	})
	return e
}

// remoteIP is the usual key function: the host part of RemoteAddr.
func remoteIP(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return host, err
}
