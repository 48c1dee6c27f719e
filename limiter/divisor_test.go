package limiter

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The inverse of a divisor gives the quotient of every dividend, also next to multiples and at the ends of the range.
func TestDivisor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		d := r.Int64()>>r.IntN(62) | 1
		if r.IntN(4) == 0 {
			d = 1 << r.IntN(62)
		}
		v := newDivisor(d)
		x := r.Uint64() >> r.IntN(64)
		near := x - x%uint64(d)
		for _, x := range []uint64{x, near, near - 1, near + 1, 0, 1, uint64(d), 1<<64 - 1} {
			q, rem := v.div(x)
			require.Equal(t, x/uint64(d), q, "%d / %d", x, d)
			require.Equal(t, x%uint64(d), rem, "%d / %d", x, d)
		}
	}
}
