package httpsource_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	httpsource "github.com/spillway-go/spillway/config/source/http"
)

// wire is a client whose connections lead to a function, each in memory, where time is that of a bubble.
func wire(serve func(n int, c net.Conn)) *http.Client {
	var n atomic.Int32
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close() //nolint:errcheck // a pipe
				serve(int(n.Add(1)), theirs)
			}()
			return ours, nil
		},
	}}
}

// request reads a request: up to an empty line.
func request(c net.Conn) string {
	var got []byte
	for b := make([]byte, 4096); !bytes.HasSuffix(got, []byte("\r\n\r\n")); {
		n, err := c.Read(b)
		if err != nil {
			break
		}
		got = append(got, b[:n]...)
	}
	return string(got)
}

func say(text string) func(int, net.Conn) {
	return func(_ int, c net.Conn) {
		request(c)
		_, _ = io.WriteString(c, text)
	}
}

func zipped(t *testing.T, doc []byte) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(doc)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// Half of an answer is no document.
func TestAnswersThatAreCutOff(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	half := zipped(t, []byte(strings.Repeat("version: 1\n", 100)))
	half = half[:len(half)-4]
	for text, want := range map[string]string{
		"":                                     "EOF",
		head:                                   "EOF",
		head + "Content-Length: 20\r\n\r\nver": "unexpected EOF",
		head + "Transfer-Encoding: chunked\r\n\r\n3\r\nver\r\n5\r\nsi":     "unexpected EOF",
		head + "Transfer-Encoding: chunked\r\n\r\n3\r\nver\r\n":            "unexpected EOF",
		head + "\r\nversion: 1\n":                                          "says nowhere where it ends",
		"HTTP/1.0 200 OK\r\n\r\nversion: 1\n":                              "says nowhere where it ends",
		head + "Content-Encoding: gzip\r\n\r\n" + half:                     "unexpected EOF",
		head + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nver":    "EOF",
		head + "Content-Encoding: gzip\r\nContent-Length: 10\r\n\r\nverve": "EOF",
		head + "Content-Encoding: br\r\nContent-Length: 3\r\n\r\nver":      `Content-Encoding "br"`,
		head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nvers":        "Content-Length",
		"garbage\r\n\r\n": "malformed",
	} {
		doc, err := newSource(t, httpsource.Config{URL: "http://localhost", Client: wire(say(text))}).Load(t.Context())
		require.ErrorContains(t, err, want, "%q", text)
		require.NotErrorIs(t, err, config.ErrIncomplete)
		require.Empty(t, doc)
	}
}

// gzip that nobody has asked for is understood, and a whole document by the end of its checksum.
func TestGzip(t *testing.T) {
	text := "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + zipped(t, []byte("version: 1\n"))
	for _, plain := range []bool{false, true} {
		c := wire(say(text))
		c.Transport.(*http.Transport).DisableCompression = plain
		doc, err := newSource(t, httpsource.Config{URL: "http://localhost", Client: c}).Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "version: 1\n", string(doc))
	}
}

// What grows a thousandfold is read as far as a document may be long.
func TestGzipBomb(t *testing.T) {
	bomb := zipped(t, make([]byte, 32<<20))
	for _, plain := range []bool{false, true} {
		var sent atomic.Int64
		c := wire(func(_ int, c net.Conn) {
			request(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
			for rest := bomb; rest != ""; rest = rest[min(4096, len(rest)):] {
				n, err := io.WriteString(c, rest[:min(4096, len(rest))])
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		c.Transport.(*http.Transport).DisableCompression = plain
		_, err := newSource(t, httpsource.Config{URL: "http://localhost", Client: c}).Load(t.Context())
		require.ErrorContains(t, err, "larger than 1048576 bytes")
		require.Less(t, sent.Load(), int64(16<<10))
	}
}

// However slowly it comes, an answer has its time; and the caller may leave before.
func TestSlowAnswers(t *testing.T) {
	for name, serve := range map[string]func(int, net.Conn){
		"silence": func(_ int, c net.Conn) {
			request(c)
			_, _ = c.Read(make([]byte, 1)) // until it is hung up
		},
		"a request that nobody reads": func(_ int, c net.Conn) {
			time.Sleep(time.Minute)
		},
		"a body drop by drop": func(_ int, c net.Conn) {
			request(c)
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
			for err == nil {
				time.Sleep(time.Second / 3)
				_, err = io.WriteString(c, "#")
			}
		},
		"a head without end": func(_ int, c net.Conn) {
			request(c)
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				time.Sleep(time.Second / 3)
				_, err = io.WriteString(c, "X: y\r\n")
			}
		},
		"gzip of nothing": func(_ int, c net.Conn) {
			request(c)
			var nothing bytes.Buffer
			_ = gzip.NewWriter(&nothing).Close()
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
			for err == nil {
				time.Sleep(time.Second / 3)
				_, err = c.Write(nothing.Bytes())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(t, httpsource.Config{URL: "http://localhost", Client: wire(serve)})
				began := time.Now()
				_, err := s.Load(t.Context())
				require.ErrorContains(t, err, "no whole answer within 10s")
				require.NotErrorIs(t, err, context.DeadlineExceeded, "which would be the caller's")
				require.Equal(t, 10*time.Second, time.Since(began))

				for _, call := range []func(context.Context) error{
					func(ctx context.Context) error { _, err := s.Load(ctx); return err },
					func(ctx context.Context) error { return s.Watch(ctx, func() {}) },
				} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					began = time.Now()
					require.ErrorIs(t, call(ctx), context.DeadlineExceeded)
					require.Equal(t, time.Second, time.Since(began))
					cancel()
				}
				time.Sleep(time.Minute) // for those who have not read
			})
		})
	}
}

