package adapters_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

var errBroken = errors.New("broken")

// recovery answers panics with 500, as the frameworks' own do.
var recovery = around{
	std: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if recover() != nil {
					http.Error(w, "sorry", http.StatusInternalServerError)
				}
			}()
			next.ServeHTTP(w, r)
		})
	},
	gin:  gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }),
	echo: echomw.RecoverWithConfig(echomw.RecoverConfig{DisablePrintStack: true, DisableErrorHandler: true}),
}

// answering writes errors that handlers have only told of.
var answering = around{gin: func(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 && !c.Writer.Written() {
		c.JSON(http.StatusNotFound, gin.H{"error": c.Errors.String()})
	}
}}

// unrecorded is a row in which the response of h, if there is one, is not replayed.
func unrecorded(name string, h native, status int, more ...func(*degradeRow)) degradeRow {
	row := degradeRow{
		name: name, policies: copies(degrade.PagesConfig{Statuses: []int{200, 301, 404, 410}}), routes: map[string]native{"GET /page": h},
		steps: []degradeStep{
			{do: "GET /page", status: status, answer: "*", served: true},
			{do: "GET /page", wait: 30 * time.Second, status: http.StatusTooManyRequests, answer: problem("default", 3570)},
			{do: "HEAD /page", status: http.StatusTooManyRequests},
		},
	}
	for _, change := range more {
		change(&row)
	}
	return row
}

func panicking(row *degradeRow)      { row.steps[0].panics = true }
func recoversInside(row *degradeRow) { row.inside = append(row.inside, recovery) }
func recoversOutside(row *degradeRow) {
	row.outside = append(row.outside, recovery)
}

// says writes the same in all frameworks and then ends as the framework's handlers do.
func says(header, body string, status int, inGin func(*gin.Context), inEcho error, inStd func(http.ResponseWriter)) native {
	write := func(w http.ResponseWriter) {
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		if status != 0 {
			w.WriteHeader(status)
		}
		_, _ = io.WriteString(w, body)
	}
	return writes(
		func(w http.ResponseWriter, _ *http.Request) {
			write(w)
			if inStd != nil {
				inStd(w)
			}
		},
		func(c *gin.Context) {
			write(c.Writer)
			if inGin != nil {
				inGin(c)
			}
		},
		func(c echo.Context) error { write(c.Response()); return inEcho },
	)
}

