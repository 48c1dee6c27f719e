package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// cut is a real partner that has taken requests on several connections, and then cuts each that is used again. It returns how
// many requests it has read since.
func cut(t *testing.T, strict bool, attempts int) (tr *client.Transport, url string, seen *atomic.Int64) {
	t.Helper()
	const connections = 5
	seen = new(atomic.Int64)
	var together sync.WaitGroup
	together.Add(connections)
	var cuts atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !cuts.Load() {
			together.Done()
			together.Wait()
			return
		}
		seen.Add(1)
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = c.Close()
		}
	}))
	t.Cleanup(s.Close)
	rt := &http.Transport{MaxIdleConnsPerHost: connections}
	t.Cleanup(rt.CloseIdleConnections)
	tr = newTransport(t, client.Config{
		Base: rt, Limiter: newMemory(t), Limit: limiter.PerSecond(limiter.MaxRate), Strict: strict,
		Retry: client.Retry{Attempts: attempts, Base: 1, Cap: 1},
	})
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			_, err := get(swap{tr, s.URL}, "x")
			require.NoError(t, err)
		})
	}
	wg.Wait()
	cuts.Store(true)
	return tr, s.URL, seen
}

// swap sends to another server what is for a.example.
type swap struct {
	rt  http.RoundTripper
	url string
}

func (s swap) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = "http", strings.TrimPrefix(s.url, "http://")
	return s.rt.RoundTrip(r)
}

// What net/http sends again by itself, where nothing keeps it from that, is seen and counted.
func TestResendsOfBaseAreCounted(t *testing.T) {
	tr, url, seen := cut(t, false, 1)
	before := tr.Stats()
	_, err := get(swap{tr, url}, "x")
	require.Error(t, err)
	now := tr.Stats()
	require.Equal(t, uint64(1), now.Sent-before.Sent)
	require.Greater(t, seen.Load(), int64(1), "net/http sends it again")
	require.Equal(t, uint64(seen.Load()), 1+now.Resent-before.Resent)
}

// Strict does not let it send a body again.
func TestStrictResendsNoBody(t *testing.T) {
	for name, c := range map[string]struct {
		method, key string
	}{"PUT": {http.MethodPut, ""}, "POST with a key": {http.MethodPost, "1"}} {
		t.Run(name, func(t *testing.T) {
			tr, url, seen := cut(t, true, 1)
			r, err := http.NewRequestWithContext(t.Context(), c.method, url, strings.NewReader("pay 1"))
			require.NoError(t, err)
			if c.key != "" {
				r.Header.Set("Idempotency-Key", c.key)
			}
			_, _, err = finish(tr.RoundTrip(r))
			require.Error(t, err)
			require.Equal(t, int64(1), seen.Load())
			require.Zero(t, tr.Stats().Resent)
			require.NotNil(t, r.GetBody, "the caller's request stays what it is")
		})
	}
}

// Each that was sent again takes its turn afterwards: those that follow leave so much later.
func TestResendsAreBooked(t *testing.T) {
	for name, limit := range map[string]limiter.Limit{"even": limiter.PerSecond(1), "bucket": limiter.PerSecond(1).WithBurst(4)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{}
				first := true
				b := base(func(r *http.Request) (*http.Response, error) {
					if trace := httptrace.ContextClientTrace(r.Context()); first {
						first = false
						for range 4 {
							trace.WroteHeaders()
						}
					}
					return p.RoundTrip(r)
				})
				tr := newTransport(t, client.Config{Base: b, Limit: limit, Headroom: 1, Strict: true})
				began := time.Now()
				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "x", nil)
					cancel()
					require.NoError(t, err)
				}
				least := 4 * time.Second // of the even one
				if name == "bucket" {
					least = time.Second // it had 4
				}
				require.Equal(t, least, time.Since(began))
				require.Equal(t, uint64(3), tr.Stats().Resent)
				require.Equal(t, uint64(2), tr.Stats().Sent)
			})
		})
	}
}
