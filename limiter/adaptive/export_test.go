package adaptive

import (
	"math"
	"time"
)

// NewManual is New for tests that say what time it is: nothing happens but by Advance. With usage, the processors are read from that.
func NewManual(c Config, usage func() (busy time.Duration, cores float64)) (*Controller, error) {
	a, err := New(c)
	if err != nil {
		return nil, err
	}
	a.manual = true
	if usage != nil {
		a.sampler.read = func() (u usageCounts, ok bool) {
			u.busy, u.cores = usage()
			return u, true
		}
	}
	return a, nil
}

type usageCounts = usage

// Advance does what is due and returns when there is more to do.
func (c *Controller) Advance(now time.Time) time.Time { c.at(now); return c.advance(now) }

// Usage is a measurement of a source.
type Usage struct {
	Busy               time.Duration
	Cores              float64
	Periods, Throttled int64
}

// SamplerOf returns a sampler of a source.
func SamplerOf(read func() (Usage, bool)) *Sampler {
	return &Sampler{read: func() (usage, bool) {
		u, ok := read()
		return usage{busy: u.Busy, cores: u.Cores, periods: u.Periods, throttled: u.Throttled}, ok
	}}
}

// Groups reads control groups below a root.
func Groups(root string) (Usage, bool) {
	u, ok := (&groups{root: root}).usage()
	return Usage{u.busy, u.cores, u.periods, u.throttled}, ok
}

// SamplerAt is NewSampler below a root.
func SamplerAt(root string, quota float64) *Sampler { return newSampler(root, quota) }

// Measure is one measurement below a root.
func Measure(root string, quota float64) (Usage, bool) {
	u, ok := measure(&groups{root: root}, quota)
	return Usage{u.busy, u.cores, u.periods, u.throttled}, ok
}

var (
	ParseCPUs      = parseCPUs
	ParseOwnGroups = parseOwnGroups
	ParseQuota     = parseQuota
	BucketOf       = bucketOf
	BucketEdge     = bucketEdge
	Scale          = scale
	Runtime        = func() (float64, time.Duration) { s := newScheduler(); s.waited(); return s.runnable(), s.waited() }
)

const Buckets = buckets

// AbsentMetrics is Runtime on a version of Go without the metrics.
func AbsentMetrics() (float64, time.Duration) {
	s := newScheduler()
	s.samples[0].Name, s.samples[1].Name = "/sched/none:goroutines", "/sched/none:seconds"
	return s.runnable(), s.waited()
}

// Ages is a set of requests in flight.
type Ages struct{ a ages }

func NewAges(threshold time.Duration) *Ages { a := new(Ages); a.a.init(threshold); return a }

func (a *Ages) Begin(at time.Duration) { a.a.begin(int64(at)) }
func (a *Ages) End(at time.Duration)   { a.a.end(int64(at)) }
func (a *Ages) Look(now, threshold time.Duration) (time.Duration, int) {
	return a.a.look(int64(now), int64(threshold))
}

// Quantiles counts times and returns a window of them.
func Quantiles(times []time.Duration) Window { return Together(times) }

// Together is the windows of several lists of times as one.
func Together(lists ...[]time.Duration) Window {
	var all sample
	for k, times := range lists {
		var t tally
		t.least.Store(math.MaxInt64)
		for _, d := range times {
			t.measure(d)
		}
		s := t.read(time.Second)
		if k == 0 {
			all = s
		} else {
			all.add(&s)
		}
	}
	return all.Window
}
