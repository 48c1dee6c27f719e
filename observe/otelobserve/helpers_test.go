package otelobserve_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe/otelobserve"
)

var errAway = errors.New("away")

// newObserver returns an observer and what Prometheus would see of it. The SDK's own limit is off: this one's are tested.
func newObserver(t testing.TB) (*otelobserve.Observer, prometheus.Gatherer) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(reg), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	require.NoError(t, err)
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(0))
	o, err := otelobserve.New(otelobserve.Config{MeterProvider: provider})
	require.NoError(t, err)
	return o, reg
}

// series returns all series: name{label="value",…} → value. A histogram is its buckets, count and sum, and nothing where it
// is empty, which those of OpenTelemetry never are.
func series(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			of := ""
			if labels != nil {
				of = "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				if m.Histogram.GetSampleCount() == 0 {
					continue
				}
				all[f.GetName()+"_count"+of] = float64(m.Histogram.GetSampleCount())
				all[f.GetName()+"_sum"+of] = m.Histogram.GetSampleSum()
				for _, b := range m.Histogram.Bucket {
					all[fmt.Sprint(f.GetName(), "_bucket", of, "≤", b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			case dto.MetricType_COUNTER:
				all[f.GetName()+of] = m.Counter.GetValue()
			default:
				all[f.GetName()+of] = m.Gauge.GetValue()
			}
		}
	}
	return all
}

// counted returns the series that are not 0, buckets left out and rate_limit_ cut off.
func counted(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	some := map[string]float64{}
	for name, v := range series(t, reg) {
		if v != 0 && !strings.Contains(name, "_bucket") {
			some[strings.TrimPrefix(name, "rate_limit_")] = v
		}
	}
	return some
}

func decision(policy string, outcome limiter.Outcome, via limiter.Via, remaining int, limit limiter.Limit) limiter.Event {
	return limiter.Event{
		Kind: limiter.EventDecision, Policy: policy, Outcome: outcome, Time: time.Now(), N: 1,
		Key:      limiter.Key{Space: policy, ID: "ip=192.0.2.7"},
		Decision: limiter.Decision{Via: via, Remaining: remaining, Limit: limit},
	}
}

// global makes the event one of a policy in which everybody shares a key.
func global(e limiter.Event, reset time.Duration) limiter.Event {
	e.Key.ID, e.Decision.ResetAfter = "all=-", reset
	return e
}

func kinds() (all []limiter.EventKind) {
	for k := limiter.EventKind(1); k.String() != "unknown"; k++ {
		all = append(all, k)
	}
	return all
}
