package adapters_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// notes is a log that may be written from any goroutine.
type notes struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.Write(b)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.String()
}

// onServers runs f against a real server for every place, and wants silence in the logs of server and framework: no second
// status, no byte where none may be, no panic.
func onServers(t *testing.T, row degradeRow, f func(t *testing.T, p place, url string, c *http.Client)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			said := new(notes)
			guard, err := spillway.New(spillway.Config{Policies: row.policies()})
			require.NoError(t, err)
			row.echo = func(e *echo.Echo) {
				e.Logger.SetOutput(said)
				e.HTTPErrorHandler = func(err error, c echo.Context) { // as one that does not look whether there is an answer
					_, _ = fmt.Fprintln(said, c.Request().URL, err)
				}
			}
			s := httptest.NewUnstartedServer(p.build(row.service(guard, new(atomic.Int64))))
			s.Config.ErrorLog = log.New(said, "", 0)
			s.Start()
			c := s.Client()
			c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			f(t, p, s.URL, c)
			s.Close()
			require.Empty(t, said.String())
		})
	}
}

// fetched is one answer on the wire, read to its end.
func fetched(t *testing.T, c *http.Client, method, url string, header ...string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	for k := 0; k < len(header); k += 2 {
		r.Header.Set(header[k], header[k+1])
	}
	res, err := c.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res, string(body), err
}

// After a degraded answer nobody writes a second one.
func TestDegradedAnswersAreTheOnlyOnes(t *testing.T) {
	fixed := func(status int) func() degrade.Handler {
		cfg := degrade.StaticConfig{Status: status}
		if status != http.StatusNoContent {
			cfg.Contents = []degrade.Content{{Type: "text/plain", Body: []byte("wait")}}
		}
		return func() degrade.Handler { return degrade.Static(cfg) }
	}
	reads := func() degrade.Handler { return degrade.Within(limiter.PerHour(1), degrade.ReadOnly()) }
	type want struct {
		method, path string
		status       int
		body         string
		unrouted     bool
		header       []string
	}
	get := func(status int, body string) want { return want{method: "GET", path: "/x", status: status, body: body} }
	for name, tc := range map[string]struct {
		h      func() degrade.Handler
		denied bool
		wants  []want
	}{
		"a copy": {h: func() degrade.Handler { return degrade.Cached(degrade.NewPages(degrade.PagesConfig{})) }, wants: []want{
			get(200, "page"),
			{method: "HEAD", path: "/x", status: 200},
			{method: "GET", path: "/x", status: 304, header: []string{"If-None-Match", `"v1"`}},
		}},
		"a fixed answer": {h: fixed(503), wants: []want{
			get(503, "wait"),
			{method: "POST", path: "/x", status: 503, body: "wait"},
			{method: "HEAD", path: "/x", status: 503},
			{method: "GET", path: "/nothing", status: 503, body: "wait", unrouted: true},
		}},
		"a fixed answer beside an envelope": {h: fixed(200), denied: true, wants: []want{get(200, "wait")}},
		"no content":                        {h: fixed(204), wants: []want{get(204, ""), {method: "GET", path: "/nothing", status: 204, unrouted: true}}},
		"a redirect": {h: func() degrade.Handler { return degrade.Redirect(degrade.RedirectConfig{URL: "/y"}) }, wants: []want{
			get(307, "Temporary Redirect: /y\n"),
			{method: "POST", path: "/x", status: 303, body: "See Other: /y\n"},
			{method: "GET", path: "/nothing", status: 307, body: "Temporary Redirect: /y\n", unrouted: true},
		}},
		"an answer without a status": {h: func() degrade.Handler { return writing(text("less")) }, wants: []want{
			get(200, "less"), {method: "GET", path: "/nothing", status: 200, body: "less", unrouted: true},
		}},
		"no word": {h: func() degrade.Handler { return writing(func(http.ResponseWriter) {}) }, wants: []want{
			get(200, ""), {method: "GET", path: "/nothing", status: 200, unrouted: true},
		}},
		"in pieces": {h: func() degrade.Handler {
			return writing(func(w http.ResponseWriter) {
				text("a")(w)
				_ = http.NewResponseController(w).Flush()
				text("b")(w)
			})
		}, wants: []want{get(200, "ab"), {method: "GET", path: "/nothing", status: 200, body: "ab", unrouted: true}}},
		"a refused write": {h: reads, wants: []want{
			{method: "POST", path: "/x", status: 429, body: readOnlyProblem(3600)},
			{method: "GET", path: "/x", status: 200, body: "page"},
			{method: "HEAD", path: "/x", status: 429},
		}},
		"a refused write in an envelope": {h: reads, denied: true, wants: []want{
			{method: "POST", path: "/x", status: 429, body: "429 read_only_quota"},
			{method: "POST", path: "/nothing", status: 429, body: "429 read_only_quota", unrouted: true},
		}},
		"a refusal": {h: skips, wants: []want{
			get(429, problem("default", 3600)), {method: "GET", path: "/nothing", status: 429, body: problem("default", 3600), unrouted: true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			row := degradeRow{policies: degraded(tc.h), denied: tc.denied, routes: map[string]native{
				"GET /x": alike(func(w http.ResponseWriter, _ *http.Request) { fresh(w.Header()); _, _ = io.WriteString(w, "page") }),
			}}
			onServers(t, row, func(t *testing.T, p place, url string, c *http.Client) {
				_, body, err := fetched(t, c, "GET", url+"/x")
				require.NoError(t, err)
				require.Equal(t, "page", body)
				for _, want := range tc.wants {
					if want.unrouted && p.blind {
						continue
					}
					res, body, err := fetched(t, c, want.method, url+want.path, want.header...)
					require.NoError(t, err)
					require.Equal(t, want.status, res.StatusCode, want)
					require.Equal(t, want.body, body, want)
				}
			})
		})
	}
}

// A handler that breaks off behind its first byte breaks the connection off, with nothing in the log but what it says itself.
func TestHalfADegradedAnswerIsNoAnswer(t *testing.T) {
	row := degradeRow{policies: degraded(func() degrade.Handler {
		return writing(func(w http.ResponseWriter) {
			text("half")(w)
			_ = http.NewResponseController(w).Flush()
			panic("broken")
		})
	})}
	onServers(t, row, func(t *testing.T, _ place, url string, c *http.Client) {
		_, _, err := fetched(t, c, "GET", url+"/x")
		require.NoError(t, err)
		_, body, err := fetched(t, c, "GET", url+"/x")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, "half", body)
	})
}

