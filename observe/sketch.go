package observe

import (
	"cmp"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// sketch counts keys with a fixed number of counters by Space-Saving (Metwally, Agrawal and El Abbadi, 2005): a key
// without a counter takes over the smallest one, whose count is the most that the new key may have had before. So with k
// counters, and W the weight of everything counted,
//
//	count − err ≤ true weight ≤ count,   err ≤ W/k,
//
// and a key of more weight than W/k has a counter. Counts decay by forward decay (Cormode and others, 2009): instead of
// all counts shrinking, what is counted later weighs more, 2^(age/half), and a reader divides by the weight of its
// instant. Decay multiplies all of them alike, so the bounds hold for decayed counts.
//
// One mutex and not shards: with s shards of k/s counters each, the bound is that of the fullest shard, up to s·W/k. The
// lock is held for some hundred nanoseconds, a small part of what a refused request costs, and never while SHA is computed.
type sketch struct {
	half time.Duration
	seed [2]maphash.Seed // of the texts and of the policies: secret, so that nobody can make keys that meet in index

	mu     sync.Mutex
	newest time.Time     // of all that was counted
	age    time.Duration // of the landmark, whose weight is 1, at newest; up to maxAge half-lives
	slots  []slot
	heap   []weighed // the smallest count first
	index  []uint32  // slots by hash, plus one; open addressing
}

// slot is what is known of one key.
type slot struct {
	seen
	text []byte // the key; its array is used again for the next one
	hash uint64
	err  float64
	pos  uint32 // in heap
}

// seen is one thing to count; in a slot, the latest of its key.
type seen struct {
	policy    string
	hashed    bool // the key is the hash of a longer one
	shadow    bool
	reason    string
	at        time.Time
	remaining int
	quota     int
}

// weighed is a count apart from its slot, as they are compared more often than slots are looked at.
type weighed struct {
	count float64
	slot  uint32
}

// counted is what a reader gets.
type counted struct {
	seen
	key        string
	count, err float64 // decayed
}

const (
	// maxAge is how many half-lives old the landmark may grow: weights stay far below the largest float.
	maxAge = 256
	// leap is the most that time moves at once. Nothing is left of any count by then, and sums of durations fit.
	leap = 100 * 365 * 24 * time.Hour
	// trace is the least count that is shown: a single one fades out after seven half-lives.
	trace = 1.0 / 128
)

func newSketch(counters int, half time.Duration) *sketch {
	return &sketch{
		half:  half,
		seed:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		slots: make([]slot, 0, counters),
		heap:  make([]weighed, 0, counters),
		index: make([]uint32, 1<<bits.Len(uint(2*counters-1))), // at most half full
	}
}

// add counts key once. It keeps no part of it, but a copy.
func (s *sketch) add(key string, x *seen) {
	h := maphash.String(s.seed[0], key) + maphash.String(s.seed[1], x.policy)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.weight(x.at)
	i, known := s.find(h, key, x)
	switch {
	case known:
	case len(s.slots) < cap(s.slots):
		i = uint32(len(s.slots))
		s.slots = append(s.slots, slot{pos: i})
		s.heap = append(s.heap, weighed{slot: i})
		s.up(i)
		s.take(i, h, key, x)
	default:
		least := s.heap[0]
		i = least.slot
		s.forget(i)
		s.take(i, h, key, x)
		s.slots[i].err = least.count
	}
	sl := &s.slots[i]
	if !known || !x.at.Before(sl.at) {
		sl.shadow, sl.reason, sl.at, sl.remaining, sl.quota = x.shadow, x.reason, x.at, x.remaining, x.quota
	}
	s.heap[sl.pos].count += w
	s.down(sl.pos)
}

// weight moves time to at and returns what something counted then weighs. What comes late counts as of the newest, so
// time stands still while a clock that was set back catches up; but not where newest is ahead of the clock itself, as
// it is if that was ahead for a while: then time goes on from at, and the counts stay what they are.
func (s *sketch) weight(at time.Time) float64 {
	switch d := at.Sub(s.newest); {
	case s.newest.IsZero():
		s.newest = at
	case d > 0:
		s.newest = at
		if s.age += min(d, leap); s.age > maxAge*s.half {
			s.renormalize()
		}
	case d < -s.half && time.Until(s.newest) > s.half:
		s.newest = at
	}
	return math.Exp2(float64(s.age) / float64(s.half))
}

// renormalize moves the landmark on by whole half-lives, so that all factors are powers of two and nothing is rounded.
func (s *sketch) renormalize() {
	halves := s.age / s.half
	s.age -= halves * s.half
	factor := math.Ldexp(1, -int(min(halves, 2000)))
	for i := range s.heap {
		s.heap[i].count *= factor
	}
	for i := range s.slots {
		s.slots[i].err *= factor
	}
}

// top returns up to n keys with the highest counts, the highest first.
func (s *sketch) top(n int) []counted {
	s.mu.Lock()
	order := slices.Clone(s.heap)
	s.mu.Unlock()
	slices.SortFunc(order, func(a, b weighed) int { return cmp.Compare(b.count, a.count) })
	order = order[:min(max(n, 0), len(order))]

	// Counters may have changed hands meanwhile. What they hold now is as good, and it is all of one instant.
	out := make([]counted, 0, len(order))
	s.mu.Lock()
	now := math.Exp2(float64(s.age+min(max(0, time.Since(s.newest)), leap)) / float64(s.half))
	for _, o := range order {
		sl := &s.slots[o.slot]
		c := counted{seen: sl.seen, count: s.heap[sl.pos].count / now, err: sl.err / now}
		if c.count >= trace {
			c.key = string(sl.text)
			out = append(out, c)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.policy, b.policy), cmp.Compare(a.key, b.key))
	})
	return out
}

