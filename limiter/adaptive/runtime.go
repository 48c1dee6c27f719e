package adaptive

import (
	"math"
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	runnableMetric = "/sched/goroutines/runnable:goroutines"
	waitMetric     = "/sched/latencies:seconds"
)

// scheduler reads what the Go runtime knows of its run queues. A metric that this version of Go does not have is absent.
type scheduler struct {
	samples [2]metrics.Sample
	counts  []uint64 // of the wait histogram, at the last look
}

func newScheduler() *scheduler {
	return &scheduler{samples: [2]metrics.Sample{{Name: runnableMetric}, {Name: waitMetric}}}
}

// runnable returns the goroutines that wait for each processor, −1 if that is not known.
func (s *scheduler) runnable() float64 {
	metrics.Read(s.samples[:1])
	if v := s.samples[0].Value; v.Kind() == metrics.KindUint64 {
		return float64(v.Uint64()) / float64(runtime.GOMAXPROCS(0))
	}
	return -1
}

// waited returns the 90th percentile of the waits since the call before, 0 if there were none or they are not known.
func (s *scheduler) waited() time.Duration {
	metrics.Read(s.samples[1:])
	if v := s.samples[1].Value; v.Kind() == metrics.KindFloat64Histogram {
		return s.since(v.Float64Histogram())
	}
	return 0
}

func (s *scheduler) since(h *metrics.Float64Histogram) time.Duration {
	isFirst := len(s.counts) != len(h.Counts)
	if isFirst {
		s.counts = make([]uint64, len(h.Counts))
	}
	var total uint64
	for i, n := range h.Counts {
		if n >= s.counts[i] {
			total += n - s.counts[i]
		}
	}
	wait := time.Duration(0)
	rank := uint64(math.Ceil(0.9 * float64(total)))
	for i, n := range h.Counts {
		if n < s.counts[i] {
			continue
		}
		if d := n - s.counts[i]; rank > d {
			rank -= d
		} else if rank > 0 {
			rank = 0
			edge := h.Buckets[i+1]
			if math.IsInf(edge, 1) {
				edge = h.Buckets[i]
			}
			wait = time.Duration(max(0, min(edge, math.MaxInt32)) * float64(time.Second))
		}
	}
	copy(s.counts, h.Counts)
	if isFirst {
		return 0 // since the process began is not since the look before
	}
	return wait
}
