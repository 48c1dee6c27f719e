package limiter_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// tallies is a store that can count and forget, as teams have them: the expiry is set when a key is made.
type tallies struct {
	mu    sync.Mutex
	keys  map[string]*tallied
	steps []int64 // the n of each call
	ttls  []time.Duration
	// before runs ahead of each step, without the lock; its error is the step's.
	before func(ctx context.Context, n int64) error
}

type tallied struct {
	n    int64
	gone time.Time
}

func (s *tallies) IncrBy(ctx context.Context, key string, n int64, ttl time.Duration) (int64, error) {
	if s.before != nil {
		if err := s.before(ctx, n); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, n)
	s.ttls = append(s.ttls, ttl)
	if s.keys == nil {
		s.keys = map[string]*tallied{}
	}
	now := time.Now()
	k := s.keys[key]
	if k == nil || !now.Before(k.gone) {
		k = &tallied{gone: now.Add(ttl)}
		s.keys[key] = k
	}
	k.n += n
	return k.n, nil
}

func (s *tallies) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.keys)
}

func counting(t *testing.T, c limiter.Counter) *limiter.Counting {
	t.Helper()
	l, err := limiter.NewCounting(c, "shop")
	require.NoError(t, err)
	return l
}

func TestNewCounting(t *testing.T) {
	l, err := limiter.NewCounting(nil, "shop")
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.Nil(t, l)
}

