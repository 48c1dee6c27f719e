package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-go/spillway/limiter"
)

func ofPolicy(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"policy"}, nil)
}

var (
	leasesHeld = ofPolicy("rate_limit_leases_held", "Leases of quota that this process holds.")
	leaseUnits = ofPolicy("rate_limit_lease_units_held", "Units leased to this process that it has not spent.")
	leaseStale = ofPolicy("rate_limit_lease_staleness_seconds", "How long ago the oldest lease that is held was told about by the store.")

	leaseLocal    = ofPolicy("rate_limit_lease_local_total", "Decisions by what is leased, without a call.")
	leaseCalls    = ofPolicy("rate_limit_lease_calls_total", "Calls to the store for units, and to give some back.")
	leaseGranted  = ofPolicy("rate_limit_lease_granted_total", "Units that the store granted.")
	leaseReturned = ofPolicy("rate_limit_lease_returned_total", "Units given back.")
	leaseStranded = ofPolicy("rate_limit_lease_stranded_total", "Units granted and neither spent nor given back: their lease ended.")

	leaseLate      = ofPolicy("rate_limit_lease_overshoot_units", "The most by which this process may have exceeded a limit, in the last two minutes.")
	leaseLateBound = ofPolicy("rate_limit_lease_overshoot_bound_units", "What the rate of a limit brings in its slowest call of the last two minutes.")

	leaseDescs = []*prometheus.Desc{
		leasesHeld, leaseUnits, leaseStale, leaseLocal, leaseCalls, leaseGranted, leaseReturned, leaseStranded, leaseLate, leaseLateBound,
	}
)

// leases are what limiters told of a policy's leases.
type leases struct {
	held    int64
	told    bool // more than that
	last    limiter.Leases
	sum     limiter.Leases
	late    peak
	lateMay peak
}

// see adds what an event tells.
func (l *leases) see(held int64, is *limiter.Leases, now time.Time) {
	l.held = held
	if is == nil {
		return
	}
	l.told, l.last = true, *is
	l.sum.Local += is.Local
	l.sum.Calls += is.Calls
	l.sum.Granted += is.Granted
	l.sum.Returned += is.Returned
	l.sum.Stranded += is.Stranded
	l.late.raise(now, is.Late)
	l.lateMay.raise(now, is.LateBound)
}

// collect tells all of it. It works on a copy, as whoever reads ch may be slow.
func (l leases) collect(policy string, now time.Time, ch chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, t, v, policy)
	}
	tell(leasesHeld, prometheus.GaugeValue, float64(l.held))
	if !l.told {
		return
	}
	tell(leaseUnits, prometheus.GaugeValue, float64(l.last.Units))
	tell(leaseStale, prometheus.GaugeValue, l.last.Staleness.Seconds())
	tell(leaseLate, prometheus.GaugeValue, l.late.at(now))
	tell(leaseLateBound, prometheus.GaugeValue, l.lateMay.at(now))
	for d, n := range map[*prometheus.Desc]uint64{
		leaseLocal: l.sum.Local, leaseCalls: l.sum.Calls,
		leaseGranted: l.sum.Granted, leaseReturned: l.sum.Returned, leaseStranded: l.sum.Stranded,
	} {
		tell(d, prometheus.CounterValue, float64(n))
	}
}

// peak is the largest value of a while, and no scrape of every minute misses it.
type peak struct {
	began        time.Time
	before, here float64
}

// during is how long a value is looked back for at least; at most it is twice that.
const during = time.Minute

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
	case past < during:
		return
	case past < 2*during:
		p.before = p.here
		p.began = p.began.Add(during)
	default:
		p.before, p.began = 0, now
	}
	p.here = 0
}
