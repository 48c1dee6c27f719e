package adapters_test

import (
	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// only is one policy for some requests.
func only(m spillway.Match, key keyfunc.Func, limit limiter.Limit) []spillway.Policy {
	return []spillway.Policy{{Name: "some", Match: m, Key: key, Limit: limit}}
}

func routes(patterns ...string) spillway.Match { return spillway.Match{Routes: patterns} }

var matchRows = []row{
	{
		name:   "routes with parameters",
		config: spillway.Config{Policies: only(routes("GET /users/{id}"), keyfunc.IP(), limiter.PerMinute(2))},
		steps: []step{
			ok("GET /users/1", x(2, 1, 30), "/users/1"),
			ok("GET /items/1", nil, "/items/1"),
			ok("POST /users/1", nil, "/users/1"),
			ok("GET /", nil, "/"),
			ok("GET /users/2", x(2, 0, 60), "/users/2"),
			spent("GET /users/3", x(2, 0, 60), "30", problem("some", 30)),
		},
	},
	{
		name: "routes by prefix, the root alone, any route",
		config: spillway.Config{Policies: []spillway.Policy{
			{Name: "files", Match: routes("/files/"), Key: keyfunc.IP(), Limit: limiter.PerMinute(10)},
			{Name: "root", Match: routes("/{$}"), Key: keyfunc.IP(), Limit: limiter.PerMinute(20)},
			{Name: "rest", Match: routes("GET /items/{rest...}"), Key: keyfunc.IP(), Limit: limiter.PerMinute(30)},
		}},
		steps: []step{
			ok("GET /files/a/b/c", x(10, 9, 6), "/files/a/b/c"),
			ok("GET /", x(20, 19, 3), "/"),
			ok("GET /items/1", x(30, 29, 2), "/items/1"),
			ok("GET /users/1", nil, "/users/1"),
		},
	},
	{
		name:   "KEY-08 KEY-09 other spellings of a path are no way around",
		config: spillway.Config{Policies: only(routes("GET /users/{id}"), keyfunc.IP(), limiter.DenyAll)},
		steps: []step{
			// Whether such a request is served, redirected or unknown is the router's affair: the limit holds first.
			{do: "GET /users//1", gate: true}, {do: "GET /x/../users/1", gate: true}, {do: "GET /./users/1", gate: true},
		},
	},
	{
		name:   "hosts",
		config: spillway.Config{Policies: only(spillway.Match{Hosts: []string{"api.example", "*.tenant.example"}}, keyfunc.IP(), limiter.PerMinute(3))},
		steps: []step{
			ok("GET /users/1", nil, "/users/1"),
			ok("GET /users/1", x(3, 2, 20), "/users/1").at("API.example:8080"),
			ok("GET /users/1", x(3, 1, 40), "/users/1").at("a.tenant.example"),
			ok("GET /users/1", nil, "/users/1").at("tenant.example"),
		},
	},
	{
		name: "MTH-05 methods",
		config: spillway.Config{Policies: []spillway.Policy{
			{Name: "read", Match: spillway.Match{Methods: []string{"GET"}}, Key: keyfunc.IP(), Limit: limiter.PerMinute(60)},
			{Name: "write", Match: spillway.Match{Methods: []string{"POST", "DELETE"}}, Key: keyfunc.IP(), Limit: limiter.PerMinute(1)},
		}},
		steps: []step{
			ok("POST /users/1", x(1, 0, 60), "/users/1"),
			{do: "HEAD /users/1", status: 200, fields: x(60, 59, 1), answer: "*", served: true},
			spent("POST /users/1", x(1, 0, 60), "60", problem("write", 60)),
			ok("GET /users/1", x(60, 58, 2), "/users/1"),
		},
	},
	{
		name: "DBL-01 DBL-05 a wide and a narrow policy count a request once each",
		config: spillway.Config{Policies: []spillway.Policy{
			{Name: "app", Key: keyfunc.IP(), Limit: limiter.PerMinute(300)},
			{Name: "route", Match: routes("/users/{id}"), Key: keyfunc.IP(), Limit: limiter.PerMinute(20)},
		}},
		steps: []step{
			ok("GET /users/1", x(20, 19, 3), "/users/1"),
			ok("GET /items/1", x(300, 298, 1), "/items/1"),
			ok("GET /items/1", x(300, 297, 1), "/items/1"),
			ok("GET /users/1", x(20, 18, 6), "/users/1"),
		},
	},
	{
		name: "DBL-02 two policies with one key have a counter each",
		config: spillway.Config{Policies: []spillway.Policy{
			{Name: "group", Key: keyfunc.IP(), Limit: limiter.PerMinute(10)},
			{Name: "route", Match: routes("/users/{id}"), Key: keyfunc.IP(), Limit: limiter.PerMinute(5)},
		}},
		steps: []step{
			ok("GET /users/1", x(5, 4, 12), "/users/1"), ok("GET /users/1", x(5, 3, 24), "/users/1"),
			ok("GET /users/1", x(5, 2, 36), "/users/1"), ok("GET /users/1", x(5, 1, 48), "/users/1"),
			ok("GET /users/1", x(5, 0, 60), "/users/1"),
			spent("GET /users/1", x(5, 0, 60), "12", problem("route", 12)),
			ok("GET /items/1", x(10, 4, 36), "/items/1"),
		},
	},
	{
		name: "DBL-04 four periods are four counters, not four takes",
		config: spillway.Config{Policies: []spillway.Policy{
			{Name: "minute", Key: keyfunc.IP(), Limit: limiter.PerMinute(3)},
			{Name: "ten", Key: keyfunc.IP(), Limit: limiter.PerMinute(20)},
			{Name: "hour", Key: keyfunc.IP(), Limit: limiter.PerHour(120)},
			{Name: "day", Key: keyfunc.IP(), Limit: limiter.PerDay(500)},
		}},
		steps: []step{
			ok("GET /users/1", x(3, 2, 20), "/users/1"), ok("GET /users/1", x(3, 1, 40), "/users/1"),
			ok("GET /users/1", x(3, 0, 60), "/users/1"),
			spent("GET /users/1", x(3, 0, 60), "20", problem("minute", 20)),
		},
	},
}
