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
	Admitted  int           // without those that were [Withdrawn]
	Rejected  int           // by this limit: they have no round-trip time
	Completed int           // whatever their [Result], [Withdrawn] excepted
	Failed    int           // of those
	Measured  int           // of those, with a round-trip time: the succeeded ones

	MaxInFlight int
	InFlight    int           // at the end
	Oldest      time.Duration // age of the oldest request in flight at the end, to a few percent of the RTT threshold
	Overdue     int           // requests in flight at the end that are older than the RTT threshold
	Late        int           // requests that became older than that in this window, there still or not
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

// hanging is how many requests hang in a way that speaks of the service, 0 if none do. What a few clients hold for long, such
// as uploads that never end, is theirs, whatever its age: each counts once, when it becomes late, and not in each window in
// which it is there. So it is a sign if the limit is used up and more became late than were answered, or nothing is answered at
// all and most of those in flight are late. Of a rate it is not known what is used.
func (w *Window) hanging(limit float64) int {
	switch {
	case w.Peak > 0 && !binding(limit, w):
	case w.Late > w.Measured:
		return w.Late
	case w.Measured == 0 && 2*w.Overdue > w.MaxInFlight:
		return w.Overdue
	}
	return 0
}

// samples is of how many requests the window knows how they did. Unmeasured ones tell nothing.
func (w *Window) samples(limit float64) int { return w.Measured + w.Failed + w.hanging(limit) }

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
	admitted, rejected atomic.Int64
	_                  [112]byte
	failed, unmeasured atomic.Int64
	withdrawn          atomic.Int64
	overdue            atomic.Int64 // that left after the RTT threshold
	peak               atomic.Int64 // the most in flight, as seen by those that leave
	sum                atomic.Int64 // of round-trip times, ns
	least              atomic.Int64 // ns; math.MaxInt64: none
	_                  [72]byte
	counts             [buckets]atomic.Uint32
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
	for _, a := range [...]*atomic.Int64{&t.admitted, &t.rejected, &t.failed, &t.unmeasured, &t.withdrawn, &t.overdue, &t.sum} {
		a.Store(0)
	}
	t.peak.Store(int64(inFlight))
	t.least.Store(math.MaxInt64)
	for i := range t.counts {
		t.counts[i].Store(0)
	}
}

// sample is a window with the round-trip times that it was made of, so that several can be put together.
type sample struct {
	Window
	counts [buckets]int
	sum    time.Duration
}

// read reads what was counted.
func (t *tally) read(span time.Duration) (s sample) {
	// What was withdrawn may have come in a window before: what is left of this one is not less than nothing.
	admitted := max(0, t.admitted.Load()-t.withdrawn.Load())
	s.Window = Window{
		Span: span, Admitted: int(admitted), Rejected: int(t.rejected.Load()), Failed: int(t.failed.Load()),
		MaxInFlight: int(t.peak.Load()), Late: int(t.overdue.Load()),
	}
	s.Arrivals = s.Admitted + s.Rejected
	for i := range s.counts {
		s.counts[i] = int(t.counts[i].Load())
		s.Measured += s.counts[i]
	}
	s.Completed = s.Measured + s.Failed + int(t.unmeasured.Load())
	s.sum = time.Duration(t.sum.Load())
	if least := t.least.Load(); s.Measured > 0 && least != math.MaxInt64 {
		s.Min = time.Duration(least)
	}
	s.sumUp()
	return s
}

// sumUp makes mean and quantiles of the times.
func (s *sample) sumUp() {
	s.Mean, s.P50, s.P90 = 0, 0, 0
	if s.Measured == 0 {
		return
	}
	s.Mean = max(s.Min, s.sum/time.Duration(s.Measured))
	s.P50 = max(s.Min, quantile(&s.counts, s.Measured, 0.5))
	s.P90 = max(s.Min, quantile(&s.counts, s.Measured, 0.9))
}

// add puts a later window behind s, as if both had been one.
func (s *sample) add(o *sample) {
	switch {
	case s.Measured == 0:
		s.Min = o.Min
	case o.Measured > 0:
		s.Min = min(s.Min, o.Min)
	}
	s.Span += o.Span
	s.Arrivals, s.Admitted, s.Rejected = s.Arrivals+o.Arrivals, s.Admitted+o.Admitted, s.Rejected+o.Rejected
	s.Completed, s.Failed, s.Measured, s.Late = s.Completed+o.Completed, s.Failed+o.Failed, s.Measured+o.Measured, s.Late+o.Late
	s.MaxInFlight, s.Peak = max(s.MaxInFlight, o.MaxInFlight), max(s.Peak, o.Peak)
	s.InFlight, s.Oldest, s.Overdue = o.InFlight, o.Oldest, o.Overdue
	s.QueueDelay = max(s.QueueDelay, o.QueueDelay)
	s.sum += o.sum
	for i, n := range o.counts {
		s.counts[i] += n
	}
	s.sumUp()
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

// collector counts into a tally and hands out windows. It may be counted into at any time; open and close are for one caller
// at a time.
type collector struct {
	current  atomic.Pointer[tally]
	tallies  [2]tally
	isSecond bool
	opened   time.Time
	overdue  int // requests in flight that were older than the RTT threshold then
}

// open begins a window and drops what was counted since the last one.
func (c *collector) open(now time.Time, inFlight, overdue int) {
	c.swap(inFlight)
	c.opened, c.overdue = now, overdue
}

// close ends the window and begins the next one.
func (c *collector) close(now time.Time, inFlight, overdue int) sample {
	old := c.swap(inFlight)
	s := old.read(max(0, now.Sub(c.opened)))
	s.MaxInFlight = max(s.MaxInFlight, inFlight)
	s.InFlight, s.Overdue = inFlight, overdue
	// Who is late now, or has left late, was late before or became it.
	s.Late = max(0, s.Late+overdue-c.overdue)
	c.opened, c.overdue = now, overdue
	return s
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
