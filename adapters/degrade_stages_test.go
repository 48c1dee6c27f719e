package adapters_test

import (
	"io"
	"net/http"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

var bothStages = []string{middleware.StageEdge, middleware.StageIdentity}

func user(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key("user", r.Header.Get("X-Who")), nil }

// staged are a policy by address at the edge and one by user behind it.
func staged(edge, identity limiter.Limit, atEdge, atIdentity func() degrade.Handler) func() []spillway.Policy {
	return func() []spillway.Policy {
		return []spillway.Policy{
			{Name: "edge", Key: keyfunc.IP(), Limit: edge, Degrade: atEdge()},
			{Name: "user", Stage: middleware.StageIdentity, Key: user, OnNoKey: middleware.SkipPolicy, Limit: identity, Degrade: atIdentity()},
		}
	}
}

func none() degrade.Handler { return nil }

func stageRows() []degradeRow {
	flag := func(n int) func() degrade.Handler {
		return func() degrade.Handler { return degrade.Within(limiter.PerHour(n), degrade.Flag()) }
	}
	cached := func() degrade.Handler { return degrade.Cached(degrade.NewPages(degrade.PagesConfig{})) }
	reads := func() degrade.Handler { return degrade.Within(limiter.PerHour(9), degrade.ReadOnly()) }
	hour := limiter.PerHour
	as := func(user, do string, status int, answer string, served bool) degradeStep {
		return degradeStep{do: do, header: []string{"X-Who: " + user}, status: status, answer: answer, served: served}
	}
	has := func(s degradeStep, pairs ...string) degradeStep { s.has = and(nil, pairs...); return s }
	page := map[string]native{"GET /page": alike(func(w http.ResponseWriter, r *http.Request) {
		answer := "page"
		if _, ok := degrade.FromContext(r.Context()); ok {
			answer = "less"
		}
		_, _ = io.WriteString(w, answer)
	})}
	return []degradeRow{
		{
			name: "what proceeds at the edge is asked for behind it", stages: bothStages, policies: staged(hour(1), hour(2), flag(5), none),
			steps: []degradeStep{
				as("a", "GET /x", 200, "GET /x", true),
				has(as("a", "GET /x", 200, "flag of edge: GET /x", true), "X-RateLimit-Degraded", "flag"),
				// The plain refusal of another stage is none that something was served instead of.
				has(as("a", "GET /x", 429, "*", false), "X-RateLimit-Degraded", ""),
				as("b", "GET /x", 200, "flag of edge: GET /x", true),
			},
		},
		{
			name: "both stages degrade", stages: bothStages, policies: staged(hour(1), hour(2), flag(9), reads),
			steps: []degradeStep{
				as("a", "GET /x", 200, "GET /x", true), as("a", "GET /x", 200, "flag of edge: GET /x", true),
				has(as("a", "GET /x", 200, "read_only of user: GET /x", true), "X-RateLimit-Degraded", "read_only"),
				has(as("a", "POST /x", 429, "*", false), "X-RateLimit-Degraded", "read_only"),
				as("b", "POST /x", 200, "flag of edge: POST /x", true),
			},
		},
		{
			name: "a copy of the edge is final", stages: bothStages, policies: staged(hour(1), hour(1), cached, none), routes: page,
			steps: []degradeStep{
				as("a", "GET /page", 200, "page", true),
				as("b", "GET /page", 200, "page", false),
				as("b", "GET /x", 429, "*", false),
				// which has taken nothing of whom it was not asked for
				{do: "GET /x", peer: "192.0.2.2", header: []string{"X-Who: b"}, status: 200, answer: "GET /x", served: true},
			},
		},
		{
			name: "a lesser answer is no copy of another stage", stages: bothStages, policies: staged(hour(2), hour(1), cached, flag(9)), routes: page,
			steps: []degradeStep{
				as("a", "GET /y", 200, "GET /y", true), as("a", "GET /page", 200, "less", true), as("a", "GET /page", 429, "*", false),
			},
		},
		{
			name: "nor where nobody is told", stages: bothStages, policies: staged(hour(2), hour(1), cached, flag(9)), routes: page,
			config: spillway.Config{Response: response.Options{DegradedField: "off"}},
			steps: []degradeStep{
				as("a", "GET /y", 200, "GET /y", true), as("a", "GET /page", 200, "less", true), as("a", "GET /page", 429, "*", false),
			},
		},
		{
			name: "nor is a lesser answer to the edge one of the stage behind it", stages: bothStages, routes: page,
			policies: staged(hour(1), hour(2), flag(9), cached),
			config:   spillway.Config{Response: response.Options{DegradedField: "off"}},
			steps: []degradeStep{
				as("a", "GET /y", 200, "GET /y", true), as("a", "GET /page", 200, "less", true), as("a", "GET /page", 429, "*", false),
			},
		},
		{
			name: "nor is a replayed or fixed one", stages: bothStages, routes: page,
			policies: staged(hour(3), hour(1), cached, func() degrade.Handler {
				return degrade.First(cached(), degrade.Static(degrade.StaticConfig{
					Status: 200, Contents: []degrade.Content{{Type: "text/plain", Body: []byte("wait")}},
				}))
			}),
			steps: []degradeStep{
				as("a", "GET /page", 200, "page", true), // recorded by both
				as("a", "GET /page", 200, "page", false),
				as("a", "GET /x", 200, "wait", false),
				as("a", "GET /x", 429, "*", false),
				has(as("b", "GET /page", 200, "page", false), "Cache-Status", "ratelimit;hit;ttl=0;detail=quota-exceeded"),
			},
		},
		{
			name: "a lesser answer of another guard is no copy", routes: page,
			policies: func() []spillway.Policy { return staged(hour(2), hour(9), cached, none)()[:1] },
			inner:    func() []spillway.Policy { return staged(hour(1), hour(9), flag(9), none)()[:1] },
			config:   spillway.Config{Response: response.Options{DegradedField: "X-Lesser"}},
			steps: []degradeStep{
				as("", "GET /y", 200, "GET /y", true), has(as("", "GET /page", 200, "less", true), "X-Lesser", "flag"),
				has(as("", "GET /page", 429, "*", false), "X-Lesser", ""),
			},
		},
		{
			name: "a refusal of another stage is no copy", stages: bothStages, policies: staged(hour(2), hour(1), cached, none), routes: page,
			steps: []degradeStep{
				as("a", "GET /y", 200, "GET /y", true), as("a", "GET /page", 429, "*", false), as("b", "GET /page", 429, "*", false),
			},
		},
	}
}
