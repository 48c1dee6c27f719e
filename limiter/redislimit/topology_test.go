package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// load is callers who ask all the time, and what they were told.
type load struct {
	t       *testing.T
	l       *redislimit.Limiter
	limit   limiter.Limit
	keys    []limiter.Key
	timeout time.Duration
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex
	began time.Time
	fault time.Time // when a server was killed
	ended time.Time
	of    map[limiter.Key]*told
}

// told is what was said of one key.
type told struct {
	admitted, denied, failed, expired int
	again                             time.Time // decided by the store at first after the fault: the caller came then
}

// startLoad lets workers ask for one key after the other, each a thousand times a second at most. Every answer must be a
// decision, ErrUnavailable, or, where a caller had little time, his context's error, and come in time.
func startLoad(t *testing.T, l *redislimit.Limiter, limit limiter.Limit, timeout time.Duration, workers int, keys ...limiter.Key) *load {
	ctx, cancel := context.WithCancel(context.Background())
	x := &load{t: t, l: l, limit: limit, keys: keys, timeout: timeout, stop: cancel, began: time.Now(), of: map[limiter.Key]*told{}}
	t.Cleanup(cancel)
	for _, k := range keys {
		x.of[k] = &told{}
	}
	for w := range workers {
		x.wg.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for i := w; ctx.Err() == nil; i++ {
				<-tick.C
				x.ask(keys[i%len(keys)], i%5 == 4)
			}
		})
	}
	return x
}

func (x *load) ask(k limiter.Key, hurried bool) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if hurried {
		ctx, cancel = context.WithTimeout(ctx, x.timeout/4)
	}
	defer cancel()
	start := time.Now()
	d, err := x.l.Allow(ctx, k, x.limit, 1)
	end := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	to := x.of[k]
	switch {
	case err == nil && d.Allowed:
		to.admitted++
	case err == nil:
		to.denied++
	case errors.Is(err, limiter.ErrUnavailable):
		to.failed++
	case hurried && errors.Is(err, context.DeadlineExceeded):
		to.expired++
	default:
		x.t.Errorf("%v: %v", k, err)
	}
	if err == nil && d.Via == limiter.ViaStore && to.again.IsZero() && !x.fault.IsZero() && start.After(x.fault) {
		to.again = start
	}
	if end.Sub(start) > x.timeout+5*time.Second { // on a machine that is busy with other tests
		x.t.Errorf("%v took %v", k, end.Sub(start))
	}
}

// broken notes that a server has been killed just now.
func (x *load) broken() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fault = time.Now()
}

// recover waits until all keys have been decided by the store since the fault.
func (x *load) recover(patience time.Duration) {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, to := range x.of {
			if to.again.IsZero() {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
}

// denied waits until every key has been denied n times more.
func (x *load) denied(n int) {
	x.t.Helper()
	x.mu.Lock()
	before := map[limiter.Key]int{}
	for k, to := range x.of {
		before[k] = to.denied
	}
	x.mu.Unlock()
	require.Eventually(x.t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for k, to := range x.of {
			if to.denied < before[k]+n {
				return false
			}
		}
		return true
	}, busy, time.Millisecond)
}

// end stops the callers.
func (x *load) end() {
	x.stop()
	x.wg.Wait()
	x.ended = time.Now()
}

// exact is the most that can pass without a fault.
func (x *load) exact() int { return x.limit.Quota() + x.refill(x.ended.Sub(x.began)) + 1 }

// bound is the most that can pass where what a fault has lost can be anything: before it at most a burst and what comes in that
// time, and after it the same, as no state has more than a full bucket.
func (x *load) bound(to *told) int {
	return 2*x.limit.Quota() + x.refill(x.fault.Sub(x.began)) + x.refill(x.ended.Sub(to.again)) + 2
}

func (x *load) refill(d time.Duration) int {
	return int(float64(x.limit.Rate) * d.Seconds() / x.limit.Period.Seconds())
}

func (to *told) String() string {
	return fmt.Sprintf("%d admitted, %d denied, %d failed, %d ran out of time", to.admitted, to.denied, to.failed, to.expired)
}
