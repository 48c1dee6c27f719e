// Command admit lets 64 goroutines hammer one key whose limit is 100,000 an hour, and counts what is admitted. What lies
// above the limit and what an hour's rate refills meanwhile are updates that the limiter lost.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/benchmarks/peer"
)

const (
	goroutines = 64
	tries      = 5000 // of each
)

func main() {
	rounds := flag.Int("rounds", 3, "rounds")
	flag.Parse()
	fmt.Println("round\tname\tlimit\tadmitted\trefill\tover\terrors")
	for r := range *rounds {
		for _, m := range peer.Mems() {
			measure(r, m)
		}
	}
}

func measure(round int, m peer.Mem) {
	p := peer.Hundred000
	d, stop := m.New(p)
	defer stop()
	ctx := context.Background()
	var admitted, failed atomic.Int64
	var wg sync.WaitGroup
	begin := make(chan struct{})
	start := time.Now()
	for range goroutines {
		wg.Go(func() {
			<-begin
			for range tries {
				switch ok, err := d.Allow(ctx, "k"); {
				case err != nil:
					failed.Add(1)
				case ok:
					admitted.Add(1)
				}
			}
		})
	}
	close(begin)
	wg.Wait()
	refill := int64(math.Ceil(time.Since(start).Seconds() * float64(p.Rate) / p.Period.Seconds()))
	over := max(0, admitted.Load()-p.Burst-refill)
	fmt.Printf("%d\t%s\t%d\t%d\t%d\t%d\t%d\n", round, m.Name, p.Burst, admitted.Load(), refill, over, failed.Load())
}
