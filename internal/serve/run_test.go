package serve_test

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/serve"
)

// Told to stop, it serves what it has begun, and nothing new.
func TestDrain(t *testing.T) {
	serving, finish := make(chan struct{}), make(chan struct{})
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(serving)
		<-finish
		_, _ = io.WriteString(w, "done")
	}))
	defer back.Close()
	r := begin(t, wide, "-upstream", back.URL, "-drain", patience.String())
	addr := r.out.wait(t, `serving \S+ on http://(\S+)\n`)[1]
	conn := dial(t, addr)
	_, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	inTime(t, "the request is served", serving)
	r.stop()
	r.out.wait(t, "stopping\n")
	for late := time.Now().Add(patience); ; {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			break
		}
		_ = conn.Close()
		require.True(t, time.Now().Before(late), "new connections are still taken")
	}
	close(finish)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(answer), "\r\n\r\ndone"), "%s", answer)
	require.NoError(t, inTime(t, "the end", r.ended))
}

// What does not end in time is cut off, and so are websockets. Neither is a fault.
func TestDrainIsBounded(t *testing.T) {
	gone := make(chan struct{})
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer back.Close()
	r := begin(t, wide, "-upstream", back.URL, "-drain", "10ms")
	url := r.out.wait(t, `serving \S+ on (http://\S+)\n`)[1]
	res, err := http.DefaultClient.Do(request(t, "GET", url, nil))
	require.NoError(t, err)
	r.stop()
	require.NoError(t, inTime(t, "the end", r.ended))
	require.Contains(t, r.log.String(), "requests in service were cut off")
	_, err = io.ReadAll(res.Body)
	require.Error(t, err)
	_ = res.Body.Close()
	inTime(t, "the upstream sees it", gone)
}

func TestWebsocketsEndWithTheServer(t *testing.T) {
	var asked atomic.Int32
	back := httptest.NewServer(switching(&asked))
	defer back.Close()
	r := begin(t, wide, "-upstream", back.URL, "-drain", patience.String())
	addr := r.out.wait(t, `serving \S+ on http://(\S+)\n`)[1]
	conn := dial(t, addr)
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
	r.stop()
	require.NoError(t, inTime(t, "the end", r.ended))
	_, err = io.ReadAll(conn)
	if err != nil {
		require.NotContains(t, err.Error(), "timeout")
	}
}

// Without a document it waits and says so; it serves once there is one.
func TestStartWithoutDocument(t *testing.T) {
	back := httptest.NewServer(ok)
	defer back.Close()
	r := begin(t, "", "-upstream", back.URL)
	r.log.wait(t, "waiting for the policy document; nothing is served yet.*policies.yaml")
	require.Empty(t, r.out.String())
	r.write(t, wide)
	url := r.out.wait(t, `serving \S+ on (http://\S+)\n`)[1]
	res, _ := get(t, url)
	require.Equal(t, 200, res.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	r.stop()
	require.NoError(t, <-r.ended)
}

func TestStartThatFails(t *testing.T) {
	r := begin(t, "", "-upstream", "http://127.0.0.1:1", "-start", "20ms")
	require.ErrorContains(t, inTime(t, "the end", r.ended), "no policy document came within 20ms (-start)")

	r = begin(t, "", "-upstream", "http://127.0.0.1:1")
	r.stop() // while it waits
	require.NoError(t, inTime(t, "the end", r.ended))

	r = begin(t, "version: 1\npolicies:\n  - {name: a, limt: 1/s}\n", "-upstream", "http://127.0.0.1:1")
	require.ErrorContains(t, inTime(t, "the end", r.ended), `Did you mean "limit"?`)
	require.Empty(t, r.out.String())
}

func TestBusyPorts(t *testing.T) {
	var lc net.ListenConfig
	busy, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = busy.Close() }()
	for _, name := range []string{"-listen", "-admin"} {
		r := begin(t, wide, "-upstream", "http://127.0.0.1:1", name, busy.Addr().String())
		require.ErrorContains(t, inTime(t, "the end", r.ended), "address already in use; choose another address with "+name+" host:port")
	}
}

// A port alone, with or without a colon, is on loopback.
func TestAdminAddress(t *testing.T) {
	for _, addr := range []string{"0", ":0", "127.0.0.1:0", "[::1]:0"} {
		r := startAt(t, wide, "http://127.0.0.1:1", "-admin", addr)
		require.Regexp(t, `^http://(127\.0\.0\.1|\[::1\]):\d+$`, r.admin, addr)
	}
	r := startAt(t, wide, "http://127.0.0.1:1", "-admin", "0.0.0.0:0")
	require.Regexp(t, `^http://(\[::\]|0\.0\.0\.0):\d+$`, r.admin)
}

