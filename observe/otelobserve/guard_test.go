package otelobserve_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/observe/otelobserve"
)

// service is a guarded handler whose requests have spans.
type service struct {
	handler http.Handler
	spans   *tracetest.SpanRecorder
	reader  *sdkmetric.ManualReader
	guard   *spillway.Guard
}

func newService(t *testing.T, which otelobserve.Spans, sampler trace.Sampler, policies ...spillway.Policy) *service {
	t.Helper()
	s := &service{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	o, err := otelobserve.New(otelobserve.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader)), Spans: which,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	store, err := memory.New(memory.Config{Observer: o})
	require.NoError(t, err)
	s.guard, err = spillway.New(spillway.Config{Limiter: store, Observer: o, Policies: policies})
	require.NoError(t, err)
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(s.spans), trace.WithSampler(sampler)).Tracer("test")
	next := stdhttp.Middleware(s.guard)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(r.Context(), "request")
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
	return s
}

// get serves a request and returns its status and what is on its span.
func (s *service) get() (status int, told []map[string]any) {
	before := len(s.spans.Ended())
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	for _, span := range s.spans.Ended()[before:] {
		for _, e := range span.Events() {
			of := map[string]any{"event": e.Name, "at": e.Time}
			for _, kv := range e.Attributes {
				of[string(kv.Key)] = kv.Value.AsInterface()
			}
			told = append(told, of)
		}
	}
	return w.Code, told
}

// sums returns all counters and integer gauges that are not 0.
func (s *service) sums(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, s.reader.Collect(t.Context(), &all))
	got := map[string]int64{}
	add := func(name string, points []metricdata.DataPoint[int64]) {
		for _, p := range points {
			if p.Value != 0 {
				got[name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
			}
		}
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				require.True(t, data.IsMonotonic)
				add(m.Name, data.DataPoints)
			case metricdata.Gauge[int64]:
				add(m.Name, data.DataPoints)
			}
		}
	}
	return got
}

func policy(name string, n int) spillway.Policy {
	return spillway.Policy{Name: name, Key: keyfunc.IP(), Limit: limiter.PerMinute(n).With(limiter.FixedWindow)}
}

// told is a span event as get returns it.
func told(outcome, policy string, more ...any) map[string]any {
	of := map[string]any{"event": "rate_limit", "at": time.Now(), "outcome": outcome, "policy": policy}
	for k := 0; k < len(more); k += 2 {
		of[more[k].(string)] = more[k+1]
	}
	return of
}

func requireTold(t *testing.T, want, got []map[string]any) {
	t.Helper()
	require.Len(t, got, len(want))
	for k := range want {
		at := want[k]["at"].(time.Time)
		require.True(t, at.Equal(got[k]["at"].(time.Time)))
		got[k]["at"] = at // but for the monotonic clock
	}
	require.Equal(t, want, got)
}

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := policy("page", 1)
		page.Degrade = degrade.Func(func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
			w.WriteHeader(http.StatusServiceUnavailable)
			return degrade.Done
		})
		trial := policy("trial", 1)
		trial.Shadow = true
		s := newService(t, otelobserve.SpanAll, trace.AlwaysSample(), page, trial)
		time.Sleep(time.Duration(30-time.Now().Second()) * time.Second) // half a window is left

		status, got := s.get()
		require.Equal(t, http.StatusOK, status)
		requireTold(t, []map[string]any{
			told("allowed", "page", "via", "memory", "remaining", int64(0)), told("allowed", "trial", "via", "memory", "remaining", int64(0)),
		}, got)

		status, got = s.get()
		require.Equal(t, http.StatusServiceUnavailable, status)
		requireTold(t, []map[string]any{
			told("blocked", "page", "via", "memory", "remaining", int64(0), "retry_after", 30.0),
			told("shadow_blocked", "trial", "via", "memory", "remaining", int64(0), "retry_after", 30.0),
			told("rejected", "page", "reason", "quota"),
			told("degraded", "page", "mode", "func"),
		}, got)

		want := map[string]int64{
			"rate_limit.requests policy=page,type=allowed,via=memory": 1, "rate_limit.requests policy=page,type=blocked,via=memory": 1,
			"rate_limit.requests policy=trial,type=allowed,via=memory": 1, "rate_limit.requests policy=trial,type=shadow_blocked,via=memory": 1,
			"rate_limit.rejected policy=page,reason=quota": 1, "rate_limit.degraded mode=func,policy=page": 1,
		}
		sums := s.sums(t)
		delete(sums, "rate_limit.memory.keys ") // whenever the store comes round to it
		require.Equal(t, want, sums)
	})
}

func TestGuardTellsOfPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy("a", 1)
		p.Cost = func(*keyfunc.Request) int { panic("no") }
		s := newService(t, otelobserve.SpanAll, trace.AlwaysSample(), p)
		status, got := s.get()
		require.Equal(t, http.StatusServiceUnavailable, status)
		requireTold(t, []map[string]any{
			told("panic", "a", "callback", "Cost"), told("error", "a", "cause", "panic"), told("rejected", "a", "reason", "panic"),
		}, got)
		require.Equal(t, map[string]int64{
			"rate_limit.errors cause=panic,policy=": 1, "rate_limit.errors cause=panic,policy=a": 1, "rate_limit.rejected policy=a,reason=panic": 1,
		}, s.sums(t))
	})
}

// A request that can never pass has no time at which to come again.
func TestNoRetryAfterNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy("a", 1)
		p.Cost = func(*keyfunc.Request) int { return 2 }
		s := newService(t, otelobserve.SpanAll, trace.AlwaysSample(), p)
		_, got := s.get()
		requireTold(t, []map[string]any{told("blocked", "a", "via", "memory", "remaining", int64(1)), told("rejected", "a", "reason", "never")}, got)
	})
}

func TestSpans(t *testing.T) {
	for name, c := range map[string]struct {
		spans   otelobserve.Spans
		sampler trace.Sampler
		allowed int
		refused int
	}{
		"all":         {otelobserve.SpanAll, trace.AlwaysSample(), 1, 2},
		"refused":     {otelobserve.SpanRefused, trace.AlwaysSample(), 0, 2},
		"none":        {otelobserve.SpanNone, trace.AlwaysSample(), 0, 0},
		"not sampled": {otelobserve.SpanAll, trace.NeverSample(), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, c.spans, c.sampler, policy("a", 1))
				_, got := s.get()
				require.Len(t, got, c.allowed)
				_, got = s.get()
				require.Len(t, got, c.refused)
				require.Equal(t, int64(1), s.sums(t)["rate_limit.rejected policy=a,reason=quota"])
			})
		})
	}
}

// A guard binds its policies, and gives up those that an update takes away.
func TestGuardBinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := policy("a", 5)
		one.Key = keyfunc.Global()
		s := newService(t, otelobserve.SpanAll, trace.AlwaysSample(), one)
		var all metricdata.ResourceMetrics
		gauges := func() (names []string) {
			require.NoError(t, s.reader.Collect(t.Context(), &all))
			for _, m := range all.ScopeMetrics[0].Metrics {
				if _, ok := m.Data.(metricdata.Gauge[float64]); ok {
					names = append(names, m.Name)
				}
			}
			return names
		}
		s.get()
		require.Equal(t, []string{"rate_limit.quota.used"}, gauges())
		require.NoError(t, s.guard.Update([]spillway.Policy{policy("b", 5)}))
		require.Empty(t, gauges())
	})
}
