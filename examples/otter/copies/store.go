// Package copies is a store of recorded pages on otter, for degrade.Cached.
package copies

import (
	"fmt"
	"math"

	"github.com/maypok86/otter/v2"

	"github.com/spillway-go/spillway/degrade"
)

// Store is a [degrade.Store] on otter, which bounds its memory and forgets what is least likely to be asked for again. It is
// safe for concurrent use.
type Store struct {
	cache *otter.Cache[string, *degrade.Copies]
}

var (
	_ degrade.Store   = (*Store)(nil)
	_ degrade.Updater = (*Store)(nil)
)

// New returns a store of about so many bytes; more than 0. It may hold more for the moment that forgetting takes.
func New(bytes uint64) (*Store, error) {
	cache, err := otter.New(&otter.Options[string, *degrade.Copies]{
		MaximumWeight: bytes,
		Weigher:       weight,
	})
	if err != nil {
		return nil, fmt.Errorf("copies: %w", err)
	}
	return &Store{cache}, nil
}

// entrySize is about what otter itself needs for an entry.
const entrySize = 200

// weight is about how many bytes an entry takes. Copies are not changed once they are stored, so it stays true.
func weight(key string, c *degrade.Copies) uint32 {
	return uint32(min(entrySize+len(key)+c.Size(), math.MaxUint32))
}

// Get implements [degrade.Store].
func (s *Store) Get(key string) (*degrade.Copies, bool) { return s.cache.GetIfPresent(key) }

// Set implements [degrade.Store].
func (s *Store) Set(key string, c *degrade.Copies) { s.cache.Set(key, c) }

// Delete implements [degrade.Store].
func (s *Store) Delete(key string) { s.cache.Invalidate(key) }

// Update implements [degrade.Updater]: of two responses of one address that end at once, neither is lost.
func (s *Store) Update(key string, change func(*degrade.Copies) *degrade.Copies) {
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

// Len is the number of keys, as far as otter has counted them.
func (s *Store) Len() int { return s.cache.EstimatedSize() }
