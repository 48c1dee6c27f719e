package limiter_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

var waitKey = limiter.Key{Space: "test", ID: "k"}

// scripted is a limiter that says what it is told to, and nothing after it.
type scripted struct {
	list  []answer
	calls []time.Time
}

type answer struct {
	d   limiter.Decision
	err error
}

func (a *scripted) Allow(context.Context, limiter.Key, limiter.Limit, int) (limiter.Decision, error) {
	a.calls = append(a.calls, time.Now())
	next := a.list[0]
	a.list = a.list[1:]
	return next.d, next.err
}

func refused(wait time.Duration) answer { return answer{d: limiter.Decision{RetryAfter: wait}} }

func allowed() answer { return answer{d: limiter.Decision{Allowed: true}} }

// directLimiter is a small real limiter without companions.
type directLimiter struct {
	mu     sync.Mutex
	states map[limiter.Key]*limiter.State
	calls  map[time.Time]int
}

func (s *directLimiter) take(t *limiter.Take) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.states == nil {
		s.states, s.calls = map[limiter.Key]*limiter.State{}, map[time.Time]int{}
	}
	s.calls[now]++
	rule, err := limiter.NewRule(t.Limit)
	if err != nil {
		return err
	}
	if s.states[t.Key] == nil {
		s.states[t.Key] = new(limiter.State)
	}
	t.Decision = rule.Take(s.states[t.Key], limiter.Reading{Now: now.UnixNano()}, t.N, t.MaxDelay)
	return nil
}

func (s *directLimiter) Allow(_ context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	t := limiter.Take{Key: key, Limit: limit, N: n}
	err := s.take(&t)
	return t.Decision, err
}

func (s *directLimiter) count() (n int) {
	for _, c := range s.calls {
		n += c
	}
	return n
}

// queueLimiter is a directLimiter that can hold requests.
type queueLimiter struct {
	directLimiter
	unsupported bool
	refund      func(context.Context, *limiter.Take) error
}

func (q *queueLimiter) AllowAll(_ context.Context, _ time.Time, takes []limiter.Take) (bool, error) {
	if q.unsupported {
		return false, errors.ErrUnsupported
	}
	err := q.take(&takes[0])
	return takes[0].Decision.Allowed, err
}

func (q *queueLimiter) Refund(ctx context.Context, _ time.Time, t *limiter.Take) error {
	if q.refund == nil {
		return nil
	}
	return q.refund(ctx, t)
}