func TestCounting(t *testing.T) {
	ctx := context.Background()
	fixed := limiter.PerMinute(5).With(limiter.FixedWindow)
	// allow takes n at the counter and checks what never differs.
	allow := func(t *testing.T, l *limiter.Counting, limit limiter.Limit, n int) limiter.Decision {
		t.Helper()
		d, err := l.Allow(ctx, waitKey, limit, n)
		require.NoError(t, err)
		require.Equal(t, limit, d.Limit)
		require.Equal(t, d.Allowed && n > 0 && limit != limiter.Unlimited, d.Mark != 0, "marks bookings")
		require.Equal(t, d.Allowed, d.RetryAfter == 0)
		return d
	}

	inBubble(t, "a window", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		time.Sleep(17 * time.Second)
		rest := 43 * time.Second
		require.Equal(t, limiter.Decision{Allowed: true, Via: limiter.ViaStore, Limit: fixed, Remaining: 5}, allow(t, l, fixed, 0))
		require.Equal(t, limiter.Decision{
			Allowed: true, Via: limiter.ViaStore, Limit: fixed, Remaining: 3, ResetAfter: rest, NextAfter: rest, Mark: time.Now().UnixNano(),
		}, allow(t, l, fixed, 2))
		require.Equal(t, limiter.Decision{
			Via: limiter.ViaStore, Limit: fixed, Remaining: 3, RetryAfter: rest, ResetAfter: rest, NextAfter: rest,
		}, allow(t, l, fixed, 4))
		require.True(t, allow(t, l, fixed, 3).Allowed)
		require.False(t, allow(t, l, fixed, 1).Allowed)
		require.Equal(t, 0, allow(t, l, fixed, 0).Remaining)
		require.Equal(t, []int64{0, 2, 4, -4, 3, 1, -1, 0}, s.steps)
		require.Contains(t, s.keys, "shop:test:{k}:fw.946684800-946684860")
		require.Len(t, s.keys, 1)
	})
	inBubble(t, "its edges", func(t *testing.T) {
		l := counting(t, new(tallies))
		time.Sleep(time.Minute - 1)
		require.True(t, allow(t, l, fixed, 5).Allowed)
		d := allow(t, l, fixed, 1)
		require.False(t, d.Allowed, "one tick too early")
		require.Equal(t, time.Duration(1), d.RetryAfter)
		time.Sleep(time.Nanosecond)
		d = allow(t, l, fixed, 5)
		require.True(t, d.Allowed, "when it said")
		require.Equal(t, time.Minute, d.ResetAfter)
		time.Sleep(time.Minute - 1)
		require.False(t, allow(t, l, fixed, 1).Allowed)
	})
	inBubble(t, "OVF-07 a wait under a second is a wait", func(t *testing.T) {
		l := counting(t, new(tallies))
		time.Sleep(59*time.Second + 600*time.Millisecond)
		allow(t, l, fixed, 5)
		d := allow(t, l, fixed, 1)
		require.False(t, d.Allowed)
		require.Equal(t, 400*time.Millisecond, d.RetryAfter)
	})
	inBubble(t, "keys", func(t *testing.T) {
		for _, tt := range []struct {
			prefix string
			key    limiter.Key
			limit  limiter.Limit
			want   string
		}{
			{"shop", waitKey, fixed, "shop:test:{k}:fw.946684800-946684860"},
			{"", waitKey, fixed, "test:{k}:fw.946684800-946684860"},
			{"shop", limiter.Key{ID: "old:k"}, fixed, "old:k:fw.946684800-946684860"},
			{"shop", waitKey, limiter.Per(5, 1700).With(limiter.FixedWindow), "shop:test:{k}:fw.946684799999998500-946684800000000200"},
			{"shop", waitKey, fixed.Aligned(limiter.Month, ""), "shop:test:{k}:fw.946684800-949363200"},
			{"shop", waitKey, fixed.Aligned(limiter.Day, "Asia/Shanghai"), "shop:test:{k}:fw.946656000-946742400"},
		} {
			s := new(tallies)
			l, err := limiter.NewCounting(s, tt.prefix)
			require.NoError(t, err)
			_, err = l.Allow(ctx, tt.key, tt.limit, 1)
			require.NoError(t, err)
			require.Len(t, s.keys, 1)
			require.Contains(t, s.keys, tt.want)
		}
	})
	inBubble(t, "identities and spaces count apart", func(t *testing.T) {
		l := counting(t, new(tallies))
		for _, k := range []limiter.Key{{Space: "a", ID: "x"}, {Space: "a", ID: "y"}, {Space: "b", ID: "x"}} {
			d, err := l.Allow(ctx, k, fixed, 5)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
	})
	inBubble(t, "WIN-03 TTL-10 a step that lands behind the edge counts before it", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		require.True(t, allow(t, l, fixed, 5).Allowed)
		time.Sleep(59*time.Second + 500*time.Millisecond)
		s.before = func(context.Context, int64) error {
			time.Sleep(time.Second)
			return nil
		}
		d := allow(t, l, fixed, 1)
		require.False(t, d.Allowed, "the key of the old window still says 5")
		require.Equal(t, 500*time.Millisecond, d.RetryAfter, "from the reading")
		require.Equal(t, []int64{5, 1}, s.steps, "nothing is given back to a window that is over")
		s.before = nil
		require.True(t, allow(t, l, fixed, 5).Allowed, "and it costs the new one nothing")
	})
	inBubble(t, "OVF-02 OVF-11 lives are whole milliseconds, longer than the window", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		time.Sleep(7*time.Second + 1)
		allow(t, l, fixed, 5)
		allow(t, l, fixed, 5)
		allow(t, l, fixed, 0)
		require.Len(t, s.ttls, 4)
		for _, ttl := range s.ttls {
			require.Equal(t, 53*time.Second+1001*time.Millisecond, ttl, "one choice per decision")
		}
		for _, p := range []time.Duration{time.Microsecond, 1500, time.Second, 7 * 24 * time.Hour, limiter.MaxPeriod} {
			s.ttls = nil
			d := allow(t, l, limiter.Per(120, p).With(limiter.FixedWindow), 1)
			require.Zero(t, s.ttls[0]%time.Millisecond)
			require.GreaterOrEqual(t, s.ttls[0], d.ResetAfter+1001*time.Millisecond)
			require.Less(t, s.ttls[0], d.ResetAfter+1002*time.Millisecond)
		}
	})
	// Bubbles begin on Saturday 2000-01-01 00:00 UTC.
	for _, tt := range []struct {
		name  string
		align limiter.Unit
		zone  string
		rest  time.Duration
	}{
		{"a day", limiter.Day, "", 24 * time.Hour},
		{"WIN-13 a day of one zone, wherever the node is", limiter.Day, "Asia/Shanghai", 16 * time.Hour},
		{"a week", limiter.Week, "UTC", 48 * time.Hour},
		{"a month", limiter.Month, "UTC", 31 * 24 * time.Hour},
		{"a month of a zone", limiter.Month, "America/New_York", 5 * time.Hour},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			l, limit := counting(t, new(tallies)), fixed.Aligned(tt.align, tt.zone)
			d := allow(t, l, limit, 5)
			require.True(t, d.Allowed)
			require.Equal(t, tt.rest, d.ResetAfter)
			time.Sleep(time.Hour)
			d = allow(t, l, limit, 1)
			require.False(t, d.Allowed)
			require.Equal(t, tt.rest-time.Hour, d.RetryAfter)
			time.Sleep(d.RetryAfter - 1)
			require.False(t, allow(t, l, limit, 1).Allowed)
			time.Sleep(time.Nanosecond)
			require.True(t, allow(t, l, limit, 5).Allowed)
		})
	}
	inBubble(t, "a new rate acts at once, a new period starts a new count", func(t *testing.T) {
		l := counting(t, new(tallies))
		allow(t, l, fixed, 4)
		less := limiter.PerMinute(3).With(limiter.FixedWindow)
		d := allow(t, l, less, 1)
		require.False(t, d.Allowed)
		require.Zero(t, d.Remaining)
		require.Equal(t, 6, allow(t, l, limiter.PerMinute(10).With(limiter.FixedWindow), 0).Remaining)
		require.Equal(t, 5, allow(t, l, limiter.PerHour(5).With(limiter.FixedWindow), 0).Remaining,
			"a window with the same start is not the same window")
	})
	inBubble(t, "COST-03 above the quota", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		time.Sleep(10 * time.Second)
		want := limiter.Decision{Limit: fixed, RetryAfter: limiter.Never, ResetAfter: 50 * time.Second, NextAfter: 50 * time.Second}
		require.Equal(t, want, allow(t, l, fixed, 6))
		require.Equal(t, want, allow(t, l, fixed, math.MaxInt))
		require.Empty(t, s.steps, "the store is not asked")
	})
	inBubble(t, "COST-04 the quota itself on a used key", func(t *testing.T) {
		l := counting(t, new(tallies))
		allow(t, l, fixed, 1)
		require.Equal(t, time.Minute, allow(t, l, fixed, 5).RetryAfter)
		time.Sleep(time.Minute)
		require.True(t, allow(t, l, fixed, 5).Allowed)
	})
	inBubble(t, "COST-05 COST-07 a refusal costs nothing", func(t *testing.T) {
		l, limit := counting(t, new(tallies)), limiter.PerMinute(100).With(limiter.FixedWindow)
		require.False(t, allow(t, l, limit, 101).Allowed)
		require.Equal(t, 40, allow(t, l, limit, 60).Remaining)
		d := allow(t, l, limit, 50)
		require.False(t, d.Allowed)
		require.Equal(t, 40, d.Remaining)
		require.True(t, allow(t, l, limit, 40).Allowed)
	})
	inBubble(t, "ZERO-04 ZERO-08 the words of their own never touch the store", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		for _, n := range []int{0, 1, math.MaxInt} {
			require.Equal(t, limiter.Decision{Allowed: true, Limit: limiter.Unlimited, Remaining: math.MaxInt}, allow(t, l, limiter.Unlimited, n))
		}
		require.Equal(t, limiter.Decision{Allowed: true, Limit: limiter.DenyAll}, allow(t, l, limiter.DenyAll, 0))
		require.Equal(t, limiter.Decision{Limit: limiter.DenyAll, RetryAfter: limiter.Never}, allow(t, l, limiter.DenyAll, 1))
		require.Empty(t, s.steps)
	})
	inBubble(t, "ZERO-06 what is malformed never touches the store", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		for _, tt := range []struct {
			limit limiter.Limit
			n     int
			says  string
		}{
			{limiter.Limit{}, 1, "zero limit"},
			{limiter.PerMinute(0).With(limiter.FixedWindow), 1, "rate 0"},
			{limiter.PerMinute(5), 1, "fixed_window only, not token_bucket"},
			{fixed.With(limiter.LeakyBucket), 1, "not leaky_bucket"},
			{fixed.With(limiter.SlidingWindow), 1, "not sliding_window"},
			{fixed.With(limiter.SlidingLog), 0, "not sliding_log"},
			{fixed.Aligned(limiter.Day, "Asia/Atlantis"), 1, "Atlantis"},
			{fixed, -1, "-1 units"},
			{limiter.Unlimited, -1, "-1 units"},
		} {
			d, err := l.Allow(ctx, waitKey, tt.limit, tt.n)
			require.ErrorIs(t, err, limiter.ErrInvalid)
			require.NotErrorIs(t, err, limiter.ErrUnavailable)
			require.ErrorContains(t, err, tt.says)
			require.Zero(t, d)
		}
		require.Empty(t, s.steps)
	})
	inBubble(t, "many limits", func(t *testing.T) {
		l := counting(t, new(tallies))
		for range 2 {
			for i := 1; i <= 600; i++ {
				limit := limiter.PerHour(1000 + i).With(limiter.FixedWindow)
				require.True(t, allow(t, l, limit, 0).Allowed)
				require.Equal(t, 1000+i, allow(t, l, limit, 0).Remaining)
			}
		}
	})
	t.Run("over a counter function", func(t *testing.T) {
		l := counting(t, limiter.CounterFunc(func(context.Context, string, int64, time.Duration) (int64, error) { return 5, nil }))
		require.True(t, allow(t, l, fixed, 1).Allowed)
	})
}

