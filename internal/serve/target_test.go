package serve_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const guarded = `
version: 1
policies:
  - {name: path, match: {routes: ["/search"]}, key: [global], limit: deny_all}
  - {name: host, match: {hosts: [secret.example]}, key: [global], limit: deny_all}
`

// No spelling of a request's target gets around the policies of its route and its host.
func TestNoTargetGetsAround(t *testing.T) {
	for _, keep := range []bool{false, true} {
		var args []string
		if keep {
			args = []string{"-keep-host"}
		}
		var served atomic.Int32
		r := start(t, guarded, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			served.Add(1)
			echo(w, req)
		}), args...)
		own := func(host string) string {
			if keep {
				return "host=" + host + "\n"
			}
			return "host=127.0.0.1:"
		}
		for _, c := range []struct {
			line, host, status string
			says               []string // "" of status 200: by the upstream
		}{
			{"GET /search", "h", "429", nil},
			{"GET http://other/search", "h", "429", nil},
			{"GET x://other/search", "h", "429", nil},
			{"GET //search", "h", "429", nil},
			{"GET /./search", "h", "429", nil},
			{"GET http://secret.example/a", "h", "429", nil},
			{"GET http://SECRET.example.:80/a", "h", "429", nil},
			{"GET http://u:p@secret.example", "h", "429", nil},
			{"GET http:///a", "secret.example", "429", nil},
			{"GET /a", "secret.example.", "429", nil},

			{"GET x:http://h/search", "h", "400", nil},
			{"GET x:http://h/a", "h", "400", nil},
			{"GET x:search", "h", "400", nil},
			{"GET http:search", "h", "400", nil},
			{"GET http:", "h", "400", nil},
			{"GET http:?a", "h", "400", nil},
			{"GET mailto:a@h", "h", "400", nil},
			{"GET search", "h", "400", nil},
			{"GET ?a", "h", "400", nil},
			{"GET *", "h", "400", nil},
			{"PRI *", "h", "400", nil},
			{"POST *", "h", "400", nil},
			{"GET http://", "h", "400", nil},
			{"GET /a", "secret.example..", "400", nil},
			{"GET /a", ".secret.example", "400", nil},
			{"GET /a", "secret.example:80:80", "400", nil},
			{"GET /a", "secret.example:http", "400", nil},
			{"GET /a", "secret.example:+80", "400", nil},
			{"GET /a", "secret.example,x", "400", nil},
			{"GET /a", "u@secret.example", "400", nil},
			{"GET /a", "[::1", "400", nil},
			{"GET /a", "[secret.example]", "400", nil},
			{"GET /a", "::1", "400", nil},
			{"GET http://secret.example../a", "h", "400", nil},

			{"GET //h/search", "h", "200", []string{"GET //h/search ", "X-Forwarded-Host: h\n", own("h")}},
			{"GET http://other/a?b=c", "secret.example", "200", []string{"GET /a?b=c ", "X-Forwarded-Host: other\n", own("other")}},
			{"GET http://other?b=c", "h", "200", []string{"GET /?b=c ", "X-Forwarded-Host: other\n", own("other")}},
			{"GET http://u:p@other", "h", "200", []string{"GET / ", "X-Forwarded-Host: other\n", own("other")}},
			{"GET /a", "h.example.:8080", "200", []string{"GET /a ", own("h.example.:8080")}},
			{"GET /a", "[::1]", "200", []string{own("[::1]")}},
			{"GET /a", "[2001:db8::1]:80", "200", []string{own("[2001:db8::1]:80")}},
			{"GET /a", "1.2.3.4:", "200", []string{"GET /a "}},
			{"GET /a", "", "200", []string{"GET /a "}},
		} {
			before := served.Load()
			answer := raw(t, r.addr, c.line+" HTTP/1.1\r\nHost: "+c.host+"\r\nConnection: close\r\n\r\n")
			require.True(t, strings.HasPrefix(answer, "HTTP/1.1 "+c.status+" "), "%s %s: %s", c.line, c.host, answer)
			for _, text := range c.says {
				require.Contains(t, answer, text, "%s %s", c.line, c.host)
			}
			require.NotContains(t, answer, "Authorization", c.line)
			if c.status != "200" {
				require.Equal(t, before, served.Load(), "%s %s reached the upstream", c.line, c.host)
			}
		}
		// The server answers for itself.
		require.Contains(t, raw(t, r.addr, "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), "HTTP/1.1 200 OK\r\n")
		require.NotContains(t, raw(t, r.addr, "OPTIONS *http://h/a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), "HTTP/1.1 200")
	}
}

// What docs/serve.md says of spellings.
func TestSpellings(t *testing.T) {
	r := start(t, `
version: 1
policies:
  - {name: path, match: {routes: ["POST /search", "/a/b"]}, key: [global], limit: deny_all}
`, ok)
	for path, matches := range map[string]bool{
		"/search": true, "//search": true, "/x/../search": true, "/%73earch": true, "/x/%2e%2e/search": true, "/a%2Fb": true, "/a%2fb": true, "/a//b": true,
		"/search/": false, "/search;x=1": false, "/Search": false, "/a%252Fb": false, "/a%5Cb": false, "/search.json": false,
	} {
		status := " 200 OK\r\n"
		if matches {
			status = " 429 Too Many Requests\r\n"
		}
		require.Contains(t, raw(t, r.addr, "POST "+path+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), status, path)
	}
	require.Contains(t, raw(t, r.addr, "GET /search HTTP/1.1\r\nHost: h\r\nX-HTTP-Method-Override: POST\r\nConnection: close\r\n\r\n"), " 200 OK\r\n")
}
