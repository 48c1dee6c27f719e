package nacossource_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/spillway-go/spillway/config"
	nacossource "github.com/spillway-go/spillway/config/source/nacos"
	"github.com/spillway-go/spillway/config/source/sourcetest"
)

func TestSource(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
		f := newFake()
		return newSource(t, serve(t, f)), f.set
	})
}

// The same with all that Nacos can ask for, and with a server that takes its time to know a connection.
func TestSourceWithCredentials(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
		f := newFake()
		f.tenant, f.group = "shop-7", "limits:eu"
		f.username, f.password = "shop", "it's & a=password"
		f.accessKey, f.secretKey = "ak", hush
		f.setupDelay = 30 * time.Millisecond
		c := serve(t, f)
		c.Namespace, c.Group, c.Username, c.Password, c.AccessKey, c.SecretKey = f.tenant, f.group, f.username, f.password, f.accessKey, f.secretKey
		return newSource(t, c), f.set
	})
}

func TestNewRefuses(t *testing.T) {
	good := nacossource.Config{Servers: []string{"http://a"}, DataID: "limits.yaml"}
	for name, row := range map[string]struct {
		change func(c *nacossource.Config)
		want   []string
	}{
		"nothing at all":          {func(c *nacossource.Config) { *c = nacossource.Config{} }, []string{"Servers are missing", "DataID is missing"}},
		"no URL":                  {func(c *nacossource.Config) { c.Servers = []string{"nacos:8848", "tcp://a"} }, []string{"Servers[0] is no http", "Servers[1] is no http"}},
		"a user in a URL":         {func(c *nacossource.Config) { c.Servers = []string{"http://u:" + hush + "@a"} }, []string{"Servers[0] "}},
		"a query in a URL":        {func(c *nacossource.Config) { c.Servers = []string{"http://a?accessToken=t"} }, []string{"Servers[0] has a query"}},
		"ports":                   {func(c *nacossource.Config) { c.Servers = []string{"http://a:0", "http://a:65000"} }, []string{"Servers[0] has no port", "Servers[1] has a port"}},
		"a gRPC port":             {func(c *nacossource.Config) { c.GRPCPort = 65536 }, []string{"GRPCPort 65536"}},
		"names":                   {func(c *nacossource.Config) { c.DataID, c.Group, c.Namespace = "a/b", "g g", "n\n" }, []string{`DataID "a/b"`, `Group "g g"`, `Namespace "n\n"`}},
		"an encrypted one":        {func(c *nacossource.Config) { c.DataID = "cipher-aes-limits" }, []string{"encrypted"}},
		"a user without password": {func(c *nacossource.Config) { c.Username = "u" }, []string{"Username and Password"}},
		"a key without secret":    {func(c *nacossource.Config) { c.SecretKey = hush }, []string{"AccessKey and SecretKey"}},
		"no address":              {func(c *nacossource.Config) { c.IP = "localhost" }, []string{`IP "localhost"`}},
		"a time":                  {func(c *nacossource.Config) { c.Timeout = -1 }, []string{"Timeout -1ns"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			_, err := nacossource.New(c)
			require.NoError(t, err)
			row.change(&c)
			src, err := nacossource.New(c)
			require.Nil(t, src)
			for _, want := range row.want {
				require.ErrorContains(t, err, want)
			}
			for line := range strings.Lines(err.Error()) {
				require.True(t, strings.HasPrefix(line, "nacossource: "), line)
			}
			require.NotContains(t, err.Error(), hush)
		})
	}
}

func TestString(t *testing.T) {
	for _, namespace := range []string{"", "public"} {
		src := newSource(t, nacossource.Config{
			Servers: []string{"http://a"}, Namespace: namespace, DataID: "limits.yaml",
			Username: "u", Password: hush, AccessKey: "ak", SecretKey: hush,
		})
		require.Equal(t, "nacos:public/DEFAULT_GROUP/limits.yaml", src.String())
		require.NotContains(t, fmt.Sprintf("%v %+v %s", src, src, src), hush)
	}
}

// What a connection says of itself, and that nothing is left of it.
func TestLoadIntroducesItself(t *testing.T) {
	f := newFake()
	f.set(document)
	var setup map[string]any
	var ip string
	f.answers(func(kind string) (string, map[string]any) {
		for _, c := range f.conns {
			setup, ip = c.setup, c.ip
		}
		return "", nil
	})
	c := serve(t, f)
	c.Namespace, c.IP = "public", "192.0.2.7"
	doc, err := newSource(t, c).Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, document, doc)
	require.Equal(t, "192.0.2.7", ip)
	require.Empty(t, setup["tenant"])
	require.Equal(t, map[string]any{"source": "sdk", "module": "config", "AppName": "spillway"}, setup["labels"])
	require.Eventually(t, func() bool { return f.open() == 0 }, 10*time.Second, time.Millisecond)
}

