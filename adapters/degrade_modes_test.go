package adapters_test

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// degraded is one request an hour for each client, and h for the rest.
func degraded(h func() degrade.Handler) func() []spillway.Policy {
	return func() []spillway.Policy {
		return []spillway.Policy{{Name: "default", Key: keyfunc.IP(), Limit: limiter.PerHour(1), Degrade: h()}}
	}
}

// writing is a handler that does what f does with the response, and has served.
func writing(f func(w http.ResponseWriter)) degrade.Handler {
	return degrade.Func(func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
		f(w)
		return degrade.Done
	})
}

func text(body string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) { _, _ = w.Write([]byte(body)) }
}

func skips() degrade.Handler {
	return degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Skip })
}

// lasting sets fields by which a route says that its answers are good for minutes.
var lasting = func() around {
	set := func(h http.Header) {
		h.Set("Cache-Control", "public, max-age=300")
		h.Set("Etag", `"route"`)
		h.Set("X-Route", "page")
	}
	return around{
		std: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { set(w.Header()); next.ServeHTTP(w, r) })
		},
		gin: func(c *gin.Context) { set(c.Writer.Header()) },
		echo: func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { set(c.Response().Header()); return next(c) }
		},
	}
}()

func modeRows() []degradeRow {
	static := func(cfg degrade.StaticConfig) func() degrade.Handler {
		return func() degrade.Handler { return degrade.Static(cfg) }
	}
	redirect := func(cfg degrade.RedirectConfig) func() degrade.Handler {
		return func() degrade.Handler { return degrade.Redirect(cfg) }
	}
	page := degrade.StaticConfig{Status: 503, Contents: []degrade.Content{
		{Type: "application/json", Body: []byte(`{"wait":true}`)},
		{Type: "text/html", Body: []byte("<p>wait")},
		{Type: "text/html", Language: "de", Body: []byte("<p>warte")},
	}}
	fixed := func(kind string, pairs ...string) map[string]string {
		return spentFields(append([]string{
			"X-Ratelimit-Degraded", "static", "Cache-Control", "no-store", "X-Content-Type-Options", "nosniff",
			"Content-Type", kind, "Vary", "Accept", "Retry-After", "3600",
		}, pairs...)...)
	}
	sent := func(do, to, kind, answer string, status int, header ...string) degradeStep {
		return degradeStep{do: do, header: header, status: status, answer: answer, fields: map[string]string{
			"Location": to, "Retry-After": "3600", "Cache-Control": "no-store", "Vary": "Accept", "Content-Type": kind,
			"X-Ratelimit-Degraded": "redirect", "X-Content-Type-Options": "nosniff",
		}}
	}
	plain := degradeStep{
		do: "GET /x", status: 429, answer: problem("default", 3600), fields: refused(spentFields("Content-Type", "application/problem+json"), "3600"),
	}
	lesser := func(answer string) degradeStep {
		return degradeStep{do: "GET /x", status: 200, answer: answer, served: true}
	}
	rows := []degradeRow{
		{
			name: "a fixed answer", policies: degraded(static(page)),
			steps: []degradeStep{
				spend,
				{do: "GET /x", status: 503, answer: `{"wait":true}`, fields: fixed("application/json")},
				{do: "POST /x", body: "a=b", status: 503, answer: `{"wait":true}`, fields: fixed("application/json")},
				{
					do: "GET /x", header: []string{"Accept: text/html"}, status: 503, answer: "<p>wait",
					fields: fixed("text/html; charset=utf-8", "Vary", "Accept, Accept-Language"),
				},
				{do: "GET /x", header: []string{"Accept: text/html", "Accept-Language: de-AT"}, status: 503, answer: "<p>warte"},
				{do: "HEAD /x", status: 503, answer: `{"wait":true}`, fields: fixed("application/json")},
				{do: "GET /nothing", unrouted: true, status: 503, answer: `{"wait":true}`, fields: fixed("application/json")},
			},
		},
		{
			name: "a fixed answer without a body", policies: degraded(static(degrade.StaticConfig{Status: 204})),
			steps: []degradeStep{spend, {do: "GET /x", status: 204}, {do: "GET /nothing", unrouted: true, status: 204}},
		},
		{
			name: "a redirect to wait", policies: degraded(redirect(degrade.RedirectConfig{URL: "/y", Return: "back"})),
			steps: []degradeStep{
				spend,
				sent("GET /x?a=b", "/y?back=%2Fx%3Fa%3Db", "text/plain; charset=utf-8", "Temporary Redirect: /y?back=%2Fx%3Fa%3Db\n", 307),
				sent("POST /x", "/y?back=%2Fx", "text/plain; charset=utf-8", "See Other: /y?back=%2Fx\n", 303),
				sent("HEAD /x", "/y?back=%2Fx", "text/plain; charset=utf-8", "Temporary Redirect: /y?back=%2Fx\n", 307),
				sent("GET /x", "/y?back=%2Fx", "text/html; charset=utf-8",
					`<!doctype html><title>Temporary Redirect</title><a href="/y?back=%2Fx">Temporary Redirect</a>`+"\n", 307, "Accept: text/html"),
				// The place itself is not sent to itself.
				{do: "GET /y", status: 429, answer: problem("default", 3600)},
				{do: "GET /y?back=%2Fx", status: 429, answer: problem("default", 3600)},
			},
		},
		{
			name: "answers of one's own", policies: degraded(func() degrade.Handler {
				return writing(func(w http.ResponseWriter) {
					w.Header()["Content-Type"] = []string{"text/x"}
					w.WriteHeader(200)
					text("lesser")(w)
				})
			}),
			steps: []degradeStep{
				spend,
				{do: "GET /x", status: 200, answer: "lesser"},
				{do: "GET /nothing", unrouted: true, status: 200, answer: "lesser"},
			},
		},
		{
			name: "an answer without a status is a 200", policies: degraded(func() degrade.Handler { return writing(text("lesser")) }),
			steps: []degradeStep{
				spend, {do: "GET /x", status: 200, answer: "lesser"}, {do: "GET /nothing", unrouted: true, status: 200, answer: "lesser"},
			},
		},
		{
			name: "so is one without a word", policies: degraded(func() degrade.Handler { return writing(func(http.ResponseWriter) {}) }),
			steps: []degradeStep{
				spend, {do: "GET /x", status: 200, fields: nil}, {do: "GET /nothing", unrouted: true, status: 200},
			},
		},
		{
			name: "the first that serves", policies: degraded(func() degrade.Handler {
				return degrade.First(
					skips(), degrade.Func(func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
						w.Header().Set("X-Left", "behind")
						panic("broken")
					}),
					degrade.Within(limiter.PerHour(2), degrade.Flag()),
					degrade.Within(limiter.PerHour(1), degrade.Static(degrade.StaticConfig{Status: 203})),
				)
			}),
			steps: []degradeStep{
				spend, lesser("flag of default: GET /x"), lesser("flag of default: GET /x"),
				{do: "GET /x", status: 203},
				plain,
				{do: "GET /x", peer: "192.0.2.9", status: 200, answer: "GET /x", served: true},
				{do: "GET /x", peer: "192.0.2.9", status: 200, answer: "flag of default: GET /x", served: true},
			},
		},
		{
			name: "a panic behind the first byte breaks the connection off", policies: degraded(func() degrade.Handler {
				return degrade.First(writing(func(w http.ResponseWriter) { text("half")(w); panic("broken") }), writing(text("whole")))
			}),
			steps: []degradeStep{spend, {do: "GET /x", panics: true}},
		},
		{
			name: "under another name", policies: degraded(static(degrade.StaticConfig{Status: 200, Contents: page.Contents[:1]})),
			config: spillway.Config{Response: response.Options{DegradedField: "X-Lesser"}},
			steps: []degradeStep{spend, {
				do: "GET /x", status: 200, answer: `{"wait":true}`,
				fields: without(fixed("application/json", "X-Lesser", "static"), "X-Ratelimit-Degraded", "Retry-After", "Vary"),
			}},
		},
		{
			name: "under no name", policies: degraded(func() degrade.Handler { return degrade.Within(limiter.PerHour(2), degrade.Flag()) }),
			config: spillway.Config{Response: response.Options{DegradedField: "off"}},
			steps: []degradeStep{
				spend, {do: "GET /x", status: 200, answer: "flag of default: GET /x", served: true, fields: spentFields("Content-Type", "text/plain")},
			},
		},
		{
			name: "what is less important goes first", policies: func() []spillway.Policy {
				class, err := degrade.ClassOfRoutes(map[degrade.Class][]string{
					degrade.CriticalPlus: {"POST /x"}, degrade.Sheddable: {"GET /x"},
				}, degrade.Critical)
				if err != nil {
					panic(err)
				}
				return []spillway.Policy{{
					Name: "default", Key: keyfunc.Global(), Limit: limiter.PerHour(20), Degrade: degrade.First(
						degrade.Shed(degrade.ShedConfig{Class: class}), degrade.Cached(degrade.NewPages(degrade.PagesConfig{}))),
				}}
			},
			steps: func() []degradeStep {
				steps := []degradeStep{{do: "GET /x", status: 200, answer: "GET /x", served: true}}
				for range 15 {
					steps = append(steps, degradeStep{do: "POST /x", status: 200, answer: "POST /x", served: true})
				}
				shed := degradeStep{do: "GET /x?new", status: 503, answer: "*"}
				steps = append(steps, shed, shed, shed, shed, shed, shed)
				// What was shed has taken nothing: the last four units are there for what matters most.
				for range 4 {
					steps = append(steps, degradeStep{do: "POST /x", status: 200, answer: "POST /x", served: true})
				}
				return append(steps, degradeStep{do: "POST /x", status: 429, answer: "*"})
			}(),
		},
		{
			name: "what is less important gets a copy", policies: func() []spillway.Policy {
				return []spillway.Policy{{
					Name: "default", Key: keyfunc.Global(), Limit: limiter.PerHour(20), Degrade: degrade.First(
						degrade.Shed(degrade.ShedConfig{Class: func(r *keyfunc.Request) degrade.Class {
							if r.URL.Path == "/x" {
								return degrade.Sheddable
							}
							return degrade.CriticalPlus
						}}), degrade.Cached(degrade.NewPages(degrade.PagesConfig{}))),
				}}
			},
			steps: func() []degradeStep {
				steps := []degradeStep{{do: "GET /x", status: 200, answer: "GET /x", served: true}}
				for range 15 {
					steps = append(steps, spend)
				}
				return append(steps, degradeStep{do: "GET /x", status: 200, answer: "GET /x", wait: 0}, spend)
			}(),
		},
	}
	for name, tc := range map[string]struct {
		h    func() degrade.Handler
		do   string
		code int
	}{
		"a refusal":             {skips, "GET /x", 429},
		"a fixed answer":        {static(page), "GET /x", 503},
		"a redirect":            {redirect(degrade.RedirectConfig{URL: "/y"}), "GET /x", 307},
		"a write that must not": {func() degrade.Handler { return degrade.Within(limiter.PerHour(1), degrade.ReadOnly()) }, "POST /x", 429},
	} {
		rows = append(rows, degradeRow{
			name: "DEG-01 no cache keeps " + name, policies: degraded(tc.h), outside: []around{lasting},
			steps: []degradeStep{spend, {do: tc.do, status: tc.code, answer: "*", has: map[string]string{"Cache-Control": "no-store", "X-Route": "page"}}},
		})
	}
	return rows
}

func without(fields map[string]string, names ...string) map[string]string {
	for _, name := range names {
		delete(fields, name)
	}
	return fields
}
