package memory

import (
	"math/bits"
	"math/rand/v2"

	"github.com/spillway-go/spillway/limiter"
)

// Hashes that are none of a key.
const (
	unused = 0 // the cell was never used: a search ends here
	freed  = 1 // the cell may be used again, but a search goes on
)

// hasher turns keys into hashes by folded multiplications with random secrets, as the Go runtime does for its maps where
// it cannot use AES. Calling hash/maphash twice took a sixth of a decision.
type hasher struct {
	secret [5]uint64
	tags   [8]uint64 // by algorithm: own cells
	shared [8]uint64 // overflow cells of a space
	last   [8]uint64 // overflow cells of last resort
}

// sharers is how many overflow cells a space has per algorithm; a power of two.
const sharers = 8

func newHasher() (h hasher) {
	for _, s := range [...][]uint64{h.secret[:], h.tags[:], h.shared[:], h.last[:]} {
		for i := range s {
			s[i] = valid(rand.Uint64())
		}
	}
	return h
}

func valid(h uint64) uint64 {
	if h <= freed {
		h += 2
	}
	return h
}

// own returns the hash of a key's cell under an algorithm. It is fold for both texts, with the lengths most of them have
// in place: a call takes as long as its work.
func (h *hasher) own(k *limiter.Key, a limiter.Algorithm) uint64 {
	var space, id uint64
	switch n := len(k.Space); {
	case n >= 8 && n <= 16:
		space = mix(load64(k.Space)^h.secret[0], load64(k.Space[n-8:])^h.secret[1]) ^ uint64(n)
	case n >= 4 && n < 8:
		space = mix(load32(k.Space)^h.secret[0], load32(k.Space[n-4:])^h.secret[1]) ^ uint64(n)
	default:
		space = fold(k.Space, h.secret[0], h.secret[1])
	}
	if n := len(k.ID); n >= 8 && n <= 16 {
		id = mix(load64(k.ID)^h.secret[2], load64(k.ID[n-8:])^h.secret[3]) ^ uint64(n)
	} else {
		id = fold(k.ID, h.secret[2], h.secret[3])
	}
	return valid(mix(space^h.tags[a&7], id^h.secret[4]))
}

// overflow returns the hashes of the cell a key shares beyond the cap, and of the one it shares if that is not to be had.
func (h *hasher) overflow(k *limiter.Key, a limiter.Algorithm) (shared, last uint64) {
	space := fold(k.Space, h.secret[0], h.secret[1])
	part := fold(k.ID, h.secret[2], h.secret[3]) % sharers
	return valid(mix(space^h.shared[a&7], part^h.secret[4])), h.last[a&7]
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// fold is the hash of a text under two secrets.
func fold(s string, x, y uint64) uint64 {
	var a, b uint64
	switch n := len(s); {
	case n > 16:
		for r := s; len(r) > 16; r = r[16:] {
			y = mix(load64(r)^x, load64(r[8:])^y)
		}
		a, b = load64(s[n-16:]), load64(s[n-8:])
	case n >= 8:
		a, b = load64(s), load64(s[n-8:])
	case n >= 4:
		a, b = load32(s), load32(s[n-4:])
	case n > 0:
		a = uint64(s[0])<<16 | uint64(s[n/2])<<8 | uint64(s[n-1])
	}
	return mix(a^x, b^y) ^ uint64(len(s))
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}
