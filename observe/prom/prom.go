// Package prom counts what guards and stores do for Prometheus.
//
//	metrics, err := prom.New(prometheus.DefaultRegisterer)
//	…
//	store, err := redislimit.New(redislimit.Config{Client: client, Observer: metrics})
//	guard, err := spillway.New(spillway.Config{Limiter: store, Observer: metrics, Policies: policies})
//	http.Handle("GET /metrics", promhttp.Handler())
//
// One Observer serves any number of guards and stores of a process. No label ever holds a key, so the number of series
// depends on the configuration alone, whatever the traffic: about 35 for each policy, and those of a policy that is
// gone go with it.
//
// # Metrics
//
//	rate_limit_requests_total{policy,type,via}      decisions; type: allowed, blocked, shadow_blocked; via: memory, store, lease, deny_cache, fallback
//	rate_limit_rejected_total{policy,reason}        requests refused on account of the policy
//	rate_limit_remaining_ratio{policy}              histogram: share of the quota left after each decision
//	rate_limit_quota_used{policy}                   units in use, where everybody shares one key (keyfunc.Global)
//	rate_limit_degraded_total{policy,mode}          refused requests that were served otherwise
//	rate_limit_errors_total{policy,cause}           policies that could not decide (cause refund: not give back). Policy "": calls to a store that
//	                                                failed, callbacks that panicked (panic), clients that could not be told (client_ip)
//	rate_limit_store_duration_seconds{op}           histogram: calls to a shared store, failed ones too
//	rate_limit_breaker_state{limiter}               0 closed, 1 half-open, 2 open
//	rate_limit_memory_keys                          keys in all memory stores
//	rate_limit_memory_overflow_total                takes on shared cells, as those stores were full
//	rate_limit_config_info{hash}                    1 for the document in force, 0 for one that was refused and is still there ("none": nothing is)
//	rate_limit_config_reloads_total{result}         ok, invalid, unavailable
//	rate_limit_leases_held{policy}                  leases of quota in this process; where limits are leased, and so is what follows
//	rate_limit_lease_units_held{policy}             units leased and not spent
//	rate_limit_lease_staleness_seconds{policy}      how long ago the oldest lease held was told about by the store
//	rate_limit_lease_local_total{policy}            decisions without a call
//	rate_limit_lease_calls_total{policy}            calls for units, and to give some back
//	rate_limit_lease_granted_total{policy}          units granted
//	rate_limit_lease_returned_total{policy}         units given back
//	rate_limit_lease_stranded_total{policy}         units that were lost with their lease: too little passed by so much
//	rate_limit_lease_overshoot_units{policy}        the most by which this process may have let pass more of a key than its limit
//	rate_limit_lease_overshoot_bound_units{policy}  what the rate brings in the time of the slowest call: all processes together were never above
//	                                                the largest of theirs. Both are of the last one to two minutes; see [limiter.Leases]
//	rate_limit_adaptive_limit{policy}               units a second, or requests in flight
//	rate_limit_adaptive_reason{policy,reason}       1 for why the limit is what it is
//
// Several policies may decide about one request, and each counts: the sum over policies is not the number of requests.
// A policy that would have allowed what another refused counts as allowed, and nothing was taken from it.
package prom

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-go/spillway/limiter"
)

var (
	// A script on a near server takes 0.1 to 1 ms, and a call ends at 50 ms by default.
	storeBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

	rejections = []string{
		limiter.ReasonQuota, limiter.ReasonNever, limiter.ReasonInFlight, limiter.ReasonAdaptive, limiter.ReasonWaiting,
		limiter.ReasonShed, limiter.ReasonReadOnly, limiter.ReasonQueue,
		limiter.ReasonNoKey, limiter.ReasonUnavailable, limiter.ReasonInvalid, limiter.ReasonUnsupported, limiter.ReasonPanic,
	}
	faults = []string{
		limiter.ReasonUnavailable, limiter.ReasonInvalid, limiter.ReasonUnsupported, limiter.ReasonNoKey, limiter.ReasonCanceled,
		limiter.ReasonPanic, limiter.ReasonRefund,
	}
	storeFaults = []string{"timeout", "refused", "reset", "pool", "oom", "readonly", limiter.ReasonUnavailable}
	results     = []string{limiter.ReasonOK, limiter.ReasonInvalid, limiter.ReasonUnavailable}
)

// Observer is a [limiter.Observer] that counts. It is safe for concurrent use.
type Observer struct {
	requests, rejected, degraded, errors, reloads *prometheus.CounterVec
	duration                                      *prometheus.HistogramVec
	overflow                                      prometheus.Counter
	results                                       counters
	ops                                           values[prometheus.Observer]
	storeErrors                                   counters
	watchesStore                                  sync.Once

	policies sync.Map // name → *policy
	mu       sync.Mutex
	met      int // policies that nobody has bound
	left     int // policies that are gone and still here, lest a late word of a limiter brings them back
	memories map[string]memory
	breakers map[string]uint8
	hashes   map[string]version // by source
}

