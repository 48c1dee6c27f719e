package prom_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/observe/prom"
)

// names are all metrics, as documented: dashboards and alerts of users are built on them.
var names = strings.Fields(`
rate_limit_adaptive_limit rate_limit_adaptive_reason rate_limit_breaker_state rate_limit_config_info
rate_limit_config_reloads_total rate_limit_degraded_total rate_limit_errors_total
rate_limit_lease_calls_total rate_limit_lease_granted_total rate_limit_lease_local_total
rate_limit_lease_overshoot_bound_units rate_limit_lease_overshoot_units rate_limit_lease_returned_total
rate_limit_lease_staleness_seconds rate_limit_lease_stranded_total rate_limit_lease_units_held rate_limit_leases_held
rate_limit_memory_keys rate_limit_memory_overflow_total rate_limit_quota_used rate_limit_rejected_total
rate_limit_remaining_ratio rate_limit_requests_total rate_limit_store_duration_seconds`)

func newObserver(t testing.TB) (*prom.Observer, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	o, err := prom.New(reg)
	require.NoError(t, err)
	return o, reg
}

// gather returns all series but those at 0: name{label="value",…} → value. A histogram is its count and its sum.
func gather(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	series := map[string]float64{}
	for name, v := range gatherAll(t, reg) {
		if v != 0 {
			series[strings.TrimPrefix(name, "rate_limit_")] = v
		}
	}
	return series
}

func gatherAll(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	series := map[string]float64{}
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
				series[f.GetName()+"_count"+of] = float64(m.Histogram.GetSampleCount())
				series[f.GetName()+"_sum"+of] = m.Histogram.GetSampleSum()
			case dto.MetricType_COUNTER:
				series[f.GetName()+of] = m.Counter.GetValue()
			default:
				series[f.GetName()+of] = m.Gauge.GetValue()
			}
		}
	}
	return series
}

func decision(policy string, outcome limiter.Outcome, via limiter.Via, remaining int, limit limiter.Limit) limiter.Event {
	return limiter.Event{
		Kind: limiter.EventDecision, Policy: policy, Outcome: outcome, Time: time.Now(), N: 1,
		Key:      limiter.Key{Space: policy, ID: "ip=192.0.2.7"},
		Decision: limiter.Decision{Via: via, Remaining: remaining, Limit: limit},
	}
}

