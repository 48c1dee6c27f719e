package otelobserve

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// instruments are those of the package documentation.
type instruments struct {
	requests, rejected, degraded, errors, reloads, overflow metric.Int64Counter
	remaining, storeDuration                                metric.Float64Histogram

	breakerState, configInfo, memoryKeys, adaptiveReason metric.Int64ObservableGauge
	quotaUsed, adaptiveLimit                             metric.Float64ObservableGauge

	lease leaseInstruments
}

var (
	// Upper bounds of remaining/quota: the first is of what has nothing left, and they are denser where it is scarce.
	ratioBounds = []float64{0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1}
	// Upper bounds of calls to a store, in s: from one in the same rack to one that runs into its time-out.
	secondBounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
)

// maker makes instruments and gathers what fails.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (m *maker) counter(name, unit, what string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) histogram(name, unit, what string, bounds []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
	m.errs = append(m.errs, err)
	return h
}

func (m *maker) gauge(name, unit, what string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.errs = append(m.errs, err)
	return g
}

func (m *maker) floatGauge(name, unit, what string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.errs = append(m.errs, err)
	return g
}

// newInstruments makes them all. Units in braces are for people and no part of a name in Prometheus. Gauges of plain
// numbers have no unit: "1" would make them ratios there.
func newInstruments(meter metric.Meter) (instruments, error) {
	m := &maker{meter: meter}
	i := instruments{
		requests:       m.counter("rate_limit.requests", "{request}", "Decisions of policies about requests."),
		rejected:       m.counter("rate_limit.rejected", "{request}", "Requests refused on account of a policy."),
		remaining:      m.histogram("rate_limit.remaining_ratio", "1", "Share of the quota left after each decision.", ratioBounds),
		quotaUsed:      m.floatGauge("rate_limit.quota.used", "{unit}", "Units in use of a policy in which everybody shares one key."),
		storeDuration:  m.histogram("rate_limit.store.duration", "s", "Calls to a shared store, failed ones too.", secondBounds),
		degraded:       m.counter("rate_limit.degraded", "{request}", "Refused requests that were served otherwise."),
		errors:         m.counter("rate_limit.errors", "{error}", "Policies that could not decide, and failed calls to a store (no policy)."),
		breakerState:   m.gauge("rate_limit.breaker.state", "", "Circuit breakers: 0 closed, 1 half-open, 2 open."),
		configInfo:     m.gauge("rate_limit.config.info", "", "Policy documents: 1 in force, 0 refused and still there."),
		reloads:        m.counter("rate_limit.config.reloads", "{reload}", "New sets of policies, applied or refused."),
		memoryKeys:     m.gauge("rate_limit.memory.keys", "{key}", "Keys in the memory stores."),
		overflow:       m.counter("rate_limit.memory.overflow", "{take}", "Takes decided on shared cells, as a memory store was full."),
		lease:          newLeaseInstruments(m),
		adaptiveLimit:  m.floatGauge("rate_limit.adaptive.limit", "", "The adaptive limit in force: units a second, or requests in flight."),
		adaptiveReason: m.gauge("rate_limit.adaptive.reason", "", "1 for why the adaptive limit is what it is."),
	}
	if err := errors.Join(m.errs...); err != nil {
		return i, fmt.Errorf("otelobserve: %w", err)
	}
	return i, nil
}

func (i *instruments) gauges() []metric.Observable {
	return []metric.Observable{
		i.quotaUsed, i.breakerState, i.configInfo, i.memoryKeys, i.adaptiveLimit, i.adaptiveReason,
		i.lease.held, i.lease.units, i.lease.staleness, i.lease.late, i.lease.lateBound,
	}
}
