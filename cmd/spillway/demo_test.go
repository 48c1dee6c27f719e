package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// output is a buffer that tells when the demo has printed everything.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	ready chan struct{}
	once  sync.Once
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		if bytes.Contains(o.buf.Bytes(), []byte("Stop with Ctrl-C.")) {
			o.once.Do(func() { close(o.ready) })
		}
	}()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// startDemo runs the demo on free ports and returns the base URLs of its servers.
func startDemo(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, errs := &output{ready: make(chan struct{})}, new(bytes.Buffer)
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"demo", "-http", "127.0.0.1:0", "-gin", "127.0.0.1:0", "-echo", "127.0.0.1:0"}, out, errs)
	}()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		require.Equal(t, exitOK, <-code, errs.String())
	})
	select {
	case <-out.ready:
	case c := <-code:
		require.Fail(t, "the demo ended", "exit %d: %s", c, errs)
	}
	urls := regexp.MustCompile(`(?m)^  \S+ +(http://127\.0\.0\.1:\d+)$`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, urls, 3)
	bases := make([]string, 0, 3)
	for _, u := range urls {
		bases = append(bases, u[1])
	}
	return bases
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

func TestDemoAnswersAlikeInThreeFrameworks(t *testing.T) {
	for _, base := range startDemo(t) {
		for k := range 5 {
			res, body := get(t, base+"/hello")
			require.Equal(t, http.StatusOK, res.StatusCode, "request %d", k+1)
			require.Equal(t, "hello\n", body)
			require.Equal(t, "5", res.Header.Get("X-RateLimit-Limit"))
			require.Empty(t, res.Header.Get("Retry-After"))
		}
		// Only a machine that took two seconds for the six requests would let this one pass.
		res, body := get(t, base+"/hello")
		require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
		require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
		require.Equal(t, "2", res.Header.Get("Retry-After"))
		require.Equal(t, "0", res.Header.Get("X-RateLimit-Remaining"))
		require.Equal(t, `"hello";r=0;t=2`, res.Header.Get("RateLimit"))
		require.Equal(t, `"hello";q=5;w=10`, res.Header.Get("RateLimit-Policy"))
		var problem struct {
			Status   int
			Violated []string `json:"violated-policies"`
		}
		require.NoError(t, json.Unmarshal([]byte(body), &problem))
		require.Equal(t, http.StatusTooManyRequests, problem.Status)
		require.Equal(t, []string{"hello"}, problem.Violated)

		res, _ = get(t, base+"/search")
		require.Equal(t, `"search-client";q=4;w=2, "search-all";q=30;w=60`, res.Header.Get("RateLimit-Policy"))
	}
}

func TestDemoPacesTheLeakyBucket(t *testing.T) {
	base := startDemo(t)[0]
	var wg sync.WaitGroup
	var mu sync.Mutex
	var at []time.Time
	for range 3 {
		wg.Go(func() {
			res, body := get(t, base+"/paced")
			if res.StatusCode != http.StatusOK {
				return
			}
			when, err := time.Parse("15:04:05.000\n", body)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			at = append(at, when)
		})
	}
	wg.Wait()
	require.Len(t, at, 3)
	first, last := at[0], at[0]
	for _, when := range at {
		if when.Before(first) {
			first = when
		}
		if when.After(last) {
			last = when
		}
	}
	// They cannot have left closer together; a slow machine only spreads them.
	require.GreaterOrEqual(t, last.Sub(first), 900*time.Millisecond)
}

// Each server shows its own guard, to this machine.
func TestDemoShowsItself(t *testing.T) {
	for _, base := range startDemo(t) {
		res, body := get(t, base+"/live/")
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Contains(t, body, "Policies")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/live/events", http.NoBody)
		require.NoError(t, err)
		res, err = http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, "text/event-stream; charset=utf-8", res.Header.Get("Content-Type"))
		first := make([]byte, 2048)
		n, err := io.ReadFull(res.Body, first)
		require.NoError(t, err, "%s", first[:n])
		require.Contains(t, string(first), `"name":"hello"`)
		require.NoError(t, res.Body.Close())
		req.Host = "evil.example"
		res, err = http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusForbidden, res.StatusCode)
	}
}

func TestDemoNamesTheFlagOfABusyPort(t *testing.T) {
	busy, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, busy.Close()) }()
	for _, name := range []string{"http", "gin", "echo"} {
		args := []string{"demo"}
		for _, other := range []string{"http", "gin", "echo"} {
			addr := "127.0.0.1:0"
			if other == name {
				addr = busy.Addr().String()
			}
			args = append(args, "-"+other, addr)
		}
		out, errs := new(bytes.Buffer), new(bytes.Buffer)
		require.Equal(t, exitError, run(t.Context(), args, out, errs))
		require.Contains(t, errs.String(), "-"+name+" host:port")
		require.Empty(t, out.String())
	}
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{nil, exitUsage},
		{[]string{"dem"}, exitUsage},
		{[]string{"demo", "-nope"}, exitUsage},
		{[]string{"demo", "extra"}, exitUsage},
		{[]string{"demo", "-h"}, exitOK},
		{[]string{"help"}, exitOK},
		{[]string{"demo", "-http", "256.0.0.1:0"}, exitError},
	} {
		require.Equal(t, tt.want, run(t.Context(), tt.args, io.Discard, io.Discard), "%v", tt.args)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
