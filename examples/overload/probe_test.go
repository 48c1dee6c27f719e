package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
)

// backend has so many connections, each busy with a request for as long. Who does not get one waits.
func backend(connections int, busy time.Duration) http.Handler {
	free := make(chan struct{}, connections)
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		free <- struct{}{}
		time.Sleep(busy)
		<-free
	})
}

// probing asks a handler in the time of a bubble.
func probing(t *testing.T, h http.Handler, highest int) (a *advice, out string, err error) {
	t.Helper()
	var serving sync.WaitGroup
	p := probe{target{"http://service.example/", clientOf(direct{h, &serving})}, 2, 2 * time.Second, highest}
	var text bytes.Buffer
	if err = p.run(t.Context(), &text); err == nil {
		a, err = p.find(t.Context(), func(measured) {})
	}
	serving.Wait()
	return a, text.String(), err
}

// What is found is what the service has.
func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		connections int
		busy        time.Duration
		knee        int
		says        string
	}{
		"one":     {1, 10 * time.Millisecond, 1, "{target: in_flight, min: 1, max: 10, fixed: 2, cpu: 80%, rtt: 1s}"},
		"eight":   {8, 10 * time.Millisecond, 8, "{target: in_flight, min: 4, max: 80, fixed: 16, cpu: 80%, rtt: 1s}"},
		"between": {12, 10 * time.Millisecond, 16, "{target: in_flight, min: 5, max: 160, fixed: 32, cpu: 80%, rtt: 1s}"},
		"slow":    {8, 100 * time.Millisecond, 8, "{target: in_flight, min: 4, max: 80, fixed: 16, cpu: 80%, rtt: 2s}"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, out, err := probing(t, backend(c.connections, c.busy), 256)
				require.NoError(t, err)
				capacity := float64(c.connections) / c.busy.Seconds()
				require.Equal(t, c.busy, a.idle.p90)
				require.Equal(t, c.knee, a.knee.atOnce)
				require.InEpsilon(t, capacity, a.peak, 0.1)
				require.Greater(t, a.well.rate, 0.3*capacity)
				require.Less(t, a.well.rate, capacity)
				require.LessOrEqual(t, a.well.p90, 2*c.busy)
				require.Contains(t, out, c.says)
				builds(t, out[strings.LastIndex(out, "adaptive: "):])
				require.Less(t, len(a.ladder), 9, "what comes after is a longer queue")
			})
		})
	}
}

// builds makes a document of fields of a policy, as whoever copies them does.
func builds(t *testing.T, fields string) {
	t.Helper()
	text := "version: 1\nstore: {memory: {}}\npolicies:\n  - name: service\n    key: global\n    mode: local\n    limit: 750/s burst 75\n    " +
		strings.ReplaceAll(strings.TrimSpace(fields), "\n", "\n    ") + "\n"
	doc, findings := config.Parse([]byte(text))
	require.NoError(t, findings.Err(), text)
	limiters := stores.New(stores.Config{})
	defer func() { require.NoError(t, limiters.Close()) }()
	_, findings = config.Build(doc, config.Deps{Central: limiters.Central, Local: limiters.Local})
	require.NoError(t, findings.Err(), text)
}

// Where the knee was not reached, that is told.
func TestProbeBelowTheKnee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, out, err := probing(t, backend(100, 10*time.Millisecond), 8)
		require.NoError(t, err)
		require.Equal(t, 8, a.knee.atOnce)
		require.Contains(t, out, "the knee may be higher: 8 at once is the most")
		require.Equal(t, 8.0, a.limits.Fixed, "more was not seen")
	})
}

// A service that refuses, fails or is not there tells nothing, and no number is made up.
func TestProbeOfTheIll(t *testing.T) {
	for name, c := range map[string]struct {
		h    http.Handler
		want string
	}{
		"refuses": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Millisecond)
			w.WriteHeader(429)
		}), "0 were answered well, "},
		"fails": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Millisecond)
			w.WriteHeader(500)
		}), "0 were answered well, 0 refused"},
		"hangs": {http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "0 were answered well, 0 refused and 1 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, err := probing(t, c.h, 8)
				require.ErrorContains(t, err, c.want)
			})
		})
	}
	// One that refuses at a bound is measured up to that.
	synctest.Test(t, func(t *testing.T) {
		var in atomic.Int64
		service := backend(8, 10*time.Millisecond)
		a, _, err := probing(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer in.Add(-1)
			if in.Add(1) > 4 {
				time.Sleep(time.Millisecond)
				w.WriteHeader(503)
				return
			}
			service.ServeHTTP(w, r)
		}), 256)
		require.NoError(t, err)
		require.Equal(t, 4, a.knee.atOnce)
		require.Len(t, a.ladder, 3)
	})
}

// Every answer of a real server is counted, and once.
func TestProbeCounts(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%3 == 0 {
			w.WriteHeader(503)
		}
	}))
	defer server.Close()
	p := probe{target{server.URL, clientOf(server.Client().Transport)}, 2, 50 * time.Millisecond, 4}
	m := p.crowd(t.Context(), 4)
	require.EqualValues(t, asked.Load(), m.done+m.refused)
	require.EqualValues(t, asked.Load()/3, m.refused)
	require.Zero(t, m.failed)
	m = p.stream(t.Context(), 200)
	require.Zero(t, m.failed)
	require.True(t, p.crowd(t.Context(), 1).isIll(), "a third is refused")
}

// What is suggested is valid, and in order, whatever was measured.
func TestSuggest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		knee := rapid.IntRange(1, 4096).Draw(t, "at once")
		seen := rapid.IntRange(knee, 4096).Draw(t, "seen")
		c := suggest(measured{atOnce: knee, p90: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "p90"))}, seen)
		require.NoError(t, c.Validate())
		require.LessOrEqual(t, c.Fixed, float64(seen))
		require.LessOrEqual(t, c.Min, c.Fixed)
		require.LessOrEqual(t, c.Fixed, c.Max)
		require.GreaterOrEqual(t, c.RTT, time.Second)
	})
	for d, want := range map[time.Duration]time.Duration{
		0: time.Millisecond, 1: time.Millisecond, 1001 * time.Microsecond: 2 * time.Millisecond, 20 * time.Millisecond: 20 * time.Millisecond,
		21 * time.Millisecond: 50 * time.Millisecond, 51 * time.Second: 100 * time.Second,
	} {
		require.Equal(t, want, roundUp(d), d)
	}
}