func failure(kind string, code int, text string) (string, map[string]any) {
	return kind, map[string]any{"resultCode": 500, "errorCode": code, "message": text}
}

// What one server says is final, or the next one is asked, or there is no document.
func TestLoadJudgesAnswers(t *testing.T) {
	on := func(kind, answer string, code int) func(string) (string, map[string]any) {
		return func(got string) (string, map[string]any) {
			if got != kind {
				return "", nil
			}
			return failure(answer, code, "the server's "+hush)
		}
	}
	for name, row := range map[string]struct {
		answers    func(string) (string, map[string]any)
		want       string
		incomplete bool
		next       bool
	}{
		"starting":       {answers: on("ServerCheckRequest", "ErrorResponse", 300), want: "code 300", next: true},
		"starting later": {answers: on("ConfigQueryRequest", "ErrorResponse", 300), want: "code 300", next: true},
		"unregistered":   {answers: on("ConfigQueryRequest", "ErrorResponse", 301), want: "code 301", next: true},
		"failing":        {answers: on("ConfigQueryRequest", "ConfigQueryResponse", 500), want: "code 500", next: true},
		"too busy":       {answers: on("ConfigQueryRequest", "ConfigQueryResponse", 503), want: "code 503", next: true},
		"refused":        {answers: on("ConfigQueryRequest", "ConfigQueryResponse", 403), want: "refused: code 403"},
		"not found":      {answers: on("ConfigQueryRequest", "ConfigQueryResponse", 300), want: "no such configuration", incomplete: true},
		"being written":  {answers: on("ConfigQueryRequest", "ConfigQueryResponse", 400), want: "being written", incomplete: true},
		"no answer of Nacos": {answers: func(string) (string, map[string]any) {
			return "ServerCheckResponse", map[string]any{"resultCode": "two hundred"}
		}, want: "not one of Nacos", next: true},
	} {
		t.Run(name, func(t *testing.T) {
			bad, good := newFake(), newFake()
			bad.set(document)
			good.set(document)
			bad.answers(row.answers)
			c := serve(t, bad)
			c.Timeout = time.Second / 2
			c.AccessKey, c.SecretKey = "ak", hush // which the server is free to repeat

			doc, err := newSource(t, c).Load(t.Context())
			require.Empty(t, doc)
			require.ErrorContains(t, err, "nacossource: public/DEFAULT_GROUP/limits.yaml: ")
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), hush)
			require.Equal(t, row.incomplete, strings.Contains(err.Error(), config.ErrIncomplete.Error()))
			if row.incomplete {
				require.ErrorIs(t, err, config.ErrIncomplete)
			}

			// A second server, at the same port of another address.
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", c.GRPCPort))
			if err != nil {
				t.Skipf("no second address: %v", err)
			}
			srv := good.server()
			done := make(chan struct{})
			go func() { defer close(done); _ = srv.Serve(l) }()
			t.Cleanup(func() { srv.Stop(); <-done })
			c.Servers = append(c.Servers, "http://127.0.0.2")
			for bad.count("ServerCheckRequest"); ; {
				src := newSource(t, c)
				doc, err = src.Load(t.Context())
				if bad.count("ServerCheckRequest") == 0 {
					good.count("ConfigQueryRequest")
					continue // the good one was first
				}
				if !row.next {
					require.ErrorContains(t, err, row.want)
					require.Zero(t, good.count("ConfigQueryRequest"))
					return
				}
				require.NoError(t, err)
				require.Equal(t, document, doc)
				_, err = src.Load(t.Context())
				require.NoError(t, err)
				require.Zero(t, bad.count("ServerCheckRequest"), "the one that answered is asked first from now on")
				return
			}
		})
	}
}

