package otelobserve_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe/otelobserve"
	"github.com/spillway-go/spillway/observe/prom"
)

// The names in Prometheus are those documented and no others.
func TestNames(t *testing.T) {
	o, reg := newObserver(t)
	for _, kind := range kinds() {
		o.Observe(limiter.Event{
			Kind: kind, Policy: "a", Time: time.Now(), Key: limiter.Key{ID: "all=-"}, Decision: limiter.Decision{Limit: limiter.PerSecond(1)},
			Leases: &limiter.Leases{},
		})
	}
	families, err := reg.Gather()
	require.NoError(t, err)
	var got []string
	for _, f := range families {
		require.NotEmpty(t, f.GetHelp())
		got = append(got, f.GetName())
	}
	sort.Strings(got)
	require.Equal(t, strings.Fields(`
		rate_limit_adaptive_limit rate_limit_adaptive_reason rate_limit_breaker_state rate_limit_config_info
		rate_limit_config_reloads_total rate_limit_degraded_total rate_limit_errors_total
		rate_limit_lease_calls_total rate_limit_lease_granted_total rate_limit_lease_local_total
		rate_limit_lease_overshoot_bound_units rate_limit_lease_overshoot_units rate_limit_lease_returned_total
		rate_limit_lease_staleness_seconds rate_limit_lease_stranded_total rate_limit_lease_units_held rate_limit_leases_held
		rate_limit_memory_keys rate_limit_memory_overflow_total rate_limit_quota_used rate_limit_rejected_total
		rate_limit_remaining_ratio rate_limit_requests_total rate_limit_store_duration_seconds`), got)
}

// Every kind of event shows somewhere, or is known not to.
func TestEveryKindIsKnown(t *testing.T) {
	silent := []limiter.EventKind{limiter.EventStoreState}
	require.NotEmpty(t, kinds())
	for _, kind := range append(kinds(), 0, 200) {
		o, reg := newObserver(t)
		before := series(t, reg)
		o.Observe(limiter.Event{
			Kind: kind, Policy: "a", Name: "n", Op: "take", Hash: "h", Mode: "cache", Reason: "quota", Keys: 1, Overflow: 1,
			Decision: limiter.Decision{Limit: limiter.PerSecond(1)},
		})
		known := kind != 0 && kind != 200 && !slices.Contains(silent, kind)
		require.Equal(t, known, !maps.Equal(before, series(t, reg)), kind)
	}
}

type events = []limiter.Event

