package client_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// Everything wrong is named at once.
func TestConfig(t *testing.T) {
	_, err := client.New(client.Config{
		Name: "a:b", Key: keyfunc.Join(), Limit: limiter.PerSecond(0), Headroom: math.NaN(), Replicas: -1, InFlight: -2, MaxWaiting: -1,
		MaxWait: -2, MaxPause: -1, PaceBelow: 2, MaxDestinations: -1,
		Retry: client.Retry{Attempts: -1, Ratio: math.NaN(), Base: -1, Cap: -1}, Breaker: client.Breaker{Failures: -2, Cooldown: -1},
	})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	lines := strings.Split(err.Error(), "\n")
	for _, name := range []string{
		"no Base", "Name", "Key", "Limiter", "Headroom", "Replicas", "InFlight", "MaxWaiting", "MaxWait ", "MaxPause", "PaceBelow", "MaxDestinations",
		"Retry.Attempts", "Retry.Ratio", "Retry.Base", "Retry.Cap", "Breaker.Failures", "Breaker.Cooldown",
	} {
		require.Contains(t, err.Error(), name)
	}
	for _, line := range lines {
		require.True(t, strings.HasPrefix(line, "client: "), line)
	}
	for name, c := range map[string]client.Config{
		"limit":                {Limit: limiter.PerSecond(0)},
		"too long by headroom": {Limit: limiter.Per(1, 366*24*time.Hour)},
		"no limit at all":      {Strict: true},
		"far too long":         {Limit: limiter.Per(1, 366*24*time.Hour), Headroom: 1e-12},
	} {
		c.Base, c.Limiter = &partner{}, newMemory(t)
		_, err := client.New(c)
		require.ErrorIs(t, err, limiter.ErrInvalid, name)
	}
	_, err = client.New(client.Config{Base: &partner{}})
	require.NoError(t, err)
}

// Where a request goes, in one spelling.
func TestHost(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.example/x":         "host=a.example",
		"https://A.Example.:443/":     "host=a.example",
		"http://a.example:80/":        "host=a.example",
		"http://a.example:443/":       "host=a.example:443",
		"https://user:pw@a.example/":  "host=a.example",
		"https://[2001:db8::1]/":      "host=2001:db8::1",
		"https://[2001:db8::1]:8443/": "host=%5B2001:db8::1%5D:8443",
		"/relative":                   "",
		// One host, however it is spelled, as by a redirect.
		"http://a.example:0080/":             "host=a.example",
		"https://a.example:/":                "host=a.example",
		"https://a.example:00443/":           "host=a.example",
		"http://A.EXAMPLE.:08080/":           "host=a.example:8080",
		"http://127.0.0.1:008080/":           "host=127.0.0.1:8080",
		"http://[::ffff:127.0.0.1]:8080/":    "host=127.0.0.1:8080",
		"http://[::FFFF:7F00:1]/":            "host=127.0.0.1",
		"https://[2001:DB8:0:0::0001]:0443/": "host=2001:db8::1",
		"http://[fe80::1%25eth0]/":           "host=fe80::1%25eth0",
		"http://a.example:0/":                "host=a.example:0",
		"http://a.example:000/":              "host=a.example:000",
	} {
		require.Equal(t, want, keyOf(t, client.Host(), http.MethodGet, text), text)
	}
}

func keyOf(t *testing.T, f keyfunc.Func, method, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	var r keyfunc.Request
	r.Reset(&http.Request{Method: method, URL: u, Header: http.Header{}}, nil, nil)
	k, err := r.Resolve(f)
	if err != nil {
		require.ErrorIs(t, err, keyfunc.ErrNoKey)
	}
	return k.String()
}

func TestRoutes(t *testing.T) {
	f := client.Routes("POST /messages", "GET /messages/{id}", "batch.example/jobs/")
	for ask, want := range map[string]string{
		"POST https://a.example/messages":       "route=POST%20/messages",
		"GET https://a.example/messages/1":      "route=GET%20/messages/%7Bid%7D",
		"GET https://a.example/messages/2?x=y":  "route=GET%20/messages/%7Bid%7D",
		" https://a.example/messages/3":         "route=GET%20/messages/%7Bid%7D",
		"PUT https://a.example/messages/3":      "route=-",
		"GET https://a.example/else":            "route=-",
		"POST https://batch.example/jobs/1/2/3": "route=batch.example/jobs/",
	} {
		method, u, _ := strings.Cut(ask, " ")
		require.Equal(t, want, keyOf(t, f, method, u), ask)
	}
	for _, bad := range [][]string{{"GET"}, {"/{"}, {"/a", "/a"}} {
		_, err := client.New(client.Config{Base: &partner{}, Key: client.Routes(bad...)})
		require.ErrorIs(t, err, limiter.ErrInvalid, "%q", bad)
		require.Equal(t, 1, strings.Count(err.Error(), "client: "), err)
	}
}

