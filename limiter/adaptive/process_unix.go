//go:build unix

package adaptive

import (
	"syscall"
	"time"
)

// processTime returns the time this process has spent on processors.
func processTime() (time.Duration, bool) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, false
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), true
}
