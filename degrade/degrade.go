package degrade

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// Outcome is what a [Handler] did.
type Outcome uint8

const (
	// Skip: not mine, ask the next one. Nothing was written.
	Skip Outcome = iota
	// Done: the response has been written.
	Done
	// Proceed: let the request through, marked as degraded (see [FromContext]). Nothing was written. The policy that
	// refused it is passed over, which is why a handler that proceeds needs a budget; all others of its stage take as
	// usual, and one that refuses refuses. Where several policies have refused, each has to let it through.
	Proceed
	// Refuse: the plain refusal, without asking the rest of the chain. Nothing was written.
	Refuse
	// Again: the handler has waited; ask the policies once more. Nothing was written. A request that is let through then
	// is a usual one, charged to all policies and not marked. If it is refused again, chains are asked again, and a second
	// Again is a Skip.
	Again
)

// Modes of the handlers of this package, as documents, response fields and metrics spell them.
const (
	ModeCache    = "cache"
	ModeReadOnly = "read_only"
	ModeStatic   = "static"
	ModeQueue    = "queue"
	ModeRedirect = "redirect"
	ModeShed     = "shed"
	ModeFlag     = "flag"
	ModeFunc     = "func"
)

// Handler serves a request that a policy has refused. It may write a whole response (Done), or write nothing (the other
// outcomes). Once something is written the answer is final, whatever is returned; a panic then breaks off the connection
// (http.ErrAbortHandler), so that nobody takes half a response for a whole one. The headers of the decision are set
// already; Retry-After is taken off again where the status is none of 429, 503 and 3xx. Handlers are safe for concurrent
// use.
//
// What else a handler can do it says by more methods: [Moded], [Validator], [Recorder], [Gate], [Heir], [Spender] and
// [Proceeder]. They are found in chains and budgets too, but not through wrappers of your own.
type Handler interface {
	Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome
}

// Moded is a [Handler] that names its mode, as events, metrics and responses tell it: one of the Mode constants, or a name
// of your own of letters, digits and '_'. The mode of others is [ModeFunc].
type Moded interface{ Mode() string }

// ModeOf returns the mode of h.
func ModeOf(h Handler) string {
	if m, ok := h.(Moded); ok {
		return m.Mode()
	}
	return ModeFunc
}

// Validator is a [Handler] that knows what is wrong with its settings. A guard asks it before it serves.
type Validator interface{ Validate() error }

// Proceeder is a [Handler] that lets requests through. It has to be in a [Within], as whatever it lets through costs the
// service as much as what its policy allows.
type Proceeder interface{ Proceeds() }

// Recorder is a [Handler] that wants to see responses to allowed requests, to replay them later. identity is that of
// [Denial]. Record returns the writer to hand on, usually one around w, and a function that is called once the handler is
// done: ok says that it returned without a panic. r is valid until then. Of requests that proceed degraded only those
// are shown that may change something: what they are answered is not for others.
type Recorder interface {
	Record(w http.ResponseWriter, r *keyfunc.Request, policy, identity string) (http.ResponseWriter, func(ok bool))
}

// Heir is a [Handler] with a state that outlives it. Inherit is called when a policy is replaced by another of that name,
// before the new one serves, for every handler of the old one until it returns true: it has taken over the state of prev,
// which has equal settings. Both may be in use at once for as long as requests in service take.
type Heir interface{ Inherit(prev Handler) bool }

// Gate is a [Handler] that has a say before its policy is asked, and hears what becomes of it. It is not asked by looks or
// by Guard.Take. A request that is decided more than once, as after [Again] or where another policy lets it proceed, is heard
// of each time; Subject.Again tells. Both methods are quick: they are called for every request that the policy applies to.
type Gate interface {
	Before(s *Subject) Hint
	After(s *Subject, d Verdict)
}

// Subject is one request as a [Gate] sees it. It is valid during the call.
type Subject struct {
	Request *keyfunc.Request
	Key     limiter.Key // of the policy
	Cost    int         // units
	Now     time.Time
	Again   bool // it has been decided before
}

