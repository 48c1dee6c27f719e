package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

// startServe runs "spillway serve" in front of a server that says ok, until the test is over, and returns its base URL.
func startServe(t *testing.T, args ...string) string {
	t.Helper()
	back := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(back.Close)
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	errs := new(bytes.Buffer)
	code := make(chan int, 1)
	go func() {
		defer func() { _ = in.Close() }()
		code <- run(ctx, append([]string{"serve", "-listen", "127.0.0.1:0", "-upstream", back.URL}, args...), in, errs)
	}()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		_, _ = io.Copy(io.Discard, out)
		require.Equal(t, exitOK, <-code, errs)
	})
	line := make([]byte, 200)
	n, err := out.Read(line)
	require.NoError(t, err, "it ended")
	m := regexp.MustCompile(`on (http://\S+)\n`).FindSubmatch(line[:n])
	require.NotNil(t, m, "%s", line[:n])
	return string(m[1])
}

// ask returns the status for a caller.
func ask(t *testing.T, url string, header ...string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

func TestInspectAndReset(t *testing.T) {
	server := redistest.Start(t)
	path := document(t, fmt.Sprintf(`
version: 1
store: {prefix: %q, redis: {url: "redis://%s/0"}}
client_ip: {strategy: xff, trusted_proxies: [127.0.0.1]}
policies:
  - {name: addr, match: {routes: ["/addr"]}, key: [ip], limit: 3/h}
  - {name: wide, match: {routes: ["/addr"]}, key: ["ip/48/24"], limit: 100/h}
  - {name: pair, match: {routes: ["/pair"]}, key: [tenant, ip], limit: 3/h, overrides: {tenant: {acme: 9/h}}}
  - {name: all, match: {routes: ["/addr"]}, key: [global], limit: 50/h}
  - {name: slots, key: [ip], in_flight: 5}
  - {name: here, key: [ip], limit: 1000/h, mode: local}
`, strings.ReplaceAll(redistest.Prefix(t), ":", "_"), server.Addr()))
	url := startServe(t, "-config", path, "-name", "tenant=header:X-Tenant")
	cli := func(name string, args ...string) (int, string, string) {
		return command(t, append([]string{name, "-config", path, "-name", "tenant=header:X-Tenant"}, args...)...)
	}

	for range 3 {
		require.Equal(t, 200, ask(t, url+"/addr", "X-Forwarded-For: 203.0.113.7"))
	}
	require.Equal(t, 429, ask(t, url+"/addr", "X-Forwarded-For: 203.0.113.7"))

	code, out, errs := cli("inspect", "ip=203.0.113.7")
	require.Equal(t, exitOK, code, errs)
	require.Regexp(t, `(?m)^POLICY +KEY +LIMIT +LEFT +NEXT IN +FULL IN$`, out)
	require.Regexp(t, `(?m)^addr +ip=203\.0\.113\.7 +3/h\S* .* 0 +(19|20)m\S+ +(59m|1h)\S+$`, out)
	require.Regexp(t, `(?m)^wide +ip=203\.0\.113\.0/24 +100/h\S* .* 97 `, out)
	for _, other := range []string{"pair", "all ", "slots", "here", "*"} {
		require.NotContains(t, out, other)
	}
	code, again, _ := cli("inspect", "-policy", "addr", "ip=203.0.113.7")
	require.Equal(t, exitOK, code)
	require.Contains(t, again, "addr ")
	require.NotContains(t, again, "wide ")
	code, out, _ = cli("inspect", "all=-")
	require.Equal(t, exitOK, code)
	require.Regexp(t, `(?m)^all +all=- .* 47 `, out)

	code, out, errs = cli("reset", "-policy", "addr", "ip=203.0.113.7")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, "addr: forgot ip=203.0.113.7\nprocesses that have just refused may go on for up to 1s\n", out)
	for late := time.Now().Add(30 * time.Second); ask(t, url+"/addr", "X-Forwarded-For: 203.0.113.7") != 200; {
		require.True(t, time.Now().Before(late), "it is never let in again")
	}
	_, out, _ = cli("inspect", "ip=203.0.113.7")
	require.Regexp(t, `(?m)^addr +ip=\S+ +3/h.* 2 `, out)

	for range 2 { // what nobody has counted is not forgotten
		_, out, _ = cli("reset", "-policy", "addr", "ip=203.0.113.99")
		require.Equal(t, "addr: nothing was counted for ip=203.0.113.99\n", out)
	}

	// A network stands for its addresses, parts come in any order, and values are spelled as keys spell them.
	require.Equal(t, 200, ask(t, url+"/addr", "X-Forwarded-For: 2001:db8:1:2:3::4"))
	_, out, _ = cli("inspect", "ip=2001:db8:1:2::9")
	require.Regexp(t, `(?m)^addr +ip=2001:db8:1:2::/64 .* 2 `, out)
	require.Regexp(t, `(?m)^wide +ip=2001:db8:1::/48 .* 99 `, out)
	require.Equal(t, 200, ask(t, url+"/pair", "X-Forwarded-For: 203.0.113.8", "X-Tenant: a|b c%"))
	for _, key := range []string{"ip=203.0.113.8|tenant=a%7Cb%20c%25", "tenant=a%7Cb%20c%25|ip=203.0.113.8"} {
		_, out, _ = cli("inspect", key)
		require.Regexp(t, `(?m)^pair +tenant=a%7Cb%20c%25\|ip=203\.0\.113\.8 +3/h\S* .*\* +2 `, out)
		require.Contains(t, out, "\n* the policy's own limit: ")
	}
	require.Equal(t, 200, ask(t, url+"/pair", "X-Forwarded-For: 203.0.113.8", "X-Tenant: Straße 1"))
	_, out, _ = cli("inspect", "tenant=Straße 1|ip=203.0.113.8")
	require.Regexp(t, `(?m)^pair +tenant=Stra%C3%9Fe%201\|ip=203\.0\.113\.8 .* 2 `, out)
	long := strings.Repeat("x", 300)
	require.Equal(t, 200, ask(t, url+"/pair", "X-Forwarded-For: 203.0.113.8", "X-Tenant: "+long))
	_, out, _ = cli("inspect", "tenant="+long+"|ip=203.0.113.8")
	require.Regexp(t, `(?m)^pair +tenant=#\S+\|ip=203\.0\.113\.8 .* 2 `, out)
	_, reset, _ := cli("reset", "tenant="+long+"|ip=203.0.113.8")
	require.Contains(t, reset, "pair: forgot tenant=#")

	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"tenant=acme"}, "no policy counts by tenant in the store"},
		{[]string{"user=acme|ip=1.2.3.4"}, "no policy counts by ip and user in the store"},
		{[]string{"-policy", "pair", "ip=1.2.3.4"}, "policy pair counts by tenant and ip"},
		{[]string{"-policy", "nope", "ip=1.2.3.4"}, `the document has no policy "nope"`},
		{[]string{"-policy", "slots", "ip=1.2.3.4"}, "policy slots counts nothing, it has no limit"},
		{[]string{"-policy", "here", "ip=1.2.3.4"}, "policy here counts in the memory of the processes that serve it"},
	} {
		for _, name := range []string{"inspect", "reset"} {
			code, out, errs := cli(name, c.args...)
			require.Equal(t, exitError, code, c.args)
			require.Empty(t, out)
			require.Contains(t, errs, c.says)
		}
	}

	// The document may be where serve has it from.
	client := server.Client()
	key := redistest.Prefix(t) + ":doc"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, client.Set(t.Context(), key, text, 0).Err())
	code, out, errs = command(t, "inspect", "-config", "redis://"+server.Addr()+"/0#"+key, "-policy", "addr", "ip=203.0.113.7")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "addr ")
}

