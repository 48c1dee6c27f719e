package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo tells what it was asked, by lines.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = fmt.Fprintf(w, "%s %s host=%s\n", r.Method, r.RequestURI, r.Host)
	for name, lines := range r.Header {
		for _, line := range lines {
			_, _ = fmt.Fprintf(w, "%s: %s\n", name, line)
		}
	}
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "\n%s", body)
})

// switching answers upgrades to any protocol, and sends back what comes.
func switching(asked *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := r.Header.Get("Upgrade")
		if up == "" {
			_, _ = io.WriteString(w, "no upgrade")
			return
		}
		asked.Add(1)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", up)
		_, _ = io.Copy(conn, rw)
	})
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func TestWebsocket(t *testing.T) {
	var asked atomic.Int32
	r := start(t, `
version: 1
policies:
  - {name: one, key: [global], limit: 100/h, in_flight: 1}
`, switching(&asked))
	conn := dial(t, r.addr)
	_, err := io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	require.Equal(t, "99", res.Header.Get("X-RateLimit-Remaining"))
	for _, frame := range []string{"ping", "pong"} {
		_, err = io.WriteString(conn, frame)
		require.NoError(t, err)
		got := make([]byte, len(frame))
		_, err = io.ReadFull(in, got)
		require.NoError(t, err)
		require.Equal(t, frame, string(got))
	}
	other, _ := get(t, r.url)
	require.Equal(t, http.StatusServiceUnavailable, other.StatusCode, "the place in flight is taken for as long as it lasts")
	require.NoError(t, conn.Close())
	r.untilServed(t)
}

