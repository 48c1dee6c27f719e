package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// What is sent again, and how often.
func TestWhatIsRetried(t *testing.T) {
	bad := func(err error) func(arrival) (int, http.Header, error) {
		return func(arrival) (int, http.Header, error) { return 0, nil, err }
	}
	status := func(n int, pairs ...string) func(arrival) (int, http.Header, error) {
		return func(arrival) (int, http.Header, error) { return n, fields(pairs...), nil }
	}
	for name, c := range map[string]struct {
		method string
		key    string
		body   string // "": none; "stream": without GetBody
		answer func(arrival) (int, http.Header, error)
		sent   int
	}{
		"GET 503":                   {"GET", "", "", status(503), 3},
		"no method":                 {"", "", "", status(503), 3},
		"HEAD 502":                  {"HEAD", "", "", status(502), 3},
		"GET 504":                   {"GET", "", "", status(504), 3},
		"GET 429":                   {"GET", "", "", status(429, "Retry-After", "1"), 3},
		"GET 500":                   {"GET", "", "", status(500), 1},
		"GET 404":                   {"GET", "", "", status(404), 1},
		"GET 200":                   {"GET", "", "", status(200), 1},
		"PUT with a body":           {"PUT", "", "text", status(503), 3},
		"PUT a stream":              {"PUT", "", "stream", status(503), 1},
		"DELETE":                    {"DELETE", "", "", status(503), 3},
		"POST":                      {"POST", "", "text", status(503), 1},
		"POST 429":                  {"POST", "", "text", status(429), 1},
		"POST broken":               {"POST", "", "text", bad(io.EOF), 1},
		"PATCH":                     {"PATCH", "", "text", status(503), 1},
		"POST with a key":           {"POST", "k", "text", status(503), 3},
		"POST with a key, a stream": {"POST", "k", "stream", status(503), 1},
		"an unknown method":         {"PURGE", "", "", status(503), 1},
		"EOF":                       {"GET", "", "", bad(io.EOF), 3},
		"reset":                     {"GET", "", "", bad(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), 3},
		"no such host":              {"GET", "", "", bad(&net.DNSError{IsNotFound: true}), 1},
		"lookup fails":              {"GET", "", "", bad(&net.DNSError{IsTemporary: true}), 3},
		"certificate":               {"GET", "", "", bad(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), 1},
		"something else":            {"GET", "", "", bad(errors.New("unsupported protocol scheme")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answer: c.answer}
				tr := newTransport(t, client.Config{Base: p})
				var body io.Reader
				switch c.body {
				case "":
				case "stream":
					body = io.MultiReader(strings.NewReader("stream"))
				default:
					body = bytes.NewReader([]byte(c.body))
				}
				r, err := http.NewRequestWithContext(t.Context(), c.method, "https://a.example/", body)
				require.NoError(t, err)
				r.Method = c.method
				if c.key != "" {
					r.Header.Set("Idempotency-Key", c.key)
				}
				before := fmt.Sprint(r.Method, r.URL, r.Header, r.ContentLength)
				_, said, err := finish(tr.RoundTrip(r))
				all := p.arrivals("")
				require.Len(t, all, c.sent)
				for _, a := range all {
					require.Equal(t, c.body, a.body)
				}
				if err == nil {
					require.Equal(t, fmt.Sprint(" ", c.sent), said, "the last answer")
				}
				require.Equal(t, before, fmt.Sprint(r.Method, r.URL, r.Header, r.ContentLength), "the request is the caller's")
				require.Zero(t, p.bodies)
				require.EqualValues(t, c.sent-1, tr.Stats().Retried)
			})
		})
	}
}