// Each account has its own limit and pauses; one without a key is not sent, one to be skipped is.
func TestAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		account := keyfunc.HMAC([]byte("0123456789abcdef"), keyfunc.Header("Authorization"))
		tr := newTransport(t, client.Config{
			Base: p, Headroom: 1, Limit: limiter.PerSecond(1),
			Key: func(r *keyfunc.Request) (keyfunc.Key, error) {
				if r.URL.Path == "/health" {
					return keyfunc.Key{}, keyfunc.ErrSkip
				}
				return keyfunc.Join(client.Host(), account)(r)
			},
			Plan: func(r *keyfunc.Request) (limiter.Limit, bool) {
				return limiter.PerSecond(10), r.Header.Get("Authorization") == "gold"
			},
		})
		start := time.Now()
		var wg sync.WaitGroup
		for _, who := range []string{"gold", "silver", "", "health"} {
			for range 11 {
				wg.Go(func() {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/", http.NoBody)
					require.NoError(t, err)
					r.Header.Set("X-Name", who)
					if who == "health" {
						r.URL.Path = "/health"
					} else if who != "" {
						r.Header.Set("Authorization", who)
					}
					_, _, err = finish(tr.RoundTrip(r))
					if who == "" {
						require.ErrorIs(t, err, keyfunc.ErrNoKey)
						return
					}
					require.NoError(t, err)
				})
			}
		}
		wg.Wait()
		last := map[string]time.Duration{}
		for _, a := range p.arrivals("") {
			last[a.name] = a.at.Sub(start)
		}
		require.Equal(t, map[string]time.Duration{"gold": time.Second, "silver": 10 * time.Second, "health": 0}, last)
	})
}

// Destinations are bounded: idle ones make room, those in use do not, newcomers share a line and keep their limits.
func TestDestinationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, MaxDestinations: 4})
		for i := range 1000 {
			_, _, err := call(t.Context(), tr, http.MethodGet, fmt.Sprintf("https://h%d.example/", i), "x", nil)
			require.NoError(t, err)
			require.LessOrEqual(t, tr.Stats().Destinations, 4)
		}
		p.answer = func(a arrival) (int, http.Header, error) {
			if a.name == "pause" {
				return 429, fields("Retry-After", "3600"), nil
			}
			return 200, nil, nil
		}
		for i := range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _, err := call(ctx, tr, http.MethodGet, fmt.Sprintf("https://p%d.example/", i), "pause", nil)
			cancel()
			require.NoError(t, err)
		}
		time.Sleep(30 * time.Minute)
		for i := range 100 { // a crowd of new hosts makes no pause forgotten
			_, _, err := call(t.Context(), tr, http.MethodGet, fmt.Sprintf("https://n%d.example/", i), "x", nil)
			require.NoError(t, err)
		}
		for i := range 4 {
			_, _, err := call(t.Context(), tr, http.MethodGet, fmt.Sprintf("https://p%d.example/", i), "x", nil)
			require.Equal(t, client.ReasonTold, limited(t, err).Reason)
		}
		time.Sleep(2 * time.Hour)
		_, _, err := call(t.Context(), tr, http.MethodGet, "https://later.example/", "x", nil)
		require.NoError(t, err)
		require.Equal(t, 4, tr.Stats().Destinations)
	})
}

// base is a function as a RoundTripper.
type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// conn is the body of a response to an upgrade.
type conn struct{ io.ReadWriter }

func (conn) Close() error { return nil }

// An upgraded connection stays one, and holds no place.
func TestUpgrade(t *testing.T) {
	tr := newTransport(t, client.Config{Base: base(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: conn{}, Header: http.Header{}, Request: r}, nil
	})})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/", http.NoBody)
	require.NoError(t, err)
	res, err := tr.RoundTrip(r)
	require.NoError(t, err)
	require.Implements(t, (*io.ReadWriteCloser)(nil), res.Body)
	require.Zero(t, tr.InFlight())
	require.NoError(t, res.Body.Close())
}

// A Base that breaks the rules, or panics, leaves nothing taken.
func TestBadBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []base{
			func(*http.Request) (*http.Response, error) { panic("base") },
			func(*http.Request) (*http.Response, error) { return nil, nil }, //nolint:nilnil // that is the case
			func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil },
		} {
			tr := newTransport(t, client.Config{Base: f, Limit: limiter.PerSecond(100)})
			for range 3 {
				func() {
					defer func() { _ = recover() }()
					_, _ = get(tr, "a")
				}()
			}
			require.Zero(t, tr.InFlight())
			require.Zero(t, tr.Waiting())
		}
	})
}

// Through an http.Client the error is found, and its time-out is a deadline.
func TestInsideHTTPClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &http.Client{Transport: newTransport(t, client.Config{Base: &partner{}, Limit: limiter.PerMinute(1)}), Timeout: 5 * time.Second}
		ask := func() error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/", http.NoBody)
			require.NoError(t, err)
			res, err := c.Do(r)
			if err != nil {
				return err
			}
			return res.Body.Close()
		}
		require.NoError(t, ask())
		start := time.Now()
		e := limited(t, ask())
		require.Equal(t, start, time.Now())
		require.InDelta(t, time.Minute*10/9, e.RetryAfter, float64(time.Microsecond))
		require.Equal(t, limiter.Key{Space: "client", ID: "host=a.example"}, e.Key)
		c.CloseIdleConnections()
	})
}
