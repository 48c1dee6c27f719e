package degrade

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Defaults of a [QueueConfig].
const (
	defaultQueuePerKey      = 16
	defaultQueueTotal       = 1024
	defaultQueueMaxWait     = 5 * time.Second
	defaultQueueServiceTime = 100 * time.Millisecond
)

// Ranges of a [QueueConfig].
const (
	maxQueuePerKey = 10_000 // a turn looks at all of a line
	maxQueueTotal  = 1_000_000
	minQueueWait   = time.Millisecond
	maxQueueWait   = time.Minute
)

// QueueConfig are the settings of a [Queue]. The zero QueueConfig is usable.
type QueueConfig struct {
	// PerKey is how many requests of one key may wait at once: 1…10,000, at most Total. Zero: 16, or Total if that is less.
	PerKey int
	// Total is how many requests may wait at once, all keys together: 1…1,000,000. Zero: 1024.
	Total int
	// MaxWait is the longest wait: 1 ms…1 min. Zero: 5 s.
	MaxWait time.Duration
	// ServiceTime is what has to be left to the handler when a wait ends, 0…1 min: of the deadline of the request's context,
	// of the WriteTimeout of its [http.Server], and of its ReadTimeout where the request has a body. Both time-outs are
	// counted from when the queue is asked, so this should cover as well what a request has spent before. Zero: 100 ms.
	// −1: nothing.
	ServiceTime time.Duration
	// NewestFirst lets the newest request go first once the oldest has waited for more than half of MaxWait: under a lasting
	// overload some are then served soon, rather than all of them late.
	NewestFirst bool
}

// Queue returns a handler that holds a refused request back until its turn in this process, and then has it decided once
// more ([Again]): it is charged like any other, and may be refused like any other. It never polls, and each request is
// held once.
//
// Requests of one key take turns in the order they came (but see NewestFirst), whatever they cost: while some wait, or
// the first of them is being decided, a newcomer is not let past to take the units they wait for. The first one's turn is
// when the policy has said, the next one's when the decision about the first says; where the decision is a store's, which
// other processes ask as well, a jitter of up to a tenth of the wait is added, at most 50 ms.
//
// A request is refused at once, and told the wait it would have had ([Denial.Wait]), if that wait would be longer than
// MaxWait, or would leave less than ServiceTime of a deadline or time-out, or if a bound is reached. The wait is an estimate
// where costs differ or the algorithm is a window: then a request may be refused after it has waited, but none waits longer
// than these bounds. What can never pass is not held. Nor is anything whose [Cause] is [Capacity]: a service that protects
// itself is not helped by holding more, and nobody tells when a place in flight is free.
//
// Whoever leaves, by the end of the request's context, hands on the turn, and nothing has been taken for it. Keys
// without a waiting request hold no memory. There is no goroutine: requests wait in their own.
//
// The handler is a [Gate] and an [Heir]: who waits goes on waiting when a policy is replaced by one with an equal queue. Two
// policies may share a Queue: keys differ by policy. A request that several of them refuse waits in the queue of the
// first one, and may get ahead in those of the others.
func Queue(c QueueConfig) Handler {
	q := &queue{set: c}
	q.state.Store(newQueueState(c.effective()))
	return q
}

type queue struct {
	set   QueueConfig // as given
	state atomic.Pointer[queueState]
}

var (
	_ Moded     = (*queue)(nil)
	_ Validator = (*queue)(nil)
	_ Gate      = (*queue)(nil)
	_ Heir      = (*queue)(nil)
)

// effective returns c with its defaults, and with them too for what is out of range: a guard has refused that.
func (c QueueConfig) effective() QueueConfig {
	if c.Total < 1 || c.Total > maxQueueTotal {
		c.Total = defaultQueueTotal
	}
	if c.PerKey < 1 || c.PerKey > min(c.Total, maxQueuePerKey) {
		c.PerKey = min(defaultQueuePerKey, c.Total)
	}
	if c.MaxWait < minQueueWait || c.MaxWait > maxQueueWait {
		c.MaxWait = defaultQueueMaxWait
	}
	switch {
	case c.ServiceTime == -1:
		c.ServiceTime = 0
	case c.ServiceTime <= 0 || c.ServiceTime > maxQueueWait:
		c.ServiceTime = defaultQueueServiceTime
	}
	return c
}

