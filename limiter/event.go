package limiter

import (
	"context"
	"time"
)

// Observer sees what guards and stores do. Observe is called on the path of requests: it must be fast, must not block,
// and is safe for concurrent use. A guard contains its panics. Fields that an event's kind does not name are zero.
type Observer interface{ Observe(Event) }

// ObserverFunc is a function as an [Observer].
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Binder is an [Observer] that prepares for a policy before traffic, as by looking up the handles of its metrics once.
type Binder interface {
	// Bind returns the Observer of the events whose Policy is policy, and a function to call when that policy is gone.
	// Requests in service may show it events after that.
	Bind(policy string) (o Observer, release func())
}

// StateLogger is an [Observer] that writes to a log when stores fail and recover and breakers change. Guards and the
// limiters of this module leave their own lines on that out then, so that there are none twice.
type StateLogger interface{ LogsStates() bool }

// EventKind says what an [Event] reports. The set is complete: later packages emit the kinds that are theirs.
type EventKind uint8

const (
	// EventDecision: a policy decided. Policy, Key, N, Decision, Outcome; Context is the request's. The Limit of a bound on
	// requests in flight has a Burst and no Period.
	EventDecision EventKind = iota + 1
	// EventRejected: a request was refused on account of Policy. Reason; Key, Decision where there is one.
	EventRejected
	// EventDegraded: a refused request was served otherwise: one event for each policy that refused it. Policy, Mode, Reason
	// (of the refusal; "" after a wait), N (the status, 0 if it proceeds), Duration (how long a queue has held it).
	EventDegraded
	// EventError: a policy could not decide. Policy, Reason (the cause), Err. With [ReasonRefund] it has decided, and could not
	// give units back; with [ReasonClientIP] no policy is meant.
	EventError
	// EventStoreState: deciding for Policy began to fail (State 1) or works again (State 0). Err is the first cause.
	EventStoreState
	// EventPanic: a callback of the user panicked and was contained. Policy, Name (the callback), Err.
	EventPanic
	// EventStore: one call to a shared store. Name, Op, Duration, N (takes in the call); Err and Reason (a short cause such as
	// "timeout", "oom", or "canceled" where the caller left) if it failed.
	EventStore
	// EventMemory: the table of a memory store. Name, Keys, Overflow (takes on shared overflow cells so far). State 1: it has
	// been closed.
	EventMemory
	// EventBreaker: a circuit breaker was made ([ReasonNew]), changed or is no more ([ReasonEnd]). Name, State ([BreakerClosed], [BreakerHalfOpen], [BreakerOpen]); Err is the
	// last failure where it opened.
	EventBreaker
	// EventReload: a new set of policies was applied or refused, or what is in force is again what its source has. Name (the
	// source), Hash, Err; Reason is [ReasonOK], [ReasonInvalid] or [ReasonUnavailable].
	EventReload
	// EventLease: quota leased to this process. Name, Policy, Keys (leases held), Leases.
	EventLease
	// EventAdapt: an adaptive limit moved. Policy, Decision.Limit (the new one; a bound on requests in flight has a Burst and
	// no Period), Reason.
	EventAdapt
)

var eventNames = [...]string{
	EventDecision: "decision", EventRejected: "rejected", EventDegraded: "degraded", EventError: "error",
	EventStoreState: "store_state", EventPanic: "panic", EventStore: "store", EventMemory: "memory",
	EventBreaker: "breaker", EventReload: "reload", EventLease: "lease", EventAdapt: "adapt",
}

// String returns a name such as "store_state".
func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}

// Outcome is the result of one policy's decision in an [EventDecision].
type Outcome uint8

// Outcomes.
const (
	OutcomeAllowed       Outcome = iota // "allowed"
	OutcomeBlocked                      // "blocked"
	OutcomeShadowBlocked                // "shadow_blocked": would have been refused were the policy enforced
)

var outcomeNames = [...]string{"allowed", "blocked", "shadow_blocked"}

// String returns the name used in metrics.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// States of an [EventBreaker].
const (
	BreakerClosed   uint8 = iota // calls are passed on
	BreakerHalfOpen              // one call tries
	BreakerOpen                  // no calls are passed on
)

// Reasons of [EventBreaker] that are no changes.
const (
	ReasonNew = "new"
	ReasonEnd = "end"
)

// Reasons of [EventRejected], [EventError] and [EventReload], used as metric labels.
const (
	ReasonOK          = "ok"          // a new set of policies is in force
	ReasonQuota       = "quota"       // the quota is spent
	ReasonNever       = "never"       // the cost is above the quota
	ReasonInFlight    = "in_flight"   // too many at once
	ReasonAdaptive    = "adaptive"    // would have passed at the nominal limit
	ReasonShed        = "shed"        // what is left of the limit is for more important requests
	ReasonReadOnly    = "read_only"   // a write while only reads are served
	ReasonQueue       = "queue"       // others of its key wait already
	ReasonWaiting     = "waiting"     // too many requests are being held already
	ReasonNoKey       = "no_key"      // the request has no key
	ReasonUnavailable = "unavailable" // the store could not be asked
	ReasonInvalid     = "invalid"     // the limit or cost is malformed
	ReasonUnsupported = "unsupported" // the limiter cannot do what the policy asks
	ReasonCanceled    = "canceled"    // the request's context ended first
	ReasonRefund      = "refund"      // units could not be given back
	ReasonPanic       = "panic"       // a callback panicked
	ReasonClientIP    = "client_ip"   // the client could not be told, and its nearest verified hop was counted
)

// Event is one thing that happened, passed by value.
type Event struct {
	Kind     EventKind
	Outcome  Outcome
	State    uint8
	Context  context.Context // the request's, for spans; nil outside of a request
	Time     time.Time
	Policy   string
	Name     string // of the limiter, source or callback
	Key      Key    // never to be used as a metric label
	N        int
	Decision Decision
	Reason   string
	Mode     string // degrade mode: cache, read_only, static, queue, redirect, shed, flag, func
	Op       string
	Hash     string
	Duration time.Duration
	Keys     int64
	Overflow int64
	Leases   *Leases // nil: not told
	Err      error
}