// What each event becomes.
func TestEvents(t *testing.T) {
	ten := limiter.PerMinute(10)
	away := errors.New("away")
	with := func(e limiter.Event, f func(*limiter.Event)) limiter.Event {
		f(&e)
		return e
	}
	global := func(e *limiter.Event) { e.Key.ID = "all=-"; e.Decision.ResetAfter = time.Minute }
	for name, c := range map[string]struct {
		events []limiter.Event
		want   map[string]float64
	}{
		"decisions": {
			[]limiter.Event{
				decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 9, ten), decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 8, ten),
				decision("a", limiter.OutcomeBlocked, limiter.ViaDenyCache, 0, ten), decision("b", limiter.OutcomeShadowBlocked, limiter.ViaFallback, 0, ten),
				decision("b", limiter.OutcomeAllowed, limiter.ViaStore, 5, ten), decision("b", limiter.OutcomeAllowed, limiter.ViaLease, 5, ten),
			},
			map[string]float64{
				`requests_total{policy="a",type="allowed",via="memory"}`: 2, `requests_total{policy="a",type="blocked",via="deny_cache"}`: 1,
				`requests_total{policy="b",type="shadow_blocked",via="fallback"}`: 1, `requests_total{policy="b",type="allowed",via="store"}`: 1,
				`requests_total{policy="b",type="allowed",via="lease"}`: 1,
				`remaining_ratio_count{policy="a"}`:                     3, `remaining_ratio_sum{policy="a"}`: 1.7,
				`remaining_ratio_count{policy="b"}`: 3, `remaining_ratio_sum{policy="b"}`: 1,
			},
		},
		"no quota, any quota": {
			[]limiter.Event{
				decision("none", limiter.OutcomeBlocked, limiter.ViaMemory, 0, limiter.DenyAll),
				decision("any", limiter.OutcomeAllowed, limiter.ViaMemory, limiter.Unlimited.Quota(), limiter.Unlimited),
			},
			map[string]float64{
				`requests_total{policy="none",type="blocked",via="memory"}`: 1, `requests_total{policy="any",type="allowed",via="memory"}`: 1,
				`remaining_ratio_count{policy="any"}`: 1, `remaining_ratio_sum{policy="any"}`: 1,
			},
		},
		"one key": {
			[]limiter.Event{with(decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 4, ten), global)},
			map[string]float64{
				`requests_total{policy="a",type="allowed",via="memory"}`: 1, `quota_used{policy="a"}`: 6,
				`remaining_ratio_count{policy="a"}`: 1, `remaining_ratio_sum{policy="a"}`: 0.4,
			},
		},
		"refusals": {
			[]limiter.Event{
				{Kind: limiter.EventRejected, Policy: "a", Reason: limiter.ReasonQuota},
				{Kind: limiter.EventRejected, Policy: "a", Reason: limiter.ReasonQuota},
				{Kind: limiter.EventRejected, Policy: "a", Reason: limiter.ReasonNoKey},
				{Kind: limiter.EventDegraded, Policy: "a", Mode: "cache"},
			},
			map[string]float64{`rejected_total{policy="a",reason="quota"}`: 2, `rejected_total{policy="a",reason="no_key"}`: 1, `degraded_total{mode="cache",policy="a"}`: 1},
		},
		"errors": {
			[]limiter.Event{
				{Kind: limiter.EventError, Policy: "a", Reason: limiter.ReasonUnavailable, Err: away},
				{Kind: limiter.EventError, Reason: limiter.ReasonClientIP, Err: away},
				{Kind: limiter.EventStoreState, Policy: "a", State: 1, Reason: limiter.ReasonUnavailable, Err: away},
			},
			map[string]float64{`errors_total{cause="unavailable",policy="a"}`: 1, `errors_total{cause="client_ip",policy=""}`: 1},
		},
		"panics": {
			[]limiter.Event{
				{Kind: limiter.EventPanic, Policy: "a", Name: "Cost", Reason: limiter.ReasonPanic, Err: away},
				{Kind: limiter.EventError, Policy: "a", Reason: limiter.ReasonPanic, Err: away},
				{Kind: limiter.EventPanic, Name: "Limiter", Err: away},
			},
			map[string]float64{`errors_total{cause="panic",policy="a"}`: 1, `errors_total{cause="panic",policy=""}`: 2},
		},
		"store": {
			[]limiter.Event{
				{Kind: limiter.EventStore, Op: "take", N: 3, Duration: time.Millisecond},
				{Kind: limiter.EventStore, Op: "take", Duration: time.Second, Err: away, Reason: "oom"},
				{Kind: limiter.EventStore, Op: "refund", Duration: time.Second, Err: away},
			},
			map[string]float64{
				`store_duration_seconds_count{op="take"}`: 2, `store_duration_seconds_sum{op="take"}`: 1.001, `store_duration_seconds_count{op="refund"}`: 1,
				`store_duration_seconds_sum{op="refund"}`: 1, `errors_total{cause="oom",policy=""}`: 1, `errors_total{cause="unavailable",policy=""}`: 1,
			},
		},
		"memory": {
			[]limiter.Event{
				{Kind: limiter.EventMemory, Name: "x", Keys: 5, Overflow: 2}, {Kind: limiter.EventMemory, Name: "y", Keys: 7}, {Kind: limiter.EventMemory, Name: "x", Keys: 4, Overflow: 3},
			},
			map[string]float64{`memory_keys`: 11, `memory_overflow_total`: 3},
		},
		"two memories of one name do not add up": {
			[]limiter.Event{
				{Kind: limiter.EventMemory, Keys: 5, Overflow: 100}, {Kind: limiter.EventMemory, Keys: 5, Overflow: 0}, {Kind: limiter.EventMemory, Keys: 5, Overflow: 100},
			},
			map[string]float64{`memory_keys`: 5, `memory_overflow_total`: 100},
		},
		"breaker": {
			[]limiter.Event{{Kind: limiter.EventBreaker, Name: "redis", State: limiter.BreakerHalfOpen}, {Kind: limiter.EventBreaker, Name: "redis", State: limiter.BreakerOpen}},
			map[string]float64{`breaker_state{limiter="redis"}`: 2},
		},
		"reloads": {
			[]limiter.Event{
				{Kind: limiter.EventReload, Name: "file", Hash: "old", Reason: limiter.ReasonOK},
				{Kind: limiter.EventReload, Name: "file", Hash: "new"},
				{Kind: limiter.EventReload, Name: "file", Hash: "bad", Err: away},
				{Kind: limiter.EventReload, Name: "file", Reason: limiter.ReasonUnavailable, Err: away},
			},
			map[string]float64{
				`config_info{hash="new"}`: 1, `config_reloads_total{result="ok"}`: 2, `config_reloads_total{result="invalid"}`: 1,
				`config_reloads_total{result="unavailable"}`: 1,
			},
		},
		"leases": {
			[]limiter.Event{{Kind: limiter.EventLease, Policy: "a", Keys: 9}, {Kind: limiter.EventLease, Policy: "a", Keys: 4}},
			map[string]float64{`leases_held{policy="a"}`: 4},
		},
		"what leases do": {
			[]limiter.Event{
				{Kind: limiter.EventLease, Policy: "a", Keys: 2, Leases: &limiter.Leases{
					Units: 90, Staleness: time.Second, Local: 1000, Calls: 7, Granted: 300, Returned: 20, Stranded: 10, Late: 3, LateBound: 4,
				}},
				{Kind: limiter.EventLease, Policy: "a", Keys: 1, Leases: &limiter.Leases{
					Units: 30, Staleness: 200 * time.Millisecond, Local: 500, Calls: 1, Granted: 100, Late: 1, LateBound: 5,
				}},
				{Kind: limiter.EventLease, Policy: "b", Keys: 1, Leases: &limiter.Leases{Stranded: 1}},
			},
			map[string]float64{
				`leases_held{policy="a"}`: 1, `leases_held{policy="b"}`: 1,
				`lease_units_held{policy="a"}`: 30, `lease_staleness_seconds{policy="a"}`: 0.2,
				`lease_local_total{policy="a"}`: 1500, `lease_calls_total{policy="a"}`: 8, `lease_granted_total{policy="a"}`: 400,
				`lease_returned_total{policy="a"}`: 20, `lease_stranded_total{policy="a"}`: 10, `lease_stranded_total{policy="b"}`: 1,
				`lease_overshoot_units{policy="a"}`: 3, `lease_overshoot_bound_units{policy="a"}`: 5,
			},
		},
		"adaptive": {
			[]limiter.Event{
				{Kind: limiter.EventAdapt, Policy: "rate", Reason: "cpu", Decision: limiter.Decision{Limit: limiter.PerSecond(50)}},
				{Kind: limiter.EventAdapt, Policy: "rate", Reason: "errors", Decision: limiter.Decision{Limit: limiter.PerMinute(30)}},
				{Kind: limiter.EventAdapt, Policy: "flight", Reason: "cpu", Decision: limiter.Decision{Limit: limiter.Limit{Burst: 7}}},
			},
			map[string]float64{
				`adaptive_limit{policy="rate"}`: 0.5, `adaptive_reason{policy="rate",reason="errors"}`: 1,
				`adaptive_limit{policy="flight"}`: 7, `adaptive_reason{policy="flight",reason="cpu"}`: 1,
			},
		},
		"nobody's": {[]limiter.Event{{Kind: limiter.EventDecision}, {Kind: limiter.EventRejected}, {}, {Kind: 200}}, map[string]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, bound := range []bool{false, true} {
					o, reg := newObserver(t)
					observers := map[string]limiter.Observer{}
					for _, e := range c.events {
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
					require.InDeltaMapValues(t, c.want, gather(t, reg), 1e-9, "bound: %v", bound)
				}
			})
		})
	}
}

