package prom

import (
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// ratioBuckets are the upper bounds of what is left of a quota: the low end tells who is about to be refused.
var ratioBuckets = [...]float64{0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1}

// ratios is a histogram of shares. Every decision goes through it, and the library's takes three times as long, as it
// serves any buckets, exemplars and native histograms.
type ratios struct {
	counts [len(ratioBuckets)]atomic.Uint64
	sum    atomic.Uint64 // bits of a float64
}

// observe counts a share, 0…1. Most quotas are nearly full, so it looks from above.
func (r *ratios) observe(share float64) {
	k := len(ratioBuckets) - 1
	for k > 0 && share <= ratioBuckets[k-1] {
		k--
	}
	r.counts[k].Add(1)
	for {
		old := r.sum.Load()
		if r.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+share)) {
			return
		}
	}
}

// metric returns the histogram as it is now. Its count is that of its buckets whatever happens meanwhile.
func (r *ratios) metric(policy string) prometheus.Metric {
	below := make(map[float64]uint64, len(ratioBuckets))
	count := uint64(0)
	for k := range r.counts {
		count += r.counts[k].Load()
		below[ratioBuckets[k]] = count
	}
	return prometheus.MustNewConstHistogram(remainingRatio, count, math.Float64frombits(r.sum.Load()), below, policy)
}