// Between attempts: full jitter below a bound that doubles, and never less than Retry-After.
func TestBackoff(t *testing.T) {
	var longest [4]time.Duration
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			p := &partner{answer: func(arrival) (int, http.Header, error) { return 502, nil, nil }}
			tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Attempts: 5, Base: time.Second, Cap: 3 * time.Second}, Breaker: client.Breaker{Failures: -1}})
			_, err := get(tr, "a")
			require.NoError(t, err)
			all := p.arrivals("")
			require.Len(t, all, 5)
			for i := range longest {
				gap := all[i+1].at.Sub(all[i].at)
				require.LessOrEqual(t, gap, []time.Duration{1, 2, 3, 3}[i]*time.Second)
				longest[i] = max(longest[i], gap)
			}
		})
	}
	for i, most := range []time.Duration{1, 2, 3, 3} {
		require.Greater(t, longest[i], most*time.Second*3/4, "it is spread over the whole")
	}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			p := &partner{answer: script(says(502, "Retry-After", "2"), says(429, "Retry-After", "3"), says(200))}
			status, err := get(newTransport(t, client.Config{Base: p}), "a")
			require.NoError(t, err)
			require.Equal(t, 200, status)
			all := p.arrivals("")
			require.GreaterOrEqual(t, all[1].at.Sub(all[0].at), 2*time.Second)
			require.GreaterOrEqual(t, all[2].at.Sub(all[1].at), 3*time.Second)
		})
	}
}

// A retry that could not be in time is none: the answer that is there is handed out at once, unread.
func TestNoRetryPastTheDeadline(t *testing.T) {
	for name, c := range map[string]client.Config{
		"Retry-After": {},
		"the limit":   {Limit: limiter.Per(1, time.Minute)},
		"MaxWait":     {MaxWait: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := says(429, "Retry-After", "20")
				if c.Limit != nil {
					answer = says(503)
				}
				p := &partner{answer: script(answer)}
				c.Base = p
				tr := newTransport(t, c)
				ctx, cancel := t.Context(), func() {}
				if c.MaxWait == 0 {
					ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
				}
				defer cancel()
				start := time.Now()
				status, said, err := call(ctx, tr, http.MethodGet, "https://a.example/", "a", nil)
				require.NoError(t, err)
				require.Contains(t, []int{429, 503}, status)
				require.Equal(t, "a 1", said)
				require.Equal(t, start, time.Now())
				require.Len(t, p.arrivals(""), 1)
			})
		})
	}
}

// A destination that fails all the time gets at most the budget on top.
func TestRetryBudget(t *testing.T) {
	for ratio, most := range map[float64]int{0: 10 + 20, 0.5: 10 + 100, 2: 400, -1: 400} {
		synctest.Test(t, func(t *testing.T) {
			p := &partner{answer: func(arrival) (int, http.Header, error) { return 503, nil, nil }}
			tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Ratio: ratio}, Breaker: client.Breaker{Failures: -1}})
			for i := range 200 {
				_, err := get(tr, fmt.Sprint(i))
				require.NoError(t, err)
			}
			got := len(p.arrivals("")) - 200
			require.LessOrEqual(t, got, most)
			require.Greater(t, got, most*9/10)
		})
	}
}

// A body that cannot be made again ends the retries with the answer that is there.
func TestGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answer: func(arrival) (int, http.Header, error) { return 503, nil, nil }}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://a.example/", strings.NewReader("x"))
		require.NoError(t, err)
		r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("no more") }
		status, said, err := finish(newTransport(t, client.Config{Base: p}).RoundTrip(r))
		require.NoError(t, err)
		require.Equal(t, 503, status)
		require.Equal(t, " 1", said)
	})
}

// A cancelled wait for a retry ends in the context's error.
func TestCancelledBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answer: func(arrival) (int, http.Header, error) { return 429, fields("Retry-After", "10"), nil }}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		tr := newTransport(t, client.Config{Base: p})
		_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "a", nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, p.arrivals(""), 1)
		require.Zero(t, p.bodies)
		require.Zero(t, tr.InFlight())
	})
}

// recorder is an Observer.
type recorder struct {
	mu     sync.Mutex
	events []limiter.Event
}