func TestInspectWithoutStore(t *testing.T) {
	for text, says := range map[string]string{
		"version: 1\npolicies: [{name: a, key: [ip], limit: 1/s}]\n":                                                                                                          "in the memory of the processes that serve it",
		"version: 1\nstore: {memory: {}}\npolicies: [{name: a, key: [ip], limit: 1/s}]\n":                                                                                     "in the memory of the processes that serve it",
		"version: 1\nstore: {prefix: x, redis: {url: \"redis://u:hunter2@127.0.0.1:1/0\"}}\npolicies: [{name: a, key: [ip], limit: 1/s}, {name: b, key: [ip], limit: 1/s}]\n": "a: ",
		"version: 1\npolicies: [{name: a, key: [ip], limt: 1/s}]\n":                                                                                                           "unknown_field",
	} {
		path := document(t, text)
		for _, name := range []string{"inspect", "reset"} {
			code, out, errs := command(t, name, "-config", path, "ip=1.2.3.4")
			require.Equal(t, exitError, code)
			require.Empty(t, out)
			require.Contains(t, errs, says)
			require.NotContains(t, errs, "hunter2")
			require.NotContains(t, errs, "\nb: ", "one word about the store is enough")
		}
	}
}

// A Redis that takes connections and says nothing is given up.
func TestInspectOfASilentStore(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.Silent()
	path := document(t, fmt.Sprintf("version: 1\nstore: {prefix: x, redis: {url: \"redis://%s/0\"}}\npolicies: [{name: a, key: [ip], limit: 1/s}, {name: b, key: [ip], limit: 1/s}]\n", proxy.Addr()))
	code, _, errs := command(t, "inspect", "-config", path, "ip=1.2.3.4")
	require.Equal(t, exitError, code)
	require.Contains(t, errs, "a: ")
	require.NotContains(t, errs, "b: ")
}
