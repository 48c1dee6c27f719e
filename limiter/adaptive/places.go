package adaptive

import (
	"math"
	"sync/atomic"
)

// places counts requests in flight and how many of them are detached, in one word, so that one exchange judges by both and
// takes a place: all of them in the upper half, the detached ones, signed, in the lower half. Each of Detach and Release adds
// the same whichever comes first.
type places struct{ word atomic.Int64 }

const onePlace = 1 << 32

// unpack returns how many requests the moving bound holds for, and how many are detached. A release that came before its Detach
// has taken one from both halves, and nobody is detached who is not in flight.
func unpack(word int64) (held, detached int64) {
	lower := int64(int32(word)) //nolint:gosec // the lower half, with its sign
	all := (word - lower) >> 32
	detached = min(max(lower, 0), max(all, 0))
	return all - detached, detached
}

func (p *places) read() (held, detached int64) { return unpack(p.word.Load()) }

// taken is how much of a bound is in use: by what is not detached, and by what is where both together come close to most.
func taken(word, bound, most int64) int64 {
	held, detached := unpack(word)
	if bound == math.MaxInt64 { // a rate's
		return held
	}
	return max(held, held+detached-(most-bound))
}

// give gives a place back and returns how many the bound held for until then; ok: there was one.
func (p *places) give(isDetached bool) (held int64, ok bool) {
	for {
		word := p.word.Load()
		held, detached := unpack(word)
		if held+detached <= 0 {
			return 0, false
		}
		next := word - onePlace
		if isDetached {
			next--
		}
		if held+detached == 1 && int32(next) > 0 { //nolint:gosec // as above
			next = 0 // nobody is there, so nobody is detached
		}
		if p.word.CompareAndSwap(word, next) {
			return held, true
		}
	}
}

// detach makes a request one that the moving bound does not hold for.
func (p *places) detach() { p.word.Add(1) }
