package adaptive

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Window is what a controller saw in one window of time. Counts are of requests.
type Window struct {
	Span      time.Duration // how long it was
	Arrivals  int           // Admitted and Rejected
	Admitted  int
	Rejected  int // by this limit: they have no round-trip time
	Completed int // whatever their [Result]
	Failed    int // of those
	Measured  int // of those, with a round-trip time: the succeeded ones

	MaxInFlight int
	InFlight    int           // at the end
	Oldest      time.Duration // age of the oldest request in flight at the end, to a few percent of the RTT threshold
	Overdue     int           // requests in flight at the end that are older than the RTT threshold
	// Peak is the most of the limit that was in use, in its unit: MaxInFlight for [Concurrency]. For [Rate] it is the
	// limit if requests were refused; what a rate leaves unused is not known, and 0 then.
	Peak float64

	Min, Mean, P50, P90 time.Duration // of the round-trip times; P50 and P90 to 7 %
	QueueDelay          time.Duration // 90th percentile of the time goroutines waited for a processor; 0 if not known
}

// ErrorRatio is the share of failed requests in those that succeeded or failed, 0…1; 0 if there are none.
func (w *Window) ErrorRatio() float64 {
	if n := w.Failed + w.Measured; n > 0 {
		return float64(w.Failed) / float64(n)
	}
	return 0
}

// A histogram of round-trip times has eight buckets for each doubling, from 1 µs to over an hour.
const (
	subBits  = 3
	subCount = 1 << subBits
	buckets  = 256
)

// bucketOf returns the bucket of a time. Below 8 µs each microsecond has its own.
func bucketOf(d time.Duration) int {
	v := uint64(max(0, d) / time.Microsecond)
	if v < subCount {
		return int(v)
	}
	exp := bits.Len64(v) - subBits - 1
	return min(buckets-1, (exp+1)<<subBits|int(v>>exp)&(subCount-1))
}

// bucketEdge returns the least time of a bucket.
func bucketEdge(i int) time.Duration {
	if i < subCount {
		return time.Duration(i) * time.Microsecond
	}
	exp := i>>subBits - 1
	return time.Duration(subCount|i&(subCount-1)) << exp * time.Microsecond
}

// tally gathers what one window sees. Two take turns, so that nothing is allocated. Whoever still holds the one that has
// been taken away counts into a later window: a request more or less, never a wrong time.
type tally struct {
	// What arrives and what leaves are counted on different processors: a cache line each.
	admitted, rejected, peak atomic.Int64
	_                        [104]byte
	failed, unmeasured       atomic.Int64
	sum                      atomic.Int64 // of round-trip times, ns
	least                    atomic.Int64 // ns; math.MaxInt64: none
	_                        [96]byte
	counts                   [buckets]atomic.Uint32
}

func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old; old = a.Load() {
		if a.CompareAndSwap(old, v) {
			return
		}
	}
}

func lower(a *atomic.Int64, v int64) {
	for old := a.Load(); v < old; old = a.Load() {
		if a.CompareAndSwap(old, v) {
			return
		}
	}
}

// measure counts a succeeded request.
func (t *tally) measure(rtt time.Duration) {
	rtt = max(0, rtt)
	t.sum.Add(int64(rtt))
	lower(&t.least, int64(rtt))
	t.counts[bucketOf(rtt)].Add(1)
}

// clear makes it ready for a window that begins with so many requests in flight.
func (t *tally) clear(inFlight int) {
	for _, a := range [...]*atomic.Int64{&t.admitted, &t.rejected, &t.failed, &t.unmeasured, &t.sum} {
		a.Store(0)
	}
	t.peak.Store(int64(inFlight))
	t.least.Store(math.MaxInt64)
	for i := range t.counts {
		t.counts[i].Store(0)
	}
}

// window reads what was counted.
func (t *tally) window(span time.Duration) Window {
	w := Window{
		Span: span, Admitted: int(t.admitted.Load()), Rejected: int(t.rejected.Load()), Failed: int(t.failed.Load()),
		MaxInFlight: int(t.peak.Load()),
	}
	w.Arrivals = w.Admitted + w.Rejected
	var counts [buckets]int
	for i := range counts {
		counts[i] = int(t.counts[i].Load())
		w.Measured += counts[i]
	}
	w.Completed = w.Measured + w.Failed + int(t.unmeasured.Load())
	if w.Measured == 0 {
		return w
	}
	if least := t.least.Load(); least != math.MaxInt64 {
		w.Min = time.Duration(least)
	}
	w.Mean = max(w.Min, time.Duration(t.sum.Load()/int64(w.Measured)))
	w.P50 = max(w.Min, quantile(&counts, w.Measured, 0.5))
	w.P90 = max(w.Min, quantile(&counts, w.Measured, 0.9))
	return w
}

// quantile returns the time that the share q of n counted ones does not pass, as if those of a bucket were evenly spread.
func quantile(counts *[buckets]int, n int, q float64) time.Duration {
	rank := q * float64(n)
	for i, c := range counts {
		if rank <= float64(c) && c > 0 {
			low, high := bucketEdge(i), bucketEdge(i+1)
			return low + time.Duration(float64(high-low)*rank/float64(c))
		}
		rank -= float64(c)
	}
	return bucketEdge(buckets)
}

// collector counts into a tally and hands out windows. begin, end and reject may be called at any time; open and close by
// one caller at a time.
type collector struct {
	current  atomic.Pointer[tally]
	tallies  [2]tally
	isSecond bool
	opened   time.Time
}

// open begins a window and drops what was counted since the last one.
func (c *collector) open(now time.Time, inFlight int) {
	c.swap(inFlight)
	c.opened = now
}

// close ends the window and begins the next one.
func (c *collector) close(now time.Time, inFlight int) Window {
	old := c.swap(inFlight)
	w := old.window(max(0, now.Sub(c.opened)))
	w.MaxInFlight = max(w.MaxInFlight, inFlight)
	w.InFlight = inFlight
	c.opened = now
	return w
}

func (c *collector) swap(inFlight int) (old *tally) {
	next := &c.tallies[1]
	if c.isSecond {
		next = &c.tallies[0]
	}
	c.isSecond = !c.isSecond
	next.clear(inFlight)
	return c.current.Swap(next)
}