// Every kind of event shows somewhere, or is known not to.
func TestEveryKindIsKnown(t *testing.T) {
	silent := map[limiter.EventKind]bool{limiter.EventStoreState: true}
	for kind := limiter.EventKind(1); kind.String() != "unknown"; kind++ {
		o, reg := newObserver(t)
		before := gatherAll(t, reg)
		o.Observe(limiter.Event{
			Kind: kind, Policy: "a", Name: "n", Op: "take", Hash: "h", Mode: "cache", Reason: "quota", Keys: 1, Overflow: 1,
			Decision: limiter.Decision{Limit: limiter.PerSecond(1)},
		})
		require.Equal(t, silent[kind], maps.Equal(before, gatherAll(t, reg)), kind)
	}
}

// The names are those documented and no others.
func TestNames(t *testing.T) {
	o, reg := newObserver(t)
	for kind := limiter.EventKind(1); kind.String() != "unknown"; kind++ {
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
	require.Equal(t, names, got)
}

// A failure that is the first of its kind is a rise and not a new series, which no rate would see.
func TestSeriesBeginAtZero(t *testing.T) {
	o, reg := newObserver(t)
	p, _ := o.Bind("a")
	p.Observe(decision("a", limiter.OutcomeAllowed, limiter.ViaStore, 1, limiter.PerSecond(1)))
	o.Observe(limiter.Event{Kind: limiter.EventStore, Op: "take"})
	all := gatherAll(t, reg)
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

// A scrape in every minute sees each excess, and none that is long over.
func TestOvershootIsOfTheLastTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reg := newObserver(t)
		late := func() float64 { return gatherAll(t, reg)[`rate_limit_lease_overshoot_units{policy="a"}`] }
		tell := func(v float64) {
			o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a", Leases: &limiter.Leases{Late: v}})
		}
		tell(1)
		time.Sleep(50 * time.Second)
		tell(7)
		tell(2)
		for range 60 { // the event before it stood at the end of its minute
			require.Equal(t, 7.0, late())
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Second)
		tell(3)
		require.Equal(t, 3.0, late())
		time.Sleep(10 * time.Minute)
		require.Zero(t, late())
		tell(4)
		require.Equal(t, 4.0, late())
	})
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
			e := decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 2, c.limit)
			e.Key.ID, e.Decision.ResetAfter = "all=-", time.Minute
			p.Observe(e)
			for _, want := range c.want {
				require.InDelta(t, want, gatherAll(t, reg)[`rate_limit_quota_used{policy="a"}`], 1e-9)
				time.Sleep(15 * time.Second)
			}
		})
	}
}

