package otelobserve

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/spillway-go/spillway/limiter"
)

// Config is what [New] needs. The zero value is a good one.
type Config struct {
	// MeterProvider makes the instruments; nil: the global one. If that is set only after New, what has been counted by
	// then is lost, and so are the counters that begin with 0.
	MeterProvider metric.MeterProvider
	// Spans says which events are added to the spans of requests; zero: [SpanAll].
	Spans Spans
}

// Spans says which events go to the spans of requests.
type Spans uint8

const (
	// SpanAll: everything that happens to a request, allowed or not.
	SpanAll Spans = iota
	// SpanRefused: everything but decisions that allow it.
	SpanRefused
	// SpanNone: nothing.
	SpanNone
)

// scope is the name under which OpenTelemetry knows the instruments.
const scope = "github.com/spillway-go/spillway/observe/otelobserve"

// Observer is a [limiter.Observer] that tells OpenTelemetry what it sees. It is safe for concurrent use.
type Observer struct {
	instruments
	spans        Spans
	registration metric.Registration

	policies policies
	ops      *table[word]
	results  *table[word]
	breakers *table[breaker]
	memories *table[memory]
	sources  *table[source]
	stores   sync.Once // the first event of a store
}

var (
	_ limiter.Observer = (*Observer)(nil)
	_ limiter.Binder   = (*Observer)(nil)
	_ limiter.Observer = (*policy)(nil)
)

// New returns an Observer. Its error tells all that is wrong with c, and what the MeterProvider refused. It does no I/O and
// starts nothing but the gauges, which are read when metrics are collected, until [Observer.Close].
func New(c Config) (*Observer, error) {
	var errs []error
	if c.Spans > SpanNone {
		errs = append(errs, fmt.Errorf("otelobserve: Config.Spans: %d is none of the constants", c.Spans))
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	meter := c.MeterProvider.Meter(scope)
	made, err := newInstruments(meter)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	o := &Observer{instruments: made, spans: c.Spans}
	o.ops = words("op", nil)
	o.results = words("result", results)
	o.breakers = newTable(newBreaker, nil)
	o.memories = newTable(func(string) *memory { return new(memory) }, nil)
	o.sources = newTable(func(string) *source { return new(source) }, nil)
	o.policies.init(o)
	begin(o.reloads, o.results, results)
	o.overflow.Add(context.Background(), 0)
	if o.registration, err = meter.RegisterCallback(o.collect, o.gauges()...); err != nil {
		return nil, fmt.Errorf("otelobserve: %w", err)
	}
	return o, nil
}

// Close ends the gauges, so that another Observer may have them. Counters and histograms go on if it is still shown
// events. The error is that of the MeterProvider.
func (o *Observer) Close() error {
	if err := o.registration.Unregister(); err != nil {
		return fmt.Errorf("otelobserve: %w", err)
	}
	return nil
}

// KeepsNoKey returns o: no part of a key is kept, and none is shown.
func (o *Observer) KeepsNoKey() limiter.Observer { return o }

// Bind implements [limiter.Binder]: the policy's counters begin with 0, and its gauges end with the last call of release
// that its Bind calls are owed. Each release counts once, however often it is called.
func (o *Observer) Bind(name string) (limiter.Observer, func()) { return o.policies.bind(name) }

// Observe implements [limiter.Observer].
func (o *Observer) Observe(e limiter.Event) { o.see(nil, &e) }

// see tells of e, which is of policy p; nil: of the one that it names.
func (o *Observer) see(p *policy, e *limiter.Event) {
	ctx := e.Context
	if ctx == nil { // stores have none
		ctx = context.Background()
	}
	switch e.Kind {
	case limiter.EventStore:
		o.sawStore(ctx, e)
	case limiter.EventMemory:
		o.sawMemory(ctx, e)
	case limiter.EventBreaker:
		if b := o.breakers.get(e.Name); b != nil {
			b.state.Store(int64(e.State))
		}
	case limiter.EventReload:
		o.sawReload(ctx, e)
	case limiter.EventPanic:
		o.sawPanic(ctx, p, e)
	case limiter.EventDecision, limiter.EventRejected, limiter.EventDegraded, limiter.EventError, limiter.EventLease,
		limiter.EventAdapt:
		if p == nil {
			p = o.policies.find(e)
		}
		p.saw(ctx, e)
	case limiter.EventStoreState: // what it is about has been counted, as errors
	}
}

func (o *Observer) sawStore(ctx context.Context, e *limiter.Event) {
	failures := o.policies.none.errors
	o.stores.Do(func() { begin(o.errors, failures, storeCauses) })
	o.storeDuration.Record(ctx, e.Duration.Seconds(), o.ops.orOther(e.Op).record...)
	if e.Err != nil {
		o.errors.Add(ctx, 1, failures.orOther(cause(e)).add...)
	}
}

func (o *Observer) sawReload(ctx context.Context, e *limiter.Event) {
	result := e.Reason
	switch {
	case result != "":
	case e.Err == nil:
		result = limiter.ReasonOK
	default:
		result = limiter.ReasonInvalid
	}
	o.reloads.Add(ctx, 1, o.results.orOther(result).add...)
	if s := o.sources.get(e.Name); s != nil {
		s.set(e.Hash, result == limiter.ReasonOK)
	}
}

// sawPanic counts a panic apart from the policies, whatever came of it: a policy that could not decide has an event of its
// own.
func (o *Observer) sawPanic(ctx context.Context, p *policy, e *limiter.Event) {
	o.errors.Add(ctx, 1, o.policies.none.errors.orOther(limiter.ReasonPanic).add...)
	if s := o.span(e); s != nil {
		name := clean(e.Policy)
		if p != nil {
			name = p.text
		}
		add(s, e, []attribute.KeyValue{keyPolicy.String(name), keyOutcome.String("panic"), keyCallback.String(clean(e.Name))})
	}
}

// cause is why something failed. Whoever does not say could not be asked.
func cause(e *limiter.Event) string {
	if e.Reason == "" {
		return limiter.ReasonUnavailable
	}
	return e.Reason
}

// Values that are known beforehand. Their counters begin with 0, so that the first failure is an increase and not a new
// series, of which nobody can tell a rate.
var (
	results     = []string{limiter.ReasonOK, limiter.ReasonInvalid, limiter.ReasonUnavailable}
	storeCauses = []string{"timeout", "refused", "reset", "pool", "oom", "readonly", limiter.ReasonUnavailable}
	ownCauses   = []string{limiter.ReasonPanic, limiter.ReasonClientIP} // where no policy is meant
	reasons     = []string{
		limiter.ReasonQuota, limiter.ReasonNever, limiter.ReasonInFlight, limiter.ReasonAdaptive, limiter.ReasonWaiting,
		limiter.ReasonShed, limiter.ReasonReadOnly, limiter.ReasonQueue,
		limiter.ReasonNoKey, limiter.ReasonUnavailable, limiter.ReasonInvalid, limiter.ReasonUnsupported, limiter.ReasonPanic,
	}
	causes = []string{
		limiter.ReasonUnavailable, limiter.ReasonInvalid, limiter.ReasonUnsupported, limiter.ReasonPanic, limiter.ReasonNoKey,
		limiter.ReasonCanceled, limiter.ReasonRefund,
	}
)

func begin(c metric.Int64Counter, t *table[word], values []string) {
	for _, v := range values {
		c.Add(context.Background(), 0, t.orOther(v).add...)
	}
}
