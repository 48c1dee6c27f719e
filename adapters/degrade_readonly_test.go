package adapters_test

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// problemOf is a whole problem document of a policy called default.
func problemOf(kind, title string, status int, more string) string {
	return fmt.Sprintf(`%s%s","title":%q,"status":%d%s}`, problemType, kind, title, status, more)
}

// readOnlyProblem is the answer to a write whose caller has spent the quota.
func readOnlyProblem(retry int) string {
	return problemOf("quota-exceeded", "Quota Exceeded", 429, fmt.Sprintf(
		`,"detail":"Only reads are served at the moment.","violated-policies":["default"],"code":"read_only","retry_after":%d`, retry))
}

// readOnly is one request an hour, and reads for the rest, up to budget.
func readOnly(key keyfunc.Func, budget limiter.Limit, cfg ...degrade.ReadOnlyConfig) func() []spillway.Policy {
	return func() []spillway.Policy {
		return []spillway.Policy{{Name: "default", Key: key, Limit: limiter.PerHour(1), Degrade: degrade.Within(budget, degrade.ReadOnly(cfg...))}}
	}
}

// spend is a request that is allowed.
var spend = degradeStep{do: "GET /y", status: 200, answer: "GET /y", served: true}

func readOnlyRows() []degradeRow {
	marked := func(pairs ...string) map[string]string {
		return spentFields(append([]string{"X-Ratelimit-Degraded", "read_only"}, pairs...)...)
	}
	proceeds := func(do, answer string, header ...string) degradeStep {
		return degradeStep{
			do: do, header: header, status: 200, answer: "read_only of default: " + answer, served: true, fields: marked("Content-Type", "text/plain"),
		}
	}
	writing := func(do string, header ...string) degradeStep {
		return degradeStep{
			do: do, header: header, status: 429, answer: readOnlyProblem(3600), fields: refused(marked("Content-Type", "application/problem+json"), "3600"),
		}
	}
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket"}
	return []degradeRow{
		{
			name: "reads go on and writes do not", policies: readOnly(keyfunc.IP(), limiter.PerHour(4)),
			steps: []degradeStep{
				spend,
				proceeds("GET /x", "GET /x"),
				writing("POST /x"), writing("PUT /x"), writing("DELETE /x"),
				proceeds("OPTIONS /x", "OPTIONS /x"),
				proceeds("HEAD /x", "HEAD /x"),
				writing("POST /search"),
				// Something further in may obey these.
				writing("POST /x", "X-HTTP-Method-Override: GET"),
				writing("GET /x", "X-HTTP-Method-Override: DELETE"),
				writing("GET /x", "X-Method-Override: PUT"),
				proceeds("GET /x", "GET /x", "X-HTTP-Method-Override: GET"),
				// Over the budget reads are refused as without it.
				{do: "GET /x", status: 429, answer: problem("default", 3600), fields: refused(spentFields("Content-Type", "application/problem+json"), "3600")},
				writing("POST /x"),
				{do: "POST /x", peer: "192.0.2.9", body: "a=b", status: 200, answer: "POST /x", served: true},
			},
		},
		{
			name: "STR-06 an upgrade is no read", policies: readOnly(keyfunc.IP(), limiter.PerHour(3)),
			steps: []degradeStep{spend, writing("GET /x", upgrade...)},
		},
		{
			name: "a read by POST", policies: readOnly(keyfunc.IP(), limiter.PerHour(3), degrade.ReadOnlyConfig{ReadRoutes: []string{"POST /search"}}),
			steps: []degradeStep{
				spend, proceeds("POST /search", "POST /search"), writing("POST /x"), writing("POST /search", "X-HTTP-Method: PATCH"),
			},
		},
		{
			name: "where the limit is the service's", policies: readOnly(keyfunc.Global(), limiter.PerHour(3)),
			steps: []degradeStep{
				spend, proceeds("GET /x", "GET /x"),
				{do: "POST /x", status: 503, answer: "*"},
				{
					do: "POST /x", header: []string{"Accept: text/plain"}, status: 503, answer: "Service Unavailable\n",
					fields: refused(marked("Content-Type", "text/plain; charset=utf-8"), "3600"),
				},
			},
		},
		{
			name: "in an envelope", policies: readOnly(keyfunc.IP(), limiter.PerHour(3)), denied: true,
			steps: []degradeStep{
				spend, proceeds("GET /x", "GET /x"),
				{do: "POST /x", status: 429, answer: "429 read_only_quota"},
				{do: "HEAD /x", status: 200, answer: "*", served: true},
				{do: "GET /x", status: 200, answer: "*", served: true},
				{do: "GET /x", status: 429, answer: "429 quota_exceeded"},
			},
		},
		{
			name: "in an envelope of the service", policies: readOnly(keyfunc.Global(), limiter.PerHour(3)), denied: true,
			steps: []degradeStep{spend, {do: "POST /x", status: 503, answer: "503 read_only_service"}},
		},
		{
			name: "in an envelope, a degraded answer stays as it is", denied: true,
			policies: func() []spillway.Policy {
				return []spillway.Policy{{Name: "default", Key: keyfunc.IP(), Limit: limiter.PerHour(1), Degrade: degrade.Static(degrade.StaticConfig{
					Status: 200, Contents: []degrade.Content{{Type: "text/plain", Body: []byte("wait")}},
				})}}
			},
			steps: []degradeStep{spend, {do: "GET /x", status: 200, answer: "wait"}},
		},
		{
			name: "a latch shuts writes for all",
			policies: func() []spillway.Policy {
				return []spillway.Policy{{
					Name: "default", Key: keyfunc.Global(), Limit: limiter.PerSecond(10),
					Degrade: degrade.Within(limiter.PerSecond(100), degrade.ReadOnly(degrade.ReadOnlyConfig{Latch: 0.5})),
				}}
			},
			steps: func() (steps []degradeStep) {
				for k := range 30 {
					s := degradeStep{do: "GET /x", status: 200, answer: "GET /x", served: true}
					if k >= 10 {
						s.answer = "read_only of default: GET /x"
					}
					steps = append(steps, s)
				}
				return append(steps,
					degradeStep{do: "POST /x", status: 503, answer: "*", wait: time.Second}, // there is quota again
					degradeStep{do: "GET /x", status: 200, answer: "GET /x", served: true},
					degradeStep{do: "POST /x", status: 200, answer: "POST /x", served: true, wait: time.Minute},
				)
			}(),
		},
	}
}