// Policies that come and go leave nothing behind, however many.
func TestPoliciesThatComeAndGo(t *testing.T) {
	o, reg := newObserver(t)
	empty := len(gatherAll(t, reg))
	for k := range 3 * prom.MaxMet {
		p, release := o.Bind(fmt.Sprint("p", k))
		p.Observe(decision("", limiter.OutcomeAllowed, limiter.ViaStore, 1, limiter.PerSecond(10)))
		release()
	}
	require.Len(t, gatherAll(t, reg), empty)
	again, _ := o.Bind("p0")
	again.Observe(decision("", limiter.OutcomeAllowed, limiter.ViaStore, 1, limiter.PerSecond(10)))
	require.Greater(t, len(gatherAll(t, reg)), empty)
	for k := range 2 * prom.MaxValues {
		for range 2 {
			o.Observe(limiter.Event{Kind: limiter.EventMemory, Name: fmt.Sprint(k), Overflow: 1})
		}
	}
	require.EqualValues(t, prom.MaxValues, gatherAll(t, reg)["rate_limit_memory_overflow_total"])
}

// A document that is refused can be seen for as long as it is there, and through restarts and gaps, for it is no counter.
func TestRefusedDocumentsStand(t *testing.T) {
	o, reg := newObserver(t)
	reload := func(source, hash, reason string) map[string]float64 {
		o.Observe(limiter.Event{Kind: limiter.EventReload, Name: source, Hash: hash, Reason: reason})
		out := map[string]float64{}
		for name, v := range gatherAll(t, reg) {
			if of, ok := strings.CutPrefix(name, "rate_limit_config_info"); ok {
				out[of] = v
			}
		}
		return out
	}
	one, two, none := `{hash="1"}`, `{hash="2"}`, `{hash="none"}`
	require.Equal(t, map[string]float64{none: 0}, reload("a", "", limiter.ReasonUnavailable), "at the start")
	require.Equal(t, map[string]float64{one: 1}, reload("a", "1", limiter.ReasonOK))
	require.Equal(t, map[string]float64{one: 1, two: 0}, reload("a", "2", limiter.ReasonInvalid))
	require.Equal(t, map[string]float64{one: 1, none: 0}, reload("a", "", limiter.ReasonUnavailable))
	require.Equal(t, map[string]float64{one: 1}, reload("a", "1", limiter.ReasonOK))
	require.Equal(t, map[string]float64{one: 1, two: 1}, reload("b", "2", limiter.ReasonOK))
	require.Equal(t, map[string]float64{one: 1, two: 1}, reload("a", "2", limiter.ReasonInvalid), "in force elsewhere")
}