// Validate names everything wrong with the settings.
func (q *queue) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("degrade: Queue: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	c := q.set
	if c.Total < 0 || c.Total > maxQueueTotal {
		bad("Total %d is outside 1…%d", c.Total, maxQueueTotal)
	}
	if most := min(c.effective().Total, maxQueuePerKey); c.PerKey < 0 || c.PerKey > most {
		bad("PerKey %d is outside 1…%d, of a Total of %d", c.PerKey, most, c.effective().Total)
	}
	if c.MaxWait != 0 && (c.MaxWait < minQueueWait || c.MaxWait > maxQueueWait) {
		bad("MaxWait %v is outside %v…%v", c.MaxWait, minQueueWait, maxQueueWait)
	}
	if c.ServiceTime < -1 || c.ServiceTime > maxQueueWait {
		bad("ServiceTime %v is outside 0…%v", c.ServiceTime, maxQueueWait)
	}
	return errors.Join(errs...)
}

// Mode implements [Moded].
func (q *queue) Mode() string { return ModeQueue }

// Inherit implements [Heir]: both are one queue from then on.
func (q *queue) Inherit(prev Handler) bool {
	p, ok := prev.(*queue)
	if !ok || p.set.effective() != q.set.effective() {
		return false
	}
	q.state.Store(p.state.Load())
	return true
}

// Before implements [Gate]: a newcomer stays behind those that wait.
func (q *queue) Before(s *Subject) Hint {
	if s.Again { // it has had its turn
		return Hint{}
	}
	if s.Cost <= 0 {
		return Hint{} // takes nothing from anybody
	}
	st := q.state.Load()
	if st.lines.Load() == 0 {
		return Hint{}
	}
	sh := st.shard(s.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lines[s.Key]
	if l == nil {
		return Hint{}
	}
	now := time.Now()
	return Hint{Shut: true, Cause: Quota, Wait: l.eta(now, s.Cost).Sub(now)}
}

// After implements [Gate]: what the policy has decided says when the next turn is.
func (q *queue) After(s *Subject, v Verdict) {
	st := q.state.Load()
	if st.lines.Load() == 0 {
		return
	}
	sh := st.shard(s.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lines[s.Key]
	switch {
	case l == nil:
	case l.handed != nil && l.handed.kept && l.handed.request == s.Request:
		l.settle(time.Now(), &v)
	case l.handed == nil && asked(&v.Decision):
		l.overtaken(time.Now(), &v.Decision)
	}
}

// Degrade implements [Handler].
func (q *queue) Degrade(_ http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	st, ctx, now := q.state.Load(), r.Context(), time.Now()
	if d.Asked > 1 {
		// Its turn has come, and the policy has refused it again or others have.
		st.refusedAgain(d, now)
		st.tell(d, now)
		return Skip
	}
	if d.Cause == Capacity || d.Cost <= 0 || d.RetryAfter == limiter.Never || d.Decision.RetryAfter == limiter.Never || d.Decision.Limit.Rate <= 0 {
		return Skip
	}
	w, wait := st.join(d, now, st.cfg.mostWait(r, now))
	if w == nil {
		d.Wait = max(d.Wait, wait)
		return Skip
	}
	defer w.leave()
	if d.Place != nil {
		leave, ok := d.Place()
		if !ok {
			d.Wait = max(d.Wait, wait)
			return Skip
		}
		defer leave()
	}
	if w.await(ctx) {
		return Again
	}
	if ctx.Err() == nil {
		w.leave()
		st.tell(d, time.Now())
	}
	return Skip
}

// mostWait is how long r may wait from now on.
func (c *QueueConfig) mostWait(r *http.Request, now time.Time) time.Duration {
	most := c.MaxWait
	if end, ok := r.Context().Deadline(); ok {
		most = min(most, end.Sub(now)-c.ServiceTime)
	}
	srv, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if srv == nil {
		return most
	}
	if srv.WriteTimeout > 0 {
		most = min(most, srv.WriteTimeout-c.ServiceTime)
	}
	// Behind the ReadTimeout what is left of the body can no longer be read.
	if srv.ReadTimeout > 0 && r.Body != nil && r.Body != http.NoBody {
		most = min(most, srv.ReadTimeout-c.ServiceTime)
	}
	return most
}

// await returns true when it is the waiter's turn, and false when it has to go.
func (w *waiter) await(ctx context.Context) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.done:
			// Who has left must not be asked for: the next one is to have the turn.
			if !w.granted || ctx.Err() != nil {
				return false
			}
			w.keep(ctx)
			return true
		case <-w.timer.C:
			w.wake(time.Now())
		}
	}
}
