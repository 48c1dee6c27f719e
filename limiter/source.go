package limiter

import (
	"sync/atomic"
	"time"
)

// Source yields the limit the operator has set. A [Limit] is its own source; a [Var] can be changed while serving.
// Current is called for every decision: it must be fast and safe for concurrent use.
type Source interface{ Current() Limit }

// Var is a [Limit] that can be changed while serving. The zero Var holds the zero Limit, which is invalid: Set it first,
// or use [NewVar]. Its methods are safe for concurrent use.
type Var struct{ p atomic.Pointer[Limit] }

// NewVar returns a Var holding l. An invalid limit is held as it is, for a guard to find at start-up.
func NewVar(l Limit) *Var {
	v := new(Var)
	v.p.Store(&l)
	return v
}

// Set changes the limit for all later decisions. An invalid one changes nothing and is an error wrapping [ErrInvalid]: what
// has served so far serves on.
func (v *Var) Set(l Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	v.p.Store(&l)
	return nil
}

// Current returns the limit last set.
func (v *Var) Current() Limit {
	if p := v.p.Load(); p != nil {
		return *p
	}
	return Limit{}
}

// Adjuster moves a nominal limit: a schedule, a calendar, an adaptive controller. Adjusters compose in order, each
// seeing what the one before returned. Adjust is called for every decision: it must be fast and safe for concurrent use.
type Adjuster interface {
	Adjust(now time.Time, nominal Limit) Limit
}

// Explainer is an [Adjuster] that can say why it returns what it returns.
type Explainer interface {
	Adjuster
	// Explain returns what Adjust would, and why in words for people; "" where nominal stays as it is.
	Explain(now time.Time, nominal Limit) (Limit, string)
}

// AdjusterFunc is a function as an [Adjuster].
type AdjusterFunc func(now time.Time, nominal Limit) Limit

// Adjust calls f.
func (f AdjusterFunc) Adjust(now time.Time, nominal Limit) Limit { return f(now, nominal) }

var (
	_ Source = Limit{}
	_ Source = (*Var)(nil)
)
