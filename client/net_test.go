package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// soon is a Retry that costs a test of real connections no time.
var soon = client.Retry{Base: 1, Cap: 1, Ratio: -1}

// server is a real one, which counts its connections.
func server(t *testing.T, h http.HandlerFunc) (url string, connections *atomic.Int64, rt *http.Transport) {
	t.Helper()
	connections = new(atomic.Int64)
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	rt = &http.Transport{}
	t.Cleanup(rt.CloseIdleConnections)
	return s.URL, connections, rt
}

// Answers that are given up are read to their end if they are short and say so, and a retry uses the same connection.
func TestConnectionsAreUsedAgain(t *testing.T) {
	for length, most := range map[int]int64{0: 1, 100: 1, 2000: 1, 10_000_000: 41} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			var n atomic.Int64
			url, connections, rt := server(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if n.Add(1)%3 != 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = io.WriteString(w, strings.Repeat("x", length))
					return
				}
				_, _ = w.Write(body)
			})
			tr := newTransport(t, client.Config{Base: rt, Retry: soon, Breaker: client.Breaker{Failures: -1}})
			for i := range 20 {
				text := fmt.Sprint("text ", i)
				status, said, err := call(t.Context(), tr, http.MethodPut, url, "x", strings.NewReader(text))
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, text, said)
			}
			require.LessOrEqual(t, connections.Load(), most)
		})
	}
}

// Many at once over real connections, some of which leave at any moment: nothing is left behind.
func TestStorm(t *testing.T) {
	var n atomic.Int64
	url, _, rt := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch n.Add(1) % 7 {
		case 0:
			w.WriteHeader(http.StatusBadGateway)
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.Header().Set("Ratelimit", `"p";r=100000;t=1`)
		}
		_, _ = w.Write(body)
	})
	tr := newTransport(t, client.Config{
		Base: rt, Limit: limiter.PerSecond(20_000), Retry: soon, InFlight: 8, Breaker: client.Breaker{Failures: -1}, PaceBelow: -1,
	})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if i%5 == 0 {
					go cancel()
				}
				text := fmt.Sprint(g, " ", i)
				status, said, err := call(ctx, tr, http.MethodPut, url, "x", strings.NewReader(text))
				if err == nil && status == http.StatusOK {
					require.Equal(t, text, said)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Zero(t, tr.InFlight())
	require.Zero(t, tr.Waiting())
}

// With a real Redis that dies: Strict sends nothing without it, and goes on when it is back.
func TestRedisDies(t *testing.T) {
	store := redistest.Start(t)
	l, err := redislimit.New(redislimit.Config{Client: store.Client()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &partner{}
	strict := newTransport(t, client.Config{Base: p, Limiter: l, Limit: limiter.PerSecond(1000), Strict: true, MaxWait: 200 * ms})
	patient := newTransport(t, client.Config{Base: p, Limiter: l, Limit: limiter.PerSecond(1000), Strict: true, MaxWait: time.Minute})
	shares := newTransport(t, client.Config{Base: p, Limiter: l, Limit: limiter.PerSecond(1000)})
	_, err = get(patient, "with it")
	require.NoError(t, err)
	store.Kill()
	_, err = get(strict, "without it")
	require.Equal(t, client.ReasonUnavailable, limited(t, err).Reason)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	_, err = get(shares, "by its share")
	require.NoError(t, err)
	waits := make(chan error, 1)
	go func() {
		_, err := get(patient, "waits for it")
		waits <- err
	}()
	store.Restart()
	require.NoError(t, <-waits)
	require.Equal(t, []string{"with it", "by its share", "waits for it"}, p.names(""))
}
