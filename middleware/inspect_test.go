package middleware_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// Who is locked out by mistake can be looked at and let in again, in every stage and with keys of any spelling.
func TestInspectAndReset(t *testing.T) {
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	spell := func(k limiter.Key) string { return "old:" + k.ID }
	for _, p := range []policy{{}, {Stage: middleware.StageIdentity}, {StoreKey: spell}, {Adjust: to(limiter.PerDay(1))}} {
		p.Name, p.Limit = "a", limiter.PerDay(2)
		g := newGuard(t, config{Limiter: store, Policies: byIP(p)})
		if p.Stage != "" {
			g = g.Stage(p.Stage)
		}
		ctx, who := t.Context(), "ip=192.0.2.7"
		d, err := g.Inspect(ctx, "a", who)
		require.NoError(t, err)
		full := d.Remaining
		for range 3 {
			get(g, "192.0.2.7")
		}
		require.NotEqual(t, 200, get(g, "192.0.2.7").Code)
		d, err = g.Inspect(ctx, "a", who)
		require.NoError(t, err)
		require.Zero(t, d.Remaining)
		require.NoError(t, g.Reset(ctx, "a", who))
		d, err = g.Inspect(ctx, "a", who)
		require.NoError(t, err)
		require.Equal(t, full, d.Remaining)
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
		require.NoError(t, g.Reset(ctx, "a", who))
	}
}

func TestInspectAndResetFail(t *testing.T) {
	g := newGuard(t, config{Limiter: newFake(), Policies: byIP(policy{Name: "a", Limit: perMinute}, policy{Name: "b", InFlight: 1})})
	for _, c := range [][2]string{{"x", "ip=192.0.2.7"}, {"b", "ip=192.0.2.7"}, {"a", ""}} {
		_, err := g.Inspect(t.Context(), c[0], c[1])
		require.ErrorIs(t, err, limiter.ErrInvalid)
		require.ErrorIs(t, g.Reset(t.Context(), c[0], c[1]), limiter.ErrInvalid)
	}
	require.ErrorIs(t, g.Reset(t.Context(), "a", "ip=192.0.2.7"), errors.ErrUnsupported)
}
