//go:build !unix && !windows

package adaptive

import "time"

// processTime is not known here: a law that needs the processors has the fixed limit, or a CPUSource.
func processTime() (time.Duration, bool) { return 0, false }
