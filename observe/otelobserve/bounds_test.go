package otelobserve_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// As documented.
const (
	maxPolicies = 1024
	maxTexts    = 32
)

// Series depend on the configuration and not on who asks.
func TestKeysMakeNoSeries(t *testing.T) {
	o, reg := newObserver(t)
	p, _ := o.Bind("a")
	e := decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 1, limiter.PerSecond(10))
	p.Observe(e)
	o.Observe(e)
	before := len(series(t, reg))
	for k := range manyKeys() {
		e.Key.ID = fmt.Sprint("ip=", k)
		p.Observe(e)
	}
	for k := range 10_000 {
		e.Key.ID = fmt.Sprint("ip=", k)
		o.Observe(e)
	}
	after := series(t, reg)
	require.Len(t, after, before)
	require.InDelta(t, manyKeys()+10_002, after[`rate_limit_requests_total{policy="a",type="allowed",via="memory"}`], 0)
	for name := range after {
		require.NotContains(t, name, "ip=")
	}
}

func manyKeys() int {
	if raceEnabled {
		return 100_000 // which takes as long
	}
	return 1_000_000
}

func hostile(r *rand.Rand) string {
	b := make([]byte, r.IntN(300))
	for k := range b {
		b[k] = byte(r.IntN(256))
	}
	return string(b)
}

// Nor on what strings arrive, and none of them spoils the export.
func TestHostileTextsAreBounded(t *testing.T) {
	o, reg := newObserver(t)
	p, _ := o.Bind("a")
	r := rand.New(rand.NewPCG(1, 2))
	rounds := maxPolicies + 200
	for range rounds {
		for _, kind := range kinds() {
			e := limiter.Event{
				Kind: kind, Name: hostile(r), Op: hostile(r), Hash: hostile(r), Mode: hostile(r), Reason: hostile(r), Policy: "a", State: uint8(r.IntN(256)),
				Key: limiter.Key{ID: "all=-"}, Time: time.Now(), Outcome: limiter.Outcome(r.IntN(256)), Keys: r.Int64() - r.Int64(), Overflow: 1,
				Duration: time.Duration(r.Int64() - r.Int64()),
				Decision: limiter.Decision{Limit: limiter.PerSecond(1), Via: limiter.Via(r.IntN(256)), Remaining: r.Int() - r.Int()}, Err: errors.New(hostile(r)),
			}
			if kind == limiter.EventMemory {
				e.State = 0 // not closed
			}
			p.Observe(e)
			e.Policy = hostile(r)
			o.Observe(e)
		}
	}
	after := series(t, reg)
	policies, own := map[string]bool{}, map[string]int{}
	for name := range after {
		metric, labels, _ := strings.Cut(name, "{")
		if _, of, ok := strings.Cut(labels, `policy="`); ok {
			of, _, _ = strings.Cut(of, `"`)
			policies[of] = true
			if of == "a" {
				own[metric]++
			}
		} else {
			own[metric]++
		}
	}
	require.LessOrEqual(t, len(policies), maxPolicies+3) // a, other and none
	require.Greater(t, len(policies), maxPolicies-50)    // quotes in names cut some short above
	for metric, n := range own {
		if strings.HasSuffix(metric, "_bucket") {
			n /= 15
		}
		require.LessOrEqual(t, n, maxTexts+13+1, metric) // the reasons known, and other
	}
	require.Contains(t, after, `rate_limit_leases_held{policy="other"}`)
	require.Equal(t, maxTexts, own["rate_limit_breaker_state"])
	require.Equal(t, maxTexts+1, own["rate_limit_degraded_total"])
	require.Equal(t, float64(maxTexts), after["rate_limit_memory_overflow_total"])
	// What is not shown by itself is counted all the same.
	rejected := 0.0
	for name, n := range after {
		if strings.HasPrefix(name, `rate_limit_rejected_total{policy="a"`) {
			rejected += n
		}
	}
	require.InDelta(t, rounds, rejected, 0)
	require.Greater(t, after[`rate_limit_rejected_total{policy="a",reason="other"}`], float64(rounds)/2)
}

// Events are lent: their strings may be written over afterwards.
func TestKeepsNoString(t *testing.T) {
	o, reg := newObserver(t)
	buf := []byte("lent")
	lent := unsafe.String(&buf[0], len(buf))
	p, _ := o.Bind(lent)
	for _, kind := range kinds() {
		for _, policy := range []string{lent, lent[1:]} {
			e := limiter.Event{
				Kind: kind, Policy: policy, Name: lent, Op: lent, Hash: lent, Mode: lent, Reason: lent, Time: time.Now(),
				Key: limiter.Key{Space: lent, ID: lent}, Decision: limiter.Decision{Limit: limiter.PerSecond(1)},
			}
			o.Observe(e)
			p.Observe(e)
		}
	}
	o.Observe(limiter.Event{Kind: limiter.EventReload, Name: lent, Hash: lent, Reason: limiter.ReasonOK})
	before := series(t, reg)
	copy(buf, "away")
	require.Equal(t, before, series(t, reg))
	p.Observe(limiter.Event{Kind: limiter.EventRejected, Reason: limiter.ReasonQuota})
	require.Equal(t, 1.0, series(t, reg)[`rate_limit_rejected_total{policy="lent",reason="quota"}`])
}

