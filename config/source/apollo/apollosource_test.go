package apollosource_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	apollosource "github.com/spillway-go/spillway/config/source/apollo"
	"github.com/spillway-go/spillway/config/source/sourcetest"
)

func TestSource(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
		f := newFake()
		return newSource(t, apollosource.Config{Servers: []string{serve(t, f)}}), f.set
	})
}

// Two services with one database, one of which has gone.
func TestSourceWithoutOneServer(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
		f := newFake()
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		return newSource(t, apollosource.Config{Servers: []string{gone.URL, serve(t, f)}}), f.set
	})
}

func TestNewRefuses(t *testing.T) {
	good := apollosource.Config{Servers: []string{"http://a:8080"}, AppID: "shop", Namespace: "limits.yaml"}
	_, err := apollosource.New(good)
	require.NoError(t, err)
	for name, row := range map[string]struct {
		change func(c *apollosource.Config)
		want   []string
	}{
		"nothing at all":        {func(c *apollosource.Config) { *c = apollosource.Config{} }, []string{"Servers are missing", "AppID is missing", "Namespace is missing"}},
		"no URL":                {func(c *apollosource.Config) { c.Servers = []string{"apollo:8080", "ftp://a"} }, []string{"Servers[0] is no http", "Servers[1] is no http"}},
		"a user in a URL":       {func(c *apollosource.Config) { c.Servers = []string{"http://u:hush@a"} }, []string{"Servers[0] has a user"}},
		"a URL nobody can read": {func(c *apollosource.Config) { c.Servers = []string{"http://u:hush@a:port"} }, []string{"Servers[0] is no http"}},
		"a query in a URL":      {func(c *apollosource.Config) { c.Servers = []string{"http://a?token=hush"} }, []string{"Servers[0] has a query"}},
		"a path as a name":      {func(c *apollosource.Config) { c.AppID = "a/b"; c.Cluster = ".." }, []string{`AppID "a/b" is no name`, `Cluster ".." is no name`}},
		"properties, no key":    {func(c *apollosource.Config) { c.Namespace = "application" }, []string{"Key is missing"}},
		"a document and a key":  {func(c *apollosource.Config) { c.Key = "limits" }, []string{`Key "limits"`}},
		"an ending too much":    {func(c *apollosource.Config) { c.Namespace = "a.properties"; c.Key = "limits" }, []string{"without .properties"}},
		"XML":                   {func(c *apollosource.Config) { c.Namespace = "a.xml" }, []string{"XML"}},
		"no address":            {func(c *apollosource.Config) { c.IP = "localhost" }, []string{`IP "localhost"`}},
		"times":                 {func(c *apollosource.Config) { c.Timeout = -1; c.PollTimeout = time.Millisecond }, []string{"Timeout -1ns is negative", "PollTimeout 1ms is below 1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			row.change(&c)
			src, err := apollosource.New(c)
			require.Nil(t, src)
			for _, want := range row.want {
				require.ErrorContains(t, err, want)
			}
			for line := range strings.Lines(err.Error()) {
				require.True(t, strings.HasPrefix(line, "apollosource: "), line)
			}
			require.NotContains(t, err.Error(), "hush")
		})
	}
}

// What is asked for, to the letter: the query says who asks and nothing of an earlier release.
func TestLoadAsks(t *testing.T) {
	f := newFake()
	f.set(document)
	src := newSource(t, apollosource.Config{Servers: []string{serve(t, f) + "/"}, IP: "192.0.2.7", Label: "gray & green", DataCenter: "north"})
	_, err := src.Load(t.Context())
	require.NoError(t, err)
	seen := f.requests()
	require.Len(t, seen, 1)
	require.Equal(t, "/configs/shop/default/limits.yaml?dataCenter=north&ip=192.0.2.7&label=gray+%26+green", seen[0].String())
}

func TestLoadOfProperties(t *testing.T) {
	f := newFake()
	f.namespace = "application"
	src := newSource(t, apollosource.Config{Servers: []string{serve(t, f)}, Namespace: "application", Key: "limits"})
	f.release(map[string]string{"timeout": "5"})
	_, err := src.Load(t.Context())
	require.ErrorIs(t, err, config.ErrIncomplete)
	f.release(map[string]string{"timeout": "5", "limits": string(document)})
	doc, err := src.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, document, doc)
	f.release(map[string]string{"limits": " \n"})
	_, err = src.Load(t.Context())
	require.ErrorIs(t, err, config.ErrIncomplete)
}

