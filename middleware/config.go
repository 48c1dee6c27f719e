package middleware

import (
	"log/slog"
	"strings"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// Observer sees events; see [limiter.Observer].
type Observer = limiter.Observer

// Event is one thing that happened; see [limiter.Event].
type Event = limiter.Event

// Config is what [New] needs.
type Config struct {
	// Limiter decides for policies that name none. [New] requires it unless every policy names its own; the face of the
	// library, spillway.New, supplies a memory store.
	Limiter limiter.Limiter
	// Policies are the rules, in the order in which responses tell them. No policy is a valid set: everything passes.
	Policies []Policy
	// Exempt requests are not looked at by any policy, such as health checks.
	Exempt Match
	// Response says how responses look; zero: X-RateLimit-* and problem+json.
	Response response.Options
	// ClientIP says whom to believe about the client address; zero: the peer alone.
	ClientIP keyfunc.Trust
	// Observer sees every decision; nil: nobody. Its panics are contained.
	Observer Observer
	// Logger is told of changes: a store that stops or resumes answering, panics in callbacks, settings that are
	// probably not meant. nil: slog.Default. Keys never appear in it, so texts of errors
	// that may hold one do not either: an Observer sees the errors themselves.
	Logger *slog.Logger
	// MaxWaiting bounds the requests held back for their turn at once, over all policies; one more is refused. Zero:
	// 1024. −1: none is held.
	MaxWaiting int
	// CountPreflights makes policies see CORS preflights (OPTIONS with Origin and Access-Control-Request-Method), which
	// are exempt otherwise: a refused one hides the answer to the request behind it from the script. Set it where a CORS
	// layer in front answers preflights itself, and where handlers serve OPTIONS like any other method: anybody can make a
	// request look like a preflight.
	CountPreflights bool
}

// Stages of a guard, in their usual order. Any other name is a stage too.
const (
	// StageEdge is before authentication: the stage of policies that name none.
	StageEdge = "edge"
	// StageIdentity is behind authentication.
	StageIdentity = "identity"
	// StageManual is never mounted: its policies are for [Guard.Take].
	StageManual = "manual"
)

// Policy is one named rule of a guard. Everything callers hand in, functions included, is used concurrently.
type Policy struct {
	// Name tells the policy apart in keys, metrics and response fields: 1…64 letters, digits, '_', '.' and '-',
	// beginning with a letter or digit, unique without regard to case. Required.
	Name string
	// Stage is where in the chain the policy runs: [StageEdge] (the default), [StageIdentity] or a name of your own,
	// mounted with [Guard.Stage].
	Stage string
	// Match says which requests are meant; empty: all.
	Match Match
	// Exempt requests are not meant even though they match; empty: none.
	Exempt Match

	// Key says by whom is counted. Required, except in [StageManual].
	Key keyfunc.Func
	// OnNoKey says what becomes of a request without a key.
	OnNoKey NoKey
	// StoreKey spells the key in the store itself, to keep the keys of a system one migrates from; nil: the product's own
	// form. The limiter key it is given has the Space and ID of the policy.
	StoreKey func(limiter.Key) string

	// Limit is how much: a [limiter.Limit] or a [limiter.Var] that changes while serving. Required, unless InFlight or
	// Adaptive is the only bound.
	Limit limiter.Source
	// Plan picks the limit by request, such as the caller's tariff; false: Limit.
	Plan func(*keyfunc.Request) (limiter.Limit, bool)
	// Adjust moves the limit, each adjuster what the one before returned. Responses keep telling the nominal numbers;
	// a refusal that the nominal limit would not have made is 503. To know that, a second counter per key is kept while
	// the limit is below the nominal one.
	Adjust []limiter.Adjuster
	// Adaptive moves the limit by what becomes of requests, as a Controller of package adaptive does: either a bound on the
	// requests being served at once in this process, whatever their keys, told as NAME.inflight unless InFlight is; or the
	// rate, as the last of Adjust. Its refusals are 503. Use one for one policy: it counts what the policy lets in.
	Adaptive limiter.Controller
	// InFlight bounds the requests being served at once, per key and process, told as NAME.inflight; 0: no bound.
	InFlight int
	// Unit is what is counted, the qu parameter of the draft fields; empty: requests.
	Unit string
	// Partition makes the pk parameter of the draft fields, at most 16 bytes; nil: none. It must not lead back to the
	// key: use an HMAC.
	Partition func(keyfunc.Key) []byte
	// Limiter decides for this policy; nil: Config.Limiter.
	Limiter limiter.Limiter

	// Cost is the units a request takes; nil: 1. Zero takes nothing and asks nothing; a negative cost refuses the
	// request (503), as does a panic.
	Cost func(*keyfunc.Request) int
	// MaxDelay is how long a request may be held for its place in a [limiter.LeakyBucket]; a later place is refused.
	// Zero: Burst·Period/Rate, that is any place. −1: not at all. The deadline of the request's context shortens it.
	MaxDelay time.Duration
	// Refund says for which statuses the units are given back once the response is known; nil: none. Unknown statuses
	// and hijacked connections stay charged.
	Refund func(status int) bool

	// Degrade is asked what to serve instead of a refusal; nil: the refusal.
	Degrade degrade.Handler
	// OnStoreError says what becomes of a request that could not be decided because the store is away.
	OnStoreError OnError
	// Shadow policies decide and are observed, but never refuse, hold, degrade or show in a response. What they would have
	// refused is always asked: on Redis no denial beside them is answered from memory.
	Shadow bool
	// Headers are the fields that tell of the policy; zero: Config.Response.Headers. [response.Off]: silent.
	Headers response.Set
	// Messages are the detail of the problem document by language tag; they win over Config.Response.Messages.
	Messages map[string]string
}

// NoKey says what becomes of a request that has no key for a policy.
type NoKey uint8

const (
	// DenyRequest refuses it with 403: nobody escapes a limit by leaving out a header.
	DenyRequest NoKey = iota
	// SkipPolicy lets the other policies decide.
	SkipPolicy
)

// OnError says what becomes of a request when the store is away.
type OnError uint8

const (
	// FailOpen lets it pass: an outage of the limiter is not one of the service. Clients are not told; handlers may ask
	// [Undecided].
	FailOpen OnError = iota
	// FailClosed refuses it with 503, as for login. Of several undecided policies one FailClosed is enough.
	FailClosed
)

const defaultMaxWaiting = 1024

// PolicyError is one thing that is wrong with one policy. [New], [Guard.Update] and [Guard.Reconfigure] return those of all
// policies joined.
type PolicyError struct {
	Index  int    // in the list of policies
	Policy string // its Name
	err    error
	at     string
}

// Error tells which policy, and what is wrong with it.
func (e *PolicyError) Error() string { return e.err.Error() }

// Unwrap returns what is wrong with it.
func (e *PolicyError) Unwrap() error { return e.err }

// Detail is Error without the name of the policy.
func (e *PolicyError) Detail() string {
	return strings.TrimPrefix(e.err.Error(), "middleware: "+e.at+": ")
}
