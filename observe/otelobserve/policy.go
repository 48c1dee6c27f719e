package otelobserve

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/spillway-go/spillway/limiter"
)

const (
	outcomes = int(limiter.OutcomeShadowBlocked) + 1
	vias     = int(limiter.ViaFallback) + 1
)

const (
	keyPolicy attribute.Key = "policy"
	keyType   attribute.Key = "type"
	keyVia    attribute.Key = "via"
	keyReason attribute.Key = "reason"
	keyMode   attribute.Key = "mode"
	keyCause  attribute.Key = "cause"
)

// oneKey is the identity of keys that everybody shares.
const oneKey = "all=-"

// policy is what there is to say of one policy, and the Observer of its events.
type policy struct {
	*word    // its name
	observer *Observer
	guards   int // that have it; policies.mu is held

	decisions                  [outcomes][vias]atomic.Pointer[decision]
	rejected, degraded, errors *table[word]

	gone atomic.Bool // no guard has it any more: it has no gauges

	mu      sync.Mutex
	used    used
	leases  *leases
	adapted *adapted
}

// decision is how the policy decided, ready to be told.
type decision struct {
	*word
	attributes []attribute.KeyValue // of the span event
}

// newPolicy makes what the events of a policy need, and begins its counters. Without a name it is for what belongs to none.
func newPolicy(o *Observer, name string) *policy {
	of := keyPolicy.String(name)
	p := &policy{word: newWord(name, of), observer: o, degraded: words(keyMode, nil, of)}
	if name == "" {
		p.rejected, p.errors = words(keyReason, nil, of), words(keyCause, slices.Concat(ownCauses, storeCauses), of)
		begin(o.errors, p.errors, ownCauses)
		return p
	}
	p.rejected, p.errors = words(keyReason, reasons, of), words(keyCause, causes, of)
	begin(o.rejected, p.rejected, reasons)
	begin(o.errors, p.errors, causes)
	return p
}

// Observe implements [limiter.Observer] for the events of the policy.
func (p *policy) Observe(e limiter.Event) { p.observer.see(p, &e) }

// KeepsNoKey returns p.
func (p *policy) KeepsNoKey() limiter.Observer { return p }

func (p *policy) saw(ctx context.Context, e *limiter.Event) {
	if p.text == "" && (e.Kind != limiter.EventError || e.Reason == limiter.ReasonPanic) {
		return // nobody decided, and a panic has an event of its own
	}
	o := p.observer
	switch e.Kind {
	case limiter.EventDecision:
		p.sawDecision(ctx, e)
	case limiter.EventRejected:
		reason := p.rejected.orOther(e.Reason)
		o.rejected.Add(ctx, 1, reason.add...)
		p.tell(e, "rejected", keyReason.String(reason.text))
	case limiter.EventDegraded:
		mode := p.degraded.orOther(e.Mode)
		o.degraded.Add(ctx, 1, mode.add...)
		p.tell(e, "degraded", keyMode.String(mode.text))
	case limiter.EventError:
		cause := p.errors.orOther(cause(e))
		o.errors.Add(ctx, 1, cause.add...)
		p.tell(e, "error", keyCause.String(cause.text))
	case limiter.EventLease:
		p.sawLeases(ctx, e)
	case limiter.EventAdapt:
		p.sawAdapt(e)
	}
}

func (p *policy) sawDecision(ctx context.Context, e *limiter.Event) {
	if d := p.decision(e.Outcome, e.Decision.Via); d != nil {
		p.observer.requests.Add(ctx, 1, d.add...)
		p.tellDecision(e, d)
	}
	quota := e.Decision.Limit.Quota()
	if quota <= 0 {
		return // of nothing, no share is left
	}
	left := float64(e.Decision.Remaining) / float64(quota)
	p.observer.remaining.Record(ctx, min(1, max(0, left)), p.record...)
	if e.Key.ID == oneKey && p.mu.TryLock() { // whoever holds it tells as much
		p.used = used{
			at: e.Time, units: float64(max(0, quota-e.Decision.Remaining)), full: e.Decision.ResetAfter,
			steady: e.Decision.Limit.Algorithm == limiter.TokenBucket || e.Decision.Limit.Algorithm == limiter.LeakyBucket,
		}
		p.mu.Unlock()
	}
}

// decision returns nil for an outcome or a place that there is not.
func (p *policy) decision(outcome limiter.Outcome, via limiter.Via) *decision {
	if int(outcome) >= outcomes || int(via) >= vias {
		return nil
	}
	d := p.decisions[outcome][via].Load()
	if d == nil {
		p.decide(via)
		d = p.decisions[outcome][via].Load()
	}
	return d
}

// decide begins to count the decisions of a place, of all outcomes at once: the first refusal is to be an increase.
func (p *policy) decide(via limiter.Via) {
	for k := range outcomes {
		outcome := limiter.Outcome(k)
		of, by, at := keyPolicy.String(p.text), outcome.String(), keyVia.String(via.String())
		d := &decision{word: newWord("", of, keyType.String(by), at), attributes: []attribute.KeyValue{of, keyOutcome.String(by), at}}
		p.observer.requests.Add(context.Background(), 0, d.add...)
		p.decisions[outcome][via].CompareAndSwap(nil, d)
	}
}

// adapted is an adaptive limit.
type adapted struct {
	limit   float64
	reasons *table[word] // all that there were
	now     *word
}

func (p *policy) sawAdapt(e *limiter.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.adapted == nil {
		p.adapted = &adapted{reasons: words(keyReason, nil, keyPolicy.String(p.text))}
	}
	l := e.Decision.Limit
	p.adapted.limit = float64(l.Burst) // of requests in flight
	if l.Period > 0 {
		p.adapted.limit = float64(l.Rate) / l.Period.Seconds()
	}
	p.adapted.now = p.adapted.reasons.orOther(e.Reason)
}

// used is what the last decision on the one key of a policy left in use.
type used struct {
	at     time.Time
	units  float64
	full   time.Duration // from at until all are back
	steady bool          // they come back one by one, and not all at the end
}

// by returns what is in use at now: units come back though nobody asks.
func (u *used) by(now time.Time) float64 {
	past := now.Sub(u.at)
	switch {
	case past >= u.full:
		return 0
	case u.steady && past > 0:
		return u.units * (1 - past.Seconds()/u.full.Seconds())
	}
	return u.units
}
