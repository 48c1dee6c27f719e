package rediscall

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/limiter"
)

// bound is the context of one call. It ends at the earlier of the client's time-out and the caller's deadline. It exists
// because context.WithTimeout allocates a timer, a channel and its place in the parent for every call, whereas this one
// borrows a timer and a channel, and only if somebody asks for Done.
type bound struct {
	context.Context // the caller's, for its values
	deadline        time.Time
	callers         bool // the deadline is the caller's
	from            *alarms

	mu    sync.Mutex
	alarm *alarm
	ended bool
}

// alarm is a timer that closes a channel. It is reused unless it rang.
type alarm struct {
	rang  chan struct{}
	timer *time.Timer
}

// alarms belong to one client: timers and channels must not leave the synctest bubble that made them.
type alarms struct{ pool sync.Pool }

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin starts a call, unless it is over already.
func (c *Client) begin(ctx context.Context) (*bound, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.closed.Load() {
		return nil, &fault{kind: limiter.ErrUnavailable, cause: redis.ErrClosed, label: "closed", text: redis.ErrClosed.Error()}
	}
	var start time.Time
	if s, ok := ctx.(since); ok {
		start = s.start
	} else {
		start = time.Now()
	}
	b := &bound{Context: ctx, deadline: start.Add(c.timeout), from: &c.alarms}
	if d, ok := ctx.Deadline(); ok && !d.After(b.deadline) {
		b.deadline, b.callers = d, true
	}
	return b, nil
}

// end gives the timer back. Whoever still holds the context sees it cancelled.
func (b *bound) end() {
	b.mu.Lock()
	a := b.alarm
	b.alarm, b.ended = nil, true
	b.mu.Unlock()
	// A timer that could be stopped has not rung and never will for this call.
	if a != nil && a.timer.Stop() {
		b.from.pool.Put(a)
	}
}

// Deadline is the earlier of the time-out and the caller's deadline.
func (b *bound) Deadline() (time.Time, bool) { return b.deadline, true }

// Done is closed at the deadline.
func (b *bound) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return closed
	}
	if b.alarm == nil {
		left := time.Until(b.deadline)
		if a, ok := b.from.pool.Get().(*alarm); ok {
			a.timer.Reset(left)
			b.alarm = a
		} else {
			rang := make(chan struct{})
			b.alarm = &alarm{rang: rang, timer: time.AfterFunc(left, func() { close(rang) })}
		}
	}
	return b.alarm.rang
}

// Err is the caller's error if that context has ended, DeadlineExceeded after the deadline, Canceled after the call.
func (b *bound) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if b.over() {
		return context.DeadlineExceeded
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return context.Canceled
	}
	return nil
}

func (b *bound) over() bool { return !time.Now().Before(b.deadline) }

const firstPause, longestPause = time.Millisecond, 50 * time.Millisecond

// pause waits, the next time for twice as long. false: there is no time left, or the caller has left.
func (b *bound) pause(d *time.Duration) bool {
	if time.Until(b.deadline) <= *d {
		return false
	}
	t := time.NewTimer(*d)
	defer t.Stop()
	*d = min(2**d, longestPause)
	select {
	case <-t.C:
		return true
	case <-b.Context.Done():
		return false
	}
}

// callerErr is the error of the caller's context. Its timer may be later than the socket's, which has the same deadline.
func (b *bound) callerErr() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if b.callers && b.over() {
		return context.DeadlineExceeded
	}
	return nil
}

// String keeps the caller's values out of logs.
func (b *bound) String() string { return fmt.Sprintf("call until %v", b.deadline) }
