package redislimit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// line lets decisions that are waiting at the same moment share a round trip, without a timer and without a worker: the
// caller that finds the line free sends at once by itself; who arrives meanwhile queues, and when the trip is over the first
// of them leads the next one on behalf of all. A lone caller pays no hand-over.
//
// One trip is under way at a time, unless it takes long: who finds the last one older than an eighth of the time-out starts
// another. Nobody waits longer than the time-out, counted from his own arrival.
type line struct {
	send    func(context.Context, []*group)
	giveUp  func([]*group) // takes of callers that have left
	timeout time.Duration
	several bool // a trip may be several, within one time-out

	mu    sync.Mutex
	queue []*group
	trips int       // under way
	began time.Time // the last of them
}

// States of a group in the line.
const (
	queued   int32 = iota // guarded by line.mu
	leading               // is to lead a trip
	underway              // in a trip that another one leads
	answered
	left
)

// seat is a group's place in the line.
type seat struct {
	since time.Time
	state atomic.Int32
	wake  chan struct{} // answered, or its turn to lead
}

func newLine(timeout time.Duration, send func(context.Context, []*group), giveUp func([]*group)) *line {
	return &line{send: send, giveUp: giveUp, timeout: timeout}
}

// do gets g decided, whose caller came at now. The error is that of a context that ended while g waited.
func (l *line) do(ctx context.Context, now time.Time, g *group) error {
	l.mu.Lock()
	if l.trips == 0 || now.Sub(l.began) > l.timeout/8 {
		l.trips++
		l.began = now
		l.expire(now)
		if len(l.queue) == 0 && !early(ctx, now.Add(l.timeout)) {
			l.mu.Unlock()
			defer l.next()
			if l.several {
				ctx = rediscall.Since(ctx, now)
			}
			l.send(ctx, g.alone())
			return nil
		}
		l.mu.Unlock()
		g.since = now
		return l.leadUntil(ctx, g)
	}
	if g.wake == nil {
		g.wake = make(chan struct{}, 1)
	}
	g.since = now
	g.state.Store(queued)
	l.queue = append(l.queue, g)
	l.mu.Unlock()
	if err := l.wait(ctx, g); err != nil {
		return err
	}
	if g.state.Load() != leading {
		return nil
	}
	if err := ctx.Err(); err != nil {
		l.next() // somebody else's turn
		return err
	}
	return l.leadUntil(ctx, g)
}

// wait returns when g is answered or is to lead, or with the error of a context that ended first.
func (l *line) wait(ctx context.Context, g *group) error {
	select {
	case <-g.wake:
		return nil
	case <-ctx.Done():
		if l.leave(g) {
			return ctx.Err()
		}
		<-g.wake
		return nil
	}
}

// early reports whether a context's deadline comes before the end of a trip.
func early(ctx context.Context, end time.Time) bool {
	d, ok := ctx.Deadline()
	return ok && d.Before(end)
}

// leadUntil makes a trip for g and those who wait, and leaves it to its fate when the leader's own deadline comes first.
func (l *line) leadUntil(ctx context.Context, g *group) error {
	if !early(ctx, g.since.Add(l.timeout)) {
		l.lead(g, true)
		return nil
	}
	if g.wake == nil {
		g.wake = make(chan struct{}, 1)
	}
	g.state.Store(underway)
	go l.lead(g, false)
	return l.wait(ctx, g)
}

// leave takes g out of the queue, or out of the trip it is in: what that books is given back. false: g is answered or is
// to lead.
func (l *line) leave(g *group) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := slices.Index(l.queue, g); k >= 0 {
		l.queue = slices.Delete(l.queue, k, k+1)
		g.state.Store(left)
		return true
	}
	return g.state.CompareAndSwap(underway, left)
}

// lead makes a trip for g and those who wait. own says that g's caller is here and not waiting.
func (l *line) lead(g *group, own bool) {
	batch := batches.Get().(*[]*group)
	*batch = append(*batch, g)
	parts, since := len(g.parts), g.since
	l.mu.Lock()
	k := 0
	for ; k < len(l.queue); k++ {
		o := l.queue[k]
		if parts += len(o.parts); parts > maxTripParts {
			break
		}
		if o.since.Before(since) {
			since = o.since
		}
		o.state.Store(underway)
	}
	*batch = append(*batch, l.queue[:k]...)
	l.queue = slices.Delete(l.queue, 0, k)
	l.mu.Unlock()

	// Not under the leader's context, as it speaks for others as well, and in time for who has waited longest.
	l.send(rediscall.Since(context.Background(), since), *batch)
	l.next()
	var gone []*group
	for k, o := range *batch {
		if k == 0 && own {
			continue
		}
		if o.state.CompareAndSwap(underway, answered) {
			o.wake <- struct{}{}
		} else {
			gone = append(gone, o)
		}
	}
	clear(*batch)
	*batch = (*batch)[:0]
	batches.Put(batch)
	if len(gone) > 0 {
		go l.giveUp(gone) // ends with the time-out of its calls; the leader does not wait for it
	}
}

var batches = sync.Pool{New: func() any { return new([]*group) }}

var errWaited = fmt.Errorf("%w: redislimit: the round trips before took too long", limiter.ErrUnavailable)

// expire fails those whose time is nearly up: they could only fail, and would take the others of a trip with them.
func (l *line) expire(now time.Time) {
	k := 0
	for ; k < len(l.queue) && now.Sub(l.queue[k].since) > l.timeout-l.timeout/8; k++ {
		g := l.queue[k]
		g.err = errWaited
		g.state.Store(answered)
		g.wake <- struct{}{}
	}
	l.queue = slices.Delete(l.queue, 0, k)
}

// next ends a trip: the first who waits leads another one.
func (l *line) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var now time.Time
	if len(l.queue) > 0 {
		now = time.Now()
		l.expire(now)
	}
	if len(l.queue) == 0 {
		l.trips--
		return
	}
	g := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	l.began = now
	g.state.Store(leading)
	g.wake <- struct{}{}
}
