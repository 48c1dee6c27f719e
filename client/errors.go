package client

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Reason says why a request was not sent.
type Reason string

// Reasons of a [LimitedError].
const (
	// ReasonQuota: its turn under the limit comes too late.
	ReasonQuota Reason = "quota"
	// ReasonTold: the destination has asked for a pause that is too long, or has told that nothing is left.
	ReasonTold Reason = "told"
	// ReasonInFlight: as many requests as may be are under way for too long.
	ReasonInFlight Reason = "in_flight"
	// ReasonWaiting: as many as may be wait already.
	ReasonWaiting Reason = "waiting"
	// ReasonBreaker: the destination has failed time and again and is left alone.
	ReasonBreaker Reason = "breaker"
	// ReasonUnavailable: the store could not be asked, and [Config].Strict does not go on without it.
	ReasonUnavailable Reason = "unavailable"
	// ReasonCanceled: its context ended while it waited. Err is the context's error.
	ReasonCanceled Reason = "canceled"
)

// LimitedError says that a request was not sent, or not sent again, because it could not have been in time. Find it with
// [errors.As]: [http.Client] wraps it. It is no time-out: as a rule it comes at once, not when the time is over. What [http.Client]'s
// own Timeout ends is hidden by an error of http.Client: only a deadline of the request's context tells that nothing was sent.
type LimitedError struct {
	Reason Reason
	// RetryAfter is the wait from now until the request could be sent, as far as it is known: 0 if it is not known,
	// [limiter.Never] if the limit never lets it pass.
	RetryAfter time.Duration
	// Key is whose limit it was. It names the destination, and perhaps an account: no label of a metric.
	Key limiter.Key
	// Status is that of the last response, which was given up for a retry that found no place; 0: nothing was sent.
	Status int
	// Err is the cause, if there is one beside the limit; as of a store that is away.
	Err error
}

// Error does not show the key.
func (e *LimitedError) Error() string {
	text := "client: not sent: " + reasons[e.Reason]
	switch {
	case e.RetryAfter == limiter.Never:
		text += ", and never can be"
	case e.RetryAfter > 0:
		text += fmt.Sprintf("; possible in %v", e.RetryAfter.Round(time.Millisecond))
	}
	if e.Status != 0 {
		text += fmt.Sprintf("; the last answer was %d", e.Status)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *LimitedError) Unwrap() error { return e.Err }

var reasons = map[Reason]string{
	ReasonQuota:       "its turn under the limit comes too late",
	ReasonTold:        "the destination has asked for a pause",
	ReasonInFlight:    "too many requests are in flight",
	ReasonWaiting:     "too many requests are waiting",
	ReasonBreaker:     "the destination has been failing",
	ReasonUnavailable: "the limit cannot be asked for",
	ReasonCanceled:    "its context ended while it waited",
}
