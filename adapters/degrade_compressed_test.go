package adapters_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	echomw "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
)

// squeeze compresses what goes through, for clients that take it.
type squeeze struct {
	w       http.ResponseWriter
	zip     *gzip.Writer
	decided bool
}

func takesGzip(r *http.Request) bool {
	return r.Method != http.MethodHead && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// head decides when the status is known, as what has no body is not compressed.
func (s *squeeze) head(status int) {
	if s.decided {
		return
	}
	s.decided = true
	if h := s.w.Header(); status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified && h.Get("Content-Encoding") == "" {
		h.Del("Content-Length")
		h.Set("Content-Encoding", "gzip")
		s.zip = gzip.NewWriter(s.w)
	}
}

func (s *squeeze) write(b []byte) (int, error) {
	if s.head(http.StatusOK); s.zip != nil {
		return s.zip.Write(b)
	}
	return s.w.Write(b)
}

func (s *squeeze) close() {
	if s.zip != nil {
		_ = s.zip.Close()
	}
}

type stdSqueeze struct {
	http.ResponseWriter
	*squeeze
}

func (w stdSqueeze) WriteHeader(status int)      { w.head(status); w.ResponseWriter.WriteHeader(status) }
func (w stdSqueeze) Write(b []byte) (int, error) { return w.write(b) }
func (w stdSqueeze) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type ginSqueeze struct {
	gin.ResponseWriter
	*squeeze
}

func (w ginSqueeze) Write(b []byte) (int, error)       { w.head(w.Status()); return w.write(b) }
func (w ginSqueeze) WriteString(s string) (int, error) { return w.Write([]byte(s)) }
func (w ginSqueeze) WriteHeaderNow()                   { w.head(w.Status()); w.ResponseWriter.WriteHeaderNow() }

var compression = around{
	std: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "Accept-Encoding")
			if !takesGzip(r) {
				next.ServeHTTP(w, r)
				return
			}
			s := &squeeze{w: w}
			defer s.close()
			next.ServeHTTP(stdSqueeze{w, s}, r)
		})
	},
	gin: func(c *gin.Context) {
		c.Writer.Header().Add("Vary", "Accept-Encoding")
		if !takesGzip(c.Request) {
			return
		}
		s, before := &squeeze{w: c.Writer}, c.Writer
		c.Writer = ginSqueeze{c.Writer, s}
		defer func() {
			s.close()
			c.Writer = before
		}()
		c.Next()
	},
	echo: echomw.Gzip(),
}

// unpacked is the body, whose length has to be the one that is told where the guard answers.
func unpacked(t *testing.T, method string, served bool, w *httptest.ResponseRecorder) (body, coding string) {
	t.Helper()
	coding = w.Header().Get("Content-Encoding")
	if n := w.Header().Get("Content-Length"); n != "" && method != http.MethodHead && !served {
		require.Equal(t, strconv.Itoa(w.Body.Len()), n)
	}
	if coding == "" || method == http.MethodHead {
		return w.Body.String(), coding
	}
	require.Equal(t, "gzip", coding)
	z, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
	require.NoError(t, err)
	all, err := io.ReadAll(z)
	require.NoError(t, err)
	return string(all), coding
}

func compressedRows() []degradeRow {
	long := strings.Repeat("page ", 500)
	page := alike(func(w http.ResponseWriter, _ *http.Request) {
		fresh(w.Header())
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, long)
	})
	const zip = "Accept-Encoding: gzip"
	get := func(peer string, status int, served bool, coding string, header ...string) degradeStep {
		return degradeStep{do: "GET /page", peer: peer, header: header, status: status, answer: long, served: served, coding: coding}
	}
	row := func(name string, steps ...degradeStep) degradeRow {
		return degradeRow{name: name, policies: copies(degrade.PagesConfig{}), routes: map[string]native{"GET /page": page}, steps: steps}
	}
	refusal := degradeStep{do: "GET /page", status: 429, answer: "*", coding: "identity"}

	notModified := degradeStep{
		do: "GET /page", peer: "192.0.2.2", header: []string{zip, `If-None-Match: "v1"`}, status: http.StatusNotModified, coding: "identity",
	}
	both := []degradeStep{
		get("192.0.2.2", 200, true, "gzip", zip),
		get("192.0.2.2", 200, false, "gzip", zip),
		get("192.0.2.3", 200, true, "identity"),
		get("192.0.2.3", 200, false, "identity"),
		get("192.0.2.2", 200, false, "gzip", zip),
		{do: "HEAD /page", peer: "192.0.2.2", header: []string{zip}, status: 200},
		notModified,
	}
	inside := row("compression inside", append([]degradeStep{spend, refusal}, both...)...)
	inside.inside = []around{compression}
	// The copy of one coding is not for those that do not take it.
	only := row("compression inside, of one client", spend, get("192.0.2.2", 200, true, "gzip", zip), get("192.0.2.2", 200, false, "gzip", zip), refusal)
	only.inside = inside.inside
	outside := row("compression outside", append([]degradeStep{spend, refusal}, both...)...)
	outside.outside = []around{compression}
	return []degradeRow{inside, only, outside}
}
