package serve_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A chunk of a stream arrives before the stream ends.
func TestStream(t *testing.T) {
	more := make(chan struct{})
	r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for range 3 {
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	res, err := http.DefaultClient.Do(request(t, "GET", r.url, nil)) // the fields come before the first chunk
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.NotEmpty(t, res.Header.Get("X-RateLimit-Remaining"))
	lines := bufio.NewReader(res.Body)
	for range 3 {
		more <- struct{}{}
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "data: x\n", line)
		_, _ = lines.ReadString('\n')
	}
	_, err = lines.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

// Bodies are passed on as they come, both ways at once.
func TestBodiesAreNotBuffered(t *testing.T) {
	r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	}))
	body, feed := io.Pipe()
	answer := make(chan *http.Response, 1)
	req := request(t, "POST", r.url, body)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			close(answer)
			return
		}
		answer <- res
	}()
	_, err := feed.Write([]byte("first"))
	require.NoError(t, err)
	res := inTime(t, "an answer before the request has ended", answer)
	require.NotNil(t, res)
	defer func() { _ = res.Body.Close() }()
	got := make([]byte, 5)
	_, err = io.ReadFull(res.Body, got)
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
	const size, rounds = 1 << 20, 32
	chunk := []byte(strings.Repeat("x", size))
	back := make([]byte, size)
	for range rounds { // what was sent has come back before more is sent: nothing is kept on the way
		sent := make(chan error, 1)
		go func() { _, err := feed.Write(chunk); sent <- err }()
		_, err = io.ReadFull(res.Body, back)
		require.NoError(t, err)
		require.NoError(t, <-sent)
	}
	require.NoError(t, feed.Close())
	_, err = res.Body.Read(got)
	require.ErrorIs(t, err, io.EOF)
}

func TestTrailers(t *testing.T) {
	r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Announced, X-RateLimit-Remaining")
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, r.Trailer)
		w.Header().Set("X-Announced", "1")
		w.Header().Set("X-RateLimit-Remaining", "7") // what the proxy tells in the fields stays the truth
		w.Header().Set(http.TrailerPrefix+"RateLimit", `"other";r=7`)
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	}))
	req := request(t, "POST", r.url, io.NopCloser(strings.NewReader("body")), "Te: trailers")
	req.Trailer = http.Header{"X-Sum": {"abc"}, "X-Forwarded-For": {"203.0.113.9"}}
	res, body := do(t, req)
	require.Equal(t, "body map[X-Sum:[abc]]", body, "what tells of the way is no client's to tell, in trailers either")
	require.Equal(t, http.Header{"X-Announced": {"1"}, "X-Late": {"2"}}, res.Trailer)
}

func TestOldAndHead(t *testing.T) {
	r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Method", r.Method)
		_, _ = io.WriteString(w, "hello")
	}))
	answer := raw(t, r.addr, "GET / HTTP/1.0\r\n\r\n")
	require.Contains(t, answer, "HTTP/1.0 200 OK\r\n")
	require.NotContains(t, strings.ToLower(answer), "transfer-encoding")
	require.True(t, strings.HasSuffix(answer, "\r\n\r\nhello"), answer)

	res, body := do(t, request(t, "HEAD", r.url, nil))
	require.Empty(t, body)
	require.Equal(t, "HEAD", res.Header.Get("X-Method"))
	require.EqualValues(t, 5, res.ContentLength)
	require.NotEmpty(t, res.Header.Get("X-RateLimit-Remaining"))
}