// What each event becomes.
func TestEvents(t *testing.T) {
	ten := limiter.PerMinute(10)
	for name, c := range map[string]struct {
		events events
		want   map[string]float64
	}{
		"decisions": {
			events{
				decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 9, ten), decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 8, ten),
				decision("a", limiter.OutcomeBlocked, limiter.ViaDenyCache, 0, ten), decision("b", limiter.OutcomeShadowBlocked, limiter.ViaFallback, 0, ten),
				decision("b", limiter.OutcomeAllowed, limiter.ViaStore, 5, ten), decision("b", limiter.OutcomeAllowed, limiter.ViaLease, 5, ten),
			},
			map[string]float64{
				`requests_total{policy="a",type="allowed",via="memory"}`: 2, `requests_total{policy="a",type="blocked",via="deny_cache"}`: 1,
				`requests_total{policy="b",type="shadow_blocked",via="fallback"}`: 1, `requests_total{policy="b",type="allowed",via="store"}`: 1,
				`requests_total{policy="b",type="allowed",via="lease"}`: 1, `remaining_ratio_count{policy="a"}`: 3,
				`remaining_ratio_sum{policy="a"}`: 1.7, `remaining_ratio_count{policy="b"}`: 3, `remaining_ratio_sum{policy="b"}`: 1,
			},
		},
		"no quota, any quota": {
			events{
				decision("none", limiter.OutcomeBlocked, limiter.ViaMemory, 0, limiter.DenyAll),
				decision("any", limiter.OutcomeAllowed, limiter.ViaMemory, limiter.Unlimited.Quota(), limiter.Unlimited),
			},
			map[string]float64{
				`requests_total{policy="none",type="blocked",via="memory"}`: 1, `requests_total{policy="any",type="allowed",via="memory"}`: 1,
				`remaining_ratio_count{policy="any"}`: 1, `remaining_ratio_sum{policy="any"}`: 1,
			},
		},
		"one key": {
			events{global(decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 4, ten), time.Minute)},
			map[string]float64{
				`requests_total{policy="a",type="allowed",via="memory"}`: 1, `quota_used{policy="a"}`: 6,
				`remaining_ratio_count{policy="a"}`: 1, `remaining_ratio_sum{policy="a"}`: 0.4,
			},
		},
		"refusals": {
			events{
				{Kind: limiter.EventRejected, Policy: "a", Reason: limiter.ReasonQuota},
				{Kind: limiter.EventRejected, Policy: "a", Reason: limiter.ReasonQuota},
				{Kind: limiter.EventRejected, Policy: "a", Reason: limiter.ReasonNoKey},
				{Kind: limiter.EventDegraded, Policy: "a", Mode: "cache"},
			},
			map[string]float64{`rejected_total{policy="a",reason="quota"}`: 2, `rejected_total{policy="a",reason="no_key"}`: 1, `degraded_total{mode="cache",policy="a"}`: 1},
		},
		"errors": {
			events{
				{Kind: limiter.EventError, Policy: "a", Reason: limiter.ReasonInvalid, Err: errAway},
				{Kind: limiter.EventError, Policy: "a", Err: errAway},
				{Kind: limiter.EventError, Reason: limiter.ReasonClientIP, Err: errAway},
				{Kind: limiter.EventStoreState, Policy: "a", State: 1, Err: errAway},
			},
			map[string]float64{`errors_total{cause="invalid",policy="a"}`: 1, `errors_total{cause="unavailable",policy="a"}`: 1, `errors_total{cause="client_ip",policy=""}`: 1},
		},
		"panics are apart, and what could not be decided for one": {
			events{
				{Kind: limiter.EventPanic, Policy: "a", Name: "Cost", Reason: limiter.ReasonPanic, Err: errAway},
				{Kind: limiter.EventError, Policy: "a", Reason: limiter.ReasonPanic, Err: errAway},
				{Kind: limiter.EventPanic, Name: "Limiter", Err: errAway},
				{Kind: limiter.EventError, Reason: limiter.ReasonPanic, Err: errAway},
			},
			map[string]float64{`errors_total{cause="panic",policy="a"}`: 1, `errors_total{cause="panic",policy=""}`: 2},
		},
		"refunds": {
			events{{Kind: limiter.EventError, Policy: "a", Reason: limiter.ReasonRefund, Err: errAway}},
			map[string]float64{`errors_total{cause="refund",policy="a"}`: 1},
		},
		"store": {
			events{
				{Kind: limiter.EventStore, Op: "take", N: 3, Duration: time.Millisecond},
				{Kind: limiter.EventStore, Op: "take", Duration: time.Second, Err: errAway, Reason: "oom"},
				{Kind: limiter.EventStore, Op: "refund", Duration: time.Second, Err: errAway},
			},
			map[string]float64{
				`store_duration_seconds_count{op="take"}`: 2, `store_duration_seconds_sum{op="take"}`: 1.001, `store_duration_seconds_count{op="refund"}`: 1,
				`store_duration_seconds_sum{op="refund"}`: 1, `errors_total{cause="oom",policy=""}`: 1, `errors_total{cause="unavailable",policy=""}`: 1,
			},
		},
		"memory": {
			events{
				{Kind: limiter.EventMemory, Name: "x", Keys: 5, Overflow: 2}, {Kind: limiter.EventMemory, Name: "y", Keys: 7}, {Kind: limiter.EventMemory, Name: "x", Keys: 4, Overflow: 3},
			},
			map[string]float64{`memory_keys`: 11, `memory_overflow_total`: 3},
		},
		"two memories of one name do not add up": {
			events{{Kind: limiter.EventMemory, Keys: 5, Overflow: 100}, {Kind: limiter.EventMemory, Keys: 5}, {Kind: limiter.EventMemory, Keys: 5, Overflow: 100}},
			map[string]float64{`memory_keys`: 5, `memory_overflow_total`: 100},
		},
		"memories that are closed": {
			events{
				{Kind: limiter.EventMemory, Name: "x", Keys: 5, Overflow: 2},
				{Kind: limiter.EventMemory, Name: "y", Keys: 7},
				{Kind: limiter.EventMemory, Name: "x", State: 1, Overflow: 3},
				{Kind: limiter.EventMemory, Name: "x", State: 1, Overflow: 3},
			},
			map[string]float64{`memory_keys`: 7, `memory_overflow_total`: 3},
		},
		"a memory of the name of one that is closed": {
			events{
				{Kind: limiter.EventMemory, Name: "x", Keys: 5, Overflow: 2},
				{Kind: limiter.EventMemory, Name: "x", State: 1, Overflow: 2},
				{Kind: limiter.EventMemory, Name: "x", Keys: 1, Overflow: 2},
			},
			map[string]float64{`memory_keys`: 1, `memory_overflow_total`: 4},
		},
		"breaker": {
			events{{Kind: limiter.EventBreaker, Name: "redis", State: limiter.BreakerHalfOpen}, {Kind: limiter.EventBreaker, Name: "redis", State: limiter.BreakerOpen}},
			map[string]float64{`breaker_state{limiter="redis"}`: 2},
		},
		"reloads": {
			events{
				{Kind: limiter.EventReload, Name: "file", Hash: "old", Reason: limiter.ReasonOK},
				{Kind: limiter.EventReload, Name: "file", Hash: "new"},
				{Kind: limiter.EventReload, Name: "file", Hash: "bad", Err: errAway},
				{Kind: limiter.EventReload, Name: "file", Reason: limiter.ReasonUnavailable, Err: errAway},
			},
			map[string]float64{
				`config_info{hash="new"}`: 1, `config_reloads_total{result="ok"}`: 2, `config_reloads_total{result="invalid"}`: 1,
				`config_reloads_total{result="unavailable"}`: 1,
			},
		},
		"leases": {
			events{{Kind: limiter.EventLease, Policy: "a", Keys: 9}, {Kind: limiter.EventLease, Policy: "a", Keys: 4}},
			map[string]float64{`leases_held{policy="a"}`: 4},
		},
		"what leases do": {
			events{
				{Kind: limiter.EventLease, Policy: "a", Keys: 2, Leases: &limiter.Leases{
					Units: 90, Staleness: time.Second, Local: 1000, Calls: 7, Granted: 300, Returned: 20, Stranded: 10, Late: 3, LateBound: 4,
				}},
				{Kind: limiter.EventLease, Policy: "a", Keys: 1, Leases: &limiter.Leases{
					Units: 30, Staleness: 200 * time.Millisecond, Local: 500, Calls: 1, Granted: 100, Late: 1, LateBound: 5,
				}},
			},
			map[string]float64{
				`leases_held{policy="a"}`: 1, `lease_units_held{policy="a"}`: 30, `lease_staleness_seconds{policy="a"}`: 0.2,
				`lease_local_total{policy="a"}`: 1500, `lease_calls_total{policy="a"}`: 8, `lease_granted_total{policy="a"}`: 400,
				`lease_returned_total{policy="a"}`: 20, `lease_stranded_total{policy="a"}`: 10,
				`lease_overshoot_units{policy="a"}`: 3, `lease_overshoot_bound_units{policy="a"}`: 5,
			},
		},
		"adaptive": {
			events{
				{Kind: limiter.EventAdapt, Policy: "rate", Reason: "cpu", Decision: limiter.Decision{Limit: limiter.PerSecond(50)}},
				{Kind: limiter.EventAdapt, Policy: "rate", Reason: "errors", Decision: limiter.Decision{Limit: limiter.PerMinute(30)}},
				{Kind: limiter.EventAdapt, Policy: "flight", Reason: "cpu", Decision: limiter.Decision{Limit: limiter.Limit{Burst: 7}}},
			},
			map[string]float64{
				`adaptive_limit{policy="rate"}`: 0.5, `adaptive_reason{policy="rate",reason="errors"}`: 1,
				`adaptive_limit{policy="flight"}`: 7, `adaptive_reason{policy="flight",reason="cpu"}`: 1,
			},
		},
		"nobody's": {events{{Kind: limiter.EventDecision}, {Kind: limiter.EventRejected}, {}, {Kind: 200}}, map[string]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, bound := range []bool{false, true} {
					o, reg := newObserver(t)
					show(o, bound, c.events)
					require.InDeltaMapValues(t, c.want, counted(t, reg), 1e-9, "bound: %v", bound)
				}
			})
		})
	}
}

