package leased

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/limiter"
)

// entry is what a process knows of one key.
type entry struct {
	key      limiter.Key
	rendered string
	hash     uint64
	number   uint64 // entries are locked in its order
	next     *entry // of the same hash; the shard's lock guards it

	mu   sync.Mutex
	dead bool // not in the table any more
	node *node
	err  error  // why the last call failed
	told counts // to the observer
}

// table finds entries. Its locks are never held while an entry's is taken, but for a try.
type table struct {
	seed   maphash.Seed
	most   int64
	size   atomic.Int64
	shards [shards]shard
}

const shards = 64

type shard struct {
	mu      sync.RWMutex
	entries map[uint64]*entry
	_       [64]byte
}

func (t *table) init(most int) {
	t.seed, t.most = newSeed(), int64(most)
	for i := range t.shards {
		t.shards[i].entries = map[uint64]*entry{}
	}
}

func (t *table) hash(k *limiter.Key) uint64 {
	h := maphash.String(t.seed, k.ID)
	return h ^ maphash.String(t.seed, k.Space)*0x9e3779b97f4a7c15
}

func (t *table) get(k *limiter.Key, h uint64) *entry {
	s := &t.shards[h%shards]
	s.mu.RLock()
	e := s.entries[h]
	for e != nil && e.key != *k {
		e = e.next
	}
	s.mu.RUnlock()
	return e
}

// add puts a new entry in, unless one is there already, and returns which is there and one or two that had to go for it: locked
// and out of the table.
func (t *table) add(e *entry) (there *entry, victims []*entry) {
	s := &t.shards[e.hash%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := s.entries[e.hash]; o != nil; o = o.next {
		if o.key == e.key {
			return o, nil
		}
	}
	for range 2 { // two, so that a table that was too full for a while shrinks again
		if t.size.Load() >= t.most {
			if v := s.victim(); v != nil {
				s.unlink(v)
				t.size.Add(-1)
				victims = append(victims, v)
			}
		}
	}
	e.next = s.entries[e.hash]
	s.entries[e.hash] = e
	t.size.Add(1)
	return e, victims
}

// victim returns the one of some entries that was not asked for the longest, locked; nil if all of them are in use.
func (s *shard) victim() (v *entry) {
	const tries = 8
	seen := 0
	for _, e := range s.entries { // begins anywhere
		if seen++; seen > tries {
			break
		}
		if !e.mu.TryLock() {
			continue
		}
		busy := e.node.calling || e.node.reserved > 0 || e.node.waiting > 0
		if busy || v != nil && v.node.last <= e.node.last {
			e.mu.Unlock()
			continue
		}
		if v != nil {
			v.mu.Unlock()
		}
		v = e
	}
	return v
}

func (s *shard) unlink(e *entry) {
	first := s.entries[e.hash]
	if first == e {
		if e.next == nil {
			delete(s.entries, e.hash)
		} else {
			s.entries[e.hash] = e.next
		}
		return
	}
	for o := first; o != nil; o = o.next {
		if o.next == e {
			o.next = e.next
			return
		}
	}
}

// remove takes an entry out, if it is in.
func (t *table) remove(k *limiter.Key) *entry {
	h := t.hash(k)
	s := &t.shards[h%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.entries[h]; e != nil; e = e.next {
		if e.key == *k {
			s.unlink(e)
			t.size.Add(-1)
			return e
		}
	}
	return nil
}

// all returns the entries there are.
func (t *table) all() (all []*entry) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for _, e := range s.entries {
			for ; e != nil; e = e.next {
				all = append(all, e)
			}
		}
		s.mu.RUnlock()
	}
	return all
}
