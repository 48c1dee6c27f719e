package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// served is a handler reached without a network, each way with a latency.
type served struct {
	h       http.Handler
	latency time.Duration
	slow    bool // what it serves takes as long

	mu      sync.Mutex
	ok, no  int
	firstAt time.Time                                 // when the first answer was read
	after   func(started time.Time, r *http.Response) // what came of a request
}

func (s *served) RoundTrip(r *http.Request) (*http.Response, error) {
	started := time.Now()
	time.Sleep(s.latency)
	in := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), r.Body)
	in.Header = r.Header.Clone()
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, in)
	res := w.Result()
	if s.slow {
		time.Sleep(s.latency) // the handler takes as long, after the guard
	}
	res.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat)) // as a server of net/http does
	time.Sleep(s.latency)
	s.mu.Lock()
	if s.firstAt.IsZero() {
		s.firstAt = time.Now()
	}
	if res.StatusCode == http.StatusTooManyRequests {
		s.no++
	} else {
		s.ok++
	}
	s.mu.Unlock()
	if s.after != nil {
		s.after(started, res)
	}
	return res, nil
}

func guarded(t *testing.T, headers response.Set, limits ...limiter.Limit) http.Handler {
	t.Helper()
	var policies []spillway.Policy
	for i, limit := range limits {
		policies = append(policies, spillway.Policy{Name: fmt.Sprint("p", i), Key: keyfunc.Global(), Limit: limit, Headers: headers})
	}
	g, err := spillway.New(spillway.Config{Limiter: newMemory(t), Policies: policies})
	require.NoError(t, err)
	return stdhttp.Middleware(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
}

// Fifty goroutines that know nothing of a limit, and a guard that tells it: what starts after the first answer has been
// read is never refused, however the guard counts and says it.
func TestNoRefusalAfterTheFirstAnswer(t *testing.T) {
	sets := map[string]response.Set{
		"x": response.X, "draft-11": response.Draft11Set, "both": response.Both,
		"draft-07": {Draft: response.Draft07}, "draft-06": {Draft: response.Draft06}, "next": {Draft: response.DraftNext},
	}
	limits := map[string][]limiter.Limit{
		"bucket":  {limiter.PerSecond(20)},
		"slow":    {limiter.PerMinute(30)},
		"window":  {limiter.Per(40, 5*time.Second).With(limiter.FixedWindow)},
		"sliding": {limiter.Per(40, 5*time.Second).With(limiter.SlidingWindow)},
		"two":     {limiter.PerSecond(8), limiter.Per(60, 10*time.Second).With(limiter.SlidingLog)},
		"log":     {limiter.Per(40, 5*time.Second).With(limiter.SlidingLog)},
	}
	for told, set := range sets {
		for counted, limit := range limits {
			for _, latency := range []time.Duration{0, 30 * ms, 700 * ms} {
				slow := latency > 100*ms && told != "both"
				t.Run(fmt.Sprint(told, " ", counted, " ", latency), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(17*time.Second + 3*ms)
						fifty(t, limit, set, latency, slow)
					})
				})
			}
		}
	}
}

func fifty(t *testing.T, limits []limiter.Limit, set response.Set, latency time.Duration, slow bool) {
	s := &served{h: guarded(t, set, limits...), latency: latency, slow: slow}
	var late []string
	s.after = func(started time.Time, res *http.Response) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if res.StatusCode == http.StatusTooManyRequests && started.After(s.firstAt) {
			late = append(late, fmt.Sprint(started.Format("05.000"), " ", res.Header))
		}
	}
	tr := newTransport(t, client.Config{Base: s, InFlight: -1, MaxWait: -1, Retry: client.Retry{Ratio: -1, Attempts: 5}})
	const whole = 45 * time.Second
	end := time.Now().Add(whole)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ctx, cancel := context.WithDeadline(context.Background(), end)
			defer cancel()
			for ctx.Err() == nil {
				if _, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", fmt.Sprint(i), nil); err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, late, "%d ok, %d refused", s.ok, s.no)
	require.Less(t, s.no, 51)
	limit := limits[len(limits)-1]
	possible := float64(limit.Rate) * float64(whole) / float64(limit.Period)
	t.Logf("%d of %.0f that the limit would admit, %d refused", s.ok, possible, s.no)
	require.Greater(t, float64(s.ok), possible*0.05, "it has stalled")
}

// A foreign client, as most services have it, obeys what our guard sends: it comes back when it was told and is let in.
func TestForeignClientObeysTheGuard(t *testing.T) {
	for _, limit := range []limiter.Limit{
		limiter.Per(1, 3*time.Second), limiter.PerMinute(2).With(limiter.FixedWindow), limiter.Per(2, 7*time.Second).With(limiter.SlidingLog),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(17*time.Second + 3*ms)
				s := &served{h: guarded(t, response.Both, limit), latency: ms}
				c := retryablehttp.NewClient()
				c.Logger = nil
				c.HTTPClient = &http.Client{Transport: s}
				for range limit.Quota() {
					require.Equal(t, http.StatusOK, foreign(t, c))
				}
				require.Zero(t, s.no)
				for range 3 {
					s.ok, s.no = 0, 0
					require.Equal(t, http.StatusOK, foreign(t, c), "it gave up")
					require.Equal(t, 1, s.ok)
					require.LessOrEqual(t, s.no, 1, "told a wait that was not enough")
				}
			})
		})
	}
}

func foreign(t *testing.T, c *retryablehttp.Client) int {
	t.Helper()
	res, err := c.Get("https://a.example/")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}
