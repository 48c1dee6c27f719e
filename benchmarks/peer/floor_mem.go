package peer

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
)

// The floors are the least work a limiter in memory can do: one 64-bit "theoretical arrival time" per key, advanced by
// compare-and-swap or under a lock, and nothing to tell the client.

var base = time.Now()

// nowNano reads the monotonic clock only, which is about half the price of time.Now.
func nowNano() int64 { return int64(time.Since(base)) }

// quota is a profile as the floors use it, in nanoseconds.
type quota struct{ emission, burst int64 }

func newQuota(p Profile) quota {
	emission := int64(p.Period) / p.Rate
	return quota{emission: emission, burst: emission * p.Burst}
}

type cell struct{ tat atomic.Int64 }

func (c *cell) take(now int64, q quota) bool {
	for {
		old := c.tat.Load()
		next := max(old, now) + q.emission
		if next-now > q.burst {
			return false
		}
		if c.tat.CompareAndSwap(old, next) {
			return true
		}
	}
}

// floorVar is one variable, no map.
type floorVar struct {
	cell
	quota
}

func (l *floorVar) Allow(context.Context, string) (bool, error) {
	return l.take(nowNano(), l.quota), nil
}

// floorCoarse is one variable with a clock read every millisecond: it shows what reading the clock costs.
type floorCoarse struct {
	cell
	_   [56]byte // keeps the clock off the cell's cache line
	now *atomic.Int64
	quota
}

func (l *floorCoarse) Allow(context.Context, string) (bool, error) {
	return l.take(l.now.Load(), l.quota), nil
}

type floorSyncMap struct {
	m sync.Map
	quota
}

func (l *floorSyncMap) Allow(_ context.Context, key string) (bool, error) {
	v, ok := l.m.Load(key)
	if !ok {
		v, _ = l.m.LoadOrStore(key, new(cell))
	}
	return v.(*cell).take(nowNano(), l.quota), nil
}

func (l *floorSyncMap) sweep() {
	now := nowNano()
	l.m.Range(func(k, v any) bool {
		if v.(*cell).tat.Load() < now {
			l.m.Delete(k)
		}
		return true
	})
}

type floorXsync struct {
	m *xsync.Map[string, *cell]
	quota
}

func newFloorXsync(p Profile) *floorXsync {
	return &floorXsync{m: xsync.NewMap[string, *cell](), quota: newQuota(p)}
}

func (l *floorXsync) Allow(_ context.Context, key string) (bool, error) {
	c, ok := l.m.Load(key)
	if !ok {
		c, _ = l.m.LoadOrStore(key, new(cell))
	}
	return c.take(nowNano(), l.quota), nil
}

func (l *floorXsync) sweep() {
	now := nowNano()
	l.m.Range(func(k string, c *cell) bool {
		if c.tat.Load() < now {
			l.m.Delete(k)
		}
		return true
	})
}

const shards = 256

type rwShard struct {
	mu sync.RWMutex
	m  map[string]*cell
	_  [32]byte
}

// floorRWMutex is a sharded map of pointers, each shard under a RWMutex; it sweeps one shard at a time.
type floorRWMutex struct {
	seed  maphash.Seed
	shard [shards]rwShard
	quota
}

func newFloorRWMutex(p Profile) *floorRWMutex {
	l := &floorRWMutex{seed: maphash.MakeSeed(), quota: newQuota(p)}
	for i := range l.shard {
		l.shard[i].m = make(map[string]*cell)
	}
	return l
}

func (l *floorRWMutex) cell(key string) *cell {
	s := &l.shard[maphash.String(l.seed, key)%shards]
	s.mu.RLock()
	c := s.m[key]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.m[key]; c == nil {
		c = new(cell)
		s.m[key] = c
	}
	return c
}

func (l *floorRWMutex) Allow(_ context.Context, key string) (bool, error) {
	return l.cell(key).take(nowNano(), l.quota), nil
}

