package adapters_test

import (
	"net/http"
	"strings"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

const forbiddenBody = `{"type":"about:blank","title":"Forbidden","status":403}`

func xff(value string) http.Header { return http.Header{"X-Forwarded-For": {value}} }

var keyRows = []row{
	{
		name: "no key",
		config: spillway.Config{Policies: []spillway.Policy{
			{Name: "tenant", Key: keyfunc.Header("X-Tenant"), Limit: limiter.PerMinute(1)},
		}},
		steps: []step{
			{do: "GET /users/1", status: 403, fields: refused(nil, ""), answer: forbiddenBody},
			ok("GET /users/1", x(1, 0, 60), "/users/1").with(http.Header{"X-Tenant": {"a"}}),
			ok("GET /users/1", x(1, 0, 60), "/users/1").with(http.Header{"X-Tenant": {"b"}}),
			spent("GET /users/1", x(1, 0, 60), "60", problem("tenant", 60)).with(http.Header{"X-Tenant": {"a"}}),
			{do: "GET /users/1", status: 403, fields: refused(nil, ""), answer: forbiddenBody, header: http.Header{"X-Tenant": {"a", "c"}}},
		},
	},
	{
		name: "no key, skipped",
		config: spillway.Config{Policies: []spillway.Policy{
			{Name: "tenant", Key: keyfunc.Header("X-Tenant"), OnNoKey: spillwaySkip, Limit: limiter.DenyAll},
		}},
		steps: []step{ok("GET /users/1", nil, "/users/1")},
	},
	{
		name:   "KEY-11 by route: the parameters are not in the key",
		config: spillway.Config{Policies: only(spillway.Match{}, keyfunc.Join(keyfunc.IP(), keyfunc.Route()), limiter.PerMinute(2))},
		late:   true,
		steps: []step{
			ok("GET /users/1", x(2, 1, 30), "/users/1"),
			{do: "HEAD /users/2", status: 200, fields: x(2, 0, 60), answer: "*", served: true},
			spent("GET /users/3", x(2, 0, 60), "30", problem("some", 30)),
			ok("POST /users/3", x(2, 1, 30), "/users/3"),
			ok("GET /items/3", x(2, 1, 30), "/items/3"),
			ok("GET /files/a/b", x(2, 1, 30), "/files/a/b"),
			ok("GET /files/c", x(2, 0, 60), "/files/c"),
		},
	},
	{
		name:   "by parameter",
		config: spillway.Config{Policies: only(routes("GET /users/{id}"), keyfunc.Param("id"), limiter.PerMinute(1))},
		late:   true,
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			ok("GET /users/2", x(1, 0, 60), "/users/2"),
			spent("GET /users/1", x(1, 0, 60), "60", problem("some", 60)),
			// The same user, spelled differently.
			spent("GET /users/%31", x(1, 0, 60), "60", problem("some", 60)),
		},
	},
	{
		name:   "by a value of the framework's context",
		config: spillway.Config{Policies: only(spillway.Match{}, keyfunc.Value("user"), limiter.PerMinute(1))},
		values: map[string]any{"user": "alice"},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			spent("GET /users/1", x(1, 0, 60), "60", problem("some", 60)).from("192.0.2.77:1"),
		},
	},
	{
		name:   "by a value nobody has stored",
		config: spillway.Config{Policies: only(spillway.Match{}, keyfunc.First(keyfunc.Value("user"), keyfunc.IP()), limiter.PerMinute(1))},
		steps: []step{ // KEY-05
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			ok("GET /users/1", x(1, 0, 60), "/users/1").from("192.0.2.77:1"),
			spent("GET /users/1", x(1, 0, 60), "60", problem("some", 60)).from("192.0.2.77:1"),
		},
	},
	{
		name:   "SPF-01 headers of strangers are not read",
		config: spillway.Config{Policies: perIP(limiter.PerMinute(1))},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1").with(xff("1.1.1.1")),
			spent("GET /users/1", x(1, 0, 60), "60", problem("default", 60)).with(xff("2.2.2.2")),
			spent("GET /users/1", x(1, 0, 60), "60", problem("default", 60)).with(http.Header{"X-Real-Ip": {"3.3.3.3"}}),
		},
	},
	{
		name: "SPF-02 SPF-08 SPF-10 the nearest hop that is no listed proxy",
		config: spillway.Config{
			ClientIP: keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"10.0.0.9", "10.0.0.8"}},
			Policies: perIP(limiter.PerMinute(1)),
		},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1").from("10.0.0.9:1").with(xff("6.6.6.6, 192.168.4.4")),
			spent("GET /users/1", x(1, 0, 60), "60", problem("default", 60)).from("10.0.0.9:1").with(xff("7.7.7.7, 192.168.4.4")),
			// Two proxies in a row.
			spent("GET /users/1", x(1, 0, 60), "60", problem("default", 60)).from("10.0.0.9:1").with(xff("7.7.7.7, 192.168.4.4, 10.0.0.8")),
			ok("GET /users/1", x(1, 0, 60), "/users/1").from("10.0.0.9:1").with(xff("192.168.4.5, 10.0.0.8")),
		},
	},
	{
		name: "SPF-03 only the one header that is named",
		config: spillway.Config{
			ClientIP: keyfunc.Trust{Strategy: keyfunc.SingleHeader, Header: "X-Real-IP", TrustedProxies: []string{"10.0.0.9"}},
			Policies: perIP(limiter.PerMinute(1)),
		},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1").from("10.0.0.9:1").with(realIP("5.5.5.5", "1.1.1.1")),
			spent("GET /users/1", x(1, 0, 60), "60", problem("default", 60)).from("10.0.0.9:1").with(realIP("5.5.5.5", "2.2.2.2")),
			// SPF-07: the peer is trusted, not what it says; a stranger is believed nothing.
			ok("GET /users/1", x(1, 0, 60), "/users/1").from("8.8.8.8:1").with(realIP("10.0.0.9", "")),
			spent("GET /users/1", x(1, 0, 60), "60", problem("default", 60)).from("8.8.8.8:1").with(realIP("5.5.5.6", "")),
		},
	},
	{
		name:   "KEY-14 a long value is one short key",
		config: spillway.Config{Policies: only(spillway.Match{}, keyfunc.Header("X-Mail"), limiter.PerMinute(1))},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1").with(http.Header{"X-Mail": {long}}),
			spent("GET /users/1", x(1, 0, 60), "60", problem("some", 60)).with(http.Header{"X-Mail": {long}}),
			ok("GET /users/1", x(1, 0, 60), "/users/1").with(http.Header{"X-Mail": {long + "x"}}),
		},
	},
}

var long = strings.Repeat("a", 1<<20)

func realIP(real, forwarded string) http.Header {
	h := http.Header{"X-Real-Ip": {real}}
	if forwarded != "" {
		h["X-Forwarded-For"] = []string{forwarded}
	}
	return h
}