// A connection taken over as HTTP/2 would carry requests that no policy sees.
func TestOtherUpgradesAreNotPassedOn(t *testing.T) {
	var asked atomic.Int32
	r := start(t, wide, switching(&asked))
	for _, up := range []string{"h2c", "HTTP/2.0", "TLS/1.0", "foo", "websocket, h2c", "h2c, websocket"} {
		answer := raw(t, r.addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nUpgrade: "+up+"\r\n\r\n")
		require.Contains(t, answer, "HTTP/1.1 200 OK\r\n", up)
		require.True(t, strings.HasSuffix(answer, "no upgrade"), answer)
	}
	// Of two lines the upstream sees the one that was looked at.
	conn := dial(t, r.addr)
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	require.Equal(t, []string{"websocket"}, res.Header.Values("Upgrade"))
	require.EqualValues(t, 1, asked.Load())
}

// What a message ends with is never in doubt: shapes that servers read in two ways are refused, or passed on in one.
func TestSmuggling(t *testing.T) {
	const post = "POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
	for name, c := range map[string]struct {
		text, want string
		served     int32
	}{
		"two lengths":            {post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "400", 0},
		"a list of lengths":      {post + "Content-Length: 3, 4\r\n\r\nabcd", "400", 0},
		"a signed length":        {post + "Content-Length: +3\r\n\r\nabc", "400", 0},
		"a hexadecimal length":   {post + "Content-Length: 0x3\r\n\r\nabc", "400", 0},
		"no chunked at the end":  {post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "501", 0},
		"an unknown coding":      {post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501", 0},
		"two codings":            {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400|501", 0},
		"a blank before a colon": {post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400", 0},
		"a vertical tab":         {post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", "400|501", 0},
		"a folded line":          {post + "X-A: b\r\n Content-Length: 3\r\n\r\n", "400|200", 1},
		"no host":                {"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "400", 0},
		"two hosts":              {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", "400", 0},
		"a bad chunk size":       {post + "Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n", "400|502", 1},
		"a newline in the path":  {"GET /a%0d%0aX: HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "400|200", 1},
		// Both: chunked counts (RFC 9112 section 6.3), and only that goes on.
		"length and chunked": {post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", "400|200", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var served atomic.Int32
			r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served.Add(1)
				echo.ServeHTTP(w, r)
			}))
			answer := raw(t, r.addr, c.text)
			require.Regexp(t, `^HTTP/1\.1 (`+c.want+`) `, answer)
			require.LessOrEqual(t, served.Load(), c.served)
			require.Equal(t, 1, strings.Count(answer, "HTTP/1.1 "), answer)
			require.NotContains(t, answer, "\nContent-Length: 4\n", "what was in doubt does not reach the upstream")
		})
	}
}

func TestForwardProxying(t *testing.T) {
	r := start(t, wide, echo)
	require.Contains(t, raw(t, r.addr, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n"), " 405 ")
	answer := raw(t, r.addr, "GET http://example.com/x HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n")
	require.Contains(t, answer, "GET /x host=127.0.0.1:", "to the upstream and nowhere else")
	require.Contains(t, answer, "X-Forwarded-Host: example.com\n")
}

// Paths and queries reach the upstream as they were sent.
func TestTargets(t *testing.T) {
	r := start(t, wide, echo)
	for sent, want := range map[string]string{
		"/":                   "/",
		"//a//b":              "//a//b",
		"/a%2Fb":              "/a%2Fb",
		"/a%2fb/../c":         "/a%2fb/../c",
		"/%61":                "/%61",
		"/a;b=c":              "/a;b=c",
		"/x?q=a+b&q=%20":      "/x?q=a+b&q=%20",
		"/x?":                 "/x?",
		"/x?a=1;b=2":          "/x",           // no parameter for us, so none for others
		"/x?c=3&a=1;b=2&d=%g": "/x?c=3",       // likewise
		"/ü?q=ü":              "/%C3%BC?q=ü|", // bytes that no target should have
		"*":                   "",
	} {
		answer := raw(t, r.addr, "GET "+sent+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if strings.HasSuffix(want, "|") || want == "" {
			require.Regexp(t, `^HTTP/1.1 (200|400) `, answer)
			continue
		}
		require.Contains(t, answer, "\r\nGET "+want+" host=", sent)
	}
}

// An upstream with a path of its own gets it in front.
func TestUpstreamPath(t *testing.T) {
	back := start(t, wide, echo) // a proxy as upstream of a proxy
	r := startAt(t, wide, back.url+"/base/")
	_, body := get(t, r.url+"/a%2Fb?x=1")
	require.Contains(t, body, "GET /base/a%2Fb?x=1 host=")
}

func TestHost(t *testing.T) {
	r := start(t, wide, echo)
	_, body := get(t, r.url+"/", "Host: shop.example")
	require.Contains(t, body, "host=127.0.0.1:")
	require.Contains(t, body, "X-Forwarded-Host: shop.example\n")
	r = start(t, wide, echo, "-keep-host")
	_, body = get(t, r.url+"/", "Host: shop.example")
	require.Contains(t, body, "host=shop.example\n")
}

// Fields for one hop stay there.
func TestHopByHop(t *testing.T) {
	r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Inner")
		w.Header().Set("X-Inner", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Proxy-Authenticate", "Basic")
		echo.ServeHTTP(w, r)
	}))
	res, body := get(t, r.url, "Connection: X-Drop", "X-Drop: 1", "Keep-Alive: 5", "Proxy-Authorization: Basic x", "Te: gzip", "X-Keep: 1")
	require.Contains(t, body, "X-Keep: 1\n")
	for _, name := range []string{"X-Drop", "Keep-Alive", "Proxy-Authorization", "Te:"} {
		require.NotContains(t, body, name)
	}
	for _, name := range []string{"X-Inner", "Keep-Alive", "Proxy-Authenticate"} {
		require.Empty(t, res.Header.Get(name), name)
	}
}

// Whom the document does not believe says nothing about the way of a request.
func TestForwardedFields(t *testing.T) {
	lies := []string{
		"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https", "X-Forwarded-Port: 1", "X-Forwarded-Prefix: /evil",
		"Forwarded: for=203.0.113.7", "X-Real-Ip: 203.0.113.7", "X_Forwarded_For: 203.0.113.7", "X_Real-Ip: 203.0.113.7", "Cf-Connecting-Ip: 203.0.113.7",
		"True-Client-Ip: 203.0.113.7", "X-Client-Ip: 203.0.113.7", "X_Cluster_Client_Ip: 203.0.113.7",
	}
	for name, c := range map[string]struct {
		clientIP string
		want     []string
		not      []string
	}{
		"nobody is believed": {
			"",
			[]string{"X-Forwarded-For: 127.0.0.1\n", "X-Forwarded-Host: 127.0.0.1:", "X-Forwarded-Proto: http\n"},
			[]string{"evil", "https", "Forwarded-Port", "\nForwarded:", "203.0.113.7", "_"},
		},
		"others are believed": {
			`client_ip: {strategy: xff, trusted_proxies: ["192.0.2.0/24"]}`, []string{"X-Forwarded-For: 127.0.0.1\n"}, []string{"evil", "https", "\nForwarded:", "203.0.113.7", "_"},
		},
		"the peer is believed": {
			`client_ip: {strategy: xff, trusted_proxies: ["127.0.0.0/8"]}`,
			[]string{"X-Forwarded-For: 203.0.113.7, 127.0.0.1\n", "X-Forwarded-Host: evil.example\n", "X-Forwarded-Proto: https\n", "X-Forwarded-Prefix: /evil\n", "X-Real-Ip: 203.0.113.7\n"},
			[]string{"\nForwarded:"},
		},
		"anybody is believed": {
			`client_ip: {strategy: xff_count, count: 1}`, []string{"X-Forwarded-For: 203.0.113.7, 127.0.0.1\n"}, []string{"\nForwarded:"},
		},
		"by Forwarded": {
			`client_ip: {strategy: forwarded, trusted_proxies: ["127.0.0.1"]}`,
			[]string{"Forwarded: for=203.0.113.7, for=127.0.0.1;proto=http\n", "X-Forwarded-For: 203.0.113.7, 127.0.0.1\n"},
			nil,
		},
		"by a header": {
			`client_ip: {strategy: header, header: cf-connecting-ip, trusted_proxies: ["127.0.0.1"]}`,
			[]string{"Cf-Connecting-Ip: 203.0.113.7\n", "X-Forwarded-For: 203.0.113.7, 127.0.0.1\n"},
			[]string{"\nForwarded:"},
		},
		"by a header, of others": {
			`client_ip: {strategy: header, header: cf-connecting-ip, trusted_proxies: ["192.0.2.1"]}`,
			[]string{"X-Forwarded-For: 127.0.0.1\n"},
			[]string{"203.0.113.7", "Cf-Connecting-Ip"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, c.clientIP+wide, echo)
			_, body := get(t, r.url, lies...)
			for _, want := range c.want {
				require.Contains(t, body, want)
			}
			for _, not := range c.not {
				require.NotContains(t, body, not)
			}
			_, body = get(t, r.url)
			require.Contains(t, body, "X-Forwarded-For: 127.0.0.1\n", "without a chain one begins")
		})
	}
}

func TestForwardedFieldsOfIPv6(t *testing.T) {
	r := startAt(t, `client_ip: {strategy: forwarded, trusted_proxies: ["::1"]}`+wide, start(t, `client_ip: {strategy: forwarded, trusted_proxies: ["127.0.0.1"]}`+wide, echo).url, "-listen", "[::1]:0")
	_, body := get(t, r.url, `Forwarded: for="[2001:db8::7]:80"`)
	require.Contains(t, body, `Forwarded: for="[2001:db8::7]:80", for="[::1]";proto=http, for=127.0.0.1;proto=http`+"\n", "through two proxies")
	require.Contains(t, body, "X-Forwarded-For: ::1, 127.0.0.1\n", "the nearer believes the farther alone")
}

// An upstream with limits of its own refuses in all dialects, and its word is the last.
func TestUpstreamRefuses(t *testing.T) {
	for set, fields := range map[string][]string{
		"x":        {"X-RateLimit-Limit: 9", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767225661"},
		"draft-11": {`RateLimit: "up";r=0;t=60`, `RateLimit-Policy: "up";q=9;w=60`},
		"draft-07": {"RateLimit: limit=9, remaining=0, reset=60", "RateLimit-Policy: 9;w=60"},
		"draft-06": {"RateLimit-Limit: 9", "RateLimit-Remaining: 0", "RateLimit-Reset: 60", "RateLimit-Policy: 9;w=60"},
	} {
		for _, ours := range []string{"x", "draft-11", "both", "draft-07", "draft-06", "off"} {
			t.Run(set+" behind "+ours, func(t *testing.T) {
				r := start(t, "headers: "+ours+wide, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					for _, line := range append(fields, "Retry-After: 60") {
						name, value, _ := strings.Cut(line, ": ")
						w.Header().Add(name, value)
					}
					w.WriteHeader(http.StatusTooManyRequests)
				}))
				res, _ := get(t, r.url)
				require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
				require.Equal(t, []string{"60"}, res.Header.Values("Retry-After"))
				for _, line := range fields {
					name, value, _ := strings.Cut(line, ": ")
					lines := res.Header.Values(name)
					require.Contains(t, lines, value)
					if name != "RateLimit-Policy" {
						require.Len(t, lines, 1, "what passed here is not told beside a refusal")
					}
				}
			})
		}
	}
}