// inBubble runs f where time is virtual; it also fails if a goroutine is left behind.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestWait(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "waits exactly as long as it must", func(t *testing.T) {
		l, limit := new(directLimiter), limiter.PerSecond(10).WithBurst(2)
		start := time.Now()
		for i, want := range []time.Duration{0, 0, 100, 200, 300} {
			d, err := limiter.Wait(ctx, l, waitKey, limit, 1)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Equal(t, want*time.Millisecond, time.Since(start), "take %d", i)
		}
		d, err := limiter.Wait(ctx, l, waitKey, limit, 2)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, 500*time.Millisecond, time.Since(start), "a cost waits for all its units")
		require.Equal(t, 2+2*3+2, l.count(), "one call to learn the wait, one to take")
	})
	inBubble(t, "every algorithm", func(t *testing.T) {
		time.Sleep(17*time.Second + 300*time.Millisecond)
		for _, a := range limiter.Algorithms() {
			l, limit := new(queueLimiter), limiter.PerSecond(1).With(a)
			start := time.Now()
			for range 3 {
				d, err := limiter.Wait(ctx, l, waitKey, limit, 1)
				require.NoError(t, err)
				require.True(t, d.Allowed)
				require.Zero(t, d.Delay)
			}
			require.GreaterOrEqual(t, time.Since(start), time.Second, "%v", a)
			require.LessOrEqual(t, time.Since(start), 4*time.Second, "%v", a)
		}
	})
	inBubble(t, "a look waits for nothing", func(t *testing.T) {
		l, limit := new(directLimiter), limiter.PerSecond(1)
		_, err := limiter.Wait(ctx, l, waitKey, limit, 1)
		require.NoError(t, err)
		start := time.Now()
		d, err := limiter.Wait(ctx, l, waitKey, limit, 0)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Zero(t, d.Remaining)
		require.Zero(t, time.Since(start))
	})
	inBubble(t, "unlimited", func(t *testing.T) {
		d, err := limiter.Wait(ctx, new(directLimiter), waitKey, limiter.Unlimited, math.MaxInt)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	})
	inBubble(t, "a limit that is malformed", func(t *testing.T) {
		d, err := limiter.Wait(ctx, new(directLimiter), waitKey, limiter.Limit{}, 1)
		require.ErrorIs(t, err, limiter.ErrInvalid)
		require.Zero(t, d)
	})
	inBubble(t, "REF-08 a context that is done takes nothing", func(t *testing.T) {
		for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
			l, limit := new(queueLimiter), limiter.PerSecond(1).With(a)
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			d, err := limiter.Wait(ctx, l, waitKey, limit, 1)
			require.Equal(t, context.Canceled, err)
			require.Zero(t, d)
			d, err = limiter.AllowWithin(ctx, l, waitKey, limit, 1, time.Hour)
			require.Equal(t, context.Canceled, err)
			require.Zero(t, d)
			require.Zero(t, l.count())
			d, err = l.Allow(context.Background(), waitKey, limit, 1)
			require.NoError(t, err)
			require.True(t, d.Allowed, "the token stays")
		}
	})
	inBubble(t, "a context that ends while waiting", func(t *testing.T) {
		l, limit := new(directLimiter), limiter.PerMinute(1)
		_, err := limiter.Wait(ctx, l, waitKey, limit, 1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(ctx)
		start := time.Now()
		time.AfterFunc(7*time.Second, cancel)
		d, err := limiter.Wait(ctx, l, waitKey, limit, 1)
		require.Equal(t, context.Canceled, err)
		require.Zero(t, d)
		require.Equal(t, 7*time.Second, time.Since(start))
		require.Equal(t, 2, l.count())
	})
	inBubble(t, "a deadline that the wait would pass", func(t *testing.T) {
		l, limit := new(directLimiter), limiter.PerMinute(60).WithBurst(1)
		_, err := limiter.Wait(ctx, l, waitKey, limit, 1)
		require.NoError(t, err)
		start := time.Now()
		// At the deadline itself the context is done.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		d, err := limiter.Wait(ctx, l, waitKey, limit, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "a wait of 1s would not end before the deadline in 1s")
		require.NotErrorIs(t, err, limiter.ErrUnavailable)
		require.Zero(t, d)
		require.Zero(t, time.Since(start), "at once")
		require.NoError(t, ctx.Err())
	})
	inBubble(t, "a deadline just behind the wait", func(t *testing.T) {
		l, limit := new(directLimiter), limiter.PerMinute(60).WithBurst(1)
		_, err := limiter.Wait(ctx, l, waitKey, limit, 1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(ctx, time.Second+1)
		defer cancel()
		d, err := limiter.Wait(ctx, l, waitKey, limit, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	})
	inBubble(t, "COST-01 a cost above the quota can never be met", func(t *testing.T) {
		l, limit := new(directLimiter), limiter.PerSecond(1)
		start := time.Now()
		for range 5 {
			d, err := limiter.Wait(ctx, l, waitKey, limit, 5)
			require.ErrorIs(t, err, limiter.ErrNever)
			require.ErrorContains(t, err, "5 units of 1/s")
			require.Zero(t, d)
		}
		_, err := limiter.Wait(ctx, l, waitKey, limiter.DenyAll, 1)
		require.ErrorIs(t, err, limiter.ErrNever)
		_, err = limiter.Wait(ctx, new(queueLimiter), waitKey, limit.With(limiter.LeakyBucket), 2)
		require.ErrorIs(t, err, limiter.ErrNever)
		require.Zero(t, time.Since(start))
		d, err := limiter.Wait(ctx, l, waitKey, limit, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed, "state untouched")
	})
	inBubble(t, "a wait of centuries is a wait", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Hour, cancel)
		_, err := limiter.Wait(ctx, &scripted{list: []answer{refused(9e18)}}, waitKey, limiter.PerSecond(1), 1)
		require.Equal(t, context.Canceled, err)
	})
	inBubble(t, "OVF-09 a refusal that names no wait does not spin", func(t *testing.T) {
		l := &scripted{list: []answer{refused(0), refused(-time.Second), refused(0), allowed()}}
		start := time.Now()
		d, err := limiter.Wait(ctx, l, waitKey, limiter.PerSecond(1000), 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.GreaterOrEqual(t, time.Since(start), 3*time.Millisecond)
	})
}

// Fault 6 of published designs: a "retry" that returns at once on a denial and retries only errors, a sleep that ignores
// the context, a cancel function that is never called.
func TestFault6RetryOfDenialsOnly(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "a denial is waited out", func(t *testing.T) {
		l := &scripted{list: []answer{refused(3 * time.Second), allowed()}}
		start := time.Now()
		d, err := limiter.Wait(ctx, l, waitKey, limiter.PerSecond(1), 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, []time.Time{start, start.Add(3 * time.Second)}, l.calls)
	})
	inBubble(t, "an error is not retried", func(t *testing.T) {
		for _, fail := range []error{limiter.ErrUnavailable, limiter.ErrInvalid, limiter.ErrClosed, errors.New("other")} {
			l := &scripted{list: []answer{{d: limiter.Decision{RetryAfter: 1}, err: fail}, refused(time.Second), {err: fail}}}
			start := time.Now()
			d, err := limiter.Wait(ctx, l, waitKey, limiter.PerSecond(1), 1)
			require.Equal(t, fail, err)
			require.Zero(t, d)
			require.Zero(t, time.Since(start))

			d, err = limiter.AllowWithin(ctx, l, waitKey, limiter.PerSecond(1), 1, time.Hour)
			require.Equal(t, fail, err, "after a wait too")
			require.Zero(t, d)
			require.Equal(t, time.Second, time.Since(start))
			require.Empty(t, l.list)
		}
	})
	inBubble(t, "the sleep heeds the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Millisecond, cancel)
		start := time.Now()
		_, err := limiter.Wait(ctx, &scripted{list: []answer{refused(time.Hour)}}, waitKey, limiter.PerSecond(1), 1)
		require.Equal(t, context.Canceled, err)
		require.Equal(t, time.Millisecond, time.Since(start))
	})
	inBubble(t, "the cancel function is called", func(t *testing.T) {
		var settled context.Context
		q := &queueLimiter{refund: func(ctx context.Context, _ *limiter.Take) error {
			settled = ctx
			require.NoError(t, ctx.Err())
			return nil
		}}
		limit := limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(2)
		_, err := limiter.Wait(ctx, q, waitKey, limit, 1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Millisecond, cancel)
		_, err = limiter.Wait(ctx, q, waitKey, limit, 1)
		require.Equal(t, context.Canceled, err)
		require.Error(t, settled.Err())
	})
}

