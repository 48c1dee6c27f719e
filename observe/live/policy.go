package live

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

const (
	outcomes = int(limiter.OutcomeShadowBlocked) + 1
	vias     = int(limiter.ViaFallback) + 1
)

// shares are the upper bounds of what is left of a quota after a decision.
var shares = [...]float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}

// policy counts the events of one policy.
type policy struct {
	page *Page
	name string
	id   int

	decisions [outcomes][vias]atomic.Uint64
	left      [len(shares)]atomic.Uint64
	rejected  [len(reasons)]atomic.Uint64
	refused   atomic.Uint64 // of all reasons
	degraded  atomic.Uint64
	undecided atomic.Uint64 // the store could not be asked
	closed    atomic.Uint64 // and the request was refused for it
	watches   [watched]watch

	adapted adapted
	leases  leases

	bound int  // guards that have it; Page.mu
	shown view // of the sampler
}

// adapted is what an adaptive limit said last.
type adapted struct {
	mu     sync.Mutex
	told   bool
	limit  limiter.Limit
	reason string
}

func (a *adapted) see(e *limiter.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told, a.limit, a.reason = true, e.Decision.Limit, clip(e.Reason)
}

func (a *adapted) last() (l limiter.Limit, reason string, told bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limit, a.reason, a.told
}

// reasons are those that have a counter; the last one is of all others.
var reasons = [...]string{
	limiter.ReasonQuota, limiter.ReasonNever, limiter.ReasonInFlight, limiter.ReasonAdaptive, limiter.ReasonShed, limiter.ReasonReadOnly,
	limiter.ReasonQueue, limiter.ReasonWaiting, limiter.ReasonNoKey, limiter.ReasonUnavailable, limiter.ReasonInvalid, "other",
}

func reasonIndex(reason string) int {
	for k, r := range reasons {
		if r == reason {
			return k
		}
	}
	return len(reasons) - 1
}

// keySeed is secret, so that nobody can choose keys that take the meters of others.
var keySeed = maphash.MakeSeed()

// KeepsNoKey returns p: of keys a hash is kept.
func (p *policy) KeepsNoKey() limiter.Observer { return p }

// Observe counts an event of the policy.
func (p *policy) Observe(e limiter.Event) {
	switch e.Kind {
	case limiter.EventDecision:
		p.decision(&e)
	case limiter.EventRejected:
		p.refused.Add(1)
		p.rejected[reasonIndex(e.Reason)].Add(1)
		if e.Reason == limiter.ReasonUnavailable {
			p.closed.Add(1)
		}
	case limiter.EventDegraded:
		if e.Reason != "" { // else it has passed after a wait, and that is told, too
			p.degraded.Add(1)
		}
	case limiter.EventError:
		if e.Reason == limiter.ReasonUnavailable {
			p.undecided.Add(1)
		}
	case limiter.EventLease:
		p.leases.see(&e)
	case limiter.EventAdapt:
		p.adapted.see(&e)
	case limiter.EventStoreState: // a guard's overview tells
	default:
		p.page.Observe(e)
	}
}

func (p *policy) decision(e *limiter.Event) {
	d := &e.Decision
	if int(e.Outcome) < outcomes && int(d.Via) < vias {
		p.decisions[e.Outcome][d.Via].Add(1)
	}
	if quota := d.Limit.Quota(); quota > 0 {
		p.left[share(d.Remaining, quota)].Add(1)
	}
	hash, at := maphash.String(keySeed, e.Key.ID), d.Mark
	w := &p.watches[hash%watched]
	if !d.Allowed || at == 0 || e.N <= 0 { // nothing was booked, as where another policy refused the request
		w.note(hash, e)
		return
	}
	if isBucket(&d.Limit) && (d.Via == limiter.ViaStore || d.Via == limiter.ViaLease) {
		at = p.page.epoch.UnixNano() + int64(time.Since(p.page.epoch)) // it passes now, by a clock that nobody sets
	}
	w.see(hash, e, at)
}

// share is the index in shares of what is left.
func share(remaining, quota int) int {
	if remaining <= 0 {
		return 0
	}
	tenths := len(shares) - 1
	return min(tenths, 1+int(float64(remaining)/float64(quota)*float64(tenths)-1e-9))
}

// leases is what a leased limiter told.
type leases struct {
	told            atomic.Bool
	held, units     atomic.Int64
	late, lateBound atomic.Int64 // thousandths of a unit; the most so far
}

func (l *leases) see(e *limiter.Event) {
	l.held.Store(e.Keys)
	if e.Leases == nil {
		return
	}
	l.told.Store(true)
	l.units.Store(e.Leases.Units)
	raise(&l.late, int64(e.Leases.Late*1000))
	raise(&l.lateBound, int64(e.Leases.LateBound*1000))
}

// counts are the totals of a policy at an instant.
type counts struct {
	Allowed, Refused, Degraded, Shadow, Undecided, Closed uint64
	via                                                   [vias]uint64
}

func (c *counts) total() (n uint64) {
	for _, via := range c.via {
		n += via
	}
	return n + c.Refused + c.Degraded + c.Undecided
}

func (p *policy) counts() (c counts) {
	for via := range vias {
		allowed, shadow := p.decisions[limiter.OutcomeAllowed][via].Load(), p.decisions[limiter.OutcomeShadowBlocked][via].Load()
		c.Allowed += allowed
		c.Shadow += shadow
		c.via[via] = allowed + shadow + p.decisions[limiter.OutcomeBlocked][via].Load()
	}
	c.Degraded = p.degraded.Load() // first: its refusal was told before
	c.Refused = p.refused.Load()
	c.Refused -= min(c.Refused, c.Degraded)
	c.Closed = p.closed.Load() // first, likewise
	c.Undecided = p.undecided.Load()
	return c
}

// overshoot is what was measured of a policy since its limit is what it is. A bound that is full for long keeps an excess
// for as long, so neither of the two is forgotten before.
type overshoot struct {
	worst, bound float64
	keys         int
}

// measure steps all meters.
func (p *policy) measure(o *overshoot) {
	o.keys = 0
	for k := range p.watches {
		if worst, bound, on := p.watches[k].step(); on {
			o.keys++
			o.worst, o.bound = max(o.worst, worst), max(o.bound, bound)
		}
	}
}

// again lets all meters begin anew.
func (p *policy) again() {
	for k := range p.watches {
		p.watches[k].again()
	}
}

// clip keeps a text short: what it is from may be anybody's.
func clip(s string) string {
	const most = 160
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
