package memory_test

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// The names are scenario/limiter. Ratios to the floor of the same round are what the numbers are for: see BenchmarkRatio.

const indexLen = 1 << 20

type scenario struct {
	name     string
	keys     int
	zipf     bool
	parallel int // 0: serial; n: n goroutines per processor
	limit    limiter.Limit
	interval int64
	burst    int64
}

var (
	openLimit   = limiter.PerSecond(1e9)
	closedLimit = limiter.PerHour(1)
	aliveLimit  = limiter.PerMinute(1).WithBurst(1 << 26) // every key stays for a minute and is never refused
)

var scenarios = []scenario{
	{"hot-serial", 1, false, 0, openLimit, floorInterval, 1e9},
	{"hot-denied", 1, false, 0, closedLimit, floorSlow, floorSlow},
	{"hot-parallel", 1, false, 1, openLimit, floorInterval, 1e9},
	{"hot-parallel-x50", 1, false, 50, openLimit, floorInterval, 1e9},
	{"100k-uniform", 100_000, false, 1, aliveLimit, floorMinute, floorMinute << 26},
	{"100k-zipf", 100_000, true, 1, aliveLimit, floorMinute, floorMinute << 26},
	{"1M-uniform", 1_000_000, false, 1, aliveLimit, floorMinute, floorMinute << 26},
}

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "ip:10." + strconv.Itoa(i>>16&255) + "." + strconv.Itoa(i>>8&255) + "." + strconv.Itoa(i&255)
	}
	return keys
}

func benchIndex(s scenario) []uint32 {
	r := rand.New(rand.NewPCG(1, 1))
	index := make([]uint32, indexLen)
	zipf := rand.NewZipf(r, 1.1, 1, uint64(max(2, s.keys)-1))
	for i := range index {
		if s.zipf {
			index[i] = uint32(zipf.Uint64())
		} else {
			index[i] = uint32(r.IntN(s.keys))
		}
	}
	return index
}

func BenchmarkAllow(b *testing.B) {
	for _, s := range scenarios {
		store := func() func(string) bool {
			l, err := memory.New(memory.Config{})
			if err != nil {
				b.Fatal(err)
			}
			return func(key string) bool {
				d, err := l.Allow(ctx, limiter.Key{Space: "bench", ID: key}, s.limit, 1)
				return d.Allowed && err == nil
			}
		}
		limiters := []struct {
			name string
			make func() func(string) bool
		}{
			{"memory", store},
			{"floor-cas", func() func(string) bool { return (&floorCAS{interval: s.interval, burst: s.burst}).allow }},
			{"floor-map", func() func(string) bool { return newFloorMap(s.interval, s.burst).allow }},
			{"floor-table", func() func(string) bool { return newFloorTable(s.keys, s.interval, s.burst).allow }},
		}
		for _, l := range limiters {
			if l.name == "floor-cas" && s.keys > 1 {
				continue
			}
			var allow func(string) bool
			var keys []string
			var index []uint32
			b.Run(s.name+"/"+l.name, func(b *testing.B) {
				if allow == nil {
					keys, index, allow = benchKeys(s.keys), benchIndex(s), l.make()
					for _, k := range keys {
						allow(k)
					}
					runtime.GC()
				}
				b.ReportAllocs()
				if s.parallel == 0 {
					for b.Loop() {
						allow(keys[0])
					}
					return
				}
				b.SetParallelism(s.parallel)
				var start atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					for i := int(start.Add(7919 * 31)); pb.Next(); i++ {
						allow(keys[index[i&(indexLen-1)]])
					}
				})
			})
		}
	}
}

func BenchmarkAllowAll(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := newLimiter(b, memory.Config{})
			takes := make([]limiter.Take, n)
			for i := range takes {
				takes[i] = limiter.Take{Key: limiter.Key{Space: strconv.Itoa(i), ID: "ip:10.0.0.1"}, Limit: openLimit, N: 1}
			}
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := l.AllowAll(ctx, time.Time{}, takes); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

// BenchmarkNewKeys adds keys, up to the cap and beyond it.
func BenchmarkNewKeys(b *testing.B) {
	for _, full := range []bool{false, true} {
		name := map[bool]string{false: "room", true: "cap"}[full]
		b.Run(name, func(b *testing.B) {
			keys := benchKeys(1 << 20)
			l := newLimiter(b, memory.Config{MaxKeys: 1 << 20})
			if full {
				l = newLimiter(b, memory.Config{MaxKeys: 1 << 10})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i == len(keys) {
					i = 0
					if !full {
						b.StopTimer()
						l = newLimiter(b, memory.Config{MaxKeys: 1 << 20})
						b.StartTimer()
					}
				}
				_, _ = l.Allow(ctx, limiter.Key{Space: "bench", ID: keys[i]}, closedLimit, 1)
			}
		})
	}
}
