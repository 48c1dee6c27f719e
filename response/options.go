package response

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Options say how a guard's responses look. The zero value is the default throughout.
type Options struct {
	// Headers is the set for policies that name none; zero: [X].
	Headers Set
	// ResetDelta makes X-RateLimit-Reset the seconds from now instead of seconds since the epoch (UTC).
	ResetDelta bool
	// RetryAfterDate makes Retry-After a date (IMF-fixdate) instead of seconds. Seconds need no agreement of clocks.
	RetryAfterDate bool
	// MaxRetryAfter caps Retry-After and t, 1 s…2147483647 s in whole seconds, rounded down; zero: 2147483647 s. A client
	// told less than its wait is refused again.
	MaxRetryAfter time.Duration
	// Jitter is the upper bound of a random time added to each Retry-After, so that refused clients do not come back
	// together. It never shortens the wait, and t stays without it. 0…24 h; zero: none.
	Jitter time.Duration
	// MaxUnitsPerSecond lowers the units told as left, so that no client reads an invitation to spend more than this
	// per second of its window. 0…10⁹; zero: off.
	MaxUnitsPerSecond int
	// NoExpose leaves Access-Control-Expose-Headers alone. Otherwise responses to cross-origin requests list the rate
	// limit fields there, beside the names already listed, as scripts could not read them.
	NoExpose bool
	// DegradedField is the field that names what a refused request got instead, such as "cache"; "": X-RateLimit-Degraded,
	// "off": none.
	DegradedField string
	// Messages are the detail of problem documents by language tag (BCP 47); see [NewMessages]. A policy's own win.
	Messages map[string]string
	// Body replaces the body of refusals. It gets the refusal as it is told: RetryAfter is the wait in the header
	// ([limiter.Never]: none), Message the detail in the client's language. An empty content type leaves this refusal
	// to the default body, as does a panic. It must be safe for concurrent use.
	Body func(r *http.Request, f Refusal) (contentType string, body []byte)
}

// Renderer writes responses as [Options] say. It is immutable and safe for concurrent use.
type Renderer struct {
	set        Set
	resetDelta bool
	retryDate  bool
	expose     bool
	maxRetry   int64
	jitter     time.Duration
	perSecond  int64
	plain      bool   // no option changes how the X fields and Retry-After are made
	degraded   string // canonical; "": none
	messages   *Messages
	body       func(*http.Request, Refusal) (string, []byte)
}

// New returns a Renderer. The error joins everything wrong with the options.
func New(o Options) (*Renderer, error) {
	x := &Renderer{
		set:        o.Headers.Or(X),
		resetDelta: o.ResetDelta,
		retryDate:  o.RetryAfterDate,
		expose:     !o.NoExpose,
		maxRetry:   maxRetry,
		jitter:     o.Jitter,
		perSecond:  int64(o.MaxUnitsPerSecond),
		body:       o.Body,
	}
	var errs []error
	if err := o.Headers.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("response: Headers: %w", err))
	}
	if d := o.MaxRetryAfter; d != 0 {
		x.maxRetry = int64(d / time.Second)
		if d < time.Second || x.maxRetry > maxRetry {
			errs = append(errs, fmt.Errorf("response: MaxRetryAfter %v is outside 1s…%ds", d, maxRetry))
		}
	}
	switch o.DegradedField {
	case "":
		x.degraded = keyDegraded
	case "off":
	default:
		x.degraded = http.CanonicalHeaderKey(o.DegradedField)
		if !isToken(o.DegradedField) || reserved[x.degraded] {
			errs = append(errs, fmt.Errorf("response: DegradedField %q is not the name of a field of its own", o.DegradedField))
		}
	}
	if o.Jitter < 0 || o.Jitter > 24*time.Hour {
		errs = append(errs, fmt.Errorf("response: Jitter %v is outside 0…24h", o.Jitter))
	}
	if o.MaxUnitsPerSecond < 0 || o.MaxUnitsPerSecond > limiter.MaxRate {
		errs = append(errs, fmt.Errorf("response: MaxUnitsPerSecond %d is outside 0…%d", o.MaxUnitsPerSecond, limiter.MaxRate))
	}
	if len(o.Messages) > 0 {
		m, err := NewMessages(o.Messages)
		if err != nil {
			errs = append(errs, err)
		}
		x.messages = m
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	x.plain = !x.resetDelta && !x.retryDate && x.jitter == 0 && x.perSecond == 0
	return x, nil
}

// Headers returns the set of policies that name none.
func (x *Renderer) Headers() Set { return x.set }
