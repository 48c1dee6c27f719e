// Command cleanup measures how long a decision can be held up while a limiter throws away expired keys, and what is left
// of them. One goroutine decides on a hot key without pause and notes every delay; a quiet phase with hardly any keys
// gives the machine's own jitter to compare with.
package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spillway-go/spillway/benchmarks/internal/probe"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

const quietPhase = 2 * time.Second

func main() {
	keys := flag.Int("n", 1_000_000, "keys")
	ttl := flag.Duration("ttl", 4*time.Second, "time to expiry, and period of the cleanup")
	rounds := flag.Int("rounds", 3, "rounds")
	flag.Parse()
	fmt.Println("round\tname\tquiet_max_us\tclean_max_us\tclean_p9999_us\tstalls_over_1ms\textra_cpu_ms\tfilled_bytes_per_key\tleft_bytes_per_key")
	for r := range *rounds {
		for _, m := range peer.Mems() {
			if m.NewCleaning != nil {
				measure(r, m, *keys, *ttl)
			}
		}
	}
}

func measure(round int, m peer.Mem, keys int, ttl time.Duration) {
	phase := ttl*5/2 + 500*time.Millisecond // expiry of all keys and the cleanup that follows
	d, stop := m.NewCleaning(ttl)
	quiet, quietCPU := watch(d, min(phase, quietPhase))
	stop()
	quietCPU = quietCPU * phase / min(phase, quietPhase)

	before := probe.LiveHeap()
	d, stop = m.NewCleaning(ttl)
	defer stop()
	for i := range keys {
		_, _ = d.Allow(context.Background(), peer.Key(i))
	}
	filled := probe.LiveHeap() - before
	clean, cpu := watch(d, phase)
	left := probe.LiveHeap() - before
	runtime.KeepAlive(d)
	n := float64(keys)
	fmt.Printf("%d\t%s\t%.0f\t%.0f\t%.1f\t%d\t%.0f\t%.1f\t%.1f\n", round, m.Name, micros(quiet.Max()), micros(clean.Max()),
		micros(clean.Quantile(.9999)), clean.Over(time.Millisecond), micros(cpu-quietCPU)/1000, filled/n, left/n)
}

// watch decides without pause for a while. The collector is off: what shows is the limiter's own delay.
func watch(d peer.Decider, phase time.Duration) (*probe.Hist, time.Duration) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	h, ctx, cpu := new(probe.Hist), context.Background(), probe.CPU()
	last := time.Now()
	for end := last.Add(phase); last.Before(end); {
		_, _ = d.Allow(ctx, "hot")
		now := time.Now()
		h.Add(now.Sub(last))
		last = now
	}
	return h, probe.CPU() - cpu
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
