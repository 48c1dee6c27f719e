package degrade

// QueueSize returns how many lines and how many waiting requests the state of a queue holds, while nobody comes or goes.
func QueueSize(h Handler) (lines, waiting int) {
	s := h.(*queue).state.Load()
	for k := range s.shards {
		sh := &s.shards[k]
		sh.mu.Lock()
		lines += len(sh.lines)
		for _, l := range sh.lines {
			waiting += l.waiters.Len()
		}
		sh.mu.Unlock()
	}
	if int64(lines) != s.lines.Load() || int64(waiting) != s.waiting.Load() {
		panic("the counters of the queue do not agree with its lines")
	}
	return lines, waiting
}

// HandTime is for how long a line stands still for a request of which nothing is heard.
const HandTime = handTime
