package degrade

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Within gives a handler a budget of its own, per key of the policy: what proceeds or is replayed under attack stays
// bounded by limit. Over the budget, or where the budget cannot be asked, the handler is skipped. A [Spender] takes of
// the budget when it is about to serve; any other handler, a chain too, costs a unit whenever it is asked.
func Within(limit limiter.Limit, h Handler) Handler { return &within{limit: limit, h: h} }

type within struct {
	limit limiter.Limit
	h     Handler
}

// Spender is a [Handler] that calls [Denial.Afford] itself before it serves.
type Spender interface{ Spends() }

func (b *within) Mode() string { return ModeOf(b.h) }

func (b *within) Validate() error {
	if err := b.limit.Validate(); err != nil {
		return fmt.Errorf("degrade: Within: %w", err)
	}
	return nil
}

func (b *within) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	outer, paid := d.budgets, d.paid
	defer func() { d.budgets, d.paid = outer, paid }()
	d.Mode = b.Mode()
	d.budgets = append(d.budgets, budget{d.Mode, b.limit})
	if _, ok := b.h.(Spender); !ok {
		if d.Budget == nil || !d.Afford(r.Context()) {
			return Skip
		}
		d.budgets, d.paid = nil, true
	}
	return b.h.Degrade(w, r, d)
}

// Spends: a budget around a budget is left to the handler inside.
func (b *within) Spends() {}

// budget is one Within around a handler.
type budget struct {
	mode  string
	limit limiter.Limit
}

func (d *Denial) spend(ctx context.Context, b budget) bool {
	if d.Budget == nil {
		return false
	}
	dec, err := d.Budget(ctx, b.mode, b.limit)
	return err == nil && dec.Allowed
}

// DefaultBudget is how many times the limit of its policy a handler may serve that has a default budget.
const DefaultBudget = 10

// Afford takes one unit of every budget of the handler, and reports whether all had one: those of the [Within] around it,
// else [DefaultBudget] times the limit of the policy, per key. A policy without a number, such as deny_all, has no default
// budget, nor has a handler outside of a guard. It is for handlers that are a [Spender], once they know that they will
// serve.
func (d *Denial) Afford(ctx context.Context) bool {
	for _, b := range d.budgets {
		if !d.spend(ctx, b) {
			return false
		}
	}
	if len(d.budgets) > 0 || d.paid || d.Budget == nil {
		return true
	}
	limit, ok := d.defaultBudget()
	return !ok || d.spend(ctx, budget{d.Mode, limit})
}

// defaultBudget is a token bucket whatever the policy's algorithm: it bounds, and nobody is told of it.
func (d *Denial) defaultBudget() (limiter.Limit, bool) {
	l := d.Decision.Limit
	switch {
	case l.Rate > 0:
		b := limiter.Per(d.times(l.Rate), l.Period)
		if q := l.Quota(); q != l.Rate {
			b.Burst = d.times(q)
		}
		return b, true
	case l.Burst > 0: // a bound on requests in flight has no rate
		return limiter.Per(d.times(l.Burst), time.Second), true
	}
	return limiter.Limit{}, false
}

// times is the budget for n units: each request of the policy costs some.
func (d *Denial) times(n int) int {
	return max(1, min(n, limiter.MaxRate/DefaultBudget)*DefaultBudget/max(1, d.Cost))
}
