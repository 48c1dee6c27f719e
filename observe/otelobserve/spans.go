package otelobserve

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillway-go/spillway/limiter"
)

const (
	eventName = "rate_limit"

	keyOutcome    attribute.Key = "outcome"
	keyRemaining  attribute.Key = "remaining"
	keyRetryAfter attribute.Key = "retry_after"
	keyCallback   attribute.Key = "callback"
)

// span returns the span of the event's request; nil: there is none, or nobody keeps it.
func (o *Observer) span(e *limiter.Event) trace.Span {
	if o.spans == SpanNone || e.Context == nil {
		return nil
	}
	if s := trace.SpanFromContext(e.Context); s.IsRecording() {
		return s
	}
	return nil
}

func (p *policy) tellDecision(e *limiter.Event, d *decision) {
	refused := e.Outcome != limiter.OutcomeAllowed
	if !refused && p.observer.spans != SpanAll {
		return
	}
	s := p.observer.span(e)
	if s == nil {
		return
	}
	attributes := append(slices.Clip(d.attributes), keyRemaining.Int(e.Decision.Remaining))
	if wait := e.Decision.RetryAfter; refused && wait < limiter.Never {
		attributes = append(attributes, keyRetryAfter.Float64(wait.Seconds()))
	}
	add(s, e, attributes)
}

// tell says what else happened to a request on account of the policy.
func (p *policy) tell(e *limiter.Event, outcome string, why attribute.KeyValue) {
	if s := p.observer.span(e); s != nil {
		add(s, e, []attribute.KeyValue{keyPolicy.String(p.text), keyOutcome.String(outcome), why})
	}
}

func add(s trace.Span, e *limiter.Event, attributes []attribute.KeyValue) {
	options := append(make([]trace.EventOption, 0, 2), trace.WithAttributes(attributes...))
	if !e.Time.IsZero() {
		options = append(options, trace.WithTimestamp(e.Time))
	}
	s.AddEvent(eventName, options...)
}
