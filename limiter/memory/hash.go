package memory

import (
	"hash/maphash"
	"math/bits"

	"github.com/spillway-go/spillway/limiter"
)

// Hashes that are none of a key.
const (
	unused = 0 // the cell was never used: a search ends here
	freed  = 1 // the cell may be used again, but a search goes on
)

// hasher turns keys into hashes. Space and identity have seeds of their own, so what one hides the other cannot undo.
type hasher struct {
	spaces, ids maphash.Seed
	secret      [3]uint64 // of short spaces
	tags        [8]uint64 // by algorithm: own cells
	shared      [8]uint64 // overflow cells of a space
	last        [8]uint64 // overflow cells of last resort
	step        uint64
}

// sharers is how many overflow cells a space has per algorithm; a power of two.
const sharers = 8

func newHasher(spaces, ids maphash.Seed) hasher {
	h := hasher{spaces: spaces, ids: ids}
	for a := range uint64(len(h.tags)) {
		h.tags[a] = maphash.Comparable(spaces, [2]uint64{0, a})
		h.shared[a] = maphash.Comparable(spaces, [2]uint64{1, a})
		h.last[a] = valid(maphash.Comparable(spaces, [2]uint64{2, a}))
	}
	for i := range h.secret {
		h.secret[i] = maphash.Comparable(spaces, [2]uint64{4, uint64(i)})
	}
	h.step = maphash.Comparable(spaces, [2]uint64{3, 0}) | 1
	return h
}

func valid(h uint64) uint64 {
	if h <= freed {
		h += 2
	}
	return h
}

// parts hashes the space and the identity of a key. A space is short, nearly always the same, and nobody's to choose but
// the operator's: two multiplications do instead of a call.
func (h *hasher) parts(k *limiter.Key) (space, id uint64) {
	s := k.Space
	if n := len(s); n > 16 {
		space = maphash.String(h.spaces, s)
	} else {
		var a, b uint64
		switch {
		case n >= 8:
			a, b = load64(s), load64(s[n-8:])
		case n >= 4:
			a, b = load32(s), load32(s[n-4:])
		case n > 0:
			a = uint64(s[0])<<16 | uint64(s[n/2])<<8 | uint64(s[n-1])
		}
		a, b = bits.Mul64(a^h.secret[0], b^h.secret[1])
		a, b = bits.Mul64(a^uint64(n)^h.secret[2], b^h.secret[1])
		space = a ^ b
	}
	return space, maphash.String(h.ids, k.ID)
}

func load64(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// own returns the hash of a key's cell under an algorithm.
func (h *hasher) own(k *limiter.Key, a limiter.Algorithm) uint64 {
	space, id := h.parts(k)
	return valid(space + id + h.tags[a&7])
}

// overflow returns the hashes of the cell a key shares beyond the cap, and of the one it shares if that is not to be had.
func (h *hasher) overflow(k *limiter.Key, a limiter.Algorithm) (shared, last uint64) {
	space, id := h.parts(k)
	return valid(space + h.shared[a&7] + id%sharers*h.step), h.last[a&7]
}
