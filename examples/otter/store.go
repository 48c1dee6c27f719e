package main

import (
	"math"

	"github.com/maypok86/otter/v2"

	"github.com/spillway-go/spillway/degrade"
)

// copies is a degrade.Store on otter, which bounds its memory and forgets what is least likely to be asked for again.
type copies struct {
	cache *otter.Cache[string, *degrade.Copies]
}

var (
	_ degrade.Store   = copies{}
	_ degrade.Updater = copies{}
)

// newCopies returns a store of about so many bytes. It may hold more for the moment that forgetting takes.
func newCopies(bytes uint64) (copies, error) {
	cache, err := otter.New(&otter.Options[string, *degrade.Copies]{
		MaximumWeight: bytes,
		Weigher:       weight,
	})
	return copies{cache}, err
}

// entrySize is about what otter itself needs for an entry.
const entrySize = 200

// weight is about how many bytes an entry takes. Copies are not changed once they are stored, so it stays true.
func weight(key string, c *degrade.Copies) uint32 {
	return uint32(min(entrySize+len(key)+c.Size(), math.MaxUint32))
}

// Get implements degrade.Store.
func (s copies) Get(key string) (*degrade.Copies, bool) { return s.cache.GetIfPresent(key) }

// Set implements degrade.Store.
func (s copies) Set(key string, c *degrade.Copies) { s.cache.Set(key, c) }

// Delete implements degrade.Store.
func (s copies) Delete(key string) { s.cache.Invalidate(key) }

// Update implements degrade.Updater: of two responses of one address that end at once, neither is lost.
func (s copies) Update(key string, change func(*degrade.Copies) *degrade.Copies) {
	s.cache.Compute(key, func(old *degrade.Copies, _ bool) (*degrade.Copies, otter.ComputeOp) {
		switch next := change(old); next {
		case old:
			return old, otter.CancelOp
		case nil:
			return nil, otter.InvalidateOp
		default:
			return next, otter.WriteOp
		}
	})
}
