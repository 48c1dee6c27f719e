package adapters_test

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

const spillwaySkip = middleware.SkipPolicy

// away is a store that cannot be asked.
type away struct{}

func (away) Allow(context.Context, limiter.Key, limiter.Limit, int) (limiter.Decision, error) {
	return limiter.Decision{}, limiter.ErrUnavailable
}

// mode is a degrade handler with a name.
type mode struct {
	degrade.Func
	name string
}

func (m mode) Mode() string { return m.name }

var storeRows = []row{
	{
		name: "the store is away, closed",
		config: spillway.Config{Limiter: away{}, Policies: []spillway.Policy{
			{Name: "login", Key: keyfunc.IP(), Limit: limiter.PerMinute(5), OnStoreError: middleware.FailClosed},
		}},
		steps: []step{{
			do: "GET /users/1", status: 503, fields: refused(nil, "2"),
			answer: `{"type":"about:blank","title":"Service Unavailable","status":503,"retry_after":2}`,
		}},
	},
	{
		name:   "the store is away, open",
		config: spillway.Config{Limiter: away{}, Policies: perIP(limiter.PerMinute(5))},
		steps:  []step{ok("GET /users/1", nil, "/users/1")},
	},
	{
		name:   "a queue holds requests for their place",
		config: spillway.Config{Policies: perIP(limiter.PerSecond(1).WithBurst(3).With(limiter.LeakyBucket))},
		steps: []step{
			ok("GET /users/1", x(3, 2, 1), "/users/1"),
			ok("GET /users/1", x(3, 1, 2), "/users/1").held(time.Second),
			ok("GET /users/1", x(3, 1, 3), "/users/1").held(time.Second),
		},
	},
	{
		name: "degraded: answered",
		config: spillway.Config{Policies: []spillway.Policy{{
			Name: "search", Key: keyfunc.IP(), Limit: limiter.PerMinute(1),
			Degrade: mode{func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
				w.WriteHeader(http.StatusAccepted)
				_, _ = w.Write([]byte("less"))
				return degrade.Done
			}, "static"},
		}}},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			{do: "GET /users/1", status: 202, fields: x(1, 0, 60), answer: "less"},
		},
	},
	{
		name:   "degraded: answered, where refusals have an envelope",
		denied: true,
		config: spillway.Config{Policies: []spillway.Policy{{
			Name: "search", Key: keyfunc.IP(), Limit: limiter.DenyAll,
			Degrade: degrade.Func(func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
				w.WriteHeader(http.StatusNoContent)
				return degrade.Done
			}),
		}}},
		steps: []step{{do: "GET /users/1", status: 204, fields: x(0, 0, 0), answer: ""}},
	},
	{
		name: "degraded: let through with a mark",
		config: spillway.Config{Policies: []spillway.Policy{{
			Name: "search", Key: keyfunc.IP(), Limit: limiter.PerMinute(1),
			Degrade: mode{func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Proceed }, "flag"},
		}}},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			ok("GET /users/1", x(1, 0, 60), "flag of search: /users/1"),
		},
	},
	{
		name: "degraded: skipped",
		config: spillway.Config{Policies: []spillway.Policy{{
			Name: "search", Key: keyfunc.IP(), Limit: limiter.PerMinute(1),
			Degrade: degrade.First(
				degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Skip }),
				degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { panic("broken") }),
			),
		}}},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			spent("GET /users/1", x(1, 0, 60), "60", problem("search", 60)),
		},
	},
}
