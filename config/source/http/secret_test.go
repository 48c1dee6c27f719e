package httpsource_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	httpsource "github.com/spillway-go/spillway/config/source/http"
)

func isIncomplete(err error) bool { return errors.Is(err, config.ErrIncomplete) }

func readerOf(s string) io.Reader { return strings.NewReader(s) }

// What is secret goes to the server and nowhere else.
func TestSecretsAreNotTold(t *testing.T) {
	const query = "token=qu3ry%2Fsecret"
	d := &document{}
	d.set([]byte("version: 1\n"))
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "us3r" || password != "p4ss word" || r.Header.Get("X-Token") != "h3ader" || r.URL.RawQuery != query {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/500":
			http.Error(w, r.URL.String()+r.Header.Get("Authorization"), http.StatusInternalServerError)
		case "/location":
			w.Header().Set("Location", "http://us3r:p4ss word@host:port/?"+r.URL.RawQuery)
			w.WriteHeader(http.StatusFound)
		case "/elsewhere":
			http.Redirect(w, r, "http://us3r:p4ss%20word@192.0.2.1/?"+r.URL.RawQuery, http.StatusFound)
		case "/encoding":
			w.Header().Set("Content-Encoding", "x-"+r.URL.RawQuery)
		default:
			d.ServeHTTP(w, r)
		}
	}))
	full := strings.Replace(url, "://", "://us3r:p4ss%20word@", 1)
	secrets := []string{"us3r", "p4ss", "qu3ry", "h3ader"}
	source := func(url string) *httpsource.Source {
		s := newSource(t, httpsource.Config{URL: url + "?" + query, Header: http.Header{"X-Token": {"h3ader"}}})
		for _, secret := range secrets {
			require.NotContains(t, s.String(), secret)
		}
		return s
	}
	s := source(full + "/limits.yaml")
	require.Equal(t, url+"/limits.yaml", s.String())
	doc, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "version: 1\n", string(doc))
	for path, want := range map[string]string{
		full + "/500":                  "status 500 Internal Server Error",
		full + "/location":             "Location",
		full + "/elsewhere":            "a redirect to http://192.0.2.1:80 is not followed with credentials",
		full + "/encoding":             "Content-Encoding",
		"http://us3r:p4ss@localhost:1": "refused",
	} {
		_, err := source(path).Load(t.Context())
		require.ErrorContains(t, err, want)
		for _, secret := range secrets {
			require.NotContains(t, err.Error(), secret, "%s", path)
		}
	}
}

func TestPrepare(t *testing.T) {
	var got []string
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Host+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Tenant")+" "+r.URL.RawQuery)
		_, _ = io.WriteString(w, "version: 1\n")
	}))
	h := http.Header{"x-tenant": {"acme"}, "Host": {"config.example.com"}}
	n := 0
	s := newSource(t, httpsource.Config{URL: url, Header: h, Prepare: func(r *http.Request) error {
		switch n++; n {
		case 3:
			return io.ErrUnexpectedEOF
		case 4:
			panic("no token")
		}
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", n))
		r.Header.Add("X-Tenant", "other")
		r.URL.RawQuery += "n"
		return nil
	}})
	h.Set("x-tenant", "changed")
	for range 2 {
		_, err := s.Load(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"config.example.com Bearer x acme n", "config.example.com Bearer xx acme n"}, got)
	_, err := s.Load(t.Context())
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = s.Load(t.Context())
	require.ErrorContains(t, err, "panic in Prepare: no token")
	_, err = s.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 3)
}

func TestRedirects(t *testing.T) {
	var elsewhere atomic.Int32
	other := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		if r.Header.Get("Referer") != "" || r.Header.Get("X-Token") != "" {
			t.Errorf("another host is told %v", r.Header)
		}
		_, _ = io.WriteString(w, "version: 2\n")
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("/limits.yaml", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "version: 1\n# "+r.Header.Get("X-Token"))
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/limits.yaml", http.StatusFound) })
	mux.HandleFunc("/there", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusTemporaryRedirect) })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	url := serve(t, mux)
	load := func(c httpsource.Config) (string, error) {
		doc, err := newSource(t, c).Load(t.Context())
		return string(doc), err
	}
	token := http.Header{"X-Token": {"t"}}

	doc, err := load(httpsource.Config{URL: url + "/here", Header: token})
	require.NoError(t, err)
	require.Equal(t, "version: 1\n# t", doc)

	for _, c := range []httpsource.Config{
		{URL: url + "/there", Header: token},
		{URL: strings.Replace(url, "://", "://user@", 1) + "/there"},
		{URL: url + "/there", Prepare: func(*http.Request) error { return nil }},
	} {
		_, err = load(c)
		require.ErrorContains(t, err, "a redirect to "+other+" is not followed with credentials")
	}
	require.Zero(t, elsewhere.Load())
	doc, err = load(httpsource.Config{URL: url + "/there?q"})
	require.NoError(t, err)
	require.Equal(t, "version: 2\n", doc)

	_, err = load(httpsource.Config{URL: url + "/loop", Header: token})
	require.ErrorContains(t, err, "more than 5 redirects")

	// The user's own client has its say, and is left as it was.
	calls := 0
	own := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error {
		calls++
		return http.ErrUseLastResponse
	}}
	_, err = load(httpsource.Config{URL: url + "/here", Client: own})
	require.ErrorContains(t, err, "status 302 Found")
	_, err = load(httpsource.Config{URL: url + "/there", Client: own, Header: token})
	require.ErrorContains(t, err, "not followed with credentials")
	require.Equal(t, 1, calls)

	safe := httptest.NewTLSServer(mux)
	defer safe.Close()
	_, err = load(httpsource.Config{URL: safe.URL + "/there", Client: safe.Client()})
	require.ErrorContains(t, err, "a redirect from https to "+other+" is not followed")
	require.Equal(t, int32(1), elsewhere.Load())
}

// A document in the clear is warned of once, and not where it stays on this machine.
func TestInTheClear(t *testing.T) {
	for url, lines := range map[string]int{
		"http://example.com/?tok3n":  1,
		"http://192.0.2.1":           1,
		"http://localhost.evil.org":  1,
		"https://config.example.com": 0,
		"http://localhost:8080":      0,
		"http://LOCALHOST.":          0,
		"http://127.1.2.3":           0,
		"http://[::1]:8080":          0,
		"http://[::ffff:127.0.0.1]":  0,
	} {
		var log bytes.Buffer
		s := newSource(t, httpsource.Config{
			URL: url, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Client: &http.Client{Transport: trip(func(*http.Request) *http.Response { return answer(200, "version: 1\n", nil) })},
		})
		for range 3 {
			_, err := s.Load(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, lines, strings.Count(log.String(), "\n"), log.String())
		require.NotContains(t, log.String(), "tok3n")
	}
}
