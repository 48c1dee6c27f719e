package adaptive

import (
	"math"
	"runtime"
	"sync"
	"time"
)

// Reading is the load of the processors.
type Reading struct {
	Value float64   // share in use of what this process may use, 0…1; 1 also while the kernel throttles it
	OK    bool      // whether there is one
	At    time.Time // of the latest measurement
	// Runnable is how many goroutines wait for each processor; −1: not known. It plays a part only where
	// [Config].Runnable says so.
	Runnable float64
}

const (
	smoothed       = time.Second // the time constant of the average
	sampleInterval = 250 * time.Millisecond
	throttledRatio = 0.1 // more periods than that cut short by the kernel: no processor is left
)

// usage is what a source has counted so far.
type usage struct {
	busy      time.Duration // time on processors
	cores     float64       // how many it may use
	periods   int64         // of enforcement of a quota
	throttled int64         // of those, cut short
	of        string        // whose account it is: two of different ones have no difference
}

// A Sampler measures how much of the processors this process uses, smoothed with a time constant of one second:
//
//  1. by its control group and the tightest group above it, where one of them has a quota (cgroup v2 and v1);
//  2. else by the kernel's account of the process, over the processors it may run on.
//
// Both are relative to what the process may use: the least of quota, cpuset, GOMAXPROCS and the processors there are. While the kernel
// cut more than 10 % of the periods short, the reading is 1. Make one with [NewSampler]. Safe for concurrent use.
type Sampler struct {
	read func() (usage, bool)

	mu       sync.Mutex
	last     usage
	lastAt   time.Time
	hasLast  bool
	average  float64
	hasValue bool
	periods  float64 // fading sums: throttled stays what it was while nothing runs
	cut      float64
	at       time.Time
}

// NewSampler returns a sampler that has read nothing yet. A quota above 0 is how many processors the process may use, and goes before
// what the kernel says: for sandboxes that hide it. It does no I/O.
func NewSampler(quota float64) *Sampler { return newSampler("", quota) }

func newSampler(root string, quota float64) *Sampler {
	g := &groups{root: root}
	return &Sampler{read: func() (usage, bool) { return measure(g, quota) }}
}

// measure asks the control groups, then the process.
func measure(g *groups, quota float64) (usage, bool) {
	cores := float64(min(runtime.GOMAXPROCS(0), runtime.NumCPU()))
	u, ok := g.usage()
	if quota > 0 && !math.IsInf(quota, 1) {
		ok = false
		cores = quota
	}
	if ok {
		u.cores = min(u.cores, cores)
		return u, true
	}
	busy, ok := processTime()
	if u.cores > 0 && !(quota > 0) { // a cpuset alone
		cores = min(cores, u.cores)
	}
	u.busy, u.cores, u.of = busy, cores, ""
	return u, ok
}

// Sample measures. Two calls at least are needed for a reading, with time between them; a counter that went backwards, another
// source than before, or one that cannot be read, begins anew. It costs some microseconds: four times a second is what it is made for.
func (s *Sampler) Sample(now time.Time) {
	u, ok := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(now, u, ok)
}

func (s *Sampler) add(now time.Time, u usage, ok bool) {
	ok = ok && u.cores > 0 && !math.IsInf(u.cores, 1) && u.busy >= 0
	was, at, had := s.last, s.lastAt, s.hasLast
	if had && ok && now.Sub(at) <= 0 {
		return // no time has passed: the next one will tell
	}
	s.last, s.lastAt, s.hasLast = u, now, ok
	if !ok || !had || u.busy < was.busy || u.of != was.of {
		return
	}
	elapsed := now.Sub(at).Seconds()
	value := min(max((u.busy-was.busy).Seconds()/(elapsed*u.cores), 0), 1)
	alpha := 1 - math.Exp(-elapsed/smoothed.Seconds())
	if !s.hasValue {
		alpha = 1
	}
	s.average += alpha * (value - s.average)
	s.hasValue, s.at = true, now
	fade := math.Exp(-elapsed / smoothed.Seconds())
	s.periods, s.cut = s.periods*fade, s.cut*fade
	if p, c := u.periods-was.periods, u.throttled-was.throttled; p > 0 && c >= 0 {
		s.periods += float64(p)
		s.cut += float64(min(c, p))
	}
}

// Read returns the reading at an instant. It is not OK before the second sample, and when the last one that could be read is
// older than three seconds.
func (s *Sampler) Read(now time.Time) Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Reading{At: s.at, Runnable: -1}
	if !s.hasValue || now.Sub(s.at) > 3*smoothed {
		return r
	}
	r.OK, r.Value = true, min(max(s.average, 0), 1)
	if s.periods >= 0.5 && s.cut > throttledRatio*s.periods {
		r.Value = 1
	}
	return r
}
