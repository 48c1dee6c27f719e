package benchmarks

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-go/spillway/benchmarks/internal/probe"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

// size shrinks the scenarios of many keys in short mode, where they only show that they still run.
func size(n int) int {
	if testing.Short() {
		return n / 100
	}
	return n
}

const orderLen = 1 << 20 // a power of two

// order is the sequence in which keys are asked for, drawn beforehand.
func order(draw func() uint64) []uint32 {
	out := make([]uint32, orderLen)
	for i := range out {
		out[i] = uint32(draw())
	}
	return out
}

func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) } // the same order in every round

func uniform(n int) func() []uint32 {
	return sync.OnceValue(func() []uint32 {
		r := source()
		return order(func() uint64 { return r.Uint64N(uint64(size(n))) })
	})
}

func zipf(n int) func() []uint32 {
	return sync.OnceValue(func() []uint32 { return order(rand.NewZipf(source(), 1.1, 1, uint64(size(n)-1)).Uint64) })
}

var (
	keys1M      = sync.OnceValue(func() []string { return peer.Keys(size(1_000_000)) })
	uniform100k = uniform(100_000)
	uniform1M   = uniform(1_000_000)
	zipf100k    = zipf(100_000)
)

var memScenarios = []struct {
	name     string
	keys     int
	order    func() []uint32 // nil: one key
	parallel int             // 0: serial; n: n goroutines per processor
	profile  peer.Profile
}{
	{"hot-serial", 1, nil, 0, peer.Open},
	{"hot-denied-serial", 1, nil, 0, peer.Closed},
	{"hot-parallel", 1, nil, 1, peer.Open},
	{"hot-parallel-x50", 1, nil, 50, peer.Open},
	{"100k-uniform-serial", 100_000, uniform100k, 0, peer.Live},
	{"100k-uniform-parallel", 100_000, uniform100k, 1, peer.Live},
	{"100k-zipf-parallel", 100_000, zipf100k, 1, peer.Live},
	{"100k-denied-parallel", 100_000, uniform100k, 1, peer.Closed},
	{"1M-uniform-parallel", 1_000_000, uniform1M, 1, peer.Live},
}

// BenchmarkMem is one decision in memory. Names are scenario/limiter.
func BenchmarkMem(b *testing.B) {
	for _, sc := range memScenarios {
		for _, m := range peer.Mems() {
			if m.SingleKey && sc.keys > 1 {
				continue
			}
			keys, asked := []string{peer.Key(0)}, []uint32{0}
			var d peer.Decider
			stop := func() {}
			b.Run(sc.name+"/"+m.Name, func(b *testing.B) {
				if d == nil { // built and filled once, however often the function runs
					if sc.keys > 1 { // a million strings would burden the collector of the hot key
						keys, asked = keys1M()[:size(sc.keys)], sc.order()
					}
					d, stop = m.New(sc.profile)
					for _, k := range keys {
						_, _ = d.Allow(context.Background(), k)
					}
				}
				benchMem(b, d, keys, asked, sc.parallel, !sc.profile.Denies())
			})
			stop()
		}
	}
}

func benchMem(b *testing.B, d peer.Decider, keys []string, asked []uint32, parallel int, want bool) {
	ctx := context.Background()
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	cpu := probe.CPU()
	var wrong atomic.Int64
	// One key has loops of its own: the look-ups of the others would be half of its time.
	switch hot := keys[0]; {
	case parallel == 0 && len(keys) == 1:
		n := 0
		for b.Loop() {
			if ok, _ := d.Allow(ctx, hot); ok != want {
				n++
			}
		}
		wrong.Add(int64(n))
	case parallel == 0:
		n, i := 0, 0
		for b.Loop() {
			i++
			if ok, _ := d.Allow(ctx, keys[asked[i%orderLen]]); ok != want {
				n++
			}
		}
		wrong.Add(int64(n))
	case len(keys) == 1:
		b.SetParallelism(parallel)
		b.RunParallel(func(pb *testing.PB) {
			n := 0
			for pb.Next() {
				if ok, _ := d.Allow(ctx, hot); ok != want {
					n++
				}
			}
			wrong.Add(int64(n))
		})
	default:
		b.SetParallelism(parallel)
		var start atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			n, i := 0, int(start.Add(245_489)) // each goroutine from another place
			for pb.Next() {
				i++
				if ok, _ := d.Allow(ctx, keys[asked[i%orderLen]]); ok != want {
					n++
				}
			}
			wrong.Add(int64(n))
		})
	}
	b.StopTimer()
	reportCPU(b, cpu)
	if n := wrong.Load(); n > 0 {
		b.ReportMetric(float64(n)/float64(b.N), "wrong/op")
	}
}

func reportCPU(b *testing.B, since time.Duration) {
	b.ReportMetric(float64(probe.CPU()-since)/float64(b.N), "cpu-ns/op")
}
