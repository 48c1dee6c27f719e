package adapters_test

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
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
	page := alike(func(w http.ResponseWriter, _ *http.Request) { fresh(w.Header()); _, _ = io.WriteString(w, "page") })
	write := func(name string, h native, status, afterwards int) degradeRow {
		return degradeRow{
			name: name, policies: copies(degrade.PagesConfig{}), routes: map[string]native{"GET /page": page, "POST /page": h},
			steps: []degradeStep{
				{do: "GET /page", status: 200, answer: "page", served: true},
				{do: "POST /page", peer: "192.0.2.2", body: "a=b", status: status, answer: "*", served: true, wait: 1},
				{do: "GET /page", status: afterwards, answer: "*"},
			},
		}
	}
	return []degradeRow{
		write("a write", native{
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
			func(c *gin.Context) { c.Status(204) },
			func(c echo.Context) error { return c.NoContent(204) },
		}, 204, 429),
		write("a write that says nothing", native{
			func(http.ResponseWriter, *http.Request) {}, func(*gin.Context) {}, func(echo.Context) error { return nil },
		}, 200, 429),
		write("a write and a redirect to what it has made", native{
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/page", http.StatusSeeOther) },
			func(c *gin.Context) { c.Redirect(303, "/page") },
			func(echo.Context) error { return echo.NewHTTPError(303, "there") },
		}, 303, 429),
		{
			name: "a write that proceeds degraded", policies: degraded(func() degrade.Handler {
				return degrade.First(degrade.Cached(degrade.NewPages(degrade.PagesConfig{})), degrade.Within(limiter.PerHour(9), degrade.Flag()))
			}),
			routes: map[string]native{"GET /page": page, "POST /page": {
				func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/page", http.StatusSeeOther) },
				func(c *gin.Context) { c.Redirect(303, "/page") },
				func(echo.Context) error { return echo.NewHTTPError(303, "there") },
			}},
			steps: []degradeStep{
				{do: "GET /page", status: 200, answer: "page", served: true},
				{do: "GET /page", status: 200, answer: "page"},
				{do: "POST /page", body: "a=b", status: 303, answer: "*", served: true, wait: 1},
				{do: "GET /page", status: 200, answer: "page", served: true},
			},
		},
		write("a write that fails", native{
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnprocessableEntity) },
			func(c *gin.Context) { c.AbortWithStatusJSON(422, gin.H{"error": "no"}) },
			func(echo.Context) error { return echo.NewHTTPError(422, "no") },
		}, 422, 200),
		write("a write that breaks", native{
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
			func(c *gin.Context) { c.AbortWithStatus(500) },
			func(echo.Context) error { return errBroken },
		}, 500, 200),
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
