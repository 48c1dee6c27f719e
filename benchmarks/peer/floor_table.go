package peer

import (
	"context"
	"hash/maphash"
	"sync"
)

// floorTable is a sharded open-addressing table of (64-bit hash, state): the floor of memory. It keeps no key bytes, so
// two keys of one hash share an entry (the hash is seeded, so they cannot be chosen; about 3e-8 pairs are expected among
// a million keys). An expired entry counts as free, so that nothing has to sweep.
type floorTable struct {
	seed  maphash.Seed
	shard [shards]tableShard
	quota
}

type tableShard struct {
	mu      sync.Mutex
	entries []tableEntry
	used    int
	_       [24]byte
}

type tableEntry struct {
	hash uint64 // 0: never used
	tat  int64
}

func newFloorTable(p Profile) *floorTable {
	l := &floorTable{seed: maphash.MakeSeed(), quota: newQuota(p)}
	for i := range l.shard {
		l.shard[i].entries = make([]tableEntry, 16)
	}
	return l
}

func (l *floorTable) Allow(_ context.Context, key string) (bool, error) {
	h := maphash.String(l.seed, key) | 1
	s := &l.shard[h>>56]
	now := nowNano()
	s.mu.Lock()
	e := s.entry(h, now)
	next := max(e.tat, now) + l.emission
	ok := next-now <= l.burst
	if ok {
		e.tat = next
	}
	s.mu.Unlock()
	return ok, nil
}

// entry finds the entry of h, or claims one for it.
func (s *tableShard) entry(h uint64, now int64) *tableEntry {
	for {
		mask := uint64(len(s.entries) - 1)
		var free *tableEntry
		for i, n := (h>>1)&mask, uint64(0); n <= mask; i, n = (i+1)&mask, n+1 {
			e := &s.entries[i]
			if e.hash == h {
				return e
			}
			if e.hash == 0 {
				if free == nil && s.used*8 < len(s.entries)*7 {
					s.used++
					free = e
				}
				break
			}
			if free == nil && e.tat < now {
				free = e
			}
		}
		if free != nil {
			free.hash, free.tat = h, 0
			return free
		}
		s.rebuild(now)
	}
}

// rebuild drops expired entries, and doubles the table if those alive fill half of it.
func (s *tableShard) rebuild(now int64) {
	old, alive := s.entries, 0
	for i := range old {
		if old[i].hash != 0 && old[i].tat >= now {
			alive++
		}
	}
	size := len(old)
	if alive*2 > size {
		size *= 2
	}
	s.entries, s.used = make([]tableEntry, size), alive
	mask := uint64(size - 1)
	for _, e := range old {
		if e.hash == 0 || e.tat < now {
			continue
		}
		i := (e.hash >> 1) & mask
		for s.entries[i].hash != 0 {
			i = (i + 1) & mask
		}
		s.entries[i] = e
	}
}