// What one server says is final, save for what another one may do better.
func TestLoadJudgesAnswers(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "body "+secret, code) }
	}
	for name, row := range map[string]struct {
		answer     http.HandlerFunc
		want       string
		incomplete bool
		next       bool
	}{
		"400":     {answer: status(400), want: "status 400"},
		"401":     {answer: status(401), want: "status 401: the access key"},
		"403":     {answer: status(403), want: "status 403"},
		"404":     {answer: status(404), want: "no such namespace", incomplete: true},
		"304":     {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, want: "status 304"},
		"302":     {answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, want: "status 302"},
		"429":     {answer: status(429), want: "status 429", next: true},
		"500":     {answer: status(500), want: "status 500", next: true},
		"503":     {answer: status(503), want: "status 503", next: true},
		"no JSON": {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>"+secret) }, want: "not what Apollo says", next: true},
		"cut off": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			fmt.Fprint(w, "{")
		}, want: "EOF", next: true},
		"hangs up":   {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: "EOF", next: true},
		"empty JSON": {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, want: "no item", incomplete: true},
		"endless": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"configurations":{"content":"`)
			for line := strings.Repeat("x", 1<<20); ; {
				if _, err := fmt.Fprint(w, line); err != nil {
					return
				}
			}
		}, want: "an answer above 7340032 bytes", next: true},
	} {
		t.Run(name, func(t *testing.T) {
			bad, good := newFake(), newFake()
			bad.instead(row.answer)
			good.set(document)
			badURL := serve(t, bad)

			doc, err := newSource(t, apollosource.Config{Servers: []string{badURL}}).Load(t.Context())
			require.Empty(t, doc)
			require.ErrorContains(t, err, "apollosource: shop/default/limits.yaml: ")
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), secret)
			require.Equal(t, row.incomplete, errors.Is(err, config.ErrIncomplete), "%v", err)
			require.Len(t, bad.requests(), 1)

			// Both are the first one in turn.
			answered := 0
			for range 64 {
				src := newSource(t, apollosource.Config{Servers: []string{badURL, serve(t, good)}})
				doc, err = src.Load(t.Context())
				if len(bad.requests()) == 0 {
					good.requests()
					continue
				}
				if answered++; row.next {
					require.NoError(t, err)
					require.Equal(t, document, doc)
					_, err = src.Load(t.Context())
					require.NoError(t, err)
					require.Empty(t, bad.requests(), "the one that answered is asked first from now on")
				} else {
					require.ErrorContains(t, err, row.want)
					require.Empty(t, good.requests())
				}
				good.requests()
				if answered == 2 {
					return
				}
			}
			t.Fatal("the choice of the first server is no choice")
		})
	}
}

func TestLoadWithAWrongKey(t *testing.T) {
	f := newFake()
	f.set(document)
	for _, key := range []string{"none of yours", secret + " "} {
		src := newSource(t, apollosource.Config{Servers: []string{serve(t, f)}, AccessKey: key})
		_, err := src.Load(t.Context())
		require.ErrorContains(t, err, "status 401")
		require.NotErrorIs(t, err, config.ErrIncomplete)
		require.NotContains(t, err.Error(), key)
		require.ErrorContains(t, src.Watch(t.Context(), func() { t.Error("called") }), "status 401")
		require.NotContains(t, fmt.Sprint(src), key)
	}
}

func TestLoadIsNotSignedWithoutAKey(t *testing.T) {
	var header atomic.Pointer[http.Header]
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header.Store(&r.Header)
		fmt.Fprint(w, `{"configurations":{"content":"version: 1\n"}}`)
	}))
	src, err := apollosource.New(apollosource.Config{Servers: []string{url}, AppID: "shop", Namespace: "limits.yaml"})
	require.NoError(t, err)
	doc, err := src.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, document, doc)
	require.NotContains(t, *header.Load(), "Authorization")
	require.NotContains(t, *header.Load(), "Timestamp")
}

func TestLoadTriesEveryServer(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	f := newFake()
	f.instead(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) })
	src := newSource(t, apollosource.Config{Servers: []string{gone.URL, serve(t, f)}})
	_, err := src.Load(t.Context())
	require.ErrorContains(t, err, "refused")
	require.ErrorContains(t, err, "status 502")
	require.NotErrorIs(t, err, config.ErrIncomplete)
}

func TestLoadEndsWithItsContext(t *testing.T) {
	f := newFake()
	reached := make(chan struct{})
	f.instead(func(_ http.ResponseWriter, r *http.Request) { close(reached); <-r.Context().Done() })
	src := newSource(t, apollosource.Config{Servers: []string{serve(t, f), serve(t, newFake())}})
	for i := range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { _, err := src.Load(ctx); result <- err }()
		select {
		case <-reached:
			cancel()
			require.ErrorIs(t, <-result, context.Canceled)
			return
		case err := <-result: // the other one was first
			require.ErrorIs(t, err, config.ErrIncomplete)
			src = newSource(t, apollosource.Config{Servers: []string{serve(t, f), serve(t, newFake())}})
		}
		cancel()
		require.Less(t, i, 99)
	}
}

func TestString(t *testing.T) {
	src := newSource(t, apollosource.Config{Servers: []string{"http://a"}, Cluster: "north"})
	require.Equal(t, "apollo:shop/north/limits.yaml", src.String())
	require.NotContains(t, fmt.Sprintf("%v %+v %s", src, src, src), secret)
}