func (r *recorder) Observe(e limiter.Event) {
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	panic("an observer's fault costs nobody a request")
}

func (r *recorder) states() (out []uint8) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == limiter.EventBreaker {
			out = append(out, e.State)
		}
	}
	return out
}

// A destination that fails is left alone, then one tries; others have their own.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := false
		p := &partner{latency: 10 * ms, answer: func(a arrival) (int, http.Header, error) {
			if good || a.host != "a.example" {
				return 200, nil, nil
			}
			return 500, nil, nil
		}}
		seen := &recorder{}
		tr := newTransport(t, client.Config{Base: p, Observer: seen, Name: "partners"})
		for range 5 {
			_, err := get(tr, "a")
			require.NoError(t, err)
		}
		_, err := get(tr, "b")
		e := limited(t, err)
		require.Equal(t, client.ReasonBreaker, e.Reason)
		require.Equal(t, 5*time.Second+1, e.RetryAfter)
		_, _, err = call(t.Context(), tr, http.MethodGet, "https://b.example/", "else", nil)
		require.NoError(t, err)
		time.Sleep(e.RetryAfter - 10*ms)
		_, err = get(tr, "tries and fails")
		require.NoError(t, err)
		_, err = get(tr, "c")
		e = limited(t, err)
		good = true
		time.Sleep(e.RetryAfter)
		var wg sync.WaitGroup
		refused := 0
		for i := range 5 {
			wg.Go(func() {
				if _, err := get(tr, fmt.Sprint(i)); err != nil {
					require.Equal(t, client.ReasonBreaker, limited(t, err).Reason)
					refused++
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, 4, refused, "one tries")
		for range 3 {
			_, err = get(tr, "d")
			require.NoError(t, err)
		}
		require.Equal(t, []uint8{
			limiter.BreakerOpen, limiter.BreakerHalfOpen, limiter.BreakerOpen, limiter.BreakerHalfOpen, limiter.BreakerClosed,
		}, seen.states())
		sent, blocked := 0, 0
		for _, e := range seen.events {
			if e.Kind == limiter.EventDecision {
				require.Equal(t, "partners", e.Policy)
				if e.Outcome == limiter.OutcomeAllowed {
					sent++
				} else {
					blocked++
				}
			}
		}
		require.EqualValues(t, tr.Stats().Sent, sent)
		require.EqualValues(t, tr.Stats().Refused, blocked)
		require.Equal(t, 6, blocked)
	})
}

// What is a limit, or the caller's, is no failure.
func TestWhatTripsTheBreaker(t *testing.T) {
	for name, c := range map[string]struct {
		answer   func(arrival) (int, http.Header, error)
		deadline time.Duration
		cancel   bool
		opens    bool
	}{
		"500":              {answer: script(says(500), says(500)), opens: true},
		"broken":           {answer: func(arrival) (int, http.Header, error) { return 0, nil, io.EOF }, opens: true},
		"silence":          {deadline: 500 * ms, opens: true},
		"cancelled":        {cancel: true},
		"404":              {answer: script(says(404), says(404))},
		"429":              {answer: script(says(429, "Retry-After", "0"), says(429, "Retry-After", "0"))},
		"503, Retry-After": {answer: script(says(503, "Retry-After", "0"), says(503, "Retry-After", "0"))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{latency: time.Second, answer: c.answer}
				tr := newTransport(t, client.Config{Base: p, Retry: once, Breaker: client.Breaker{Failures: 2}})
				for range 2 {
					ctx, cancel := context.WithCancel(t.Context())
					if c.deadline > 0 {
						ctx, cancel = context.WithTimeout(t.Context(), c.deadline)
					}
					if c.cancel {
						time.AfterFunc(300*ms, cancel)
					}
					_, _, _ = call(ctx, tr, http.MethodGet, "https://a.example/", "a", nil)
					cancel()
				}
				if _, err := get(tr, "b"); c.opens {
					require.Equal(t, client.ReasonBreaker, limited(t, err).Reason)
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}