// A memory store that has been closed is forgotten, and its overflow is not.
func TestClosedMemoriesAreForgotten(t *testing.T) {
	o, reg := newObserver(t)
	for k := range 3 * prom.MaxValues {
		store, err := memory.New(memory.Config{MaxKeys: 1, Observer: o})
		require.NoError(t, err)
		for client := range 3 {
			_, err := store.Allow(t.Context(), limiter.Key{ID: fmt.Sprint(client)}, limiter.PerDay(1), 1)
			require.NoError(t, err)
		}
		store.Close()
		store.Close()
		require.NotContains(t, gatherAll(t, reg), "rate_limit_memory_keys")
		require.EqualValues(t, 2*(k+1), gatherAll(t, reg)["rate_limit_memory_overflow_total"])
	}
}

// A guard that has nothing bound may have a policy that another guard has given up.
func TestUnboundEventsReviveAPolicy(t *testing.T) {
	o, reg := newObserver(t)
	for range 3 {
		_, release := o.Bind("a")
		release()
		o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a", Keys: 1})
		require.NotContains(t, gatherAll(t, reg), `rate_limit_leases_held{policy="a"}`)
		for range 2 {
			o.Observe(decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 1, limiter.PerSecond(10)))
		}
		require.Equal(t, 2.0, gatherAll(t, reg)[`rate_limit_requests_total{policy="a",type="allowed",via="memory"}`])
	}
}

// A second observer for one registry is the first: no panic, no error, one set of numbers.
func TestOneRegistryTwice(t *testing.T) {
	one, reg := newObserver(t)
	two, err := prom.New(reg)
	require.NoError(t, err)
	require.Same(t, one, two)

	wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"service": "shop"}, prometheus.NewPedanticRegistry())
	three, err := prom.New(wrapped)
	require.NoError(t, err)
	four, err := prom.New(wrapped)
	require.NoError(t, err)
	require.Same(t, three, four)

	_, err = prom.New(nil)
	require.ErrorContains(t, err, "Registerer")

	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "rate_limit_requests_total", Help: "Somebody else's."}))
	_, err = prom.New(taken)
	require.Error(t, err)
}

// Series depend on the configuration and not on who asks, nor on what strings arrive.
func TestBounded(t *testing.T) {
	o, reg := newObserver(t)
	p, _ := o.Bind("a")
	e := decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 1, limiter.PerSecond(10))
	p.Observe(e)
	before := len(gatherAll(t, reg))
	keys := 1_000_000
	if raceDetector {
		keys /= 10
	}
	for k := range keys {
		e.Key.ID = fmt.Sprint("ip=", k)
		p.Observe(e)
	}
	require.Len(t, gatherAll(t, reg), before)

	hostile := func() string {
		b := make([]byte, rand.N(300))
		for k := range b {
			b[k] = byte(rand.N(256))
		}
		return string(b)
	}
	for range 3 * prom.MaxMet {
		for kind := limiter.EventKind(1); kind.String() != "unknown"; kind++ {
			e := limiter.Event{
				Kind: kind, Name: hostile(), Op: hostile(), Hash: hostile(), Mode: hostile(), Reason: hostile(), Policy: "a",
				Key: limiter.Key{ID: "all=-"}, Time: time.Now(), Outcome: limiter.Outcome(rand.N(256)),
				Decision: limiter.Decision{Limit: limiter.PerSecond(1), Via: limiter.Via(rand.N(256))}, Err: errors.New(hostile()),
			}
			p.Observe(e)
			e.Policy = hostile()
			if kind == limiter.EventDecision || kind == limiter.EventLease {
				o.Observe(e)
			}
		}
	}
	after := gatherAll(t, reg)
	own := 0
	for name := range after {
		if strings.Contains(name, `policy="a"`) {
			own++
		}
	}
	require.Less(t, own, 45+4*(prom.MaxValues+1))
	require.Less(t, len(after), 64*(prom.MaxMet+2))
	require.Contains(t, after, `rate_limit_leases_held{policy="other"}`)
}