func TestCountingErrors(t *testing.T) {
	fixed := limiter.PerMinute(5).With(limiter.FixedWindow)
	boom := errors.New("boom")

	// Fault 14 of published designs: an error that is thrown away becomes a refusal.
	inBubble(t, "fault 14: an error is no refusal", func(t *testing.T) {
		for _, cause := range []error{boom, context.DeadlineExceeded, context.Canceled} {
			s := &tallies{before: func(context.Context, int64) error { return cause }}
			d, err := counting(t, s).Allow(context.Background(), waitKey, fixed, 1)
			require.ErrorIs(t, err, limiter.ErrUnavailable)
			require.ErrorIs(t, err, cause)
			require.Zero(t, d)
		}
	})
	inBubble(t, "REF-08 a context that is done takes nothing", func(t *testing.T) {
		s := new(tallies)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, limit := range []limiter.Limit{fixed, limiter.Unlimited} {
			d, err := counting(t, s).Allow(ctx, waitKey, limit, 1)
			require.Equal(t, context.Canceled, err)
			require.Zero(t, d)
		}
		require.Empty(t, s.steps)
	})
	inBubble(t, "REF-09 a client that leaves is no fault of the store", func(t *testing.T) {
		l := counting(t, &tallies{before: func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			return errors.Join(boom, ctx.Err())
		}})
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		d, err := l.Allow(ctx, waitKey, fixed, 1)
		require.Equal(t, context.Canceled, err)
		require.Zero(t, d)
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = l.Allow(ctx, waitKey, fixed, 1)
		require.Equal(t, context.DeadlineExceeded, err)
	})
	inBubble(t, "units come back though the client has left", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		_, err := l.Allow(context.Background(), waitKey, fixed, 4)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s.before = func(ctx context.Context, n int64) error {
			cancel()
			if n < 0 {
				return ctx.Err()
			}
			return nil
		}
		d, err := l.Allow(ctx, waitKey, fixed, 2)
		require.NoError(t, err, "the decision was made")
		require.False(t, d.Allowed)
		require.Equal(t, []int64{4, 2, -2}, s.steps)
	})
	inBubble(t, "a store that will not take them back", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		_, err := l.Allow(context.Background(), waitKey, fixed, 4)
		require.NoError(t, err)
		s.before = func(ctx context.Context, n int64) error {
			if n < 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		start := time.Now()
		d, err := l.Allow(context.Background(), waitKey, fixed, 2)
		require.NoError(t, err, "it is still a refusal")
		require.False(t, d.Allowed)
		require.Equal(t, 1, d.Remaining)
		require.Equal(t, time.Minute, d.RetryAfter)
		require.Equal(t, 250*time.Millisecond, time.Since(start), "and holds nobody for long")
		d, err = l.Allow(context.Background(), waitKey, fixed, 1)
		require.NoError(t, err)
		require.False(t, d.Allowed, "what was not given back is lost")
		time.Sleep(time.Minute)
		d, err = l.Allow(context.Background(), waitKey, fixed, 5)
		require.NoError(t, err)
		require.True(t, d.Allowed, "until the window ends")
	})
	inBubble(t, "a sum that cannot be", func(t *testing.T) {
		for _, sum := range []int64{math.MinInt64, math.MinInt64 + 1} {
			l := counting(t, limiter.CounterFunc(func(context.Context, string, int64, time.Duration) (int64, error) { return sum, nil }))
			_, err := l.Allow(context.Background(), waitKey, fixed, 1)
			require.ErrorIs(t, err, limiter.ErrUnavailable)
		}
		l := counting(t, limiter.CounterFunc(func(context.Context, string, int64, time.Duration) (int64, error) { return math.MaxInt64, nil }))
		d, err := l.Allow(context.Background(), waitKey, fixed, 1)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Zero(t, d.Remaining)
	})
}