// show shows events to an observer of the policies, or to that of all.
func show(o binder, bound bool, all events) {
	observers := map[string]limiter.Observer{}
	for _, e := range all {
		if observers[e.Policy] == nil {
			observers[e.Policy] = o
			if bound && e.Policy != "" {
				observers[e.Policy], _ = o.Bind(e.Policy)
			}
		}
		if !e.Time.IsZero() {
			e.Time = time.Now()
		}
		observers[e.Policy].Observe(e)
	}
}

type binder interface {
	limiter.Observer
	limiter.Binder
}

var _ binder = (*otelobserve.Observer)(nil)

// Whatever happens, both ways of measuring show the same series with the same values.
func TestSameAsProm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(30) {
			r := rand.New(rand.NewPCG(seed, 1))
			reg := prometheus.NewPedanticRegistry()
			theirs, err := prom.New(reg)
			require.NoError(t, err)
			ours, exported := newObserver(t)
			for range 10 {
				all := make(events, r.IntN(20))
				for k := range all {
					all[k] = anything(r)
				}
				bound := r.IntN(2) == 0
				show(ours, bound, all)
				show(theirs, bound, all)
				time.Sleep(time.Duration(r.IntN(40)) * time.Second)
				want := series(t, reg)
				got := series(t, exported)
				require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), "seed %d", seed)
				require.InDeltaMapValues(t, want, got, 1e-6, "seed %d", seed)
			}
		}
	})
}

