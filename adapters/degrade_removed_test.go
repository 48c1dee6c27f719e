package adapters_test

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/spillway-go/spillway/degrade"
)

// removed is a row in which a page is recorded and then answered by h.
func removed(name string, h native, status, afterwards int) degradeRow {
	later := func(c string) bool { return c != "" }
	page := alike(func(w http.ResponseWriter, _ *http.Request) { fresh(w.Header()); _, _ = io.WriteString(w, "page") })
	return degradeRow{
		name: name, policies: copies(degrade.PagesConfig{}),
		routes: map[string]native{"GET /page": {
			func(w http.ResponseWriter, r *http.Request) {
				if later(r.Header.Get("X-Later")) {
					h.std(w, r)
					return
				}
				page.std(w, r)
			},
			func(c *gin.Context) {
				if later(c.GetHeader("X-Later")) {
					h.gin(c)
					return
				}
				page.gin(c)
			},
			func(c echo.Context) error {
				if later(c.Request().Header.Get("X-Later")) {
					return h.echo(c)
				}
				return page.echo(c)
			},
		}},
		steps: []degradeStep{
			{do: "GET /page", status: 200, answer: "page", served: true},
			{do: "GET /page", status: 200, answer: "page"},
			{do: "GET /page", peer: "192.0.2.2", header: []string{"X-Later: yes"}, status: status, answer: "*", served: true},
			{do: "GET /page", status: afterwards, answer: "*"},
		},
	}
}

func removedRows() []degradeRow {
	return []degradeRow{
		removed("a page that is gone", writes(
			func(w http.ResponseWriter, r *http.Request) { http.Error(w, "gone", 404) },
			func(c *gin.Context) { c.AbortWithStatusJSON(404, gin.H{"error": "gone"}) },
			func(echo.Context) error { return echo.ErrNotFound },
		), 404, 429),
		removed("a page that is for some", writes(
			func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) },
			func(c *gin.Context) { c.AbortWithStatus(403) },
			func(echo.Context) error { return echo.NewHTTPError(403, "not you") },
		), 403, 429),
		removed("a failure leaves the page", writes(
			func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502) },
			func(c *gin.Context) { c.AbortWithStatus(502) },
			func(echo.Context) error { return echo.NewHTTPError(502, "away") },
		), 502, 200),
	}
}
