package etcdsource

import (
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// version is the revision of the store at which the key was changed last; 0: it is not there.
func version(kv *mvccpb.KeyValue) int64 {
	if kv.CreateRevision == 0 { // the event of a removal
		return 0
	}
	return kv.ModRevision
}

// poll is a timer that goes off again and again, never in step with those of other replicas.
type poll struct {
	every time.Duration
	timer *time.Timer
}

func newPoll(every time.Duration) *poll {
	p := &poll{every: every}
	if every > 0 {
		p.timer = time.NewTimer(p.span())
	}
	return p
}

// span is every, give or take a tenth.
func (p *poll) span() time.Duration { return p.every - p.every/10 + rand.N(p.every/5+1) }

// due is nil, and never ready, where polling is off.
func (p *poll) due() <-chan time.Time {
	if p.timer == nil {
		return nil
	}
	return p.timer.C
}

func (p *poll) next() { p.timer.Reset(p.span()) }

func (p *poll) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