// The series of a policy live as long as a guard has it, and what still comes from requests in service makes no new ones.
func TestSeriesGoWithThePolicy(t *testing.T) {
	o, reg := newObserver(t)
	empty := len(gatherAll(t, reg))
	emit := func(p limiter.Observer) {
		for kind := limiter.EventDecision; kind < limiter.EventStore; kind++ {
			e := decision("a", limiter.OutcomeBlocked, limiter.ViaMemory, 1, limiter.PerSecond(10))
			e.Kind, e.Key.ID, e.Mode, e.Reason = kind, "all=-", "cache", "new"
			if kind != limiter.EventPanic { // which counts apart
				p.Observe(e)
			}
		}
		p.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a", Keys: 1, Leases: &limiter.Leases{Stranded: 1}})
		p.Observe(limiter.Event{Kind: limiter.EventAdapt, Policy: "a", Reason: "cpu"})
	}
	one, releaseOne := o.Bind("a")
	two, releaseTwo := o.Bind("a")
	emit(one)
	emit(two)
	require.Equal(t, 2.0, gatherAll(t, reg)[`rate_limit_requests_total{policy="a",type="blocked",via="memory"}`])
	releaseOne()
	releaseOne() // counts once
	require.Equal(t, 2.0, gatherAll(t, reg)[`rate_limit_requests_total{policy="a",type="blocked",via="memory"}`])
	fresh, releaseThree := o.Bind("b")
	releaseThree()
	releaseTwo()
	require.Len(t, gatherAll(t, reg), empty)
	emit(two)
	fresh.Observe(decision("b", limiter.OutcomeAllowed, limiter.ViaStore, 1, limiter.PerSecond(10)))
	// A limiter that knows nothing of guards may speak of the policy later.
	o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a", Leases: &limiter.Leases{Stranded: 1}})
	o.Observe(limiter.Event{Kind: limiter.EventAdapt, Policy: "b"})
	require.Len(t, gatherAll(t, reg), empty)

	again, _ := o.Bind("a")
	again.Observe(decision("a", limiter.OutcomeBlocked, limiter.ViaMemory, 1, limiter.PerSecond(10)))
	require.Equal(t, 1.0, gatherAll(t, reg)[`rate_limit_requests_total{policy="a",type="blocked",via="memory"}`])
}

// Everything at once.
func TestConcurrency(t *testing.T) {
	o, reg := newObserver(t)
	const each = 2000
	var all sync.WaitGroup
	stays, _ := o.Bind("stays")
	for k := range 8 {
		all.Go(func() {
			for n := range each {
				p, release := o.Bind(fmt.Sprint("p", n%7))
				p.Observe(decision("", limiter.OutcomeAllowed, limiter.Via(n%5), 1, limiter.PerSecond(10)))
				p.Observe(limiter.Event{Kind: limiter.EventRejected, Reason: fmt.Sprint(n)})
				stays.Observe(decision("stays", limiter.OutcomeAllowed, limiter.Via(n%5), 1, limiter.PerSecond(10)))
				o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: fmt.Sprint("p", n%5), Keys: int64(k), Leases: &limiter.Leases{Local: 1, Late: float64(k)}})
				if n%100 == 0 {
					_, err := reg.Gather()
					require.NoError(t, err)
				}
				release()
			}
		})
	}
	all.Wait()
	sum := 0.0
	for name, v := range gatherAll(t, reg) {
		if strings.HasPrefix(name, `rate_limit_requests_total{policy="stays",type="allowed"`) {
			sum += v
		}
	}
	require.Equal(t, 8.0*each, sum)
}
