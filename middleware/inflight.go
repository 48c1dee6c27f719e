package middleware

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// inflight counts the requests being served, by identity. It holds an entry only while a request is, so its size is
// bounded by the server's own concurrency. The zero value is ready.
type inflight struct {
	shards [inflightShards]inflightShard
}

const inflightShards = 16

type inflightShard struct {
	mu    sync.Mutex
	count map[string]int
	_     [40]byte // a cache line each
}

var inflightSeed = maphash.MakeSeed()

// enter counts one request more for id if at most bound − 1 are there, and returns how many are there afterwards. With
// force it is counted whatever the bound.
func (f *inflight) enter(id string, bound int, force bool) (n int, ok bool) {
	s := &f.shards[maphash.String(inflightSeed, id)%inflightShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n = s.count[id]
	if ok = n < bound; ok || force {
		if s.count == nil {
			s.count = make(map[string]int)
		}
		n++
		s.count[id] = n
	}
	return n, ok
}

// look returns how many requests of id are there, and whether another one could enter.
func (f *inflight) look(id string, bound int) (n int, ok bool) {
	s := &f.shards[maphash.String(inflightSeed, id)%inflightShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n = s.count[id]
	return n, n < bound
}

// leave takes back one enter.
func (f *inflight) leave(id string) {
	s := &f.shards[maphash.String(inflightSeed, id)%inflightShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.count[id] - 1; n > 0 {
		s.count[id] = n
	} else {
		delete(s.count, id)
	}
}

// total returns how many requests are there, whoever's they are.
func (f *inflight) total() (n int) {
	for k := range f.shards {
		s := &f.shards[k]
		s.mu.Lock()
		for _, c := range s.count {
			n += c
		}
		s.mu.Unlock()
	}
	return n
}

// empty reports whether nobody is there.
func (f *inflight) empty() bool {
	for k := range f.shards {
		s := &f.shards[k]
		s.mu.Lock()
		n := len(s.count)
		s.mu.Unlock()
		if n > 0 {
			return false
		}
	}
	return true
}

// waiting bounds the requests held back for their turn.
type waiting struct {
	n atomic.Int64
}

func (w *waiting) enter(most int64) bool {
	if w.n.Add(1) <= most {
		return true
	}
	w.n.Add(-1)
	return false
}

func (w *waiting) leave() { w.n.Add(-1) }
