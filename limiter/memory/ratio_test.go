//go:build unix

package memory_test

import (
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// cpuTime is what this process has used of all processors: the figure to compare on a machine with other work to do.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkRatio compares the store with the floors in interleaved rounds and reports the median of the rounds' ratios,
// in processor time ("x") and in wall time ("xwall"). Run it with -benchtime=1x.
func BenchmarkRatio(b *testing.B) {
	for _, s := range scenarios {
		b.Run(s.name, func(b *testing.B) {
			l, err := memory.New(memory.Config{})
			if err != nil {
				b.Fatal(err)
			}
			names := []string{"memory", "map", "table"}
			limiters := []func(string) bool{
				func(key string) bool {
					d, err := l.Allow(ctx, limiter.Key{Space: "bench", ID: key}, s.limit, 1)
					return d.Allowed && err == nil
				},
				newFloorMap(s.interval, s.burst).allow,
				newFloorTable(s.keys, s.interval, s.burst).allow,
			}
			if s.keys == 1 {
				names, limiters = append(names, "cas"), append(limiters, (&floorCAS{interval: s.interval, burst: s.burst}).allow)
			}
			keys, index := benchKeys(s.keys), benchIndex(s)
			for _, allow := range limiters {
				for _, k := range keys {
					allow(k)
				}
			}
			runtime.GC()
			const calls, rounds = 100_000, 31
			cpu, wall := make([][]float64, len(limiters)), make([][]float64, len(limiters))
			for range b.N {
				for r := range rounds {
					for i, allow := range limiters {
						goroutines := max(1, s.parallel*runtime.GOMAXPROCS(0))
						c, w := cpuTime(), time.Now()
						var wg sync.WaitGroup
						for g := range goroutines {
							wg.Go(func() {
								at := (r*goroutines + g) * 7919 * 31
								for n := range calls / goroutines {
									allow(keys[index[(at+n)&(indexLen-1)]])
								}
							})
						}
						wg.Wait()
						cpu[i] = append(cpu[i], float64(cpuTime()-c)/calls)
						wall[i] = append(wall[i], float64(time.Since(w))/calls)
					}
				}
			}
			for i, name := range names[1:] {
				var x, xwall []float64
				for r := range cpu[0] {
					x = append(x, cpu[0][r]/cpu[i+1][r])
					xwall = append(xwall, wall[0][r]/wall[i+1][r])
				}
				b.ReportMetric(median(x), name+"-x")
				b.ReportMetric(median(xwall), name+"-xwall")
			}
			b.ReportMetric(median(cpu[0]), "cpu-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}