// find returns the slot of a key.
func (s *sketch) find(h uint64, key string, x *seen) (uint32, bool) {
	for p := s.home(h); s.index[p] != 0; p = s.after(p) {
		i := s.index[p] - 1
		sl := &s.slots[i]
		if sl.hash == h && sl.hashed == x.hashed && string(sl.text) == key && sl.policy == x.policy {
			return i, true
		}
	}
	return 0, false
}

// take gives a slot to a key.
func (s *sketch) take(i uint32, h uint64, key string, x *seen) {
	sl := &s.slots[i]
	if cap(sl.text) < len(key) {
		sl.text = make([]byte, 0, (len(key)+63)&^63)
	}
	sl.text = append(sl.text[:0], key...)
	sl.policy, sl.hashed, sl.hash = x.policy, x.hashed, h
	p := s.home(h)
	for s.index[p] != 0 {
		p = s.after(p)
	}
	s.index[p] = i + 1
}

// forget takes a slot out of the index, and closes the gap by moving up what could be nearer to its home: a search ends
// at the first gap.
func (s *sketch) forget(i uint32) {
	p := s.home(s.slots[i].hash)
	for s.index[p] != i+1 {
		p = s.after(p)
	}
	mask := uint32(len(s.index) - 1)
	for q := s.after(p); s.index[q] != 0; q = s.after(q) {
		home := s.home(s.slots[s.index[q]-1].hash)
		if (q-home)&mask >= (q-p)&mask {
			s.index[p] = s.index[q]
			p = q
		}
	}
	s.index[p] = 0
}

func (s *sketch) home(h uint64) uint32    { return uint32(h) & uint32(len(s.index)-1) }
func (s *sketch) after(p uint32) uint32   { return (p + 1) & uint32(len(s.index)-1) }
func (s *sketch) put(p uint32, w weighed) { s.heap[p], s.slots[w.slot].pos = w, p }

// up restores the order of the heap after the count at p became smaller.
func (s *sketch) up(p uint32) {
	w := s.heap[p]
	for p > 0 {
		parent := (p - 1) / 2
		if s.heap[parent].count <= w.count {
			break
		}
		s.put(p, s.heap[parent])
		p = parent
	}
	s.put(p, w)
}

// down restores the order of the heap after the count at p became larger.
func (s *sketch) down(p uint32) {
	w := s.heap[p]
	for {
		child := 2*p + 1
		if child >= uint32(len(s.heap)) {
			break
		}
		if next := child + 1; next < uint32(len(s.heap)) && s.heap[next].count < s.heap[child].count {
			child = next
		}
		if s.heap[child].count >= w.count {
			break
		}
		s.put(p, s.heap[child])
		p = child
	}
	s.put(p, w)
}