func uncachedRows() []degradeRow {
	panics := func(value any, body string) native {
		return alike(func(w http.ResponseWriter, _ *http.Request) {
			fresh(w.Header())
			if body != "" {
				_, _ = io.WriteString(w, body)
			}
			panic(value)
		})
	}
	written := func(header, body string, status int) native { return says(header, body, status, nil, nil, nil) }
	return []degradeRow{
		unrecorded("a panic", panics("broken", ""), 0, panicking),
		unrecorded("a panic behind half of the body", panics("broken", "half"), 0, panicking),
		unrecorded("an abort behind half of the body", panics(http.ErrAbortHandler, "half"), 0, panicking),
		unrecorded("a panic, recovered outside", panics("broken", ""), 500, recoversOutside),
		unrecorded("a panic, recovered inside", panics("broken", ""), 500, recoversInside),
		unrecorded("a panic behind half of the body, recovered outside", panics("broken", "half"), 200, recoversOutside),
		unrecorded("a panic behind half of the body, recovered inside", panics("broken", "half"), 200, recoversInside),
		unrecorded("an error behind half of the body", says("", "half", 0,
			func(c *gin.Context) { _ = c.Error(errBroken) }, errBroken, func(w http.ResponseWriter) { http.Error(w, "broken", 500) },
		), 200),
		unrecorded("an abort with a status behind half of the body", says("", "half", 0,
			func(c *gin.Context) { c.AbortWithStatus(500) }, errBroken, func(w http.ResponseWriter) { w.WriteHeader(500) },
		), 200),
		unrecorded("half of the length", written("Content-Length: 10", "half", 0), 200),
		unrecorded("an error that is answered outside", writes(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "no-store")
				http.NotFound(w, r)
			},
			func(c *gin.Context) { _ = c.Error(errBroken) },
			func(echo.Context) error { return echo.NewHTTPError(404, "nothing") },
		), 404, func(row *degradeRow) { row.outside = append(row.outside, answering) }),
		unrecorded("a status whose body is written outside", writes(
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "a=b"); w.WriteHeader(404) },
			func(c *gin.Context) { c.Status(404) },
			func(echo.Context) error { return echo.ErrNotFound },
		), 404, func(row *degradeRow) {
			row.outside = append(row.outside, around{gin: func(c *gin.Context) {
				if c.Next(); c.Writer.Status() == 404 && !c.Writer.Written() {
					_, _ = c.Writer.WriteString("nothing here")
				}
			}})
		}),
		unrecorded("Set-Cookie", writes(
			func(w http.ResponseWriter, _ *http.Request) {
				http.SetCookie(w, &http.Cookie{Name: "session", Value: "alice"})
				_, _ = io.WriteString(w, "x")
			},
			func(c *gin.Context) { c.SetCookie("session", "alice", 0, "", "", false, false); c.String(200, "x") },
			func(c echo.Context) error {
				c.SetCookie(&http.Cookie{Name: "session", Value: "alice"})
				return c.String(200, "x")
			},
		), 200),
		unrecorded("private", written("Cache-Control: private", "x", 0), 200),
		unrecorded("no content", writes(
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
			func(c *gin.Context) { c.Status(204) },
			func(c echo.Context) error { return c.NoContent(204) },
		), 204),
		unrecorded("nothing at all", writes(
			func(http.ResponseWriter, *http.Request) {}, func(*gin.Context) {}, func(echo.Context) error { return nil },
		), 200),
		unrecorded("a failure", written("", "sorry", 500), 500),
		unrecorded("DEG-06 the 429 of a limiter behind it", written("Retry-After: 7", "slow down", 429), 429),
		unrecorded("a flushed response", writes(
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "a")
				_ = http.NewResponseController(w).Flush()
				_, _ = io.WriteString(w, "b")
			},
			func(c *gin.Context) {
				n := 0
				c.Stream(func(w io.Writer) bool { n++; _, _ = io.WriteString(w, "ab"[n-1:n]); return n < 2 })
			},
			func(c echo.Context) error {
				_, _ = c.Response().Write([]byte("a"))
				c.Response().Flush()
				_, err := c.Response().Write([]byte("b"))
				return err
			},
		), 200, func(row *degradeRow) { row.unseen = true }),
		unrecorded("STR-02 events", writes(
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprint(w, "event:x\ndata:1\n\n")
			},
			func(c *gin.Context) { c.SSEvent("x", "1") },
			func(c echo.Context) error {
				c.Response().Header().Set("Content-Type", "text/event-stream")
				_, err := fmt.Fprint(c.Response(), "event:x\ndata:1\n\n")
				return err
			},
		), 200),
		unrecorded("STR-03 a connection that was taken over", writes(
			func(w http.ResponseWriter, _ *http.Request) { takeOver(http.NewResponseController(w).Hijack) },
			func(c *gin.Context) { takeOver(c.Writer.Hijack) },
			func(c echo.Context) error { takeOver(c.Response().Hijack); return nil },
		), 200),
		{
			name: "STR-06 an upgrade gets no copy", policies: copies(degrade.PagesConfig{}),
			routes: map[string]native{"GET /page": written("", "page", 0)},
			steps: []degradeStep{
				{do: "GET /page", status: 200, answer: "page", served: true},
				{do: "GET /page", header: []string{"Connection: Upgrade", "Upgrade: websocket"}, status: 429, answer: "*"},
				{do: "GET /page", status: 200, answer: "page"},
			},
		},
		{
			name: "a router's own answer is whole or is none", policies: copies(degrade.PagesConfig{Statuses: []int{200, 404}}),
			steps: []degradeStep{
				{do: "GET /nothing", unrouted: true, status: 404, answer: "*"},
				{do: "GET /nothing", unrouted: true, status: 404, like: 1, refusable: true},
			},
		},
		{
			name: "a HEAD is not the page", policies: copies(degrade.PagesConfig{}), routes: map[string]native{"GET /page": written("", "page", 0)},
			steps: []degradeStep{{do: "HEAD /page", status: 200, answer: "*", served: true}, {do: "GET /page", status: 429, answer: "*"}},
		},
		{
			name: "DEG-04 nobody gets what was made for somebody", policies: copies(degrade.PagesConfig{}),
			routes: map[string]native{"GET /page": alike(func(w http.ResponseWriter, r *http.Request) {
				who := r.Header.Get("Authorization") + r.Header.Get("Cookie")
				if r.URL.RawQuery == "public" {
					w.Header().Set("Cache-Control", "public, max-age=60")
				}
				_, _ = io.WriteString(w, "for "+who)
			})},
			steps: []degradeStep{
				{do: "GET /page", header: []string{"Authorization: Bearer alice"}, status: 200, answer: "for Bearer alice", served: true},
				{do: "GET /page", header: []string{"Authorization: Bearer alice"}, status: 429, answer: "*"},
				{do: "GET /page", status: 429, answer: "*"},
				{do: "GET /page", peer: "192.0.2.2", header: []string{"Cookie: session=bob"}, status: 200, answer: "for session=bob", served: true},
				{do: "GET /page", status: 429, answer: "*"},
				{do: "GET /page", peer: "192.0.2.3", status: 200, answer: "for ", served: true},
				{do: "GET /page", status: 200, answer: "for "},
				{do: "GET /page", header: []string{"Authorization: Bearer alice"}, status: 429, answer: "*"},
				{do: "GET /page?public", peer: "192.0.2.4", header: []string{"Cookie: a=b"}, status: 200, answer: "for a=b", served: true},
				{do: "GET /page?public", header: []string{"Authorization: Bearer alice"}, status: 200, answer: "for a=b"},
			},
		},
		{
			name: "DEG-03 nobody reads another's quota", policies: func() []spillway.Policy {
				return []spillway.Policy{{
					Name: "default", Key: keyfunc.IP(), Limit: limiter.PerHour(3), Degrade: degrade.Cached(degrade.NewPages(degrade.PagesConfig{})),
				}}
			},
			routes: map[string]native{"GET /page": written("", "page", 0)},
			steps: []degradeStep{
				{do: "GET /page", peer: "192.0.2.2", status: 200, answer: "page", served: true},
				{do: "GET /y", status: 200, answer: "GET /y", served: true},
				{do: "GET /y", status: 200, answer: "GET /y", served: true},
				{do: "GET /y", status: 200, answer: "GET /y", served: true},
				{do: "GET /page", status: 200, like: 1, fields: replayedFields("X-Ratelimit-Limit", "3", "X-Ratelimit-Reset", "946688400", "Age", "0",
					"Cache-Status", "ratelimit;hit;ttl=60;detail=quota-exceeded")},
			},
		},
	}
}

func takeOver(hijack func() (net.Conn, *bufio.ReadWriter, error)) {
	if conn, _, err := hijack(); err == nil {
		_ = conn.Close()
	}
}
