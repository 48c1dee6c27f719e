package adapters_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// copies is one request an hour for each client, and copies for the rest.
func copies(cfg degrade.PagesConfig) func() []spillway.Policy {
	return func() []spillway.Policy {
		return []spillway.Policy{{Name: "default", Key: keyfunc.IP(), Limit: limiter.PerHour(1), Degrade: degrade.Cached(degrade.NewPages(cfg))}}
	}
}

// spentFields are those of one request an hour, made at the beginning of the bubble.
func spentFields(pairs ...string) map[string]string {
	return and(map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "946688400"}, pairs...)
}

// replayedFields are those of a copy that is 95 s old and was fresh for 60, apart from what describes its body.
func replayedFields(pairs ...string) map[string]string {
	return spentFields(append([]string{
		"X-Ratelimit-Degraded", "cache", "Age", "95", "Cache-Status", "ratelimit;hit;ttl=-35;detail=quota-exceeded",
		"Date", "Sat, 01 Jan 2000 00:00:00 GMT", "Cache-Control", "max-age=60", "Etag", `"v1"`,
	}, pairs...)...)
}

// fresh marks a response as one that is good for a minute.
func fresh(h http.Header) {
	h.Set("Cache-Control", "max-age=60")
	h.Set("Etag", `"v1"`)
}

// writes is a handler in each framework's own words, whose response is good for a minute.
func writes(std http.HandlerFunc, inGin gin.HandlerFunc, inEcho echo.HandlerFunc) native {
	return native{
		func(w http.ResponseWriter, r *http.Request) { fresh(w.Header()); std(w, r) },
		func(c *gin.Context) { fresh(c.Writer.Header()); inGin(c) },
		func(c echo.Context) error { fresh(c.Response().Header()); return inEcho(c) },
	}
}

// replayed is a row in which the response of h is recorded, and served for GET, HEAD and conditions with the fields of RFC
// 9111 and RFC 9211.
func replayed(name string, h native, status int, cfg degrade.PagesConfig, more ...string) degradeRow {
	refusal := refused(spentFields("Content-Type", "application/problem+json"), "3505")
	condition := degradeStep{
		do: "GET /page", header: []string{`If-None-Match: W/"v1"`}, status: http.StatusNotModified, like: 1, fields: replayedFields(more...),
	}
	delete(condition.fields, "Last-Modified")
	delete(condition.fields, "Content-Disposition")
	if status != http.StatusOK { // conditions are for those that would be 200
		condition.status, condition.fields = status, replayedFields(more...)
	}
	return degradeRow{
		name: name, policies: copies(cfg), routes: map[string]native{"GET /page": h},
		steps: []degradeStep{
			{do: "GET /page", status: status, answer: "*", served: true},
			{do: "GET /page", wait: 95 * time.Second, status: status, like: 1, fields: replayedFields(more...)},
			{do: "HEAD /page", status: status, like: 1, fields: replayedFields(more...)},
			condition,
			{do: "GET /page", header: []string{"Cache-Control: no-cache"}, status: 429, answer: problem("default", 3505), fields: refusal},
			{do: "GET /page?q", status: 429, answer: "*"},
			// Another caller is served anew.
			{do: "GET /page", peer: "192.0.2.9", status: status, answer: "*", served: true},
		},
	}
}

type message struct {
	Text string `json:"text"`
}

// someFile is a file that is older than the bubble's world.
func someFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.txt")
	require.NoError(t, os.WriteFile(name, []byte("of a file"), 0o600))
	at := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
	require.NoError(t, os.Chtimes(name, at, at))
	return name
}

func cachedRows(t *testing.T) []degradeRow {
	zero, all := degrade.PagesConfig{}, degrade.PagesConfig{Statuses: []int{200, 301, 404, 410}}
	file := someFile(t)
	return []degradeRow{
		replayed("JSON", writes(
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(message{"ä"})
			},
			func(c *gin.Context) { c.JSON(200, message{"ä"}) },
			func(c echo.Context) error { return c.JSON(200, message{"ä"}) },
		), 200, zero),
		replayed("a string", writes(
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") },
			func(c *gin.Context) { c.String(200, "text") },
			func(c echo.Context) error { return c.String(200, "text") },
		), 200, zero),
		replayed("bytes of no type", writes(
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
			func(c *gin.Context) { _, _ = c.Writer.Write([]byte("<html>")) },
			func(c echo.Context) error { _, err := c.Response().Write([]byte("<html>")); return err },
		), 200, zero),
		replayed("in several writes", writes(
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "one ")
				_, _ = w.Write([]byte("two"))
			},
			func(c *gin.Context) { _, _ = c.Writer.WriteString("one "); _, _ = c.Writer.Write([]byte("two")) },
			func(c echo.Context) error {
				_, _ = io.WriteString(c.Response(), "one ")
				_, err := c.Response().Write([]byte("two"))
				return err
			},
		), 200, zero),
		replayed("from a reader", writes(
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.Copy(w, io.MultiReader(strings.NewReader("stream")))
			},
			func(c *gin.Context) { c.DataFromReader(200, -1, "text/x", strings.NewReader("stream"), nil) },
			func(c echo.Context) error { return c.Stream(200, "text/x", strings.NewReader("stream")) },
		), 200, zero),
		replayed("below the framework's response", writes(
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") },
			func(c *gin.Context) { _, _ = io.WriteString(c.Writer, "x") },
			func(c echo.Context) error {
				_, err := io.WriteString(c.Response().Writer, "x")
				return err
			},
		), 200, zero),
		replayed("a file", writes(
			func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) },
			func(c *gin.Context) { c.File(file) },
			func(c echo.Context) error { return c.File(file) },
		), 200, zero, "Accept-Ranges", "bytes", "Last-Modified", "Fri, 31 Dec 1999 00:00:00 GMT"),
		replayed("an attachment", writes(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Disposition", `attachment; filename="a.txt"`)
				http.ServeFile(w, r, file)
			},
			func(c *gin.Context) { c.FileAttachment(file, "a.txt") },
			func(c echo.Context) error { return c.Attachment(file, "a.txt") },
		), 200, zero, "Accept-Ranges", "bytes", "Last-Modified", "Fri, 31 Dec 1999 00:00:00 GMT", "Content-Disposition", `attachment; filename="a.txt"`),
		replayed("a redirect", writes(
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/y", http.StatusMovedPermanently) },
			func(c *gin.Context) { c.Redirect(301, "/y") },
			func(c echo.Context) error { return c.Redirect(301, "/y") },
		), 301, all, "Location", "/y"),
	}
}
