package middleware_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/middleware"
)

// A route that can never match would leave the gate open without a word.
func TestMistakenRoutes(t *testing.T) {
	for route, hint := range map[string]string{
		"/users/:id":        "write {name}",
		"GET /f/*path":      "write {name}",
		"/*":                "write {name}",
		"get /x":            "upper case",
		"Get example.com/x": "upper case",
		"POST/x":            "a blank belongs",
	} {
		_, err := middleware.New(config{Limiter: newFake(), Policies: byIP(policy{Name: "a", Limit: perMinute, Match: match{Routes: []string{route}}})})
		require.ErrorContains(t, err, hint, route)
	}
	for route, path := range map[string]string{
		"GET  /x":         "/x",
		"PURGE /x":        "/x",
		"/a:b/c*d":        "/a:b/c*d",
		"/{id}":           "/x",
		"example.com/x":   "/x",
		"GET localhost/x": "/x",
	} {
		g := guardOf(t, policy{Name: "a", Limit: perMinute, Match: match{Routes: []string{route}}})
		r := request("GET", path)
		if route == "PURGE /x" {
			r.Method = "PURGE"
		}
		r.Host = "example.com"
		if route == "GET localhost/x" {
			r.Host = "localhost:8080"
		}
		require.NotEmpty(t, serve(g, r, ok).Header().Get("X-RateLimit-Limit"), route)
	}
}
