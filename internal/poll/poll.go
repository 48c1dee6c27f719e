// Package poll exists so that sources of documents look anew now and then in one way, and never in step with those of other
// replicas.
package poll

import (
	"math/rand/v2"
	"time"
)

// Poll is a timer that goes off again and again. It belongs to one goroutine.
type Poll struct {
	every time.Duration
	timer *time.Timer
}

// New returns a running Poll. Zero and negative times never go off.
func New(every time.Duration) *Poll {
	p := &Poll{every: every}
	if every > 0 {
		p.timer = time.NewTimer(p.span())
	}
	return p
}

// span is every, give or take a tenth.
func (p *Poll) span() time.Duration { return p.every - p.every/10 + rand.N(p.every/5+1) }

// Due is nil, and never ready, where polling is off.
func (p *Poll) Due() <-chan time.Time {
	if p.timer == nil {
		return nil
	}
	return p.timer.C
}

// Next starts the time until it goes off again.
func (p *Poll) Next() { p.timer.Reset(p.span()) }

// Stop ends it.
func (p *Poll) Stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