// Hint is what a [Gate] wants. The zero Hint wants nothing.
type Hint struct {
	// Shut refuses the request without asking the policy. The handlers of the chain are asked what to serve.
	Shut  bool
	Cause Cause         // of Shut
	Wait  time.Duration // of Shut: when to come back; 0: unknown
	// Strict, of Shut: no handler may let the request proceed.
	Strict bool
	// Reserve is the share of the policy's quota, and of its bound on requests in flight, that has to be left for others:
	// 0…1. A request that would use of it is refused, with the Cause [Capacity].
	Reserve float64
}

// Verdict is what became of a [Subject].
type Verdict struct {
	// Passed: the request goes on, not degraded.
	Passed bool
	// Refused: the policy itself refuses it, by its limit or its bound on requests in flight. Not set where the gate was
	// shut, or where another policy was asked first and refused.
	Refused bool
	// Decision of the policy's limit; the zero Decision where it was not asked.
	Decision limiter.Decision
}

// Cause is whose limit refused a request.
type Cause uint8

const (
	// Quota: the caller's own quota is spent; the plain refusal is 429.
	Quota Cause = iota
	// Capacity: the service protects itself, by an adaptive limit or a bound on requests in flight; 503.
	Capacity
)

// String returns the name of the problem type: quota-exceeded or temporary-reduced-capacity.
func (c Cause) String() string {
	if c == Capacity {
		return "temporary-reduced-capacity"
	}
	return "quota-exceeded"
}

// Denial is why a request was refused. It is valid until Degrade returns.
type Denial struct {
	Policy     string           // the policy whose handler is asked
	Violated   []string         // all policies that refused, in configuration order
	Cause      Cause            // of the plain refusal; Capacity set by a handler that returns Refuse makes it a 503
	Status     int              // of the plain refusal
	Key        limiter.Key      // of Policy; never to be shown
	Identity   string           // the keys of all policies of the stage that apply, joined by '|': all that is known of the caller
	Cost       int              // units asked of Policy; 0 where it has no limit but a bound on requests in flight
	Decision   limiter.Decision // of Policy; no more than its Limit where it was not asked, as behind a Gate that is shut
	RetryAfter time.Duration    // the longest of all that refused; limiter.Never if one can never pass
	Asked      int              // how often the policies have been asked: 1, and 2 after Again

	// Request knows route, client address and keys. It is nil where a handler is called outside of a guard.
	Request *keyfunc.Request

	// Mode is set by the handler that serves, for events: the innermost one knows. [First] and the guard set it to
	// ModeOf the handler that is asked.
	Mode string
	// ReadOnly is set by a handler that refuses because the request is a write: the refusal says so.
	ReadOnly bool
	// Wait is set by a handler that knows of a longer wait than RetryAfter; the plain refusal tells it.
	Wait time.Duration

	// Budget takes one unit of another limit for the same key, on the policy's limiter. It is nil where a handler is
	// called outside of a guard.
	Budget func(ctx context.Context, name string, limit limiter.Limit) (limiter.Decision, error)
	// Withdraw takes the fields of the decision off the response again. It is nil where a handler is called outside of a
	// guard.
	Withdraw func()
	// Place takes one of the places that the guard has for requests held back, all policies together; the function gives
	// it back. It is nil where a handler is called outside of a guard.
	Place func() (leave func(), ok bool)
	// Contain reports the panic of one handler of a chain, and whether the next one may be asked: not once something has
	// been written. It is nil where a handler is called outside of a guard, where panics pass on.
	Contain func(panicked any) bool

	budgets []budget // of every Within around the handler that are to be asked yet
	paid    bool     // a Within has been asked for the whole chain
}

// Func is a function as a [Handler].
type Func func(w http.ResponseWriter, r *http.Request, d *Denial) Outcome

// Degrade calls f.
func (f Func) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome { return f(w, r, d) }

// Info is the mark of a degraded request.
type Info struct {
	Policy     string
	Mode       string
	Cause      Cause
	RetryAfter time.Duration
}

type infoKey struct{}

// NewContext returns ctx marked as degraded.
func NewContext(ctx context.Context, i Info) context.Context {
	return context.WithValue(ctx, infoKey{}, i)
}

// FromContext returns the mark of a degraded request, by which a handler decides what to leave out.
func FromContext(ctx context.Context) (Info, bool) {
	i, ok := ctx.Value(infoKey{}).(Info)
	return i, ok
}
