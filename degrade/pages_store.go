package degrade

import (
	"hash/maphash"
	"sync"
)

// Store keeps copies of responses. It is used concurrently, and may forget anything at any time. Keys are hashes of 43
// characters of the URL alphabet of base64, safe to show. Get is called when a request is refused. Set and Delete are
// called on the way of requests that are let through, once their handler is done and before the response ends: a store on
// a network hands them on to a goroutine of its own.
type Store interface {
	Get(key string) (*Copies, bool)
	Set(key string, c *Copies)
	Delete(key string)
}

// Updater is a [Store] that replaces what it has without losing what others write meanwhile. For other stores a Get and
// a Set do, which may cost a copy where two responses of one key end at once. change is quick and has no side effects; it
// is given nil where there is nothing, and returns nil for nothing. It may be called more than once, and after Update has
// returned.
type Updater interface {
	Update(key string, change func(*Copies) *Copies)
}

const (
	maxShards = 16
	minShard  = 4 << 20
	// entrySize is what an entry costs beside its key and copies: its own fields and its place in the map.
	entrySize = 256
)

// MemoryStore is a [Store] of bounded size in this process that forgets what has not been used for longest. It is safe for
// concurrent use and has no goroutine.
type MemoryStore struct {
	seed   maphash.Seed
	shards []storeShard
}

// NewMemoryStore returns a store of at most maxBytes, as [Copies.Size] measures; less than 1 is 64 MiB. Copies of more
// than the size of a shard are not stored: a 16th of maxBytes, but not less than 4 MiB as long as there are as many.
func NewMemoryStore(maxBytes int64) *MemoryStore {
	if maxBytes < 1 {
		maxBytes = defaultMaxBytes
	}
	n := int64(maxShards)
	for n > 1 && maxBytes/n < minShard {
		n /= 2
	}
	s := &MemoryStore{seed: maphash.MakeSeed(), shards: make([]storeShard, n)}
	for i := range s.shards {
		x := &s.shards[i]
		x.limit, x.entries = maxBytes/n, make(map[string]*storeEntry)
		x.ends.next, x.ends.prev = &x.ends, &x.ends
	}
	return s
}

type storeShard struct {
	mu      sync.Mutex
	entries map[string]*storeEntry
	ends    storeEntry // of the list: next is the entry used last
	bytes   int64
	limit   int64
}

type storeEntry struct {
	next, prev *storeEntry
	key        string
	copies     *Copies
	size       int64
}

func (s *MemoryStore) shard(key string) *storeShard {
	return &s.shards[maphash.String(s.seed, key)%uint64(len(s.shards))]
}

// Get implements [Store].
func (s *MemoryStore) Get(key string) (*Copies, bool) {
	x := s.shard(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[key]
	if !ok {
		return nil, false
	}
	e.unlink()
	x.pushLocked(e)
	return e.copies, true
}

// Set implements [Store].
func (s *MemoryStore) Set(key string, c *Copies) {
	x := s.shard(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setLocked(key, c)
}

// Delete implements [Store].
func (s *MemoryStore) Delete(key string) {
	x := s.shard(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deleteLocked(key)
}

// Update implements [Updater].
func (s *MemoryStore) Update(key string, change func(*Copies) *Copies) {
	x := s.shard(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	var old *Copies
	if e := x.entries[key]; e != nil {
		old = e.copies
	}
	switch c := change(old); {
	case c == old:
	case c == nil:
		x.deleteLocked(key)
	default:
		x.setLocked(key, c)
	}
}

// Bytes is the size of everything stored.
func (s *MemoryStore) Bytes() (n int64) {
	for i := range s.shards {
		x := &s.shards[i]
		x.mu.Lock()
		n += x.bytes
		x.mu.Unlock()
	}
	return n
}

// Len is the number of keys.
func (s *MemoryStore) Len() (n int) {
	for i := range s.shards {
		x := &s.shards[i]
		x.mu.Lock()
		n += len(x.entries)
		x.mu.Unlock()
	}
	return n
}

func (x *storeShard) setLocked(key string, c *Copies) {
	x.deleteLocked(key) // what does not fit must not leave its predecessor behind
	if c == nil {
		return
	}
	size := int64(entrySize + len(key) + c.Size())
	if size > x.limit {
		return
	}
	for x.bytes+size > x.limit {
		x.deleteLocked(x.ends.prev.key)
	}
	e := &storeEntry{key: key, copies: c, size: size}
	x.entries[key] = e
	x.bytes += size
	x.pushLocked(e)
}

func (x *storeShard) deleteLocked(key string) {
	if e, ok := x.entries[key]; ok {
		delete(x.entries, key)
		e.unlink()
		x.bytes -= e.size
	}
}

func (x *storeShard) pushLocked(e *storeEntry) {
	e.prev, e.next = &x.ends, x.ends.next
	e.prev.next, e.next.prev = e, e
}

func (e *storeEntry) unlink() { e.prev.next, e.next.prev = e.next, e.prev }
