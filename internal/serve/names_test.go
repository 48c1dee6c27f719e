package serve_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the command line says a name is read from tells copies apart, also for policies that do not count by it.
func TestNamesTellCopiesApart(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("of " + r.Header.Get("X-Shop"))) })
	r := start(t, `
version: 1
policies:
  - {name: tenants, key: tenant, match: {routes: ["/elsewhere"]}, limit: 100/s}
  - {name: all, key: route, match: {routes: ["/account", "/page"]}, limit: 1/d, degrade: {cache: {flushed: true}}}
`, upstream, "-name", "tenant=header:X-Shop")
	for range 2 {
		_, body := get(t, r.url+"/page")
		require.Equal(t, "of ", body, "copies there are")
	}
	_, body := get(t, r.url+"/account", "X-Shop: a")
	require.Equal(t, "of a", body)
	res, body := get(t, r.url+"/account", "X-Shop: b")
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.NotContains(t, body, "of a")
}