// A client that asks before it sends is answered by the upstream, and one that is refused need not send.
func TestContinue(t *testing.T) {
	r := start(t, `
version: 1
policies:
  - {name: few, match: {routes: ["/few"]}, key: [global], limit: 1/h}
  - {name: all, key: [global], limit: 1000/m}
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s", body)
	}))
	ask := func(path string) (status int, body string, asked bool, told http.Header) {
		continued := make(chan struct{})
		sent := false
		trace := &httptrace.ClientTrace{Got100Continue: func() { close(continued) }}
		req := request(t, "PUT", r.url+path, readerFunc(func(b []byte) (int, error) {
			sent = true
			return copy(b, "hello"), io.EOF
		}), "Expect: 100-continue")
		res, err := (&http.Transport{ExpectContinueTimeout: patience, DisableKeepAlives: true}).RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text), sent, res.Header
	}
	status, body, sent, header := ask("/few")
	require.Equal(t, 200, status)
	require.Equal(t, "hello", body)
	require.True(t, sent)
	require.Equal(t, "0", header.Get("X-RateLimit-Remaining"), "100 takes no fields along")
	status, _, sent, _ = ask("/few")
	require.Equal(t, 429, status)
	require.False(t, sent, "nobody sends what is refused")
	status, _, sent, _ = ask("/no")
	require.Equal(t, http.StatusExpectationFailed, status)
	require.False(t, sent)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// An early hint passes, and the fields of the guard stay for the answer.
func TestEarlyHints(t *testing.T) {
	r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.Header().Set("X-RateLimit-Remaining", "7")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("X-RateLimit-Remaining")
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "ok")
	}))
	var hints []string
	req := request(t, "GET", r.url, nil)
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hints = append(hints, fmt.Sprint(code, " ", h.Get("Link"), " ", h["X-Ratelimit-Remaining"]))
		return nil
	}}
	res, _ := do(t, req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	require.Equal(t, []string{"103 </style.css>; rel=preload [99999]"}, hints)
	require.Equal(t, "99999", res.Header.Get("X-RateLimit-Remaining"))
	require.Empty(t, res.Header.Get("Link"))
}

// The upstream learns that a client has left.
func TestClientGone(t *testing.T) {
	serving, gone := make(chan struct{}), make(chan struct{})
	r := start(t, `
version: 1
policies:
  - {name: all, key: [global], limit: 3/h, refund: [5xx], in_flight: 1}
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(serving)
			<-r.Context().Done()
			close(gone)
		}
	}))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	req := request(t, "GET", r.url+"/wait", nil).WithContext(ctx)
	go func() {
		defer close(left)
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
	}()
	inTime(t, "the upstream serves", serving)
	leave()
	inTime(t, "the upstream sees it", gone)
	<-left
	// The place in flight is free again, and what was asked for stays paid.
	require.Equal(t, "1", r.untilServed(t).Get("X-RateLimit-Remaining"))
}

func TestUpstreamDown(t *testing.T) {
	back := httptest.NewServer(ok)
	back.Close()
	r := startAt(t, `
version: 1
policies:
  - {name: all, key: [global], limit: 2/h, refund: [5xx]}
`, back.URL)
	for range 5 { // given back each time
		res, body := get(t, r.url)
		require.Equal(t, http.StatusBadGateway, res.StatusCode)
		require.Equal(t, "1", res.Header.Get("X-RateLimit-Remaining"))
		require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
		require.Equal(t, "Bad Gateway\n", body)
	}
	require.Equal(t, 1, strings.Count(r.log.String(), "the upstream does not answer"), "one line a second:\n%s", r.log)
}

// A response that breaks off is the client's to see, frees its place in flight and is paid.
func TestUpstreamBreaksOff(t *testing.T) {
	r := start(t, `
version: 1
policies:
  - {name: all, key: [global], limit: 2/h, refund: [5xx], in_flight: 1}
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/broken" {
			return
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	res, err := http.DefaultClient.Do(request(t, "GET", r.url+"/broken", nil))
	require.NoError(t, err)
	_, err = io.ReadAll(res.Body)
	require.Error(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "0", r.untilServed(t).Get("X-RateLimit-Remaining"))
	_, metrics := get(t, r.admin+"/metrics")
	require.Contains(t, metrics, `rate_limit_errors_total{cause="panic",policy="all"} 0`)
}

// What was not asked for compressed is not unpacked on the way, and nothing else of the content is touched.
func TestContentIsUntouched(t *testing.T) {
	r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accepts", fmt.Sprint(r.Header["Accept-Encoding"]))
		w.Header().Set("X-Agent", fmt.Sprint(r.Header["User-Agent"]))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "raw")
	}))
	answer := raw(t, r.addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.Contains(t, answer, "X-Accepts: []\r\n")
	require.Contains(t, answer, "X-Agent: []\r\n")
	require.Contains(t, answer, "Content-Encoding: gzip\r\n")
	require.True(t, strings.HasSuffix(answer, "\r\n\r\nraw"), answer)
}

// An upstream that has heard enough is understood, whatever the client still has to send.
func TestEarlyAnswer(t *testing.T) {
	r := start(t, wide, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 10))
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	for range 5 {
		res, _ := do(t, request(t, "POST", r.url, strings.NewReader(strings.Repeat("x", 8<<20))))
		require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
		require.NotEmpty(t, res.Header.Get("X-RateLimit-Remaining"))
		res, _ = do(t, request(t, "POST", r.url, strings.NewReader("0123456789")))
		require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	}
}
