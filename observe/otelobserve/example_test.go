package otelobserve_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe/otelobserve"
)

func Example() {
	reader := metric.NewManualReader() // in a service, that of an exporter
	observer := spillway.Must(otelobserve.New(otelobserve.Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	}))
	defer func() { _ = observer.Close() }()
	guard := spillway.Must(spillway.New(spillway.Config{
		Observer: observer,
		Policies: []spillway.Policy{{Name: "address", Key: keyfunc.IP(), Limit: limiter.PerMinute(2)}},
	}))
	handler := stdhttp.Middleware(guard)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	}

	var all metricdata.ResourceMetrics
	_ = reader.Collect(context.Background(), &all)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "rate_limit.requests" {
			n := map[string]int64{}
			for _, p := range sum.DataPoints {
				how, _ := p.Attributes.Value("type")
				n[how.AsString()] = p.Value
			}
			fmt.Println("allowed:", n["allowed"], "blocked:", n["blocked"])
		}
	}
	// Output: allowed: 2 blocked: 1
}