// Fault 5 of published designs: "count < limit" after an increment admits one too few, and refused hits that increment
// keep a client locked out.
func TestFault5CountAfterIncrement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := counting(t, new(tallies)), limiter.PerMinute(5).With(limiter.FixedWindow)
		passed := 0
		for range 600 {
			d, err := l.Allow(context.Background(), waitKey, limit, 1)
			require.NoError(t, err)
			if d.Allowed {
				passed++
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, 50, passed, "five in each of ten minutes")
	})
}

// Fault 7 of published designs: the expiry in a second command is lost in a crash, or moved by every hit.
func TestFault7ExpiryInTheSameStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(tallies)
		l, limit := counting(t, s), limiter.PerMinute(10).With(limiter.FixedWindow)
		for range 60 {
			_, err := l.Allow(context.Background(), waitKey, limit, 1)
			require.NoError(t, err)
			time.Sleep(500 * time.Millisecond)
		}
		for _, ttl := range s.ttls {
			require.Positive(t, ttl)
		}
		// Even a store that never forgets blocks nobody: the next window has a key of its own.
		for _, k := range s.keys {
			k.gone = k.gone.AddDate(100, 0, 0)
		}
		time.Sleep(30 * time.Second)
		d, err := l.Allow(context.Background(), waitKey, limit, 10)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	})
}