// STR-01 STR-02: behind a policy with copies an event arrives while the handler is still at work, and is no copy.
func TestEventsPassByCopies(t *testing.T) {
	goOn := make(chan bool)
	wait := func(r *http.Request) {
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
	}
	row := degradeRow{policies: copies(degrade.PagesConfig{Flushed: true}), routes: map[string]native{"GET /events": {
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event:x\ndata:1\n\n")
			_ = http.NewResponseController(w).Flush()
			wait(r)
		},
		func(c *gin.Context) {
			n := 0
			c.Stream(func(io.Writer) bool {
				if n++; n == 2 {
					wait(c.Request)
					return false
				}
				c.SSEvent("x", "1")
				return true
			})
		},
		func(c echo.Context) error {
			c.Response().Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(c.Response(), "event:x\ndata:1\n\n")
			c.Response().Flush()
			wait(c.Request())
			return nil
		},
	}}}
	onServers(t, row, func(t *testing.T, p place, url string, c *http.Client) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/events", nil)
		require.NoError(t, err)
		res, err := c.Do(r)
		require.NoError(t, err)
		lines := bufio.NewReader(res.Body)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "event:x\n", line)
		goOn <- true
		_, err = io.Copy(io.Discard, lines)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		again, _, err := fetched(t, c, "GET", url+"/events")
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, again.StatusCode)
	})
}

// sink is a writer that sees what it is to send.
type sink struct {
	phone
	files int // sent whole, as by sendfile
}

func (s *sink) ReadFrom(src io.Reader) (int64, error) {
	if l, ok := src.(*io.LimitedReader); ok {
		src = l.R
	}
	if _, ok := src.(*os.File); ok {
		s.files++
	}
	return io.Copy(struct{ io.Writer }{s.ResponseRecorder}, src)
}

// What a server sends by sendfile it sends so behind a guard, unless it is recorded.
func TestFilesAreSentAsBefore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file.bin")
	require.NoError(t, os.WriteFile(name, make([]byte, 100<<10), 0o600))
	copied := func(w io.Writer) {
		f, err := os.Open(name)
		if err == nil {
			_, err = io.CopyN(w, f, 100<<10)
			_ = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}
	sent := 0
	for what, h := range map[string]native{
		"a file": {
			func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) },
			func(c *gin.Context) { c.File(name) },
			func(c echo.Context) error { return c.File(name) },
		},
		"a file below the framework's writer": {
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "102400"); copied(w) },
			func(c *gin.Context) { c.Header("Content-Length", "102400"); copied(c.Writer) },
			func(c echo.Context) error {
				c.Response().Header().Set("Content-Length", "102400")
				copied(c.Response().Writer)
				return nil
			},
		},
	} {
		for reason, policy := range map[string]spillway.Policy{
			"plain":             {},
			"settled":           {Refund: func(int) bool { return false }},
			"too large a page":  {Degrade: degrade.Cached(degrade.NewPages(degrade.PagesConfig{MaxPage: 50 << 10}))},
			"a page of nobody":  {Degrade: degrade.Cached(degrade.NewPages(degrade.PagesConfig{Statuses: []int{404}}))},
			"with a fixed text": {Degrade: degrade.Static(degrade.StaticConfig{Status: 204})},
		} {
			t.Run(what+", "+reason, func(t *testing.T) {
				policy.Name, policy.Key, policy.Limit = "default", keyfunc.IP(), limiter.PerHour(1)
				for _, p := range places {
					t.Run(p.name, func(t *testing.T) {
						files := func(guarded bool) int {
							guard, err := spillway.New(spillway.Config{Policies: []spillway.Policy{policy}})
							require.NoError(t, err)
							s := (&degradeRow{routes: map[string]native{"GET /file": h}}).service(guard, new(atomic.Int64))
							if !guarded {
								s.guards = nil
							}
							w := &sink{phone: phone{&wire{ResponseRecorder: httptest.NewRecorder()}}}
							p.build(s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/file", nil))
							require.Equal(t, http.StatusOK, w.Code)
							require.Equal(t, 100<<10, w.Body.Len())
							return w.files
						}
						bare := files(false)
						sent += bare
						require.Equal(t, bare, files(true))
					})
				}
			})
		}
	}
	require.Positive(t, sent, "net/http and what is below Echo's response do")
}
