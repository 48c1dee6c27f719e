package prom_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/prom"
)

// quiet is a ResponseWriter that costs nothing: what is measured is the guard.
type quiet struct{ h http.Header }

func (w *quiet) Header() http.Header         { return w.h }
func (w *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (w *quiet) WriteHeader(int)             {}

var bare = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// serving returns a function that serves one request by a guard with one policy.
func serving(tb testing.TB, limit limiter.Limit, o limiter.Observer) func() {
	tb.Helper()
	store, err := memory.New(memory.Config{Observer: o})
	require.NoError(tb, err)
	g, err := middleware.New(middleware.Config{Limiter: store, Observer: o, Policies: []middleware.Policy{{Name: "api", Key: keyfunc.IP(), Limit: limit}}})
	require.NoError(tb, err)
	r := httptest.NewRequest("GET", "/search", nil)
	w := &quiet{make(http.Header, 16)}
	return func() {
		clear(w.h)
		g.Serve(w, r, bare)
	}
}

func observers(tb testing.TB) map[string]limiter.Observer {
	tb.Helper()
	o, err := prom.New(prometheus.NewRegistry())
	require.NoError(tb, err)
	return map[string]limiter.Observer{"without": nil, "with": o}
}

var limits = map[string]limiter.Limit{"allowed": limiter.PerSecond(limiter.MaxRate), "refused": limiter.PerDay(1)}

// A guarded request with metrics beside one without, in turns, so that both meet the same machine: ratio is what metrics
// cost, the median over the turns.
func BenchmarkServe(b *testing.B) {
	for _, outcome := range []string{"allowed", "refused"} {
		b.Run(outcome, func(b *testing.B) {
			o := observers(b)
			without, with := serving(b, limits[outcome], o["without"]), serving(b, limits[outcome], o["with"])
			const turn = 2000
			timed := func(serve func()) float64 {
				began := time.Now()
				for range turn {
					serve()
				}
				return float64(time.Since(began)) / turn
			}
			timed(without)
			timed(with)
			var ratios, costs []float64
			for b.Loop() {
				first, second, third := timed(without), timed(with), timed(without)
				ratios = append(ratios, 2*second/(first+third))
				costs = append(costs, second-(first+third)/2)
			}
			slices.Sort(ratios)
			slices.Sort(costs)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(costs[len(costs)/2], "ns/request")
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
		})
	}
}

// Metrics cost a guarded request no allocation.
func TestAllocatesNothingMore(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for outcome, limit := range limits {
		var got [2]float64
		for k, with := range []string{"without", "with"} {
			serve := serving(t, limit, observers(t)[with])
			serve()
			got[k] = testing.AllocsPerRun(500, serve)
		}
		require.LessOrEqual(t, got[1], got[0], outcome)
	}
}