// version is what a source has: the document in force, and the one that is not, if it has another by now.
type version struct{ good, bad string }

// none stands for a document that there is none of.
const none = "none"

// memory is what is known of the memory stores of one name.
type memory struct {
	keys     int64
	overflow int64 // the most seen: of two stores with one name, one counts
}

var (
	_ limiter.Observer = (*Observer)(nil)
	_ limiter.Binder   = (*Observer)(nil)
)

// New returns an Observer whose metrics are registered with reg. A second one for the same Registerer is the first
// again, so every guard may have its own. It fails where reg knows other metrics of these names.
func New(reg prometheus.Registerer) (*Observer, error) {
	if reg == nil {
		return nil, errors.New("prom: New needs a Registerer, such as prometheus.DefaultRegisterer")
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	o := &Observer{
		requests: counter("rate_limit_requests_total", "Decisions of policies about requests.", "policy", "type", "via"),
		rejected: counter("rate_limit_rejected_total", "Requests refused on account of a policy.", "policy", "reason"),
		degraded: counter("rate_limit_degraded_total", "Refused requests that were served otherwise.", "policy", "mode"),
		errors:   counter("rate_limit_errors_total", "Policies that could not decide, and failed calls to a store (no policy).", "policy", "cause"),
		reloads:  counter("rate_limit_config_reloads_total", "New sets of policies, applied or refused.", "result"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rate_limit_store_duration_seconds", Help: "Calls to a shared store.", Buckets: storeBuckets,
		}, []string{"op"}),
		overflow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limit_memory_overflow_total", Help: "Takes decided on shared cells, as a memory store was full.",
		}),
		memories: make(map[string]memory),
		breakers: make(map[string]uint8),
		hashes:   make(map[string]version),
	}
	o.results.init(func(result string) prometheus.Counter { return o.reloads.WithLabelValues(result) }, results...)
	o.storeErrors.init(func(cause string) prometheus.Counter { return o.errors.WithLabelValues("", cause) }, limiter.ReasonPanic, limiter.ReasonClientIP)
	o.ops.init(func(op string) prometheus.Observer { return o.duration.WithLabelValues(op) })
	if err := reg.Register(collector{o}); err != nil {
		var known prometheus.AlreadyRegisteredError
		if errors.As(err, &known) {
			if c, ok := known.ExistingCollector.(collector); ok {
				return c.o, nil
			}
		}
		return nil, fmt.Errorf("prom: %w", err)
	}
	return o, nil
}

// KeepsNoKey returns o: no part of a key is kept, here or in a label.
func (o *Observer) KeepsNoKey() limiter.Observer { return o }

// Observe counts e. Events of a policy that was bound had better go to what [Observer.Bind] returned.
func (o *Observer) Observe(e limiter.Event) {
	switch e.Kind {
	case limiter.EventStore:
		o.watchesStore.Do(func() { // the first failure is then a rise
			for _, cause := range storeFaults {
				o.storeErrors.of(cause)
			}
		})
		o.ops.of(e.Op).Observe(e.Duration.Seconds())
		if e.Err != nil {
			o.storeErrors.of(reason(e)).Inc()
		}
	case limiter.EventMemory:
		o.memory(e)
	case limiter.EventBreaker:
		o.mu.Lock()
		defer o.mu.Unlock()
		keep(o.breakers, label(e.Name), e.State)
	case limiter.EventReload:
		o.reload(e)
	case limiter.EventDecision, limiter.EventRejected, limiter.EventDegraded, limiter.EventError, limiter.EventPanic,
		limiter.EventLease, limiter.EventAdapt:
		switch {
		case e.Kind == limiter.EventPanic: // whatever came of it
			o.storeErrors.of(limiter.ReasonPanic).Inc()
		case e.Policy != "":
			o.policy(e).Observe(e)
		case e.Kind == limiter.EventError && e.Reason != limiter.ReasonPanic:
			o.storeErrors.of(reason(e)).Inc()
		}
	case limiter.EventStoreState: // the errors tell
	}
}

// reason is the label of a failure.
func reason(e limiter.Event) string {
	if e.Reason == "" {
		return limiter.ReasonUnavailable
	}
	return e.Reason
}

func (o *Observer) memory(e limiter.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := label(e.Name)
	m, known := o.memories[name]
	if e.State != 0 { // it has been closed
		if known {
			o.overflow.Add(float64(max(0, e.Overflow-m.overflow)))
			delete(o.memories, name)
		}
		return
	}
	if !known && len(o.memories) >= maxValues {
		return // what it said before would be forgotten, and its overflow count again
	}
	if e.Overflow > m.overflow {
		o.overflow.Add(float64(e.Overflow - m.overflow))
	}
	o.memories[name] = memory{keys: e.Keys, overflow: max(m.overflow, e.Overflow)}
}

