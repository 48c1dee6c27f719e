package otelobserve_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/otelobserve"
)

// refusing is a provider that makes nothing.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

var (
	errCounter  = errors.New("no counter")
	errGauge    = errors.New("no gauge")
	errCallback = errors.New("no callback")
)

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errCounter
}

func (refusingMeter) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return nil, errGauge
}

type callbackless struct{ noop.MeterProvider }

func (callbackless) Meter(string, ...metric.MeterOption) metric.Meter { return callbacklessMeter{} }

type callbacklessMeter struct{ noop.Meter }

func (callbacklessMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errCallback
}

func TestNewRefuses(t *testing.T) {
	_, err := otelobserve.New(otelobserve.Config{Spans: 3})
	require.ErrorContains(t, err, "Config.Spans")

	_, err = otelobserve.New(otelobserve.Config{Spans: 3, MeterProvider: refusing{}})
	for _, want := range []error{errCounter, errGauge} {
		require.ErrorIs(t, err, want)
	}
	require.ErrorContains(t, err, "Config.Spans")
	require.ErrorContains(t, err, "otelobserve: ")

	_, err = otelobserve.New(otelobserve.Config{MeterProvider: callbackless{}})
	require.ErrorIs(t, err, errCallback)
}

// Without a provider it is the global one.
func TestGlobalProvider(t *testing.T) {
	before := otel.GetMeterProvider()
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	reader := sdkmetric.NewManualReader()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	o, err := otelobserve.New(otelobserve.Config{})
	require.NoError(t, err)
	o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a", Keys: 3})
	require.Contains(t, names(t, reader), "rate_limit.leases.held")
}

func names(t *testing.T, reader sdkmetric.Reader) (all []string) {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	for _, s := range data.ScopeMetrics {
		require.Equal(t, "github.com/spillway-go/spillway/observe/otelobserve", s.Scope.Name)
		for _, m := range s.Metrics {
			all = append(all, m.Name)
		}
	}
	return all
}

func TestClose(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o, err := otelobserve.New(otelobserve.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	require.NoError(t, err)
	o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a", Keys: 3})
	require.Contains(t, names(t, reader), "rate_limit.leases.held")
	require.NoError(t, o.Close())
	require.NoError(t, o.Close())
	require.NotContains(t, names(t, reader), "rate_limit.leases.held")
	o.Observe(limiter.Event{Kind: limiter.EventDegraded, Policy: "a", Mode: "cache"})
	require.Contains(t, names(t, reader), "rate_limit.degraded")
}

// Guards may show it keys that they write over, and so they may to what it binds.
func TestKeepsNoKey(t *testing.T) {
	o, _ := newObserver(t)
	var _ middleware.ForgetfulObserver = o
	require.Same(t, o, o.KeepsNoKey())
	p, _ := o.Bind("a")
	require.Same(t, p, p.(middleware.ForgetfulObserver).KeepsNoKey())
}

// Where nobody keeps the span, an event costs no allocation.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	o, err := otelobserve.New(otelobserve.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	require.NoError(t, err)
	p, _ := o.Bind("a")
	for _, kind := range kinds() {
		e := global(decision("a", limiter.OutcomeBlocked, limiter.ViaStore, 1, limiter.PerSecond(10)), time.Second)
		e.Kind, e.Context = kind, context.Background()
		e.Reason, e.Op, e.Mode, e.Name, e.Hash = limiter.ReasonQuota, "take", "cache", "x", "1"
		for name, to := range map[string]limiter.Observer{"bound": p, "not bound": o} {
			to.Observe(e)
			require.Zero(t, testing.AllocsPerRun(100, func() { to.Observe(e) }), "%s, %s", kind, name)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	o, err := otelobserve.New(otelobserve.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	require.NoError(b, err)
	p, _ := o.Bind("a")
	e := decision("a", limiter.OutcomeAllowed, limiter.ViaStore, 1, limiter.PerSecond(10))
	e.Context = context.Background()
	for name, to := range map[string]limiter.Observer{"bound": p, "not bound": o} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				to.Observe(e)
			}
		})
	}
}
