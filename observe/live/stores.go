package live

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// mostNames bounds the limiters that are told apart. Those beyond are one.
const mostNames = 32

const otherNames = "others"

// latency is the upper bounds of a histogram of calls to a store: each is 1.5 times the one before.
var latency = func() (bounds [24]time.Duration) {
	d := 50 * time.Microsecond
	for k := range bounds {
		bounds[k] = d
		d = d * 3 / 2
	}
	return bounds
}()

// store counts the calls of one limiter to its store.
type store struct {
	calls  [len(latency) + 1]atomic.Uint64
	failed atomic.Uint64
	most   atomic.Int64 // ns, since the last tick
	cause  atomic.Pointer[string]
}

func (s *store) see(e *limiter.Event) {
	k := 0
	for k < len(latency) && e.Duration > latency[k] {
		k++
	}
	s.calls[k].Add(1)
	raise(&s.most, int64(e.Duration))
	if e.Err != nil && e.Reason != limiter.ReasonCanceled {
		s.failed.Add(1)
		if reason := e.Reason; s.cause.Load() == nil || *s.cause.Load() != reason {
			reason = clip(reason)
			s.cause.Store(&reason)
		}
	}
}

// calls is what came of a store in a tick.
type calls struct {
	hist     [len(latency) + 1]uint64
	n        uint64
	failed   uint64
	p50, p99 time.Duration
}

// since is what came after was, which it changes to the totals.
func (s *store) since(was *[len(latency) + 1]uint64, failed *uint64) (c calls) {
	most := time.Duration(s.most.Swap(0))
	for k := range s.calls {
		is := s.calls[k].Load()
		c.hist[k] = is - was[k]
		c.n += c.hist[k]
		was[k] = is
	}
	is := s.failed.Load()
	c.failed, *failed = is-*failed, is
	c.p50, c.p99 = c.quantile(0.5, most), c.quantile(0.99, most)
	return c
}

// quantile is an upper bound of a quantile: that of its cell, or the slowest call.
func (c *calls) quantile(q float64, most time.Duration) time.Duration {
	if c.n == 0 {
		return 0
	}
	rank, sum := q*float64(c.n), uint64(0)
	for k := range latency {
		if sum += c.hist[k]; float64(sum) >= rank {
			return min(latency[k], max(most, latency[0]))
		}
	}
	return most
}

// limiters is what is known of limiters by their names.
type limiters struct {
	stores sync.Map // name → *store

	mu       sync.Mutex
	known    int
	breakers map[string]uint8
	memories map[string]memory
}

type memory struct{ Keys, Overflow int64 }

func (l *limiters) store(name string) *store {
	if s, ok := l.stores.Load(name); ok {
		return s.(*store)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name = clip(name)
	if l.known >= mostNames {
		name = otherNames
	}
	s, loaded := l.stores.LoadOrStore(name, new(store))
	if !loaded {
		l.known++
	}
	return s.(*store)
}

func (l *limiters) breaker(e *limiter.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := clip(e.Name)
	if e.Reason == limiter.ReasonEnd {
		delete(l.breakers, name)
		return
	}
	if _, known := l.breakers[name]; known || len(l.breakers) < mostNames {
		l.breakers[name] = e.State
	}
}

func (l *limiters) memory(e *limiter.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := clip(e.Name)
	if e.State != 0 {
		delete(l.memories, name)
		return
	}
	if _, known := l.memories[name]; known || len(l.memories) < mostNames {
		l.memories[name] = memory{e.Keys, e.Overflow}
	}
}
