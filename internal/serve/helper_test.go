package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/internal/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take to become true: far more than it takes, for machines that are busy.
const patience = 30 * time.Second

// output is a buffer whose reader can wait for a text.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	news chan struct{}
}

func newOutput() *output { return &output{news: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.news)
	o.news = make(chan struct{})
	return o.buf.Write(b)
}

func (o *output) String() string {
	text, _ := o.look()
	return text
}

func (o *output) look() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String(), o.news
}

// wait returns what matches, once it is there.
func (o *output) wait(t *testing.T, pattern string) []string {
	t.Helper()
	late := time.After(patience)
	for {
		text, news := o.look()
		if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-news:
		case <-late:
			require.Fail(t, "never said", "%s in:\n%s", pattern, text)
		}
	}
}

// running is a command that serves.
type running struct {
	url, admin string // base URLs
	addr       string // of url
	path       string // of the document
	out, log   *output
	stop       context.CancelFunc
	ended      chan error
}

// begin runs a command with the document in a file, and does not wait for it. An empty document is no file.
func begin(t *testing.T, document string, args ...string) *running {
	t.Helper()
	r := &running{path: filepath.Join(t.TempDir(), "policies.yaml"), out: newOutput(), log: newOutput(), ended: make(chan error, 1)}
	if document != "" {
		r.write(t, document)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	args = append([]string{"-config", r.path, "-listen", "127.0.0.1:0", "-admin", "0"}, args...)
	go func() { r.ended <- serve.Run(ctx, args, r.out, r.log, serve.Builtin()) }()
	return r
}

// start runs a command in front of upstream until the test is over.
func start(t *testing.T, document string, upstream http.Handler, args ...string) *running {
	t.Helper()
	back := httptest.NewServer(upstream)
	t.Cleanup(back.Close)
	return startAt(t, document, back.URL, args...)
}

func startAt(t *testing.T, document, upstream string, args ...string) *running {
	t.Helper()
	r := begin(t, document, append([]string{"-upstream", upstream}, args...)...)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		r.stop()
		require.NoError(t, <-r.ended, r.log)
	})
	r.url = r.out.wait(t, `serving \S+ on (http://\S+)\n`)[1]
	r.admin = r.out.wait(t, `admin on (http://\S+)\n`)[1]
	r.addr = strings.TrimPrefix(r.url, "http://")
	return r
}

// write replaces the document at once, as editors and ConfigMaps do.
func (r *running) write(t *testing.T, document string) {
	t.Helper()
	require.NoError(t, os.WriteFile(r.path+".new", []byte(document), 0o600))
	require.NoError(t, os.Rename(r.path+".new", r.path))
}

// reload replaces the document and waits until it is in force.
func (r *running) reload(t *testing.T, document string) {
	t.Helper()
	before := strings.Count(r.log.String(), "a new policy document is in force")
	r.write(t, document)
	r.log.wait(t, `(?s)(a new policy document is in force.*){`+strconv.Itoa(before+1)+`}`)
}

// request makes a request with header lines "Name: value".
func request(t *testing.T, method, url string, body io.Reader, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	return req
}

func do(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

func get(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	return do(t, request(t, http.MethodGet, url, nil, header...))
}

// raw sends bytes as they are and returns all that comes back until the server closes the connection: half a close by the
// client would be a client that has left.
func raw(t *testing.T, addr, text string) string {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, io.EOF) && len(answer) == 0 {
		require.NoError(t, err)
	}
	return string(answer)
}

// inTime receives, or fails.
func inTime[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		require.Fail(t, "never: "+what)
	}
	return v
}

// wide is a document that lets through whatever tests send.
const wide = `
version: 1
policies:
  - {name: all, key: [global], limit: 100000/m}
`

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })

// untilServed asks until a place in flight is free, and returns the fields of the answer.
func (r *running) untilServed(t *testing.T) http.Header {
	t.Helper()
	for late := time.Now().Add(patience); time.Now().Before(late); {
		if res, _ := get(t, r.url); res.StatusCode == http.StatusOK {
			return res.Header
		}
	}
	require.Fail(t, "no place is free")
	return nil
}
