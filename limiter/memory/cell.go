package memory

import (
	"runtime"
	"sync/atomic"

	"github.com/spillway-go/spillway/limiter"
)

// cell is the state of one key under one algorithm: 32 bytes without a pointer. at, frac and units are guarded by the
// lock bit in word, and so is writing hash; reading hash is not.
//
// The bit is held for arithmetic only. Who holds one may take that of another cell with a higher place in the order
// (see ref.before), and nothing else.
type cell struct {
	hash  atomic.Uint64
	at    int64
	frac  int64
	units uint32
	word  atomic.Uint32 // index of the rule, and the bits
}

const (
	lockBit   = 1 << 0
	movedBit  = 1 << 1 // the contents are elsewhere, for ever
	ruleShift = 2
	wordBits  = 1<<ruleShift - 1
)

// lock takes the bit and returns the word without it.
func (c *cell) lock() uint32 {
	if w := c.word.Load(); w&lockBit == 0 && c.word.CompareAndSwap(w, w|lockBit) {
		return w
	}
	return c.lockSlow()
}

func (c *cell) lockSlow() uint32 {
	for spins := 1; ; spins++ {
		if w := c.word.Load(); w&lockBit == 0 && c.word.CompareAndSwap(w, w|lockBit) {
			return w
		}
		if spins%32 == 0 {
			runtime.Gosched() // the holder may be waiting for this processor
		}
	}
}

// unlock gives the bit back and stores the word.
func (c *cell) unlock(w uint32) { c.word.Store(w) }

// side is what a cell has no room for: the counts of a SlidingWindow with more than one cell, and the log of a
// SlidingLog. It is guarded by the cell's lock bit.
type side struct {
	counts []int32
	log    limiter.Log
}