func TestCountingNeverMints(t *testing.T) {
	ctx := context.Background()
	limit := limiter.PerMinute(5).With(limiter.FixedWindow)
	// passes counts the single takes that pass now.
	passes := func(t *testing.T, l *limiter.Counting) (n int) {
		t.Helper()
		for range 20 {
			d, err := l.Allow(ctx, waitKey, limit, 1)
			require.NoError(t, err)
			require.LessOrEqual(t, d.Remaining, 5)
			if d.Allowed {
				n++
			}
		}
		return n
	}
	inBubble(t, "REF-10 units given back to a key that was lost", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		passes(t, l)
		s.before = func(_ context.Context, n int64) error {
			if n < 0 {
				s.lose()
			}
			return nil
		}
		d, err := l.Allow(ctx, waitKey, limit, 4)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		s.before = nil
		require.Equal(t, 5, passes(t, l), "the lost window starts again, and holds no more than its quota")
	})
	inBubble(t, "though putting it right failed", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		passes(t, l)
		given := false
		s.before = func(_ context.Context, n int64) error {
			switch {
			case n < 0:
				s.lose()
				given = true
			case given:
				return errors.New("down")
			}
			return nil
		}
		_, err := l.Allow(ctx, waitKey, limit, 4)
		require.NoError(t, err)
		s.before = nil
		d, err := l.Allow(ctx, waitKey, limit, 0)
		require.NoError(t, err)
		require.Equal(t, 5, d.Remaining, "less than nothing taken reads as nothing")
		require.Zero(t, d.ResetAfter)
		require.Equal(t, 5, passes(t, l))
	})
	inBubble(t, "and fails again", func(t *testing.T) {
		sums := []int64{-3, 0}
		l := counting(t, limiter.CounterFunc(func(context.Context, string, int64, time.Duration) (int64, error) {
			sum := sums[0]
			if sums = sums[1:]; len(sums) == 0 {
				return 0, errors.New("down")
			}
			return sum, nil
		}))
		d, err := l.Allow(ctx, waitKey, limit, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Zero(t, d)
	})
	inBubble(t, "REF-04 giving back is a step, not a write", func(t *testing.T) {
		s := new(tallies)
		l := counting(t, s)
		_, err := l.Allow(ctx, waitKey, limit, 3)
		require.NoError(t, err)
		once := true
		s.before = func(_ context.Context, n int64) error {
			if n > 0 || !once {
				return nil
			}
			once = false // somebody takes between the two steps of a refused take
			_, err := l.Allow(ctx, waitKey, limit, 1)
			return err
		}
		_, err = l.Allow(ctx, waitKey, limit, 3)
		require.NoError(t, err)
		// The one in between saw the units of the refused take, and gave its own back.
		require.Equal(t, []int64{3, 3, 1, -1, -3}, s.steps)
		require.Equal(t, 2, passes(t, l))
	})
	for name, most := range map[string]int{"64 at once": 1, "64 at once with costs": 4} {
		inBubble(t, name, func(t *testing.T) {
			pause := func() { time.Sleep(time.Duration(rand.IntN(1_000_000))) }
			s := &tallies{before: func(context.Context, int64) error {
				pause()
				return nil
			}}
			l, limit := counting(t, s), limiter.Per(100, 10*time.Millisecond).With(limiter.FixedWindow)
			var (
				mu     sync.Mutex
				passed = map[int64]int{} // units per window
				errs   []error
				wg     sync.WaitGroup
			)
			for range 64 {
				wg.Go(func() {
					for range 60 {
						pause()
						n := 1 + rand.IntN(most)
						d, err := l.Allow(ctx, waitKey, limit, n)
						mu.Lock()
						errs = append(errs, err)
						if d.Allowed {
							passed[d.Mark/int64(limit.Period)] += n
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.NoError(t, errors.Join(errs...))
			require.Greater(t, len(passed), 1)
			full := 0
			for w, n := range passed {
				require.LessOrEqual(t, n, 100, "window %d", w)
				if n == 100 {
					full++
				}
			}
			if most == 1 {
				require.Positive(t, full, "single units lose nothing to each other")
			}
			for key, k := range s.keys {
				require.GreaterOrEqual(t, k.n, int64(0), key)
			}
		})
	}
}

// TestCountingIsFixedWindow compares it, taken one by one, with the step of the algorithm.
func TestCountingIsFixedWindow(t *testing.T) {
	type step struct {
		Sleep time.Duration
		N     int
		Rate  int
	}
	rapid.Check(t, func(rt *rapid.T) {
		limit := limiter.Limit{Period: rapid.SampledFrom([]time.Duration{
			1500, time.Millisecond, 700 * time.Millisecond, time.Second, time.Minute,
		}).Draw(rt, "period")}.With(limiter.FixedWindow)
		if rapid.Bool().Draw(rt, "aligned") {
			limit = limit.Aligned(limiter.Day, "Asia/Shanghai")
			limit.Period = 24 * time.Hour
		}
		rate := rapid.IntRange(1, 10).Draw(rt, "rate")
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				Sleep: time.Duration(rapid.Int64Range(0, int64(limit.Period)/2).Draw(rt, "sleep")),
				N:     rapid.IntRange(0, 6).Draw(rt, "n"),
				Rate:  rapid.SampledFrom([]int{rate, rate, rate, rate + 3, max(1, rate-3)}).Draw(rt, "new rate"),
			}
		}), 1, 40).Draw(rt, "steps")

		var got, want []limiter.Decision
		var failed error
		synctest.Test(t, func(*testing.T) {
			l, err := limiter.NewCounting(new(tallies), "shop")
			failed = err
			var s limiter.State
			for _, step := range steps {
				time.Sleep(step.Sleep)
				limit.Rate = step.Rate
				d, err := l.Allow(context.Background(), waitKey, limit, step.N)
				rule, err2 := limiter.NewRule(limit)
				if failed = errors.Join(failed, err, err2); failed != nil {
					return
				}
				w := rule.Take(&s, limiter.Reading{Now: time.Now().UnixNano()}, step.N, 0)
				if w.RetryAfter == limiter.Never { // decided without the store
					w.Remaining, w.ResetAfter, w.NextAfter = d.Remaining, d.ResetAfter, d.NextAfter
				} else {
					w.Via = limiter.ViaStore
				}
				got, want = append(got, d), append(want, w)
			}
		})
		require.NoError(rt, failed)
		require.Equal(rt, want, got)
	})
}

func TestCountingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := counting(t, new(tallies)), limiter.PerSecond(2).With(limiter.FixedWindow)
		start := time.Now()
		for i := range time.Duration(6) {
			_, err := limiter.Wait(context.Background(), l, waitKey, limit, 1)
			require.NoError(t, err)
			require.Equal(t, i/2*time.Second, time.Since(start))
		}
		_, err := limiter.Wait(context.Background(), l, waitKey, limit, 3)
		require.ErrorIs(t, err, limiter.ErrNever)
		require.True(t, strings.HasSuffix(err.Error(), "3 units of 2/s fixed_window"), err.Error())
	})
}
