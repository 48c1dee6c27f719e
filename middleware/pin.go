package middleware

import (
	"context"
	"slices"
)

// pinned is the context key of the policies by which the stages of a guard decide.
type pinned struct{ core *core }

// Pin returns a context in which every stage of the guard decides by the policies that are in force now. Without it each
// stage takes those it finds, and a policy that moves from one stage to another meets a request in both or in neither. It is
// for whoever mounts stages as they come, see [Guard.StagesOf]; for a chain that is fixed it spares such moments.
func (g *Guard) Pin(ctx context.Context) context.Context {
	g.pins.Store(true)
	return context.WithValue(ctx, pinned{g.core}, g.core.snapshot.Load())
}

// StagesOf returns the stages in the order in which they are mounted: edge, identity, then others as they first appear. They
// are those of the policies that are pinned in ctx, or else in force. The stage manual is not mounted.
func (g *Guard) StagesOf(ctx context.Context) []string {
	if s := g.pinnedIn(ctx); s != nil {
		return s.order
	}
	return g.core.snapshot.Load().order
}

func (g *Guard) pinnedIn(ctx context.Context) *snapshot {
	if !g.pins.Load() { // which spares everybody else a look
		return nil
	}
	s, _ := ctx.Value(pinned{g.core}).(*snapshot)
	return s
}

// stageFor returns the policies of this stage for a request, nil if it has none.
func (g *Guard) stageFor(ctx context.Context) *stage {
	if s := g.pinnedIn(ctx); s != nil {
		return s.stages[g.name]
	}
	return g.stage()
}

// orderOf returns the stages of policies in the order in which they are mounted.
func orderOf(policies []*policy) []string {
	order := []string{StageEdge}
	for _, identity := range []bool{true, false} {
		for _, p := range policies {
			if (p.Stage == StageIdentity) == identity && p.Stage != StageManual && !slices.Contains(order, p.Stage) {
				order = append(order, p.Stage)
			}
		}
	}
	return order
}
