package serve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/promtest"
)

func TestAdmin(t *testing.T) {
	t.Setenv("SPILLWAY_TEST_SECRET", "0123456789abcdef-very-secret")
	r := start(t, `
version: 1
store: {prefix: shop, redis: {url: "redis://user:hunter2@127.0.0.1:1/0"}, timeout: 10ms}
key_secret: 0123456789abcdef-very-secret
policies:
  - {name: all, key: ["hmac(ip)"], limit: 1/h, mode: local}
  - {name: far, key: [ip], limit: 1/h}
`, ok)
	res, _ := get(t, r.url)
	require.Equal(t, 200, res.StatusCode, "Redis is away, and the policy fails open")
	res, _ = get(t, r.url)
	require.Equal(t, 429, res.StatusCode)

	for path, words := range map[string][]string{
		"/":         {"/healthz", "/document", "/status", "/metrics", "/top", "/live/"},
		"/healthz":  {"ok\n"},
		"/document": {"# from file:", "version: 1\n", "name: all", "(redacted)"},
		"/status":   {`"policies": [`, `"all"`, `"source": "file:`, `"warnings": `},
		"/metrics":  {`rate_limit_requests_total{policy="all",type="blocked",via="memory"} 1`, "rate_limit_config_info{hash=", "go_goroutines"},
		"/top":      {`"refused": [`},
	} {
		res, body := get(t, r.admin+path)
		require.Equal(t, 200, res.StatusCode, path)
		for _, word := range words {
			require.Contains(t, body, word, path)
		}
		for _, secret := range []string{"hunter2", "very-secret", "127.0.0.1\"", "ip=127"} {
			require.NotContains(t, body, secret, path)
		}
		res, _ = do(t, request(t, http.MethodPost, r.admin+path, strings.NewReader("x")))
		require.Equal(t, http.StatusMethodNotAllowed, res.StatusCode, path)
		res, body = do(t, request(t, http.MethodHead, r.admin+path, nil))
		require.Equal(t, 200, res.StatusCode, path)
		require.Empty(t, body)
	}
	for _, path := range []string{"/nothing", "/healthz/", "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/cmdline"} {
		res, _ := get(t, r.admin+path)
		require.Equal(t, http.StatusNotFound, res.StatusCode, path)
	}
	require.NotContains(t, r.log.String()+r.out.String(), "hunter2")
	require.NotContains(t, r.log.String()+r.out.String(), "very-secret")

	_, status := get(t, r.admin+"/status")
	var s struct {
		Source, Hash, Loaded, Checked string
		Policies                      []string
		Warnings                      []any
	}
	require.NoError(t, json.Unmarshal([]byte(status), &s))
	require.Equal(t, []string{"all", "far"}, s.Policies)
	res, _ = get(t, r.admin+"/document")
	require.Equal(t, `"`+s.Hash+`"`, res.Header.Get("Etag"))
}

func TestMetricsAreWellFormed(t *testing.T) {
	r := start(t, wide, ok)
	_, _ = get(t, r.url)
	_, metrics := get(t, r.admin+"/metrics")
	said, err := promtest.Promtool(t, strings.NewReader(metrics), "check", "metrics")
	require.NoError(t, err, said)
}

func TestProfilesOnDemand(t *testing.T) {
	r := start(t, wide, ok, "-pprof")
	res, _ := get(t, r.admin+"/debug/pprof/heap?debug=1")
	require.Equal(t, 200, res.StatusCode)
	res, body := get(t, r.admin+"/debug/pprof/cmdline")
	require.NotEqual(t, 200, res.StatusCode, body)
}

// A page of somebody else's cannot read what is meant for the operator by giving its own name the address of loopback.
func TestAdminIsAskedByItsOwnName(t *testing.T) {
	r := start(t, wide, ok)
	port := r.admin[strings.LastIndex(r.admin, ":"):]
	for host, status := range map[string]int{
		"127.0.0.1" + port: 200, "localhost" + port: 200, "LOCALHOST": 200, "[::1]" + port: 200, "a.localhost": 200, "10.0.0.7": 200,
		"evil.example" + port: 421, "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "evil.localhost.": 421,
	} {
		for _, path := range []string{"/document", "/healthz", "/top"} {
			res, _ := get(t, r.admin+path, "Host: "+host)
			require.Equal(t, status, res.StatusCode, host)
		}
	}
}
