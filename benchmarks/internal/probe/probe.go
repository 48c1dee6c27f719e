// Package probe exists because benchmarks and commands read the same instruments: the CPU time of the process, its live
// heap, and a histogram of delays.
package probe

import (
	"runtime"
	"syscall"
	"time"
)

// CPU is the CPU time this process has used. On a shared machine CPU time per operation repeats far better than wall
// time: it leaves out the moments in which somebody else had the core.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// LiveHeap is the size of all that is reachable, in bytes.
func LiveHeap() float64 {
	for range 3 { // pools and finalizers let go only after a second collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