func TestWaitJitter(t *testing.T) {
	ctx := context.Background()
	waits := map[time.Duration]bool{}
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			l := &scripted{list: []answer{refused(time.Second), refused(time.Second), refused(time.Hour), allowed()}}
			_, err := limiter.Wait(ctx, l, waitKey, limiter.PerSecond(1), 1)
			require.NoError(t, err)
			require.Equal(t, time.Second, l.calls[1].Sub(l.calls[0]), "the first wait is exact")
			second := l.calls[2].Sub(l.calls[1])
			require.GreaterOrEqual(t, second, time.Second)
			require.LessOrEqual(t, second, 1250*time.Millisecond)
			waits[second] = true
			third := l.calls[3].Sub(l.calls[2])
			require.GreaterOrEqual(t, third, time.Hour)
			require.LessOrEqual(t, third, time.Hour+time.Second)
		})
	}
	require.Greater(t, len(waits), 10)

	inBubble(t, "never past the deadline", func(t *testing.T) {
		for range 50 {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second+2)
			l := &scripted{list: []answer{refused(time.Second), refused(time.Second), allowed()}}
			_, err := limiter.Wait(ctx, l, waitKey, limiter.PerSecond(1), 1)
			cancel()
			require.NoError(t, err)
		}
	})
	inBubble(t, "waiters of one key do not stampede", func(t *testing.T) {
		l, limit := new(directLimiter), limiter.PerSecond(5).WithBurst(1)
		start := time.Now()
		var wg sync.WaitGroup
		errs := make([]error, 50)
		for i := range errs {
			wg.Go(func() { _, errs[i] = limiter.Wait(ctx, l, waitKey, limit, 1) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.GreaterOrEqual(t, time.Since(start), 49*200*time.Millisecond, "the limit holds")
		require.Less(t, time.Since(start), 49*250*time.Millisecond, "everybody is served")
		for at, n := range l.calls {
			if after := at.Sub(start); after > 200*time.Millisecond {
				require.Less(t, n, 5, "at %v", after)
			}
		}
	})
}

func TestWaitQueue(t *testing.T) {
	ctx := context.Background()
	// together starts waiters in order at one instant and returns when each was let go.
	together := func(t *testing.T, ctx context.Context, l limiter.Limiter, limit limiter.Limit, costs ...int) []time.Duration {
		t.Helper()
		start := time.Now()
		left := make([]time.Duration, len(costs))
		got := make([]answer, len(costs))
		var wg sync.WaitGroup
		for i, n := range costs {
			wg.Go(func() {
				got[i].d, got[i].err = limiter.Wait(ctx, l, waitKey, limit, n)
				left[i] = time.Since(start)
			})
			synctest.Wait() // the order of arrival
		}
		wg.Wait()
		for _, a := range got {
			require.NoError(t, a.err)
			require.True(t, a.d.Allowed)
			require.Zero(t, a.d.Delay, "it has been waited for")
		}
		return left
	}
	ones := func(n int) []int {
		costs := make([]int, n)
		for i := range costs {
			costs[i] = 1
		}
		return costs
	}

	inBubble(t, "WAIT-01 a large take has its turn", func(t *testing.T) {
		limit := limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(20)
		left := together(t, ctx, new(queueLimiter), limit, 1, 8, 1, 1, 1)
		ms := time.Millisecond
		require.Equal(t, []time.Duration{0, 100 * ms, 900 * ms, 1000 * ms, 1100 * ms}, left)
	})
	inBubble(t, "WAIT-02 each waiter has a slot of its own", func(t *testing.T) {
		q, limit := new(queueLimiter), limiter.PerMinute(300).With(limiter.LeakyBucket).WithBurst(100)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		for i, d := range together(t, ctx, q, limit, ones(100)...) {
			require.Equal(t, time.Duration(i)*200*time.Millisecond, d)
		}
		require.Equal(t, 100, q.count(), "nobody asks twice")
	})
	inBubble(t, "WAIT-03 first come, first served", func(t *testing.T) {
		limit := limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(10)
		for i, d := range together(t, ctx, new(queueLimiter), limit, ones(10)...) {
			require.Equal(t, time.Duration(i)*time.Second, d)
		}
	})
	inBubble(t, "a full queue is raced for", func(t *testing.T) {
		q, limit := new(queueLimiter), limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(3)
		left := together(t, ctx, q, limit, ones(12)...)
		seen := map[time.Duration]bool{}
		for _, d := range left {
			require.False(t, seen[d], "two leave at %v", d)
			seen[d] = true
		}
		for i := range time.Duration(3) {
			require.True(t, seen[i*100*time.Millisecond])
		}
	})
	for name, l := range map[string]func() limiter.Limiter{
		"a limiter that cannot hold":      func() limiter.Limiter { return new(directLimiter) },
		"a wrapper around such a limiter": func() limiter.Limiter { return &queueLimiter{unsupported: true} },
	} {
		inBubble(t, name, func(t *testing.T) {
			l, limit := l(), limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(5)
			start := time.Now()
			for i := range time.Duration(4) {
				_, err := limiter.Wait(ctx, l, waitKey, limit, 1)
				require.NoError(t, err)
				require.Equal(t, i*100*time.Millisecond, time.Since(start))
			}
		})
	}
	inBubble(t, "a departure behind the deadline takes no place", func(t *testing.T) {
		for _, burst := range []int{3, 10} { // the queue is full, or long
			q, limit := new(queueLimiter), limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(burst)
			var all []limiter.Take
			for range 3 {
				all = append(all, limiter.Take{Key: waitKey, Limit: limit, N: 1, MaxDelay: math.MaxInt64})
			}
			for i := range all {
				ok, err := q.AllowAll(ctx, time.Time{}, all[i:i+1])
				require.NoError(t, err)
				require.True(t, ok)
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			_, err := limiter.Wait(ctx, q, waitKey, limit, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "a wait of 3s ")
			d, err := limiter.AllowWithin(ctx, q, waitKey, limit, 1, 3*time.Second-1)
			require.NoError(t, err)
			require.False(t, d.Allowed)
			require.Positive(t, d.RetryAfter)
			require.Zero(t, time.Since(start))

			d, err = limiter.AllowWithin(context.Background(), q, waitKey, limit, 1, 3*time.Second)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Equal(t, 3*time.Second, time.Since(start))
		}
	})
	inBubble(t, "who leaves the queue offers the place back", func(t *testing.T) {
		var back []limiter.Take
		q := &queueLimiter{refund: func(ctx context.Context, t *limiter.Take) error {
			back = append(back, *t)
			return ctx.Err()
		}}
		limit := limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(5)
		_, err := limiter.Wait(ctx, q, waitKey, limit, 1)
		require.NoError(t, err)
		start := time.Now()
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(400*time.Millisecond, cancel)
		d, err := limiter.Wait(ctx, q, waitKey, limit, 2)
		require.Equal(t, context.Canceled, err)
		require.Zero(t, d)
		require.Equal(t, 400*time.Millisecond, time.Since(start))
		require.Len(t, back, 1)
		require.Equal(t, 2, back[0].N)
		require.Equal(t, waitKey, back[0].Key)
		require.Equal(t, limit, back[0].Limit)
		require.Equal(t, start.UnixNano(), back[0].Decision.Mark)
	})
	inBubble(t, "a refund that hangs holds nobody for long", func(t *testing.T) {
		q := &queueLimiter{refund: func(ctx context.Context, _ *limiter.Take) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		limit := limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(5)
		_, err := limiter.Wait(ctx, q, waitKey, limit, 1)
		require.NoError(t, err)
		start := time.Now()
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(400*time.Millisecond, cancel)
		_, err = limiter.Wait(ctx, q, waitKey, limit, 1)
		require.Equal(t, context.Canceled, err)
		require.Equal(t, 650*time.Millisecond, time.Since(start))
	})
	inBubble(t, "an error of the queue", func(t *testing.T) {
		d, err := limiter.Wait(ctx, new(queueLimiter), waitKey, limiter.PerSecond(0).With(limiter.LeakyBucket), 1)
		require.ErrorIs(t, err, limiter.ErrInvalid)
		require.Zero(t, d)
	})
}

func TestAllowWithin(t *testing.T) {
	ctx := context.Background()
	limit := limiter.PerSecond(1)
	tests := []struct {
		name    string
		n       int
		timeout time.Duration
		allowed bool
		takes   time.Duration
		retry   time.Duration
	}{
		{"long enough", 1, time.Minute, true, time.Second, 0},
		{"just long enough", 1, time.Second, true, time.Second, 0},
		{"just too short", 1, time.Second - 1, false, 0, time.Second},
		{"not at all", 1, 0, false, 0, time.Second},
		{"less than that", 1, math.MinInt64, false, 0, time.Second},
		{"as long as there is", 1, math.MaxInt64, true, time.Second, 0},
		{"a look", 0, 0, true, 0, 0},
		{"COST-01 a cost above the quota", 2, time.Hour, false, 0, limiter.Never},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			l := new(directLimiter)
			_, err := l.Allow(ctx, waitKey, limit, 1)
			require.NoError(t, err)
			start := time.Now()
			d, err := limiter.AllowWithin(ctx, l, waitKey, limit, tt.n, tt.timeout)
			require.NoError(t, err, "a refusal is never an error")
			require.Equal(t, tt.allowed, d.Allowed)
			require.Equal(t, tt.retry, d.RetryAfter)
			require.Equal(t, tt.takes, time.Since(start))
			require.Equal(t, limit, d.Limit)
		})
	}
	inBubble(t, "waits only as long after a lost race", func(t *testing.T) {
		l := &scripted{list: []answer{refused(time.Second), refused(time.Second), refused(700 * time.Millisecond)}}
		start := time.Now()
		d, err := limiter.AllowWithin(ctx, l, waitKey, limit, 1, 2500*time.Millisecond)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Equal(t, 700*time.Millisecond, d.RetryAfter, "the last answer")
		require.LessOrEqual(t, time.Since(start), 2250*time.Millisecond)
	})
	inBubble(t, "a nearer deadline is a shorter timeout", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		start := time.Now()
		d, err := limiter.AllowWithin(ctx, &scripted{list: []answer{refused(time.Second)}}, waitKey, limit, 1, time.Minute)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Equal(t, time.Second, d.RetryAfter)
		require.Zero(t, time.Since(start))
	})
	inBubble(t, "a context that ends is an error", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Millisecond, cancel)
		d, err := limiter.AllowWithin(ctx, &scripted{list: []answer{refused(time.Second)}}, waitKey, limit, 1, time.Minute)
		require.Equal(t, context.Canceled, err)
		require.Zero(t, d)
	})
	inBubble(t, "a place in a queue", func(t *testing.T) {
		q, limit := new(queueLimiter), limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(3)
		start := time.Now()
		for i := range time.Duration(3) {
			d, err := limiter.AllowWithin(ctx, q, waitKey, limit, 1, time.Second)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Equal(t, i*time.Second, time.Since(start))
		}
		d, err := limiter.AllowWithin(ctx, q, waitKey, limit, 1, 0)
		require.NoError(t, err)
		require.False(t, d.Allowed, "without time there is no queue")
		require.Equal(t, time.Second, d.RetryAfter)
	})
}
