package otelobserve

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/spillway-go/spillway/limiter"
)

// leaseInstruments are those of quota that is leased.
type leaseInstruments struct {
	local, calls, granted, returned, stranded metric.Int64Counter
	held, units                               metric.Int64ObservableGauge
	staleness, late, lateBound                metric.Float64ObservableGauge
}

func newLeaseInstruments(m *maker) leaseInstruments {
	return leaseInstruments{
		local:     m.counter("rate_limit.lease.local", "{decision}", "Decisions by what is leased, without a call."),
		calls:     m.counter("rate_limit.lease.calls", "{call}", "Calls to the store for units, and to give some back."),
		granted:   m.counter("rate_limit.lease.granted", "{unit}", "Units that the store granted."),
		returned:  m.counter("rate_limit.lease.returned", "{unit}", "Units given back."),
		stranded:  m.counter("rate_limit.lease.stranded", "{unit}", "Units granted and neither spent nor given back: their lease ended."),
		held:      m.gauge("rate_limit.leases.held", "{lease}", "Leases of quota that this process holds."),
		units:     m.gauge("rate_limit.lease.units_held", "{unit}", "Units leased to this process that it has not spent."),
		staleness: m.floatGauge("rate_limit.lease.staleness", "s", "How long ago the oldest lease that is held was told about by the store."),
		late:      m.floatGauge("rate_limit.lease.overshoot_units", "", "The most by which this process may have exceeded a limit, in the last two minutes."),
		lateBound: m.floatGauge("rate_limit.lease.overshoot_bound_units", "", "What the rate of a limit brings in its slowest call of the last two minutes."),
	}
}

// leases are what was last told of a policy's leases.
type leases struct {
	held            int64
	told            bool // more than that
	units           int64
	staleness       time.Duration
	late, lateBound peak
}

func (p *policy) sawLeases(ctx context.Context, e *limiter.Event) {
	is := e.Leases
	p.mu.Lock()
	if p.leases == nil {
		p.leases = &leases{}
	}
	l := p.leases
	l.held = max(0, e.Keys)
	if is != nil {
		now := time.Now()
		l.told, l.units, l.staleness = true, is.Units, is.Staleness
		l.late.raise(now, is.Late)
		l.lateBound.raise(now, is.LateBound)
	}
	p.mu.Unlock()
	if is == nil {
		return
	}
	to := p.observer.lease
	to.local.Add(ctx, int64(is.Local), p.add...)
	to.calls.Add(ctx, int64(is.Calls), p.add...)
	to.granted.Add(ctx, int64(is.Granted), p.add...)
	to.returned.Add(ctx, int64(is.Returned), p.add...)
	to.stranded.Add(ctx, int64(is.Stranded), p.add...)
}

// collectLeases is called with p locked.
func (p *policy) collectLeases(now time.Time, to metric.Observer) {
	l, of := p.leases, p.observer.lease
	if l == nil {
		return
	}
	to.ObserveInt64(of.held, l.held, p.set)
	if !l.told {
		return
	}
	to.ObserveInt64(of.units, l.units, p.set)
	to.ObserveFloat64(of.staleness, l.staleness.Seconds(), p.set)
	to.ObserveFloat64(of.late, l.late.at(now), p.set)
	to.ObserveFloat64(of.lateBound, l.lateBound.at(now), p.set)
}

// peak is the largest value of the last one to two minutes: whoever reads once a minute misses none.
type peak struct {
	began        time.Time
	before, here float64
}

func (p *peak) raise(now time.Time, v float64) {
	p.roll(now)
	p.here = max(p.here, v)
}

func (p *peak) at(now time.Time) float64 {
	p.roll(now)
	return max(p.before, p.here)
}

func (p *peak) roll(now time.Time) {
	switch past := now.Sub(p.began); {
	case past < time.Minute:
		return
	case past < 2*time.Minute:
		p.before, p.began = p.here, p.began.Add(time.Minute)
	default:
		p.before, p.began = 0, now
	}
	p.here = 0
}