// anything returns an event that a guard or a store may emit.
func anything(r *rand.Rand) limiter.Event {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	all := kinds()
	limits := []limiter.Limit{limiter.PerSecond(50), limiter.PerMinute(10), limiter.PerMinute(10).With(limiter.FixedWindow), limiter.DenyAll, limiter.Unlimited}
	e := limiter.Event{
		Kind: all[r.IntN(len(all))], Time: time.Now(), Policy: pick("a", "b", "c"), Name: pick("x", "y"),
		Key: limiter.Key{ID: pick("all=-", "ip=192.0.2.7")}, Outcome: limiter.Outcome(r.IntN(4)), State: uint8(r.IntN(3)),
		Reason: pick("", "ok", "quota", "invalid", "panic", "timeout", "refund"), Mode: pick("cache", "func"), Op: pick("take", "refund"), Hash: pick("", "1", "2", "3"),
		Duration: time.Duration(r.IntN(1e9)), Keys: int64(r.IntN(100)), Overflow: int64(r.IntN(100)),
	}
	e.Decision = limiter.Decision{Limit: limits[r.IntN(len(limits))], Via: limiter.Via(r.IntN(6)), ResetAfter: time.Duration(r.IntN(60)) * time.Second}
	e.Decision.Remaining = r.IntN(min(e.Decision.Limit.Quota(), 1e6) + 1)
	if r.IntN(3) == 0 {
		e.Err = errAway
	}
	if r.IntN(3) > 0 {
		n := func() uint64 { return r.Uint64N(100) }
		e.Leases = &limiter.Leases{
			Units: int64(n()), Staleness: time.Duration(r.IntN(1e9)), Local: n(), Calls: n(), Granted: n(), Returned: n(), Stranded: n(),
			Late: r.Float64(), LateBound: 1 + r.Float64(),
		}
	}
	switch e.Kind {
	case limiter.EventStore, limiter.EventMemory, limiter.EventBreaker, limiter.EventReload:
		e.Policy = ""
	case limiter.EventPanic:
		e.Reason = limiter.ReasonPanic
		fallthrough
	case limiter.EventError:
		if r.IntN(3) == 0 {
			e.Policy = ""
		}
	}
	return e
}

