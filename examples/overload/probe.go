package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

// probe finds what a service bears.
type probe struct {
	target
	factor  float64 // how much slower than when idle is still well
	step    time.Duration
	highest int // requests at once
}

const (
	probePatience = 10 * time.Second
	nearPeak      = 0.8  // of the highest throughput: more at once get little more done, and wait
	enough        = 4    // times the idle 90th percentile, with no more throughput: what comes after is a longer queue
	tooMany       = 0.02 // share of answers that are none
	fewest        = 10   // answers without which a measurement says nothing
)

// measured is what a service did for a while.
type measured struct {
	atOnce   int     // requests, as many clients that wait for their answers; 0: it was asked at a rate
	rate     float64 // asked a second; done a second with atOnce
	done     int
	refused  int // 429 and 503
	failed   int
	p50, p90 time.Duration
}

func (m measured) isIll() bool {
	return m.done < fewest || float64(m.failed+m.refused) > tooMany*float64(m.done+m.failed+m.refused)
}

// advice is what a probe is for.
type advice struct {
	idle   measured
	ladder []measured
	peak   float64 // a second, the most that was seen
	knee   measured
	well   measured // the highest rate that was well; zero: none was
	limits adaptive.Config
}

// counts gathers answers.
type counts struct {
	mu   sync.Mutex
	m    measured
	took []time.Duration
}

func (c *counts) add(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable:
		c.m.refused++
	case a.status == 0, a.status >= http.StatusBadRequest:
		c.m.failed++
	default:
		c.m.done++
		c.took = append(c.took, a.took)
	}
}

func (c *counts) sum() measured {
	if n := len(c.took); n > 0 {
		slices.Sort(c.took)
		c.m.p50, c.m.p90 = c.took[(n-1)/2], c.took[int(0.9*float64(n-1))]
	}
	return c.m
}

// crowd measures with so many clients that ask again when they are answered.
func (p probe) crowd(ctx context.Context, n int) measured {
	var c counts
	var wg sync.WaitGroup
	begin := time.Now()
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil && time.Since(begin) < p.step {
				a := p.ask(ctx, probePatience)
				c.add(a)
				if a.status == 0 && !pause(ctx, 10*time.Millisecond) { // nobody listens: no reason to spin
					return
				}
			}
		})
	}
	wg.Wait()
	m := c.sum()
	m.atOnce, m.rate = n, float64(m.done)/time.Since(begin).Seconds()
	return m
}

// stream measures at a rate, whether those before have been answered or not.
func (p probe) stream(ctx context.Context, rate float64) measured {
	random := rand.New(rand.NewPCG(3, 4))
	var c counts
	var wg sync.WaitGroup
	begin := time.Now()
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		if at >= p.step || !pause(ctx, time.Until(begin.Add(at))) {
			break
		}
		wg.Go(func() { c.add(p.ask(ctx, probePatience)) })
	}
	wg.Wait()
	m := c.sum()
	m.rate = rate
	return m
}

// find asks alone, then more and more at once until that gets no more done, then at rates below the most.
func (p probe) find(ctx context.Context, tell func(measured)) (*advice, error) {
	a := &advice{}
	see := func(m measured) measured {
		tell(m)
		return m
	}
	if a.idle = see(p.crowd(ctx, 1)); a.idle.isIll() {
		return nil, fmt.Errorf("of requests one after the other %d were answered well, %d refused and %d failed: no measure of anything",
			a.idle.done, a.idle.refused, a.idle.failed)
	}
	a.ladder = []measured{a.idle}
	for n := 2; n <= p.highest && ctx.Err() == nil; n *= 2 {
		m := see(p.crowd(ctx, n))
		if m.isIll() {
			break
		}
		before := a.ladder[len(a.ladder)-1]
		a.ladder = append(a.ladder, m)
		if m.rate < before.rate*1.05 && float64(m.p90) > enough*float64(a.idle.p90) {
			break
		}
	}
	for _, m := range a.ladder {
		a.peak = max(a.peak, m.rate)
	}
	a.knee = a.ladder[slices.IndexFunc(a.ladder, func(m measured) bool { return m.rate >= nearPeak*a.peak })]
	for _, share := range []float64{0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2} {
		if ctx.Err() != nil {
			break
		}
		if m := see(p.stream(ctx, share*a.peak)); !m.isIll() && float64(m.p90) <= p.factor*float64(a.idle.p90) {
			a.well = m
			break
		}
	}
	a.limits = suggest(a.knee, a.ladder[len(a.ladder)-1].atOnce)
	return a, errors.Join(context.Cause(ctx), a.limits.Validate())
}

// suggest makes settings of a knee. Twice as many as keep the service busy wait about as long as they are served: that is
// what is safe, and where a law begins; but it has to have been seen. Ten times as many are a dependency that is ten times as
// slow.
func suggest(knee measured, seen int) adaptive.Config {
	fixed := min(2*knee.atOnce, seen)
	return adaptive.Config{
		Min: float64(max(1, min(5, knee.atOnce/2))), Max: float64(10 * knee.atOnce), Fixed: float64(fixed),
		CPU: 0.8, RTT: max(time.Second, roundUp(20*knee.p90)),
	}
}

// roundUp goes up to 1, 2 or 5 of a power of ten of milliseconds.
func roundUp(d time.Duration) time.Duration {
	for unit := time.Millisecond; unit < math.MaxInt64/10; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if d <= n*unit {
				return n * unit
			}
		}
	}
	return d
}

// run probes and prints.
func (p probe) run(ctx context.Context, w io.Writer) error {
	fmt.Fprintf(w, "%-16s %10s %10s %10s %8s %8s\n", "", "a second", "median", "p90", "refused", "failed")
	a, err := p.find(ctx, func(m measured) {
		what := fmt.Sprintf("%d at once", m.atOnce)
		if m.atOnce == 0 {
			what = "at a rate"
		}
		fmt.Fprintf(w, "%-16s %10.1f %10v %10v %8d %8d\n", what, m.rate, short(m.p50), short(m.p90), m.refused, m.failed)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nalone:     p90 %v\n", short(a.idle.p90))
	fmt.Fprintf(w, "knee:      %d at once do %.0f a second, of %.0f at most\n", a.knee.atOnce, a.knee.rate, a.peak)
	if a.well.rate > 0 {
		fmt.Fprintf(w, "well:      up to %.0f a second p90 is within %v times that\n", a.well.rate, p.factor)
	} else {
		fmt.Fprintf(w, "well:      at no rate that was tried p90 is within %v times that\n", p.factor)
	}
	if last := a.ladder[len(a.ladder)-1]; a.knee.atOnce == last.atOnce {
		fmt.Fprintf(w, "           the knee may be higher: %d at once is the most that was measured well\n", last.atOnce)
	}
	c := a.limits
	fmt.Fprintf(w, "\nadaptive: {target: in_flight, min: %.0f, max: %.0f, fixed: %.0f, cpu: %.0f%%, rtt: %v}\n", c.Min, c.Max, c.Fixed, 100*c.CPU, c.RTT)
	return nil
}

// short is as many digits as anybody reads.
func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