// The server is asked in time, not in step, whatever it says about caches.
func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		s := newSource(t, httpsource.Config{URL: "http://localhost", Client: &http.Client{Transport: trip(func(*http.Request) *http.Response {
			at = append(at, time.Now())
			return answer(200, "version: 1\n", http.Header{"Cache-Control": {"max-age=86400"}})
		})}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		calls := 0
		require.ErrorIs(t, s.Watch(ctx, func() { calls++ }), context.DeadlineExceeded)
		require.Equal(t, 1, calls)
		require.InDelta(t, 360, len(at), 10)
		pauses := map[time.Duration]bool{}
		for i := range at[1:] {
			pause := at[i+1].Sub(at[i])
			pauses[pause] = true
			require.InDelta(t, 10, pause.Seconds(), 1)
		}
		require.Greater(t, len(pauses), 100)
	})
}

// A server that is busy is left alone for as long as it says.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		status int
		after  func() string
		want   time.Duration
	}{
		{503, func() string { return "30" }, 30 * time.Second},
		{429, func() string { return "30" }, 30 * time.Second},
		{503, func() string { return time.Now().Add(45 * time.Second).UTC().Format(http.TimeFormat) }, 45 * time.Second},
		{503, func() string { return "86400" }, 10 * time.Minute},
		{503, func() string { return "99999999999999999999999999" }, 10 * time.Minute},
		{503, func() string { return time.Now().AddDate(100, 0, 0).UTC().Format(http.TimeFormat) }, 10 * time.Minute},
		{503, func() string { return time.Now().AddDate(-9, 0, 0).UTC().Format(http.TimeFormat) }, 0},
		{503, func() string { return "0" }, 0},
		{503, func() string { return "-5" }, 0},
		{503, func() string { return "soon" }, 0},
		{503, func() string { return "" }, 0},
		{500, func() string { return "30" }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			s := newSource(t, httpsource.Config{URL: "http://localhost", Client: &http.Client{Transport: trip(func(*http.Request) *http.Response {
				if asked++; asked == 1 {
					return answer(c.status, "", http.Header{"Retry-After": {c.after()}})
				}
				return answer(200, "version: 1\n", nil)
			})}})
			began := time.Now()
			_, err := s.Load(t.Context())
			require.ErrorContains(t, err, http.StatusText(c.status))
			if c.want > 0 {
				time.Sleep(c.want - time.Nanosecond)
				_, err = s.Load(t.Context())
				require.ErrorContains(t, err, "not to be asked for")
				require.ErrorContains(t, err, http.StatusText(c.status))
				require.NotErrorIs(t, err, config.ErrIncomplete)
				require.Equal(t, 1, asked)
			}
			// A watch waits for it.
			ctx, cancel := context.WithCancel(t.Context())
			require.ErrorIs(t, s.Watch(ctx, cancel), context.Canceled)
			require.Equal(t, c.want, time.Since(began))
			require.Equal(t, 2, asked)
			_, err = s.Load(t.Context())
			require.NoError(t, err)
		})
	}
}

// Who waits for a busy server may leave.
func TestRetryAfterEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, httpsource.Config{URL: "http://localhost", Client: &http.Client{Transport: trip(func(*http.Request) *http.Response {
			return answer(503, "", http.Header{"Retry-After": {"300"}})
		})}})
		require.ErrorContains(t, s.Watch(t.Context(), func() {}), "status 503")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Watch(ctx, func() {}), context.DeadlineExceeded)
	})
}
