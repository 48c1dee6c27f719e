package etcdsource

import "time"

// Spans returns n waits of a poll.
func Spans(every time.Duration, n int) (out []time.Duration) {
	p := newPoll(every)
	defer p.stop()
	for range n {
		out = append(out, p.span())
	}
	return out
}
