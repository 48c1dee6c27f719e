package leased

import (
	"context"
	"time"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// start makes a call in the background. Whoever starts one has begun, so that Close waits for both. e is locked.
func (l *Limiter) start(e *entry, q request) {
	l.running.Add(1)
	go l.run(e, q)
}

// begin keeps Close waiting until running is told to be done. false: the limiter is closed, and nothing begins any more.
func (l *Limiter) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.running.Add(1)
	return true
}

// run makes a call, and those that are due when it is over. One key has at most one call under way.
func (l *Limiter) run(e *entry, q request) {
	defer l.running.Done()
	for {
		r, err := l.call(context.Background(), e, &q)
		e.mu.Lock()
		now := l.now()
		l.answered(e, now, q.seq, r, err)
		again := e.node.due(now)
		switch {
		case again && l.isStopped():
			l.finish(e, now, e.node.dismiss(), errClosed)
			again = false
		case again:
			q = e.node.call(now)
		}
		e.mu.Unlock()
		if !again {
			return
		}
	}
}

func (l *Limiter) isStopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// answered tells the node and those who wait what came of a call. e is locked.
func (l *Limiter) answered(e *entry, now, seq int64, r reply, err error) {
	defer func() {
		switch {
		case e.dead:
			l.retire(e)
		case e.node.recorded > 0 || l.observer != nil:
			l.hold(e)
		}
	}()
	if err == nil && e.node.overdue(now) {
		err = l.errLate()
	}
	if err != nil {
		e.err = err
		l.finish(e, now, e.node.fail(now, seq), err)
		return
	}
	settled := e.node.reply(now, seq, r)
	if e.dead && e.node.held > 0 { // reset meanwhile, or forgotten: nobody may spend it
		e.node.drop(now)
	}
	l.finish(e, now, settled, nil)
}

// finish lets those go who need not wait any more. e is locked.
func (l *Limiter) finish(e *entry, now int64, settled []*waiter, err error) {
	for _, w := range settled {
		if w.verdict == failed {
			w.err = err
		} else {
			l.decide(&w.decision, e, &w.limit, now, int(w.cost), w.verdict == taken, limiter.ViaStore)
		}
		close(w.done)
	}
}

// call makes the round trip.
func (l *Limiter) call(ctx context.Context, e *entry, q *request) (reply, error) {
	start := time.Now()
	r, err := l.store.lease(ctx, e.rendered, q)
	l.observe("lease", start, 1, err)
	return r, err
}

// observe tells of a call, and of the first that fails or works again.
func (l *Limiter) observe(op string, start time.Time, n int, err error) {
	if cause := rediscall.Cause(err); cause != "canceled" && cause != "deadline" {
		if away := err != nil; l.away.Load() != away && l.away.CompareAndSwap(!away, away) && l.log != nil {
			if away {
				l.log.Error("leased: Redis does not answer; what is leased is spent, and then decisions fail", "name", l.name, "err", err)
			} else {
				l.log.Info("leased: Redis answers again", "name", l.name)
			}
		}
	}
	took := time.Since(start)
	if err == nil {
		for was := l.slowest.Load(); int64(took) > was && !l.slowest.CompareAndSwap(was, int64(took)); was = l.slowest.Load() {
		}
	}
	e := limiter.Event{Kind: limiter.EventStore, Time: start, Name: l.name, Op: op, Duration: took, N: n, Err: err}
	if err != nil {
		e.Reason = rediscall.Cause(err)
	}
	l.tell(e)
}

// tell shows an event. An observer's fault is not the decision's.
func (l *Limiter) tell(e limiter.Event) {
	if l.observer == nil {
		return
	}
	defer func() { _ = recover() }()
	l.observer.Observe(e)
}
