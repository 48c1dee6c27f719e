package middleware

import (
	"context"
	"slices"

	"github.com/spillway-go/spillway/degrade"
)

type undecidedKey struct{}

// Undecided returns the policies that could not decide the request of ctx and let it pass, as [FailOpen] says; nil: there
// are none. A handler may do less then, or more carefully. Clients are never told. The slice must not be changed.
func Undecided(ctx context.Context) []string {
	names, _ := ctx.Value(undecidedKey{}).([]string)
	return names
}

// context is the request's, with the policies that let it pass undecided, behind those of stages before, and the mark of
// one that proceeds degraded.
func (v *visit) context() context.Context {
	ctx := v.r.Context()
	if v.degraded != nil {
		ctx = degrade.NewContext(ctx, *v.degraded)
	}
	if !v.open {
		return ctx
	}
	names := slices.Clone(Undecided(ctx))
	for k := range v.active {
		if a := &v.active[k]; a.err != nil && !a.Shadow {
			names = append(names, a.Name)
		}
	}
	return context.WithValue(ctx, undecidedKey{}, names)
}
