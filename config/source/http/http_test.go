package httpsource_test

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/config"
	httpsource "github.com/spillway-go/spillway/config/source/http"
	"github.com/spillway-go/spillway/config/source/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSource(t *testing.T, c httpsource.Config) *httpsource.Source {
	t.Helper()
	s, err := httpsource.New(c)
	require.NoError(t, err)
	return s
}

func serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// kind is what a server can do.
type kind struct{ etag, modified, zip bool }

// document is a handler that serves one.
type document struct {
	kind

	mu   sync.Mutex
	doc  []byte
	at   time.Time
	full int // answers with a body
	last http.Header
}

func (d *document) set(doc []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doc, d.at = slices.Clone(doc), time.Now()
	if doc != nil && len(doc) == 0 {
		d.doc = []byte{}
	}
}

func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = r.Header.Clone()
	if d.doc == nil {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(d.doc)
	tag := strconv.Quote(hex.EncodeToString(sum[:8]))
	if d.etag {
		w.Header().Set("ETag", tag)
	}
	at := d.at.UTC().Format(http.TimeFormat)
	if d.modified {
		w.Header().Set("Last-Modified", at)
	}
	if d.etag && r.Header.Get("If-None-Match") == tag || d.modified && r.Header.Get("If-Modified-Since") == at {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	d.full++
	if d.zip && r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(d.doc)
		_ = z.Close()
		return
	}
	_, _ = w.Write(d.doc)
}

func TestTable(t *testing.T) {
	for name, kind := range map[string]kind{
		"ETag":             {etag: true},
		"Last-Modified":    {modified: true},
		"neither":          {},
		"gzip with ETag":   {etag: true, zip: true},
		"gzip by itself":   {zip: true},
		"ETag and changed": {etag: true, modified: true},
	} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
				d := &document{kind: kind}
				return newSource(t, httpsource.Config{URL: serve(t, d), Interval: 2 * time.Millisecond}), d.set
			})
		})
	}
}

// Over TLS and HTTP/2, with a client that keeps its connections.
func TestTableTLS(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
		d := &document{kind: kind{etag: true}}
		srv := httptest.NewUnstartedServer(d)
		srv.EnableHTTP2 = true
		srv.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that are closed before they were used
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return newSource(t, httpsource.Config{URL: srv.URL, Interval: 2 * time.Millisecond, Client: srv.Client()}), d.set
	})
}

func TestNewNamesEverythingWrong(t *testing.T) {
	for _, c := range []struct {
		config httpsource.Config
		want   []string
	}{
		{httpsource.Config{}, []string{"no URL"}},
		{httpsource.Config{URL: "http://u:s3cret/s3cret@host/", Interval: -1, Timeout: time.Hour}, []string{"does not parse", "Interval -1ns", "Timeout 1h0m0s"}},
		{httpsource.Config{URL: "ftp://host/"}, []string{`scheme "ftp"`}},
		{httpsource.Config{URL: "/limits.yaml"}, []string{`scheme ""`}},
		{httpsource.Config{URL: "http:///limits.yaml"}, []string{"no host"}},
		{httpsource.Config{URL: "http://host", Header: http.Header{"A b": {"x"}}}, []string{`"A b"`}},
		{httpsource.Config{URL: "http://host", Header: http.Header{"": {"x"}}}, []string{`Header ""`}},
		{httpsource.Config{URL: "http://host", Header: http.Header{"X-Token": {"s3cret\r\n"}}}, []string{`"X-Token"`}},
	} {
		s, err := httpsource.New(c.config)
		require.Nil(t, s)
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
		require.ErrorContains(t, err, "httpsource: ")
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// A document that has not changed is not sent again.
func TestNotModified(t *testing.T) {
	for name, c := range map[string]struct {
		kind  kind
		age   time.Duration
		field string // of the later requests
		full  int
	}{
		"ETag":                          {kind{etag: true, modified: true}, time.Hour, "If-None-Match", 1},
		"Last-Modified":                 {kind{modified: true}, time.Hour, "If-Modified-Since", 1},
		"Last-Modified that is too new": {kind{modified: true}, -time.Hour, "", 3},
		"neither":                       {kind{}, time.Hour, "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			d := &document{kind: c.kind}
			d.set([]byte("version: 1\n"))
			d.at = time.Now().Add(-c.age)
			s := newSource(t, httpsource.Config{URL: serve(t, d)})
			for range 3 {
				doc, err := s.Load(t.Context())
				require.NoError(t, err)
				require.Equal(t, "version: 1\n", string(doc))
			}
			require.Equal(t, c.full, d.full)
			for _, field := range []string{"If-None-Match", "If-Modified-Since"} {
				require.Equal(t, field == c.field, d.last.Get(field) != "", field)
			}
			require.Equal(t, "no-cache", d.last.Get("Cache-Control"))
		})
	}
}

// An ETag that cannot be sent back is none.
func TestStrangeETags(t *testing.T) {
	for _, tag := range []string{"\"a\x01b\"", "\"" + string(make([]byte, 2000)) + "\"", "unquoted", `W/"weak"`, ""} {
		var last http.Header
		s := newSource(t, httpsource.Config{URL: "http://localhost", Client: &http.Client{Transport: trip(func(r *http.Request) *http.Response {
			last = r.Header
			return answer(200, "version: 1\n", http.Header{"Etag": {tag}})
		})}})
		for range 2 {
			_, err := s.Load(t.Context())
			require.NoError(t, err)
		}
		if tag == "unquoted" || tag == `W/"weak"` {
			require.Equal(t, tag, last.Get("If-None-Match"))
		} else {
			require.NotContains(t, last, "If-None-Match")
		}
	}
}

func TestStatuses(t *testing.T) {
	for status, incomplete := range map[int]bool{
		204: true, 404: true, 410: true,
		201: false, 206: false, 300: false, 304: false, 400: false, 401: false, 403: false, 429: false, 500: false, 502: false, 503: false,
	} {
		s := newSource(t, httpsource.Config{URL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		})) + "/limits.yaml"})
		doc, err := s.Load(t.Context())
		require.Empty(t, doc)
		require.Equal(t, incomplete, isIncomplete(err), "%d: %v", status, err)
		require.ErrorContains(t, err, strconv.Itoa(status))
		require.ErrorContains(t, err, "httpsource: "+s.String())
		if !incomplete {
			calls := 0
			werr := s.Watch(t.Context(), func() { calls++ })
			require.Equal(t, err, werr, "the watch is lost")
			require.Zero(t, calls)
		}
	}
}

// A watch that works and loses its server ends.
func TestServersThatGoAway(t *testing.T) {
	d := &document{}
	d.set([]byte("version: 1\n"))
	srv := httptest.NewServer(d)
	s := newSource(t, httpsource.Config{URL: srv.URL, Interval: time.Millisecond})
	once := sync.OnceFunc(func() { go srv.Close() })
	err := s.Watch(t.Context(), once)
	require.ErrorContains(t, err, "httpsource: ")
	require.NotErrorIs(t, err, context.Canceled)
	srv.Close()
}

// trip is a transport without a network.
type trip func(*http.Request) *http.Response

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := f(r)
	resp.Request = r
	return resp, nil
}

func answer(status int, doc string, h http.Header) *http.Response {
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(io.LimitReader(readerOf(doc), int64(len(doc)))), ContentLength: int64(len(doc)),
	}
}
