package degrade

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"github.com/spillway-go/spillway/limiter"
)

// First asks handlers in order until one does not skip. A handler that panics before anything was written counts as
// having skipped; the guard reports the panic.
func First(handlers ...Handler) Handler { return first(handlers) }

type first []Handler

func (f first) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	for _, h := range f {
		d.Mode = ModeOf(h)
		if out := ask(h, w, r, d); out != Skip {
			return out
		}
	}
	d.Mode = ""
	return Skip
}

// ask asks one handler of a chain, whose panic is not the end of the chain.
func ask(h Handler, w http.ResponseWriter, r *http.Request, d *Denial) (out Outcome) {
	if d.Contain != nil {
		defer func() {
			if p := recover(); p != nil {
				if out = Skip; !d.Contain(p) {
					panic(p)
				}
			}
		}()
	}
	return h.Degrade(w, r, d)
}

// walk calls visit for h and for every handler inside of its chains and budgets; budgeted says whether a Within is around.
func walk(h Handler, budgeted bool, visit func(h Handler, budgeted bool)) {
	visit(h, budgeted)
	switch h := h.(type) {
	case first:
		for _, h := range h {
			walk(h, budgeted, visit)
		}
	case *within:
		walk(h.h, true, visit)
	}
}

// Find returns the handlers of a chain that are a T, such as a [Recorder] or a [Gate], in order.
func Find[T any](h Handler) (found []T) {
	if h == nil {
		return nil
	}
	walk(h, false, func(h Handler, _ bool) {
		if x, ok := h.(T); ok {
			found = append(found, x)
		}
	})
	return found
}

// Inherit lets the handlers of next take over the states of those of prev, each at most once; see [Heir].
func Inherit(next, prev Handler) {
	if next == nil || prev == nil {
		return
	}
	left := Find[Handler](prev)
	for _, heir := range Find[Heir](next) {
		for k, h := range left {
			if h != nil && heir.Inherit(h) {
				left[k] = nil
				break
			}
		}
	}
}

var modeForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_]{0,31}$`)

// Validate reports everything wrong with the settings of h: what a [Validator] finds, an invalid budget, a [Proceeder]
// without one, a nil handler in a chain, two budgets of one mode with different limits, which would share a counter.
func Validate(h Handler) error {
	budgets := make(map[string]limiter.Limit)
	var errs []error
	walk(h, false, func(h Handler, budgeted bool) {
		if f, ok := h.(Func); ok && f == nil {
			errs = append(errs, errors.New("degrade: a Func is nil"))
			return
		}
		if h == nil {
			errs = append(errs, errors.New("degrade: a handler is nil"))
			return
		}
		if v, ok := h.(Validator); ok {
			if err := v.Validate(); err != nil {
				errs = append(errs, err)
			}
		}
		if _, ok := h.(Proceeder); ok && !budgeted {
			errs = append(errs, fmt.Errorf("degrade: %s lets requests through, and needs a budget: put it into a Within", ModeOf(h)))
		}
		if _, ok := h.(Moded); ok && !modeForm.MatchString(ModeOf(h)) {
			if b, ok := h.(*within); !ok || b.h != nil {
				errs = append(errs, fmt.Errorf("degrade: mode %q: want 1 to 32 letters, digits and '_'", ModeOf(h)))
			}
		}
		if b, ok := h.(*within); ok && b.h != nil {
			mode := b.Mode()
			if other, ok := budgets[mode]; ok && other != b.limit {
				errs = append(errs, fmt.Errorf("degrade: Within: two budgets of mode %q, %v and %v, would share a counter", mode, other, b.limit))
			}
			budgets[mode] = b.limit
		}
	})
	return errors.Join(errs...)
}
