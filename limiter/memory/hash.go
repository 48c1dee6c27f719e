package memory

import (
	"hash/maphash"

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
	h.step = maphash.Comparable(spaces, [2]uint64{3, 0}) | 1
	return h
}

func valid(h uint64) uint64 {
	if h <= freed {
		h += 2
	}
	return h
}

// own returns the hash of a key's cell under an algorithm.
func (h *hasher) own(k limiter.Key, a limiter.Algorithm) uint64 {
	return valid(maphash.String(h.spaces, k.Space) + maphash.String(h.ids, k.ID) + h.tags[a&7])
}

// overflow returns the hashes of the cell a key shares beyond the cap, and of the one it shares if that is not to be had.
func (h *hasher) overflow(k limiter.Key, a limiter.Algorithm) (shared, last uint64) {
	part := maphash.String(h.ids, k.ID) % sharers
	return valid(maphash.String(h.spaces, k.Space) + h.shared[a&7] + part*h.step), h.last[a&7]
}
