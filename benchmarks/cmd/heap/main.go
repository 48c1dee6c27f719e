// Command heap measures live heap bytes per key, and one full collection with all keys alive. Keys are built on the fly,
// so that a limiter which keeps the key is charged for it. Each limiter gets a process of its own, because some never
// let go of their map and would burden the next one's collection.
//
// With -bound it measures whether a limiter that claims a bound keeps it: the heap at the bound, and after four times as
// many keys.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/benchmarks/internal/probe"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

func main() {
	keys := flag.Int("n", 1_000_000, "keys")
	rounds := flag.Int("rounds", 3, "rounds")
	bound := flag.Bool("bound", false, "measure the bound instead")
	one := flag.String("one", "", "measure this limiter in this process")
	round := flag.Int("round", 0, "number of the round, with -one")
	flag.Parse()
	if *one != "" {
		for _, m := range peer.Mems() {
			if m.Name == *one {
				measure(m, *bound, *round, *keys)
			}
		}
		return
	}
	if *bound {
		fmt.Println("round\tname\tmax_keys\tfull_bytes_per_key\tflood_bytes_per_key\tgrowth")
	} else {
		fmt.Println("round\tname\tkeys\tbytes_per_key\tinsert_ns\tgc_ms")
	}
	for r := range *rounds {
		for _, m := range peer.Mems() {
			if m.SingleKey || *bound && m.NewBounded == nil {
				continue
			}
			c := exec.Command(os.Args[0], "-one", m.Name, "-n", strconv.Itoa(*keys), "-round", strconv.Itoa(r),
				"-bound="+strconv.FormatBool(*bound))
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			if err := c.Run(); err != nil {
				fmt.Fprintln(os.Stderr, "heap:", m.Name, err)
				os.Exit(1)
			}
		}
	}
}

func measure(m peer.Mem, bound bool, round, n int) {
	before := probe.LiveHeap()
	if bound {
		d, stop := m.NewBounded(peer.Stored, n)
		defer stop()
		fill(d, 0, n)
		full := probe.LiveHeap() - before
		fill(d, n, 4*n)
		flood := probe.LiveHeap() - before
		runtime.KeepAlive(d)
		fmt.Printf("%d\t%s\t%d\t%.1f\t%.1f\t%.3f\n", round, m.Name, n, full/float64(n), flood/float64(n), flood/full)
		return
	}
	d, stop := m.New(peer.Stored)
	defer stop()
	start := time.Now()
	fill(d, 0, n)
	insert := time.Since(start)
	bytes := probe.LiveHeap() - before
	start = time.Now()
	runtime.GC()
	gc := time.Since(start)
	runtime.KeepAlive(d)
	fmt.Printf("%d\t%s\t%d\t%.1f\t%.0f\t%.1f\n", round, m.Name, n, bytes/float64(n),
		float64(insert)/float64(n), float64(gc)/float64(time.Millisecond))
}

func fill(d peer.Decider, from, to int) {
	for i := from; i < to; i++ {
		_, _ = d.Allow(context.Background(), peer.Key(i))
	}
}