// Gauges live as long as a guard has the policy; nothing that requests in service still do brings them back.
func TestGaugesGoWithThePolicy(t *testing.T) {
	o, reg := newObserver(t)
	gauges := func() (n int) {
		for name := range series(t, reg) {
			for _, g := range []string{"quota_used", "lease", "adaptive_limit", "adaptive_reason"} {
				if strings.HasPrefix(name, "rate_limit_"+g) {
					n++
				}
			}
		}
		return n
	}
	emit := func(p limiter.Observer) {
		p.Observe(global(decision("a", limiter.OutcomeAllowed, limiter.ViaMemory, 1, limiter.PerSecond(10)), time.Second))
		p.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a", Keys: 1})
		p.Observe(limiter.Event{Kind: limiter.EventAdapt, Policy: "a", Reason: "cpu"})
	}
	emit(o) // a store is first
	require.Equal(t, 4, gauges())
	one, releaseOne := o.Bind("a")
	two, releaseTwo := o.Bind("a")
	require.Equal(t, 4, gauges())
	require.Same(t, one, two)
	emit(two)
	releaseOne()
	releaseOne() // counts once
	require.Equal(t, 4, gauges())
	_, releaseOther := o.Bind("b")
	releaseOther()
	releaseTwo()
	require.Zero(t, gauges())
	emit(two)
	require.Zero(t, gauges())
	// A limiter that knows nothing of guards may speak of the policy later.
	o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a"})
	o.Observe(limiter.Event{Kind: limiter.EventAdapt, Policy: "b"})
	require.Zero(t, gauges())
	// And one that has nothing bound may have it still.
	o.Observe(limiter.Event{Kind: limiter.EventRejected, Policy: "a"})
	o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: "a"})
	require.Equal(t, 1, gauges())
	again, release := o.Bind("a")
	emit(again)
	require.Equal(t, 4, gauges())
	require.Equal(t, 4.0, series(t, reg)[`rate_limit_requests_total{policy="a",type="allowed",via="memory"}`])
	release()
	require.Zero(t, gauges())
}

// Policies that are bound are not among the 1024, and names that become bound make room for others.
func TestBoundPoliciesHaveTheirOwnRoom(t *testing.T) {
	o, reg := newObserver(t)
	name := func(k int) string { return fmt.Sprint("p", k) }
	reject := func(policy string) {
		o.Observe(limiter.Event{Kind: limiter.EventRejected, Policy: policy, Reason: limiter.ReasonQuota})
	}
	seen := func(policy string) float64 {
		return series(t, reg)[fmt.Sprintf("rate_limit_rejected_total{policy=%q,reason=\"quota\"}", policy)]
	}
	for k := range maxPolicies {
		reject(name(k))
	}
	require.Zero(t, seen("other"))
	reject("late")
	require.Equal(t, 1.0, seen("other"))
	for k := range 100 {
		o.Bind(fmt.Sprint("bound", k))
		reject(fmt.Sprint("bound", k))
	}
	require.Equal(t, 1.0, seen("bound99"))
	o.Bind(name(0))
	o.Bind(name(1)) // other has a place too
	reject("late")
	reject("later")
	require.Equal(t, []float64{1, 0, 2}, []float64{seen("late"), seen("later"), seen("other")})
}

// Policies that are gone are bounded as well, also where they come back.
func TestPoliciesThatComeAndGo(t *testing.T) {
	o, reg := newObserver(t)
	bind := func(k int) { _, release := o.Bind(fmt.Sprint("p", k)); release() }
	reject := func(k int) {
		o.Observe(limiter.Event{Kind: limiter.EventRejected, Policy: fmt.Sprint("p", k), Reason: limiter.ReasonQuota})
	}
	lease := func(k int) { o.Observe(limiter.Event{Kind: limiter.EventLease, Policy: fmt.Sprint("p", k), Keys: 1}) }
	for range maxPolicies + 1 { // one that comes back is not gone any more
		bind(0)
		reject(0)
	}
	for k := range 100 {
		bind(k)
		lease(k)
	}
	leases := func() (n int) {
		for name := range series(t, reg) {
			if strings.HasPrefix(name, "rate_limit_leases_held") {
				n++
			}
		}
		return n
	}
	require.Zero(t, leases())
	for k := range maxPolicies + 100 {
		bind(1000 + k)
	}
	require.Zero(t, leases())
	for k := range maxPolicies + 100 { // those that are forgotten make room for nobody
		reject(1000 + k)
		lease(1000 + k)
	}
	require.Equal(t, maxPolicies+1, leases(), "and other")
}

// All of it at once.
func TestRace(t *testing.T) {
	o, reg := newObserver(t)
	const workers, rounds = 8, 300
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			for k := range rounds {
				p, release := o.Bind("a")
				for range 3 {
					e := anything(r)
					p.Observe(e)
					o.Observe(e)
				}
				p.Observe(limiter.Event{Kind: limiter.EventRejected, Reason: "mine"})
				if k%50 == 0 {
					_, _ = reg.Gather()
				}
				release()
			}
		})
	}
	wg.Wait()
	require.Equal(t, float64(workers*rounds), series(t, reg)[`rate_limit_rejected_total{policy="a",reason="mine"}`])
}
