package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

const fromElsewhere = `
version: 1
policies:
  - {name: elsewhere, key: [who], limit: 3/h}
`

// A document comes from a file, a web server or Redis, and no log or page names the password of the way there.
func TestSources(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "hunter2").Err())
	require.NoError(t, client.Do(t.Context(), "AUTH", "hunter2").Err())
	require.NoError(t, client.Set(t.Context(), "shop:policies", fromElsewhere, 0).Err())
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, fromElsewhere)
	}))
	defer web.Close()
	redis := "redis://:hunter2@" + server.Addr() + "/0"
	t.Setenv("SPILLWAY_TEST_URL", redis)
	for name, location := range map[string]string{
		"redis": redis + "#shop:policies",
		"env":   "env://SPILLWAY_TEST_URL#shop:policies",
		"http":  strings.Replace(web.URL, "http://", "http://user:hunter2@", 1),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, wide, ok, "-config", location, "-name", "who=header:X-Who")
			res, _ := get(t, r.url, "X-Who: a")
			require.Equal(t, "2", res.Header.Get("X-RateLimit-Remaining"))
			res, _ = get(t, r.url, "X-Who: b")
			require.Equal(t, "2", res.Header.Get("X-RateLimit-Remaining"))
			for _, lines := range [][]string{nil, {"X-Who: a", "X-Who: b"}, {"X-Who: "}} {
				res, _ = get(t, r.url, lines...)
				require.Equal(t, http.StatusForbidden, res.StatusCode, "of two a client could choose: %q", lines)
			}
			_, status := get(t, r.admin+"/status")
			_, document := get(t, r.admin+"/document")
			require.NotContains(t, r.log.String()+r.out.String()+status+document, "hunter2")
		})
	}
	t.Run("file", func(t *testing.T) {
		r := begin(t, wide, "-upstream", "http://127.0.0.1:1")
		r.out.wait(t, `serving `)
		r.stop()
		require.NoError(t, <-r.ended)
		s := startAt(t, "", "http://127.0.0.1:1", "-config", "file://"+r.path)
		_, status := get(t, s.admin+"/status")
		require.Contains(t, status, r.path)
	})
}

// Names are read from where the command line says, as plans too.
func TestNames(t *testing.T) {
	r := start(t, `
version: 1
policies:
  - {name: a, match: {routes: [/cookie]}, key: [c], limit: 2/h}
  - {name: b, match: {routes: [/query]}, key: [q], limit: 2/h}
  - {name: p, match: {routes: [/plan]}, key: [global], limit: 2/h, plans: {from: plan, limits: {gold: 7/h}}}
`, ok, "-name", "c=cookie:id", "-name", "q=query:id", "-name", "plan=query:plan")
	left := func(path string, header ...string) string {
		res, _ := get(t, r.url+path, header...)
		if res.StatusCode != http.StatusOK {
			return res.Status
		}
		return res.Header.Get("X-RateLimit-Remaining")
	}
	require.Equal(t, "1", left("/cookie", "Cookie: id=1"))
	require.Equal(t, "1", left("/cookie", "Cookie: id=2; x=y"))
	require.Equal(t, "403 Forbidden", left("/cookie", "Cookie: id=3; id=4"))
	require.Equal(t, "1", left("/query?id=1"))
	require.Equal(t, "1", left("/query?id=2"))
	require.Equal(t, "403 Forbidden", left("/query?id=3&id=4"))
	require.Equal(t, "403 Forbidden", left("/query?x=1;id=4"))
	require.Equal(t, "6", left("/plan?plan=gold"))
	require.Equal(t, "1", left("/plan?plan=gold&plan=x"), "no plan of two")
}
