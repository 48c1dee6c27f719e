package prom

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-go/spillway/limiter"
)

// oneKey is the key of policies in which everybody shares one: keyfunc.Global.
const oneKey = "all=-"

// policy is the handles of one policy.
type policy struct {
	o     *Observer
	name  string // as a label
	bound int    // guards that have it; o.mu

	remaining ratios
	requests  [outcomes][vias]atomic.Pointer[prometheus.Counter]
	rejected  counters
	degraded  counters
	errors    counters

	making sync.Mutex  // of new series
	gone   atomic.Bool // its series have been taken away; set under making

	mu      sync.Mutex
	used    used
	leases  *leases
	adapted *adapted
}

const (
	outcomes = int(limiter.OutcomeShadowBlocked) + 1
	vias     = int(limiter.ViaFallback) + 1
)

// used is what the last decision on the one key of a policy said.
type used struct {
	at    time.Time
	units float64
	reset time.Duration
	ramps bool // it falls steadily, and not all at once
}

// adapted is an adaptive limit.
type adapted struct {
	limit   float64
	reason  string
	reasons map[string]bool // all that there were
}

func newPolicy(o *Observer, name string) *policy {
	p := &policy{o: o, name: name}
	in := func(v *prometheus.CounterVec) func(string) prometheus.Counter {
		return func(value string) prometheus.Counter { return p.series(v, value) }
	}
	p.rejected.init(in(o.rejected), rejections...)
	p.degraded.init(in(o.degraded))
	p.errors.init(in(o.errors), faults...)
	return p
}

// series returns a counter of the policy: one that nobody sees once the policy is gone, for requests still in service.
func (p *policy) series(v *prometheus.CounterVec, more ...string) prometheus.Counter {
	p.making.Lock()
	defer p.making.Unlock()
	if p.gone.Load() {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "gone"})
	}
	return v.WithLabelValues(append([]string{p.name}, more...)...)
}

// close takes the series away.
func (p *policy) close() {
	p.making.Lock()
	defer p.making.Unlock()
	p.gone.Store(true)
	mine := prometheus.Labels{"policy": p.name}
	for _, v := range []*prometheus.CounterVec{p.o.requests, p.o.rejected, p.o.degraded, p.o.errors} {
		v.DeletePartialMatch(mine)
	}
}

// KeepsNoKey returns p.
func (p *policy) KeepsNoKey() limiter.Observer { return p }

// Observe counts an event of the policy.
func (p *policy) Observe(e limiter.Event) {
	switch e.Kind {
	case limiter.EventDecision:
		p.decision(&e)
	case limiter.EventRejected:
		p.rejected.of(e.Reason).Inc()
	case limiter.EventDegraded:
		p.degraded.of(e.Mode).Inc()
	case limiter.EventError:
		p.errors.of(reason(e)).Inc()
	case limiter.EventLease:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.leases == nil {
			p.leases = &leases{}
		}
		p.leases.see(e.Keys, e.Leases, time.Now())
	case limiter.EventAdapt:
		p.adapt(&e)
	case limiter.EventStoreState: // the errors tell
	default:
		p.o.Observe(e)
	}
}

func (p *policy) decision(e *limiter.Event) {
	d := &e.Decision
	if int(e.Outcome) < outcomes && int(d.Via) < vias {
		c := p.requests[e.Outcome][d.Via].Load()
		if c == nil {
			c = p.request(e.Outcome, d.Via)
		}
		(*c).Inc()
	}
	quota := d.Limit.Quota()
	if quota <= 0 {
		return // of nothing, no share is left
	}
	p.remaining.observe(min(float64(d.Remaining)/float64(quota), 1))
	if e.Key.ID == oneKey && p.mu.TryLock() { // whoever holds it tells as much
		p.used = used{
			at: e.Time, units: float64(max(0, quota-d.Remaining)), reset: d.ResetAfter,
			ramps: d.Limit.Algorithm == limiter.TokenBucket || d.Limit.Algorithm == limiter.LeakyBucket,
		}
		p.mu.Unlock()
	}
}

// request makes the counters of a place of decision: all outcomes together, so that the first refusal is a rise.
func (p *policy) request(outcome limiter.Outcome, via limiter.Via) *prometheus.Counter {
	for k := range outcomes {
		c := p.series(p.o.requests, limiter.Outcome(k).String(), via.String())
		p.requests[k][via].CompareAndSwap(nil, &c)
	}
	return p.requests[outcome][via].Load()
}

func (p *policy) adapt(e *limiter.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.adapted == nil {
		p.adapted = &adapted{reasons: make(map[string]bool)}
	}
	a, l := p.adapted, e.Decision.Limit
	a.limit = float64(l.Burst) // of requests in flight
	if l.Period > 0 {
		a.limit = float64(l.Rate) / l.Period.Seconds()
	}
	a.reason = label(e.Reason)
	if !a.reasons[a.reason] && len(a.reasons) >= maxValues {
		a.reason = other
	}
	a.reasons[a.reason] = true
}

// collect tells what is not in a vector of the library.
func (p *policy) collect(now time.Time, ch chan<- prometheus.Metric, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	if p.gone.Load() {
		return
	}
	ch <- p.remaining.metric(p.name)
	p.mu.Lock()
	u := p.used
	var leased *leases
	if p.leases != nil {
		is := *p.leases
		leased = &is
	}
	var a adapted
	var reasons []string
	if p.adapted != nil {
		a = *p.adapted
		for r := range a.reasons {
			reasons = append(reasons, r)
		}
	}
	p.mu.Unlock()
	if !u.at.IsZero() {
		gauge(quotaUsed, u.now(now), p.name)
	}
	if leased != nil {
		leased.collect(p.name, now, ch)
	}
	if reasons != nil {
		gauge(adaptiveLimit, a.limit, p.name)
	}
	for _, r := range reasons {
		on := 0.0
		if r == a.reason {
			on = 1
		}
		gauge(adaptiveWhy, on, p.name, r)
	}
}

// now returns what is in use by then: quota comes back though nobody asks.
func (u *used) now(now time.Time) float64 {
	switch past := now.Sub(u.at); {
	case past >= u.reset:
		return 0
	case past > 0 && u.ramps:
		return u.units * (1 - float64(past)/float64(u.reset))
	}
	return u.units
}
