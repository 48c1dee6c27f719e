package memory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// Keys that differ in little, in length or in where the space ends have different hashes, whatever the secrets are.
func TestHashesDiffer(t *testing.T) {
	for range 3 {
		h := newHasher()
		seen := map[uint64]string{}
		add := func(space, id string) {
			for _, a := range limiter.Algorithms() {
				x := h.own(&limiter.Key{Space: space, ID: id}, a)
				name := fmt.Sprintf("%q %q %v", space, id, a)
				require.Greater(t, x, uint64(freed))
				if other, ok := seen[x]; ok {
					require.Equal(t, other, name)
				}
				seen[x] = name
			}
		}
		for n := range 70 {
			add(strings.Repeat("a", n), "")
			add("", strings.Repeat("a", n))
			add("b", strings.Repeat("\x00", n))
			add(strings.Repeat("\x00", n), "b")
			for i := range n {
				add("flip", strings.Repeat("a", i)+"b"+strings.Repeat("a", n-1-i))
				add(strings.Repeat("c", i), strings.Repeat("c", n-i)+"d")
			}
		}
		for i := range 20_000 {
			add("ip", fmt.Sprintf("ip=10.%d.%d.%d", i>>16, i>>8&255, i&255))
			add("n", fmt.Sprint(i))
		}
	}
}

// The bits that choose a segment and those that choose a place in it are even, for keys in sequence too.
func TestHashesAreEven(t *testing.T) {
	const keys, boxes = 1 << 17, 1 << 8
	h := newHasher()
	for _, format := range []string{"%d", "ip=10.0.%d.7", "user=00000000-0000-4000-8000-%012d"} {
		var high, low [boxes]int
		for i := range keys {
			x := h.own(&limiter.Key{Space: "policy", ID: fmt.Sprintf(format, i)}, limiter.TokenBucket)
			high[x>>56]++
			low[uint32(x)>>24]++
		}
		for _, counts := range [][boxes]int{high, low} {
			chi := 0.0
			for _, n := range counts {
				d := float64(n) - keys/boxes
				chi += d * d / (keys / boxes)
			}
			require.Less(t, chi, 255+6*22.6, format) // six deviations
		}
	}
}