func (o *Observer) reload(e limiter.Event) {
	result := e.Reason
	switch {
	case result != "":
	case e.Err != nil:
		result = limiter.ReasonInvalid
	default:
		result = limiter.ReasonOK
	}
	o.results.of(result).Inc()
	name, hash := label(e.Name), label(e.Hash)
	if hash == "" {
		hash = none
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.hashes[name]
	if v.bad = hash; result == limiter.ReasonOK {
		v = version{good: hash}
	}
	keep(o.hashes, name, v)
}

// keep sets m[k], unless m is full of others.
func keep[V any](m map[string]V, k string, v V) {
	if _, known := m[k]; known || len(m) < maxValues {
		m[k] = v
	}
}

// Bind prepares the handles of a policy. The function it returns takes its series away, once no guard that has bound
// the policy has it any more.
func (o *Observer) Bind(name string) (limiter.Observer, func()) {
	name = label(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	p, known := o.find(name)
	switch {
	case known && p.gone.Load():
		o.left--
		fallthrough
	case !known:
		p = newPolicy(o, name)
		o.policies.Store(name, p)
	case p.bound == 0:
		o.met--
	}
	p.bound++
	return p, sync.OnceFunc(func() { o.unbind(p) })
}

func (o *Observer) unbind(p *policy) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.bound--; p.bound > 0 {
		return
	}
	p.close()
	if o.left++; o.left > maxMet {
		o.left--
		o.policies.Delete(p.name)
	}
}

func (o *Observer) find(name string) (*policy, bool) {
	if x, ok := o.policies.Load(name); ok {
		return x.(*policy), true
	}
	return nil, false
}

// maxMet bounds the policies that were never bound: names that come with events count as one from there on.
const maxMet = 1024

// policy returns the policy of an event.
func (o *Observer) policy(e limiter.Event) *policy {
	late := e.Kind == limiter.EventLease || e.Kind == limiter.EventAdapt // of limiters that know nothing of guards
	if p, ok := o.find(e.Policy); ok && (late || !p.gone.Load()) {
		return p
	}
	name := label(e.Policy) // what is one series is one policy
	o.mu.Lock()
	defer o.mu.Unlock()
	if p, ok := o.find(name); ok {
		if late || !p.gone.Load() {
			return p
		}
		if o.met < maxMet {
			o.left--
		}
	}
	if o.met >= maxMet {
		name = other
		if p, ok := o.find(name); ok && !p.gone.Load() {
			return p
		}
	}
	o.met++
	p := newPolicy(o, name)
	o.policies.Store(name, p)
	return p
}

// collector is what a Registerer is given. It is apart so that an Observer shows what is for guards alone.
type collector struct{ o *Observer }

var (
	remainingRatio = prometheus.NewDesc("rate_limit_remaining_ratio", "Share of the quota left after each decision.", []string{"policy"}, nil)
	quotaUsed      = prometheus.NewDesc("rate_limit_quota_used", "Units in use of a policy in which everybody shares one key.", []string{"policy"}, nil)
	breakerState   = prometheus.NewDesc("rate_limit_breaker_state", "Circuit breakers: 0 closed, 1 half-open, 2 open.", []string{"limiter"}, nil)
	configInfo     = prometheus.NewDesc("rate_limit_config_info", "The policy document in force.", []string{"hash"}, nil)
	memoryKeys     = prometheus.NewDesc("rate_limit_memory_keys", "Keys in the memory stores.", nil, nil)
	adaptiveLimit  = prometheus.NewDesc("rate_limit_adaptive_limit", "The adaptive limit in force: units a second, or requests in flight.", []string{"policy"}, nil)
	adaptiveWhy    = prometheus.NewDesc("rate_limit_adaptive_reason", "Why the adaptive limit is what it is: 1 for the reason in force.", []string{"policy", "reason"}, nil)
)

func (c collector) vectors() []prometheus.Collector {
	o := c.o
	return []prometheus.Collector{o.requests, o.rejected, o.degraded, o.errors, o.reloads, o.duration, o.overflow}
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.vectors() {
		v.Describe(ch)
	}
	for _, d := range append([]*prometheus.Desc{remainingRatio, quotaUsed, breakerState, configInfo, memoryKeys, adaptiveLimit, adaptiveWhy}, leaseDescs...) {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.vectors() {
		v.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := time.Now()
	for _, x := range c.o.policies.Range {
		x.(*policy).collect(now, ch, gauge)
	}
	// Whoever reads ch may be slow, and requests must not wait for that.
	c.o.mu.Lock()
	breakers, memories := maps.Clone(c.o.breakers), maps.Clone(c.o.memories)
	documents := make(map[string]float64) // hash → whether it is in force
	for _, v := range c.o.hashes {
		if v.bad != "" && documents[v.bad] == 0 {
			documents[v.bad] = 0
		}
		if v.good != "" {
			documents[v.good] = 1
		}
	}
	c.o.mu.Unlock()
	for name, state := range breakers {
		gauge(breakerState, float64(state), name)
	}
	for hash, inForce := range documents {
		gauge(configInfo, inForce, hash)
	}
	if len(memories) > 0 {
		keys := int64(0)
		for _, m := range memories {
			keys += m.keys
		}
		gauge(memoryKeys, float64(keys))
	}
}
