package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A proxy degrades like any server: it serves copies of what its upstream has answered, of unknown length too, reads while
// writes are refused, and pages of a folder.
func TestServeDegrades(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "busy.html"), []byte("<p>busy"), 0o600))
	n, modes := 0, []string(nil)
	r := start(t, `version: 1
policies:
  - name: pages
    key: ip
    limit: 2/h
    match: {routes: ["/page/"]}
    degrade: [cache, {read_only: {limit: 1/h}}, {static: {status: 503, contents: [{type: text/html, file: busy.html}]}}]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		modes = append(modes, strings.Join(append(r.Header["X-Ratelimit-Degraded"], r.Header["X_ratelimit_degraded"]...), ","))
		for range 3 {
			_, _ = fmt.Fprintln(w, "answer", n)
			_ = http.NewResponseController(w).Flush() // so that nobody knows how long it will be
		}
	}), "-files", folder)
	ask := func(method, path string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, nil)
		require.NoError(t, err)
		req.Header["X-RateLimit-Degraded"] = []string{"forged"}
		req.Header["X_ratelimit_degraded"] = []string{"forged"}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res, string(body)
	}
	res, body := ask("GET", "/page/a")
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, int64(-1), res.ContentLength)
	ask("GET", "/page/b")
	for path, mode := range map[string]string{"/page/a": "cache", "/page/c": "read_only"} {
		res, got := ask("GET", path)
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, mode, res.Header.Get("X-RateLimit-Degraded"))
		if mode == "cache" {
			require.Equal(t, body, got)
			require.True(t, strings.HasPrefix(res.Header.Get("Cache-Status"), "ratelimit;hit;"))
		}
	}
	res, _ = ask("POST", "/page/a")
	require.Equal(t, 429, res.StatusCode)
	res, got := ask("GET", "/page/d")
	require.Equal(t, 503, res.StatusCode)
	require.Equal(t, "static", res.Header.Get("X-RateLimit-Degraded"))
	require.Equal(t, "<p>busy", got)
	require.Equal(t, 3, n)
	require.Equal(t, []string{"", "", "read_only"}, modes, "the upstream is told, and by nobody else")
}
