package serve_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the command line says a name is read from tells copies apart, also for policies that do not count by it.
func TestNamesTellCopiesApart(t *testing.T) {
	r := start(t, `
version: 1
policies:
  - {name: tenants, key: tenant, limit: 100/s}
  - {name: all, key: global, limit: 1/d, degrade: {cache: {flushed: true}}}
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("of " + r.Header.Get("X-Shop"))) }), "-name", "tenant=header:X-Shop")
	_, body := get(t, r.url+"/account", "X-Shop: a")
	require.Equal(t, "of a", body)
	_, body = get(t, r.url+"/account", "X-Shop: b")
	require.NotContains(t, body, "of a")
}