// What is in use falls with time, though nobody asks: it would stand for ever at what the last request left.
func TestQuotaUsedFalls(t *testing.T) {
	for _, c := range []struct {
		limit limiter.Limit
		want  []float64 // after each 15 s
	}{
		{limiter.Limit{Algorithm: limiter.TokenBucket, Rate: 10, Period: time.Minute, Burst: 10}, []float64{8, 6, 4, 2, 0, 0}},
		{limiter.Limit{Algorithm: limiter.FixedWindow, Rate: 10, Period: time.Minute}, []float64{8, 8, 8, 8, 0, 0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, reg := newObserver(t)
			p, _ := o.Bind("a")
			p.Observe(global(decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 2, c.limit), time.Minute))
			for _, want := range c.want {
				require.InDelta(t, want, series(t, reg)[`rate_limit_quota_used{policy="a"}`], 1e-9)
				time.Sleep(15 * time.Second)
			}
		})
	}
}

// A document that is refused can be seen for as long as its source has it.
func TestRefusedDocumentsStand(t *testing.T) {
	o, reg := newObserver(t)
	for i, step := range []struct {
		source, hash, reason string
		want                 map[string]float64
	}{
		{"a", "", limiter.ReasonUnavailable, map[string]float64{"none": 0}},
		{"a", "1", limiter.ReasonOK, map[string]float64{"1": 1}},
		{"a", "2", limiter.ReasonInvalid, map[string]float64{"1": 1, "2": 0}},
		{"a", "3", limiter.ReasonInvalid, map[string]float64{"1": 1, "3": 0}},
		{"a", "", limiter.ReasonUnavailable, map[string]float64{"1": 1, "none": 0}},
		{"a", "1", limiter.ReasonOK, map[string]float64{"1": 1}},
		{"b", "2", "", map[string]float64{"1": 1, "2": 1}},
		{"a", "2", limiter.ReasonInvalid, map[string]float64{"1": 1, "2": 1}},
		{"b", "4", limiter.ReasonOK, map[string]float64{"1": 1, "2": 0, "4": 1}},
	} {
		o.Observe(limiter.Event{Kind: limiter.EventReload, Name: step.source, Hash: step.hash, Reason: step.reason})
		got := map[string]float64{}
		for name, v := range series(t, reg) {
			if hash, of := strings.CutPrefix(name, `rate_limit_config_info{hash="`); of {
				got[strings.TrimSuffix(hash, `"}`)] = v
			}
		}
		require.Equal(t, step.want, got, "step %d", i)
	}
}

// A failure that is the first of its kind is an increase and not a new series, which no rate would see.
func TestSeriesBeginAtZero(t *testing.T) {
	o, reg := newObserver(t)
	require.Contains(t, series(t, reg), `rate_limit_errors_total{cause="panic",policy=""}`)
	require.Contains(t, series(t, reg), `rate_limit_errors_total{cause="client_ip",policy=""}`)
	p, _ := o.Bind("a")
	p.Observe(decision("a", limiter.OutcomeAllowed, limiter.ViaStore, 1, limiter.PerSecond(1)))
	o.Observe(limiter.Event{Kind: limiter.EventStore, Op: "take"})
	all := series(t, reg)
	for _, want := range []string{
		`rate_limit_requests_total{policy="a",type="blocked",via="store"}`, `rate_limit_rejected_total{policy="a",reason="quota"}`,
		`rate_limit_errors_total{cause="unavailable",policy="a"}`, `rate_limit_errors_total{cause="timeout",policy=""}`,
		`rate_limit_config_reloads_total{result="invalid"}`, `rate_limit_memory_overflow_total`,
	} {
		v, ok := all[want]
		require.True(t, ok, want)
		require.Zero(t, v)
	}
}