func (l *floorRWMutex) sweep() {
	for i := range l.shard {
		s := &l.shard[i]
		now := nowNano()
		s.mu.Lock()
		for k, c := range s.m {
			if c.tat.Load() < now {
				delete(s.m, k)
			}
		}
		s.mu.Unlock()
	}
}

type mutexShard struct {
	mu sync.Mutex
	m  map[string]int64
	_  [48]byte
}

// floorMutex is a sharded map that holds the state inline: no pointer and no allocation per key.
type floorMutex struct {
	seed  maphash.Seed
	shard [shards]mutexShard
	quota
}

func newFloorMutex(p Profile) *floorMutex {
	l := &floorMutex{seed: maphash.MakeSeed(), quota: newQuota(p)}
	for i := range l.shard {
		l.shard[i].m = make(map[string]int64)
	}
	return l
}

func (l *floorMutex) Allow(_ context.Context, key string) (bool, error) {
	s := &l.shard[maphash.String(l.seed, key)%shards]
	now := nowNano()
	s.mu.Lock()
	next := max(s.m[key], now) + l.emission
	ok := next-now <= l.burst
	if ok {
		s.m[key] = next
	}
	s.mu.Unlock()
	return ok, nil
}

func (l *floorMutex) sweep() {
	for i := range l.shard {
		s := &l.shard[i]
		now := nowNano()
		s.mu.Lock()
		for k, tat := range s.m {
			if tat < now {
				delete(s.m, k)
			}
		}
		s.mu.Unlock()
	}
}

// every calls f each d until the function it returns is called.
func every(d time.Duration, f func()) func() {
	stop := make(chan struct{})
	go func() {
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				f()
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop) }
}

func memFloors() []Mem {
	return []Mem{
		{
			Name: "floor:cas-1var", Note: "one variable, no keys", SingleKey: true,
			New: func(p Profile) (Decider, func()) { return &floorVar{quota: newQuota(p)}, nop },
		},
		{
			Name: "floor:cas-1var-coarse-clock", Note: "one variable, no keys, clock of 1 ms", SingleKey: true,
			New: func(p Profile) (Decider, func()) {
				now := new(atomic.Int64)
				now.Store(nowNano())
				q := newQuota(p)
				if p == Open {
					q.burst *= 1000 // the loop takes more than a unit per nanosecond of coarse time: give it room
				}
				return &floorCoarse{now: now, quota: q}, every(time.Millisecond, func() { now.Store(nowNano()) })
			},
		},
		{
			Name: "floor:shard-rwmutex+cas",
			New:  func(p Profile) (Decider, func()) { return newFloorRWMutex(p), nop },
			NewCleaning: func(ttl time.Duration) (Decider, func()) {
				l := newFloorRWMutex(Expiring(ttl))
				return l, every(ttl, l.sweep)
			},
		},
		{
			Name: "floor:shard-mutex-inline",
			New:  func(p Profile) (Decider, func()) { return newFloorMutex(p), nop },
			NewCleaning: func(ttl time.Duration) (Decider, func()) {
				l := newFloorMutex(Expiring(ttl))
				return l, every(ttl, l.sweep)
			},
		},
		{
			Name: "floor:shard-hash-table", Note: "keeps hashes, not keys",
			New: func(p Profile) (Decider, func()) { return newFloorTable(p), nop },
			NewCleaning: func(ttl time.Duration) (Decider, func()) {
				return newFloorTable(Expiring(ttl)), nop
			},
		},
		{
			Name: "floor:syncmap+cas",
			New:  func(p Profile) (Decider, func()) { return &floorSyncMap{quota: newQuota(p)}, nop },
			NewCleaning: func(ttl time.Duration) (Decider, func()) {
				l := &floorSyncMap{quota: newQuota(Expiring(ttl))}
				return l, every(ttl, l.sweep)
			},
		},
		{
			Name: "floor:xsync+cas",
			New:  func(p Profile) (Decider, func()) { return newFloorXsync(p), nop },
			NewCleaning: func(ttl time.Duration) (Decider, func()) {
				l := newFloorXsync(Expiring(ttl))
				return l, every(ttl, l.sweep)
			},
		},
	}
}
