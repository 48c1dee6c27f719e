package middleware_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/response"
)

// A request allowed with X-RateLimit fields costs the string its keys are cut from and the two allocations of the fields;
// a refused one its body and fields.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range []struct {
		set      response.Set
		policies int
		denied   bool
		most     float64
	}{
		{response.Off, 1, false, 1},
		{response.X, 1, false, 3},
		{response.X, 3, false, 3},
		{response.Both, 3, false, 3},
		{response.Off, 1, true, 2},
		{response.X, 1, true, 4},
		{response.X, 3, true, 4},
		{response.Both, 3, true, 4},
	} {
		g := benchGuard(t, c.set, c.policies, c.denied)
		w, r := newQuiet(), request("GET", "/search")
		g.Serve(w, r, bare)
		got := testing.AllocsPerRun(200, func() {
			w.reset()
			g.Serve(w, r, bare)
		})
		require.LessOrEqual(t, got, c.most, "%+v", c)
	}
}
