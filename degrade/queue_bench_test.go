package degrade_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

// What a queue costs the requests it is not for: both methods of the gate, asked for every request of its policy.
func BenchmarkQueueGate(b *testing.B) {
	for _, c := range []struct {
		name    string
		waiting string // key of one that waits
	}{{"nobody waits", ""}, {"another key waits", "b"}, {"the key waits", "a"}} {
		b.Run(c.name, func(b *testing.B) {
			h := degrade.Queue(degrade.QueueConfig{MaxWait: time.Minute})
			gate := h.(degrade.Gate)
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan struct{})
			if c.waiting != "" {
				waits := make(chan struct{})
				d := &degrade.Denial{
					Key: keyOf(c.waiting), Cost: 1, Decision: limiter.Decision{Limit: limiter.PerSecond(1), RetryAfter: time.Minute},
					RetryAfter: time.Minute, Place: func() (func(), bool) { close(waits); return func() {}, true },
				}
				go func() {
					defer close(ended)
					h.Degrade(nil, request(ctx), d)
				}()
				<-waits
			} else {
				close(ended)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				s := &degrade.Subject{Key: keyOf("a"), Cost: 1, Now: time.Now()}
				v := degrade.Verdict{Passed: true, Decision: limiter.Decision{Allowed: true, Limit: limiter.PerSecond(1), Remaining: 1}}
				for pb.Next() {
					gate.Before(s)
					gate.After(s, v)
				}
			})
			cancel()
			<-ended
		})
	}
}