// Nothing is served from the past, and nothing is written anywhere.
func TestLoadHasNoSnapshot(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("TMPDIR", dir)
	f := newFake()
	f.set(document)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := f.server()
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	c := nacossource.Config{Servers: []string{"http://127.0.0.1"}, GRPCPort: l.Addr().(*net.TCPAddr).Port, DataID: "limits.yaml"}
	src := newSource(t, c)
	doc, err := src.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, document, doc)
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, src.Watch(ctx, cancel), context.Canceled)
	srv.Stop()
	<-done

	for _, src := range []*nacossource.Source{src, newSource(t, c)} {
		doc, err = src.Load(t.Context())
		require.ErrorContains(t, err, "Unavailable")
		require.NotErrorIs(t, err, config.ErrIncomplete)
		require.Empty(t, doc)
		require.ErrorContains(t, src.Watch(t.Context(), func() { t.Error("called") }), "Unavailable")
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestTLS(t *testing.T) {
	f := newFake()
	f.username, f.password = "u", hush
	f.set(document)
	web := httptest.NewTLSServer(f)
	t.Cleanup(web.Close)
	c := serve(t, f, grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	c.Servers = []string{web.URL}
	c.Username, c.Password = f.username, f.password
	c.Timeout = time.Second

	_, err := newSource(t, c).Load(t.Context())
	require.Error(t, err, "in the clear")
	c.TLS = &tls.Config{}
	_, err = newSource(t, c).Load(t.Context())
	require.ErrorContains(t, err, "certificate")

	c.TLS.RootCAs = x509.NewCertPool()
	c.TLS.RootCAs.AddCert(web.Certificate())
	src := newSource(t, c)
	c.TLS.RootCAs = nil // ours by now
	doc, err := src.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, document, doc)
}

func TestLogin(t *testing.T) {
	for name, path := range map[string]string{"Nacos 1 and 2": "/nacos/v1/auth/users/login", "Nacos 3": "/nacos/v3/auth/user/login", "another path": "/my/nacos/v1/auth/users/login"} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.loginPath = path
			f.username, f.password = "shop", hush
			f.set(document)
			c := serve(t, f)
			if strings.HasPrefix(path, "/my") {
				c.Servers[0] += "/my/nacos/"
			}
			c.Username, c.Password = f.username, f.password
			src := newSource(t, c)
			load := func() {
				t.Helper()
				doc, err := src.Load(t.Context())
				require.NoError(t, err)
				require.Equal(t, document, doc)
			}
			load()
			load()
			require.Equal(t, 1, f.logins, "a token is used again")

			f.mu.Lock()
			clear(f.tokens) // the server forgets them all
			f.mu.Unlock()
			load()
			require.Equal(t, 2, f.logins)

			f.mu.Lock()
			f.tokenTTL = 0 // good for once
			clear(f.tokens)
			f.mu.Unlock()
			load()
			one := f.logins
			load()
			require.Greater(t, f.logins, one)
		})
	}
}

func TestLoginFails(t *testing.T) {
	for name, row := range map[string]struct {
		answer http.HandlerFunc // nil: the fake
		want   string
	}{
		"a wrong password": {nil, "login: status 403"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/else", http.StatusTemporaryRedirect)
		}, "login: status 307"},
		"no login": {http.NotFound, "login: status 404"},
		"failing":  {func(w http.ResponseWriter, r *http.Request) { http.Error(w, hush, 500) }, "login: status 500"},
		"no token": {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{}`) }, "login: an answer without a token"},
		"no JSON":  {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, hush) }, "login: an answer that is not"},
		"silent":   {func(_ http.ResponseWriter, r *http.Request) { _ = r.ParseForm(); <-r.Context().Done() }, "login: "},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.username, f.password = "shop", "another one"
			f.set(document)
			c := serve(t, f)
			if row.answer != nil {
				web := httptest.NewServer(row.answer)
				t.Cleanup(web.Close)
				c.Servers = []string{web.URL}
			}
			c.Username, c.Password, c.Timeout = "shop", hush, time.Second
			src := newSource(t, c)
			_, err := src.Load(t.Context())
			require.ErrorContains(t, err, row.want)
			require.NotErrorIs(t, err, config.ErrIncomplete)
			require.NotContains(t, err.Error(), hush)
			err = src.Watch(t.Context(), func() { t.Error("called") })
			require.ErrorContains(t, err, row.want)
		})
	}
}

// A token that is refused is not tried for ever, and not shown.
func TestTokenIsRefused(t *testing.T) {
	f := newFake()
	f.username, f.password = "shop", hush
	f.set(document)
	f.answers(func(kind string) (string, map[string]any) {
		clear(f.tokens)
		return "", nil
	})
	c := serve(t, f)
	c.Username, c.Password = f.username, f.password
	_, err := newSource(t, c).Load(t.Context())
	require.ErrorContains(t, err, "refused: code 403")
	require.NotContains(t, err.Error(), "token-")
	require.Equal(t, 2, f.logins)
}

func TestSignatureIsChecked(t *testing.T) {
	f := newFake()
	f.accessKey, f.secretKey = "ak", hush
	f.set(document)
	c := serve(t, f)
	c.AccessKey, c.SecretKey = "ak", hush+"!"
	_, err := newSource(t, c).Load(t.Context())
	require.ErrorContains(t, err, "refused")
	require.NotContains(t, err.Error(), hush)
	require.ErrorContains(t, newSource(t, c).Watch(t.Context(), func() { t.Error("called") }), "refused")
}
