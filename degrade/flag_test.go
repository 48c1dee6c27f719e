package degrade_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

// budgetOf counts the units asked for, and grants the first ones of each name.
type budgetOf struct {
	granted int
	asked   map[string]int
	limits  map[string]limiter.Limit
}

func (b *budgetOf) take(_ context.Context, name string, l limiter.Limit) (limiter.Decision, error) {
	if b.asked == nil {
		b.asked, b.limits = map[string]int{}, map[string]limiter.Limit{}
	}
	b.asked[name]++
	b.limits[name] = l
	return limiter.Decision{Allowed: b.asked[name] <= b.granted}, nil
}

// askMany asks h for 10⁵ requests and counts what becomes of them.
func askMany(t *testing.T, h degrade.Handler, b *budgetOf) (outcomes map[degrade.Outcome]int, written int) {
	t.Helper()
	outcomes = map[degrade.Outcome]int{}
	r := httptest.NewRequest("GET", "/list", nil)
	for range 100_000 {
		w := &byteCounter{h: map[string][]string{}}
		d := &degrade.Denial{
			Policy: "api", Status: 429, Mode: degrade.ModeOf(h), Decision: limiter.Decision{Limit: limiter.PerMinute(3)}, Budget: b.take,
		}
		outcomes[h.Degrade(w, r, d)]++
		written += w.n
	}
	return outcomes, written
}

func TestFlag(t *testing.T) {
	require.Equal(t, "flag", degrade.ModeOf(degrade.Flag()))
	require.ErrorContains(t, degrade.Validate(degrade.Flag()), "needs a budget")
	h := degrade.Within(limiter.PerMinute(7), degrade.Flag())
	require.NoError(t, degrade.Validate(h))
	require.Equal(t, degrade.Skip, ask(h, new(degrade.Denial)), "outside of a guard there is no budget")

	b := &budgetOf{granted: 7}
	outcomes, written := askMany(t, h, b)
	require.Equal(t, map[degrade.Outcome]int{degrade.Proceed: 7, degrade.Skip: 99_993}, outcomes)
	require.Zero(t, written)
	require.Equal(t, map[string]int{"flag": 100_000}, b.asked)
	require.Equal(t, limiter.PerMinute(7), b.limits["flag"])
}
