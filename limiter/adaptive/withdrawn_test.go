package adaptive_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// What is withdrawn never came: a window of nothing else is an idle one, whatever was in flight at once.
func TestWithdrawnNeverCame(t *testing.T) {
	s := newStage(t, adaptive.Config{RTT: 200 * ms, Min: 1, Max: 100, Fixed: 20})
	s.pass(100 * ms)
	for range 20 {
		s.c.Acquire(s.now, 0)
	}
	began := s.now
	s.pass(300 * ms) // a queue may hold requests for longer than the RTT threshold
	for range 20 {
		s.c.Release(s.now, began, limiter.ResultWithdrawn)
	}
	ticket, detached := s.c.Ticket(s.now, 0), s.c.Ticket(s.now, 0)
	detached.Detach()
	s.pass(100 * ms)
	for range 3 {
		ticket.Release(s.now, adaptive.Withdrawn)
		detached.Release(s.now, adaptive.Withdrawn)
	}
	require.Zero(t, s.c.InFlight())
	s.pass(500 * ms)
	st := s.c.State()
	require.Equal(t, adaptive.ReasonIdle, st.Reason)
	require.Equal(t, adaptive.Window{Span: time.Second, QueueDelay: st.Window.QueueDelay}, st.Window)
	require.Equal(t, 20, st.Bound)

	// Withdrawn in a later window: that has less than nothing to give, and then none.
	began = s.now
	for range 3 {
		s.c.Acquire(s.now, 0)
	}
	s.pass(time.Second)
	require.Equal(t, 3, s.c.State().Window.Admitted)
	s.c.Acquire(s.now, 0)
	s.c.Release(s.now, s.now, adaptive.Succeeded)
	for range 3 {
		s.c.Release(s.now, began, adaptive.Withdrawn)
	}
	s.pass(time.Second)
	w := s.c.State().Window
	require.Equal(t, []int{0, 0, 1, 1, 0, 0}, []int{w.Arrivals, w.Admitted, w.Completed, w.Measured, w.Overdue, w.Late})
	s.pass(time.Second)
	require.Equal(t, adaptive.ReasonIdle, s.c.State().Reason)
	require.Zero(t, s.c.State().Window.Oldest)
}

// A controller that sees requests come and be withdrawn sees the same as one that sees the others alone.
func TestWithdrawnLeaveNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := adaptive.Config{Min: 1, Max: 1000, Fixed: 1000, RTT: 300 * ms, CPUSource: func() (float64, bool) { return 0.1, true }}
		with, err := adaptive.NewManual(config, nil)
		require.NoError(t, err)
		without, err := adaptive.NewManual(config, nil)
		require.NoError(t, err)
		var there []time.Time
		now := epoch
		with.Advance(now)
		without.Advance(now)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			guests := rapid.IntRange(0, 5).Draw(t, "guests")
			at := now
			for range guests {
				with.Admit(at)
			}
			if len(there) > 0 && rapid.Bool().Draw(t, "leaves") {
				for range guests { // before anybody else leaves: until then they are in flight
					with.Release(now, at, adaptive.Withdrawn)
				}
				guests = 0
				k := rapid.IntRange(0, len(there)-1).Draw(t, "who")
				r := rapid.SampledFrom([]adaptive.Result{adaptive.Succeeded, adaptive.Failed, adaptive.Unmeasured}).Draw(t, "result")
				with.Release(now, there[k], r)
				without.Release(now, there[k], r)
				there = append(there[:k], there[k+1:]...)
			} else {
				with.Admit(now)
				without.Admit(now)
				there = append(there, now)
			}
			pass := time.Duration(rapid.IntRange(0, 100).Draw(t, "pass")) * ms
			boundary := now.Truncate(time.Second).Add(time.Second)
			if now.Add(pass).Before(boundary) { // they are held for a while
				now = now.Add(pass)
				pass = 0
			}
			for range guests {
				with.Release(now, at, adaptive.Withdrawn)
			}
			if pass > 0 {
				now = boundary
				with.Advance(now)
				without.Advance(now)
				a, b := with.State().Window, without.State().Window
				a.QueueDelay, b.QueueDelay = 0, 0
				require.Equal(t, b, a)
				require.Equal(t, without.State().Limit, with.State().Limit)
				require.Equal(t, without.State().Reason, with.State().Reason)
			}
		}
		require.Equal(t, without.InFlight(), with.InFlight())
	})
}