func TestUsage(t *testing.T) {
	t.Setenv("SPILLWAY_TEST_URL", "redis://user:secret@127.0.0.1:99999/x")
	good := []string{"-config", "p.yaml", "-upstream", "http://127.0.0.1:1"}
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "serve needs -config"},
		{nil, "serve needs -upstream"},
		{[]string{"-config", "p.yaml"}, "serve needs -upstream"},
		{append(good, "more"), `serve takes no arguments, but got ["more"]`},
		{append(good, "-upstream", "127.0.0.1:3000"), "-upstream: want an http or https URL"},
		{append(good, "-upstream", "ftp://x"), "-upstream: want an http or https URL"},
		{append(good, "-upstream", "http://:80"), "-upstream: want an http or https URL"},
		{append(good, "-upstream", "http://user:secret@x"), "-upstream: want an http or https URL"},
		{append(good, "-upstream", "http://x/?secret"), "-upstream: want an http or https URL"},
		{append(good, "-upstream", "http://x:secret/"), "-upstream: want an http or https URL"},
		{append(good, "-pprof"), "-pprof needs -admin"},
		{append(good, "-drain", "-1s"), "-drain: want"},
		{append(good, "-start", "0"), "-start: want"},
		{append(good, "-drain", "x"), "invalid value"},
		{append(good, "-nonsense"), "flag provided but not defined"},
		{append(good, "-name", "tenant"), "want NAME=SOURCE:NAME"},
		{append(good, "-name", "tenant=X-Tenant"), "want header:NAME, cookie:NAME or query:NAME"},
		{append(good, "-name", "tenant=header:"), "is no field name"},
		{append(good, "-name", "tenant=header:Host"), "Host is not among the headers"},
		{append(good, "-name", "tenant=query:"), "empty name"},
		{append(good, "-name", "ip=header:X-Ip"), "has a meaning of its own"},
		{append(good, "-name", "a=header:A", "-name", "a=header:B"), "is told twice"},
		{[]string{"-config", "gopher://x", "-upstream", "http://x"}, "-config: there is no such source: want a file, or apollo://"},
		{[]string{"-config", "file://p.yaml", "-upstream", "http://x"}, "-config: a file:// location has three slashes"},
		{[]string{"-config", "folder/", "-upstream", "http://x"}, "-config: "},
		{[]string{"-config", "http://", "-upstream", "http://x"}, "URL has no host"},
		{[]string{"-config", "http://user:sec ret%@x", "-upstream", "http://x"}, "-config: "},
		{[]string{"-config", "redis://user:secret@x:1", "-upstream", "http://x"}, "ends in # and the key"},
		{[]string{"-config", "redis://user:secret@x:1#", "-upstream", "http://x"}, "ends in # and the key"},
		{[]string{"-config", "redis://user:secret@x:y z/0#key", "-upstream", "http://x"}, "-config: "},
		{[]string{"-config", "redis://user:secret@x:1/zero#key", "-upstream", "http://x"}, "-config: "},
		{[]string{"-config", "redis://user:sec#ret@x:1/0", "-upstream", "http://x"}, "-config: "},
		{[]string{"-config", "env://SPILLWAY_TEST_URL#key", "-upstream", "http://x"}, "-config: "},
		{[]string{"-config", "env://SPILLWAY_TEST_NOTHING#key", "-upstream", "http://x"}, `the environment variable "SPILLWAY_TEST_NOTHING" is not set`},
		{[]string{"-config", "env://SPILLWAY_TEST_URL", "-upstream", "http://x"}, "ends in # and the key"},
	} {
		out, errs := newOutput(), newOutput()
		require.ErrorIs(t, serve.Run(t.Context(), c.args, out, errs, serve.Builtin()), serve.ErrUsage, c.args)
		require.Contains(t, errs.String(), c.says, c.args)
		for _, secret := range []string{"secret", "sec ret", "sec#ret", ":sec", "ret@"} {
			if !strings.Contains(c.says, secret) {
				require.NotContains(t, errs.String(), secret, c.args)
			}
		}
		require.Empty(t, out.String())
	}
	errs := newOutput()
	require.ErrorIs(t, serve.Run(context.Background(), []string{"-h"}, io.Discard, errs, serve.Builtin()), flag.ErrHelp)
	for _, word := range []string{"usage: spillway serve", "-config where", "-upstream URL", "-admin host:port", "-name tenant=header:X-Tenant", "(default 10s)"} {
		require.Contains(t, errs.String(), word)
	}
}

// Who starts with a document that is wrong learns which one it is, and how a name is told.
func TestStartWithABadDocument(t *testing.T) {
	r := begin(t, "version: 1\npolicies: [{name: a, key: [tenant], limit: 1/s}]\n", "-upstream", "http://127.0.0.1:1")
	err := inTime(t, "the end", r.ended)
	require.ErrorContains(t, err, "file:"+r.path+": ")
	require.ErrorContains(t, err, `no key is registered as "tenant"`)
	require.ErrorContains(t, err, serve.NameHint)
	r = begin(t, "version: 1\npolicies: [{name: a, key: [ip], match: {if: x}, limit: 1/s}]\n", "-upstream", "http://127.0.0.1:1")
	err = inTime(t, "the end", r.ended)
	require.ErrorContains(t, err, `registered as "x"`)
	require.NotContains(t, err.Error(), serve.NameHint)
}
