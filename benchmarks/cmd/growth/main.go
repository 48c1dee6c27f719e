// Command growth measures what a decision in memory costs, and how long one can take, by how many keys there are: while keys are
// new and the table grows, and while all are there and the program makes garbage as a server does. The case "none" decides nothing: it
// is the machine's own jitter and the price of the harness, in the same round. Beside the time that passes there is the CPU time of the
// thread, which leaves out moments in which somebody else had the processor. Each case has a process of its own. Prints a line for each
// run.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/spillway-go/spillway/benchmarks/internal/probe"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

// open never denies, and keeps keys for longer than a run.
var open = peer.Profile{Rate: 1, Period: time.Hour, Burst: 1 << 26, WindowLimit: 1e12, Window: 24 * time.Hour}

func main() {
	most := flag.Int("n", 10_000_000, "largest number of keys; 1,000 and each tenfold up to it are measured")
	rounds := flag.Int("rounds", 1, "rounds")
	decisions := flag.Int("decisions", 2_000_000, "decisions of each run")
	one := flag.String("one", "", "measure this case in this process")
	keys := flag.Int("keys", 0, "number of keys, with -one")
	round := flag.Int("round", 0, "number of the round, with -one")
	flag.Parse()
	if *one != "" {
		measure(*one, *round, *keys, *decisions)
		return
	}
	fmt.Println("round\tname\tcpu_ns\tworst_us\tp9999_us\town_worst_us\town_p9999_us\tinsert_cpu_ns\tinsert_worst_us\tinsert_own_worst_us\tbytes_per_key")
	for r := range *rounds {
		for n := 1000; n <= *most; n *= 10 {
			for _, name := range append([]string{"none"}, cases...) {
				c := exec.Command(os.Args[0], "-one", name, "-keys", strconv.Itoa(n), "-round", strconv.Itoa(r), "-decisions", strconv.Itoa(*decisions))
				c.Stdout, c.Stderr = os.Stdout, os.Stderr
				if err := c.Run(); err != nil {
					fmt.Fprintln(os.Stderr, "growth:", name, err)
					os.Exit(1)
				}
			}
		}
	}
}

// cases are those of peer.Mems that are measured: the floor with a map, which keeps keys, that with a table, which keeps hashes, and
// ours.
var cases = []string{"floor:shard-rwmutex+cas", "floor:shard-hash-table", "spillway", "spillway-sliding-window"}

func decider(name string, keys int) (peer.Decider, func()) {
	for _, m := range peer.Mems() {
		switch {
		case m.Name != name:
		case m.NewBounded != nil:
			return m.NewBounded(open, keys+keys/10+1000)
		default:
			return m.New(open)
		}
	}
	return peer.DeciderFunc(func(context.Context, string) (bool, error) { return true, nil }), func() {}
}

// width is that of all keys: they are parts of one string, so that the collector has nothing to look at but what limiters hold.
const width = 12

func names(n int) string {
	var b strings.Builder
	b.Grow(n * width)
	for k := range n {
		fmt.Fprintf(&b, "ip:%09x", k)
	}
	return b.String()
}

func measure(name string, round, n, decisions int) {
	ctx, all := context.Background(), names(n)
	key := func(k int) string { return all[k*width : (k+1)*width] }
	heap := probe.LiveHeap()
	d, stop := decider(name, n)
	defer stop()
	var garbage []byte

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu := probe.CPU()
	var inserts watch
	inserts.begin()
	for k := range n {
		_, _ = d.Allow(ctx, key(k))
		inserts.note()
	}
	insert := probe.CPU() - cpu
	heap = probe.LiveHeap() - heap

	draw := rand.New(rand.NewPCG(uint64(round), uint64(n)))
	cpu = probe.CPU()
	for range decisions {
		_, _ = d.Allow(ctx, key(draw.IntN(n)))
	}
	cost := probe.CPU() - cpu

	// With garbage, as the collector is what most often makes somebody wait.
	var pauses watch
	pauses.begin()
	for range decisions {
		garbage = make([]byte, 512)
		_, _ = d.Allow(ctx, key(draw.IntN(n)))
		pauses.note()
	}
	runtime.KeepAlive(garbage)
	runtime.KeepAlive(d)
	fmt.Printf("%d\t%d/%s\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f\n", round, n, name, float64(cost)/float64(decisions),
		micros(pauses.wall.Max()), micros(pauses.wall.Quantile(.9999)), micros(pauses.own.Max()), micros(pauses.own.Quantile(.9999)),
		float64(insert)/float64(n), micros(inserts.wall.Max()), micros(inserts.own.Max()), max(0, heap)/float64(n))
}

// watch notes how long each step took, by the clock and in CPU time of this thread.
type watch struct {
	wall, own probe.Hist
	last      time.Time
	cpu       time.Duration
}

func (w *watch) begin() { w.last, w.cpu = time.Now(), threadCPU() }

func (w *watch) note() {
	now, cpu := time.Now(), threadCPU()
	w.wall.Add(now.Sub(w.last))
	w.own.Add(max(0, cpu-w.cpu))
	w.begin()
}

// threadCPU is what this thread has used. The goroutine must be locked to it.
func threadCPU() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
