package memory_test

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// The floors: the least work a limiter in memory can do. They keep one 64-bit theoretical arrival time per key, answer
// yes or no, and know nothing of remaining units, other algorithms, live changes or bounds.

var floorBase = time.Now()

func floorNow() int64 { return int64(time.Since(floorBase)) }

const (
	floorInterval = int64(1)         // hot keys
	floorSlow     = int64(time.Hour) // denied
	floorMinute   = int64(time.Minute)
)

type floorCell struct{ tat atomic.Int64 }

func (c *floorCell) take(now, interval, burst int64) bool {
	for {
		old := c.tat.Load()
		next := max(old, now) + interval
		if next-now > burst {
			return false
		}
		if c.tat.CompareAndSwap(old, next) {
			return true
		}
	}
}

// floorCAS is one variable without a key.
type floorCAS struct {
	c               floorCell
	interval, burst int64
}

func (l *floorCAS) allow(string) bool { return l.c.take(floorNow(), l.interval, l.burst) }

const floorShards = 256

// floorMap is the sharded map of cells with a compare-and-swap on each.
type floorMap struct {
	seed   maphash.Seed
	shards [floorShards]struct {
		sync.RWMutex
		m map[string]*floorCell
		_ [32]byte
	}
	interval, burst int64
}

func newFloorMap(interval, burst int64) *floorMap {
	l := &floorMap{seed: maphash.MakeSeed(), interval: interval, burst: burst}
	for i := range l.shards {
		l.shards[i].m = make(map[string]*floorCell)
	}
	return l
}

func (l *floorMap) allow(key string) bool {
	s := &l.shards[maphash.String(l.seed, key)%floorShards]
	s.RLock()
	c := s.m[key]
	s.RUnlock()
	if c == nil {
		s.Lock()
		if c = s.m[key]; c == nil {
			c = new(floorCell)
			s.m[key] = c
		}
		s.Unlock()
	}
	return c.take(floorNow(), l.interval, l.burst)
}

// floorTable is a sharded open-addressing table of hash and arrival time under a mutex, sized beforehand.
type floorTable struct {
	seed   maphash.Seed
	shards [floorShards]struct {
		sync.Mutex
		cells []struct {
			hash uint64
			tat  int64
		}
		_ [32]byte
	}
	interval, burst int64
}

func newFloorTable(keys int, interval, burst int64) *floorTable {
	l := &floorTable{seed: maphash.MakeSeed(), interval: interval, burst: burst}
	size := 16
	for size*floorShards < 2*keys {
		size *= 2
	}
	for i := range l.shards {
		l.shards[i].cells = make([]struct {
			hash uint64
			tat  int64
		}, size)
	}
	return l
}

func (l *floorTable) allow(key string) bool {
	h := maphash.String(l.seed, key) | 1
	s := &l.shards[h>>56]
	now := floorNow()
	s.Lock()
	defer s.Unlock()
	mask := uint64(len(s.cells) - 1)
	for i := h >> 1 & mask; ; i = (i + 1) & mask {
		c := &s.cells[i]
		if c.hash != h && c.hash != 0 {
			continue
		}
		c.hash = h
		next := max(c.tat, now) + l.interval
		if next-now > l.burst {
			return false
		}
		c.tat = next
		return true
	}
}
