package limiter

import (
	"context"
	"errors"
	"time"
)

// Limiter decides takes. Implementations are safe for concurrent use.
type Limiter interface {
	// Allow takes n units of key's quota, or none, at once. It never waits and never allows "later": a LeakyBucket
	// place that would have to wait is refused here (see [Take].MaxDelay). n == 0 looks and writes nothing; n < 0 is
	// [ErrInvalid]. The instant is the store's own clock, read where the state is locked.
	//
	// A non-nil error means that no decision was made: [ErrUnavailable], [ErrInvalid], [ErrClosed] or the context's error.
	// The decision is then zero, and nothing was taken, unless a shared store took it and its answer was lost.
	Allow(ctx context.Context, key Key, limit Limit, n int) (Decision, error)
}

// Take is n units of one key's limit, or none of them.
type Take struct {
	Key   Key
	Limit Limit
	N     int
	// MaxDelay is how long the caller would hold an allowed request; 0: not at all. A LeakyBucket place with a longer
	// Delay is refused, with RetryAfter saying when it would fit. Other algorithms never delay.
	MaxDelay time.Duration
	// Shadow takes decide and never refuse: they are booked only if they and all real takes of the call pass.
	Shadow bool
	// NoCache takes are decided where the state is, never from a denial remembered elsewhere: for limits whose units may be
	// given back before the wait of a denial is over.
	NoCache bool
	// Decision is filled in by [Batcher.AllowAll].
	Decision Decision
}

// Batcher is a [Limiter] that decides several takes as one: all are booked, or none. Ask by type assertion. A wrapper
// around a limiter that cannot may return [errors.ErrUnsupported]; a call without takes only asks whether it can.
type Batcher interface {
	// AllowAll reports whether all real takes passed, and fills in every take's Decision, which is that take's alone.
	// false means that nothing was booked and every Decision shows the untouched state. Takes of one key and algorithm
	// count together and must carry the same limit, else [ErrInvalid]; shadow takes count apart from real ones. At most
	// one real LeakyBucket take of n ≥ 1 per call, else [ErrInvalid]. A zero at means the store's clock; a given one
	// follows the rule for clocks of callers: a late reading earns nothing and never moves state back.
	AllowAll(ctx context.Context, at time.Time, takes []Take) (bool, error)
}

// Refunder is a [Limiter] that can give back units taken. Ask by type assertion.
type Refunder interface {
	// Refund gives back t.N units of a take decided earlier, found by t.Decision.Mark. It settles under the limit
	// stored with the key, never lifts a balance over the quota, never touches a window that was not charged, and does
	// nothing for a LeakyBucket, whose departures are spent once promised. A zero at means the store's clock.
	Refund(ctx context.Context, at time.Time, t *Take) error
}

// Resetter is a [Limiter] that can forget a key. Ask by type assertion.
type Resetter interface {
	// Reset removes the key's state under every algorithm: the key is then as if never seen.
	Reset(ctx context.Context, key Key) error
}

// Selective is a [Limiter] that serves only some limits. Ask by type assertion.
type Selective interface {
	// Serves returns nil if the limiter can count by l, and otherwise an error wrapping [ErrInvalid] that says why not.
	Serves(l Limit) error
}

// Errors of a [Limiter]. Each is wrapped with its cause; compare with [errors.Is].
var (
	// ErrUnavailable means that the store could not be asked or did not answer in time.
	ErrUnavailable = errors.New("limiter: store unavailable")
	// ErrInvalid means that the limit or the take is malformed. It must never open a gate: the input may be crafted.
	ErrInvalid = errors.New("limiter: invalid")
	// ErrClosed means that the limiter has been closed.
	ErrClosed = errors.New("limiter: closed")
)

// Decision is the answer to a [Take]. Waits are measured from the reading of the deciding clock and rounded up;
// Remaining is rounded down. Waits of 285 years or more saturate at 9·10¹⁸ ns.
type Decision struct {
	Allowed    bool
	Via        Via           // where it was decided
	Limit      Limit         // as applied
	Remaining  int           // whole units left, 0…quota
	RetryAfter time.Duration // when this same take could pass: 0 if allowed, Never if n can never fit
	ResetAfter time.Duration // until the full quota is back
	NextAfter  time.Duration // until at least one more unit is there; 0 when full
	Delay      time.Duration // only where MaxDelay > 0: hold the request so long, then proceed
	Mark       int64         // effective instant of the booking in Unix nanoseconds, handed back by Refund; 0: nothing booked

	_ [8]byte // 128 bytes: the compiler copies what is no multiple of 16 in overlapping moves, which stall the next copy
}

// Via says where a [Decision] was made.
type Via uint8

// Places of decision.
const (
	ViaMemory    Via = iota // state in this process
	ViaStore                // a shared store such as Redis
	ViaLease                // quota leased from the store to this process
	ViaDenyCache            // a remembered denial of the store
	ViaFallback             // the substitute while the store is away
)

var viaNames = [...]string{"memory", "store", "lease", "deny_cache", "fallback"}

// String returns the name used in metrics, such as "deny_cache".
func (v Via) String() string {
	if int(v) < len(viaNames) {
		return viaNames[v]
	}
	return "unknown"
}
