package client_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// One key for destinations of two protocols, or for both schemes of one host: what an answer of one has told is not used for the other.
func TestProtocolsAreOfDestinations(t *testing.T) {
	const connections = 5
	for _, name := range []string{"one key for all", "both schemes of a host"} {
		t.Run(name, func(t *testing.T) {
			var together sync.WaitGroup
			together.Add(connections)
			var seen atomic.Int64
			plain := listen(t, func(c net.Conn, n int64) {
				r := bufio.NewReader(c)
				if _, ok := head(r); !ok {
					return
				}
				if n <= connections {
					together.Done()
					together.Wait()
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				if _, ok := head(r); ok { // taken, and cut
					seen.Add(1)
				}
			})
			p := &http2Partner{answer: func(w io.Writer, stream uint32, _ int64) bool { return ok200(w, stream) }}
			secure, rt := p.start(t)
			rt.MaxIdleConnsPerHost = connections
			key := keyfunc.Global()
			if name != "one key for all" {
				key = nil
				to := map[string]string{"example.com:80": strings.TrimPrefix(plain, "http://"), "example.com:443": strings.TrimPrefix(secure, "https://")}
				rt.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, to[address])
				}
				plain, secure = "http://example.com", "https://example.com"
			}
			tr := newTransport(t, client.Config{
				Base: rt, Key: key, Limit: limiter.PerSecond(limiter.MaxRate), Strict: true, Retry: client.Retry{Attempts: 1},
			})
			var wg sync.WaitGroup
			for range connections {
				wg.Go(func() {
					_, _, err := call(t.Context(), tr, http.MethodGet, plain, "x", nil)
					require.NoError(t, err)
				})
			}
			wg.Wait()
			for range 2 {
				_, err := ask(t, tr, http.MethodGet, secure)
				require.NoError(t, err)
			}
			require.Zero(t, p.open.Load()+p.data.Load(), "a request on HTTP/2 is as without")
			_, err := ask(t, tr, http.MethodGet, plain)
			require.Error(t, err)
			require.Equal(t, int64(1), seen.Load())
			require.Zero(t, tr.Stats().Resent)
			require.Equal(t, 1, tr.Stats().Destinations)
		})
	}
}

// A request for another protocol goes over HTTP/1 where others do not, and tells nothing of them.
func TestUpgradesTellNothing(t *testing.T) {
	p := &http2Partner{answer: func(w io.Writer, stream uint32, _ int64) bool { return ok200(w, stream) }}
	url, rt := p.start(t)
	tr := newTransport(t, client.Config{Base: rt})
	for range 2 {
		status, err := ask(t, tr, http.MethodGet, url, "Connection", "Upgrade", "Upgrade", "websocket")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, status, "that of HTTP/1")
		status, err = ask(t, tr, http.MethodGet, url)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
	}
	require.Zero(t, p.open.Load()+p.data.Load())
}

// What is remembered of protocols does not grow with the destinations.
func TestProtocolsAreForgotten(t *testing.T) {
	tr := newTransport(t, client.Config{Base: &partner{}, MaxDestinations: 10})
	for i := range 100 {
		_, _, err := call(t.Context(), tr, http.MethodGet, fmt.Sprintf("http://h%d.example/", i), "x", nil)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, tr.Protocols(), 20)
}
