package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// Faults that limiters in the field have shown. Each must be absent here.
func TestFieldFaults(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T){
		"MEM-01 one request from each of many addresses, then silence": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			n := 200_000
			if testing.Short() {
				n = 20_000
			}
			for i := range n {
				allow(t, l, id(i), limiter.PerMinute(10), 1)
			}
			time.Sleep(time.Hour)
			traffic(t, l, memory.PassTime)
			require.LessOrEqual(t, l.Len(), 1)
		},
		"MEM-03 lists of one entry": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			for i := range 10_000 {
				allow(t, l, id(i), limiter.PerMinute(10).With(limiter.SlidingLog), 1)
			}
			require.Equal(t, 40_000, l.Stats().LogEntries)
			time.Sleep(2 * time.Minute)
			traffic(t, l, memory.PassTime)
			require.LessOrEqual(t, l.Len(), 1)
			require.Zero(t, l.Stats().LogEntries)
		},
		"MEM-05 a flood beyond the cap gets no fresh bursts": func(t *testing.T) {
			l := newLimiter(t, memory.Config{MaxKeys: 1000})
			limit := limiter.PerHour(5)
			passed := 0
			for range 10 {
				for i := range 5000 {
					if allow(t, l, id(i), limit, 1).Allowed {
						passed++
					}
				}
			}
			require.LessOrEqual(t, passed, 5*(1000+8))
			require.Equal(t, 1000, l.Len())
		},
		"MEM-06 a flood of other keys does not free a refused one": func(t *testing.T) {
			l := newLimiter(t, memory.Config{MaxKeys: 1000})
			limit := limiter.PerMinute(5)
			victim := limiter.Key{Space: "login", ID: "x"}
			for range 6 {
				allow(t, l, victim, limit, 1)
			}
			for i := range 100_000 {
				allow(t, l, id(i), limit, 1)
			}
			require.False(t, allow(t, l, victim, limit, 1).Allowed)
		},
		"MEM-10 unlimited keys hold no state": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			for i := range 100_000 {
				require.True(t, allow(t, l, id(i), limiter.Unlimited, 1).Allowed)
				require.False(t, allow(t, l, id(i), limiter.DenyAll, 1).Allowed)
			}
			require.Zero(t, l.Len())
		},
		"LOCK-03 no call sweeps the table": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			for i := range 50_000 {
				allow(t, l, id(i), limiter.PerSecond(1), 1)
			}
			time.Sleep(time.Minute)
			before := l.Len()
			for range 50 { // each call frees one segment's keys at most
				time.Sleep(time.Minute)
				allow(t, l, id(0), limiter.PerHour(1), 1)
				require.LessOrEqual(t, before-l.Len(), 2*384)
				before = l.Len()
			}
		},
		"STOP-01 STOP-02 many limiters leave nothing behind": func(t *testing.T) {
			before := runtime.NumGoroutine()
			for range 100 {
				l, err := memory.New(memory.Config{})
				require.NoError(t, err)
				allow(t, l, id(0), limiter.PerHour(1), 1)
				require.LessOrEqual(t, runtime.NumGoroutine(), before)
				l.Close()
				l.Close()
				_, err = l.Allow(ctx, id(0), limiter.PerHour(1), 1)
				require.ErrorIs(t, err, limiter.ErrClosed)
				_, err = l.AllowAll(ctx, time.Time{}, nil)
				require.ErrorIs(t, err, limiter.ErrClosed)
				require.ErrorIs(t, l.Reset(ctx, id(0)), limiter.ErrClosed)
				require.ErrorIs(t, l.Refund(ctx, time.Time{}, &limiter.Take{}), limiter.ErrClosed)
				require.Zero(t, l.Len())
			}
		},
		"STOP-05 cleaning needs no collector": func(t *testing.T) {
			l := newLimiter(t, memory.Config{MaxKeys: 100})
			for i := range 1000 {
				allow(t, l, id(i), limiter.PerSecond(1), 1)
				time.Sleep(100 * time.Millisecond)
			}
			require.Zero(t, l.Overflow())
		},
		"OVF-05 a clock behind the key's does not purge it": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			limit := limiter.PerHour(1)
			later := []limiter.Take{{Key: id(0), Limit: limit, N: 1}}
			_, err := l.AllowAll(ctx, time.Now().Add(48*time.Hour), later)
			require.NoError(t, err)
			traffic(t, l, 2*memory.PassTime)
			require.False(t, allow(t, l, id(0), limit, 1).Allowed)
			require.Equal(t, 2, l.Len())
		},
		"CLK-01 CLK-04 clocks in turns mint nothing": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			limit, at := limiter.PerSecond(1), time.Now()
			passed := 0
			for range 100 {
				for _, at := range []time.Time{at.Add(time.Second), at} {
					ok, err := l.AllowAll(ctx, at, []limiter.Take{{Key: id(0), Limit: limit, N: 1}})
					require.NoError(t, err)
					if ok {
						passed++
					}
				}
			}
			require.Equal(t, 1, passed)
		},
		"CLK-03 a late stamp neither refills nor moves the clock back": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			at := time.Now()
			passed := 0
			for i, late := range []time.Duration{0, 0, 0, 0, time.Second, 0, 0, 0, 0, 0} {
				ok, err := l.AllowAll(ctx, at.Add(time.Second-late), []limiter.Take{{Key: id(0), Limit: limiter.PerSecond(5), N: 1}})
				require.NoError(t, err, i)
				if ok {
					passed++
				}
			}
			require.Equal(t, 5, passed)
		},
		"CLK-05 a reading from before the lock does not rewind": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			limit, at := limiter.PerSecond(100).WithBurst(1000), time.Now()
			left := 0
			for _, step := range []struct {
				after time.Duration
				n     int
			}{{10 * time.Second, 1000}, {9 * time.Second, 0}, {9 * time.Second, 1}, {11 * time.Second, 0}} {
				takes := []limiter.Take{{Key: id(0), Limit: limit, N: step.n}}
				_, err := l.AllowAll(ctx, at.Add(step.after), takes)
				require.NoError(t, err)
				left = takes[0].Decision.Remaining
			}
			require.Equal(t, 100, left)
		},
		"9 a limiter per handler counts for itself, one shared counts once": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			passed := 0
			for range 10 {
				if allow(t, l, limiter.Key{Space: "p", ID: "k"}, limiter.PerHour(3), 1).Allowed {
					passed++
				}
			}
			require.Equal(t, 3, passed)
		},
		"12 no fraction is thrown away": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			limit := limiter.PerSecond(10).WithBurst(1)
			passed := 0
			for range 100 * 1000 / 70 { // every 70 ms for 100 s
				if allow(t, l, id(0), limit, 1).Allowed {
					passed++
				}
				time.Sleep(70 * time.Millisecond)
			}
			require.InDelta(t, 714, passed, 1) // each second try: the first comes too early
		},
		"13 a leaky bucket does not let a full bucket through at once": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			limit := limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(5)
			require.True(t, allow(t, l, id(0), limit, 1).Allowed)
			for range 4 {
				require.False(t, allow(t, l, id(0), limit, 1).Allowed)
			}
			for want := range 4 {
				takes := []limiter.Take{{Key: id(0), Limit: limit, N: 1, MaxDelay: time.Second}}
				_, err := l.AllowAll(ctx, time.Time{}, takes)
				require.NoError(t, err)
				require.Equal(t, time.Duration(want+1)*100*time.Millisecond, takes[0].Decision.Delay)
			}
		},
		"17 no filler per key, no rate too high": func(t *testing.T) {
			l := newLimiter(t, memory.Config{})
			before := runtime.NumGoroutine()
			for i := range 1000 {
				allow(t, l, id(i), limiter.Per(1e9, time.Microsecond), 1)
			}
			require.LessOrEqual(t, runtime.NumGoroutine(), before)
		},
	})

	t.Run("MEM-08 inserts at the cap are cheap", func(t *testing.T) {
		if raceEnabled || testing.Short() {
			t.Skip("measures")
		}
		// The work per insert does not grow with the table.
		per := map[int]time.Duration{}
		for _, cap := range []int{2000, 200_000} {
			l := newLimiter(t, memory.Config{MaxKeys: cap})
			for i := range cap {
				allow(t, l, id(i), limiter.PerHour(1), 1)
			}
			best := time.Hour
			for round := range 5 {
				start := time.Now()
				for i := range 20_000 {
					allow(t, l, id(cap+20_000*round+i), limiter.PerHour(1), 1)
				}
				best = min(best, time.Since(start)/20_000)
			}
			per[cap] = best
		}
		t.Log(per)
		require.Less(t, per[200_000], 10*per[2000]+5*time.Microsecond)
	})

	t.Run("LOCK-02 groups, sweeps and resets in all orders", func(t *testing.T) {
		l := newLimiter(t, memory.Config{MaxKeys: 300})
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for n := range 1500 {
					switch (g + n) % 4 {
					case 0:
						l.Tend(time.Now().Add(time.Hour))
					case 1:
						_ = l.Reset(ctx, id(n%400))
					default:
						takes := make([]limiter.Take, 4)
						for k := range takes {
							takes[k] = limiter.Take{Key: id((n*7 + k*g) % 400), Limit: limiter.PerSecond(5), N: 1}
						}
						_, _ = l.AllowAll(ctx, time.Time{}, takes)
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, ctx.Err())
		verify(t, l)
	})

	t.Run("LOCK-05 keys do not wait for each other", func(t *testing.T) {
		// Many keys in parallel: an answer for each, at any number of addresses, and no call fails for contention.
		l := newLimiter(t, memory.Config{})
		together(200, func(g int) {
			for i := range 200 {
				if d, err := l.Allow(ctx, id(200*g+i), limiter.PerHour(1), 1); err != nil || !d.Allowed {
					panic(fmt.Sprint(d, err))
				}
			}
		})
		require.Equal(t, 40_000, l.Len())
		verify(t, l)
	})
}

func TestConfig(t *testing.T) {
	_, err := memory.New(memory.Config{MaxKeys: -1, MaxLogEntries: -2})
	require.ErrorContains(t, err, "MaxKeys")
	require.ErrorContains(t, err, "MaxLogEntries")
}

func TestEndedContext(t *testing.T) {
	l := newLimiter(t, memory.Config{})
	ended, cancel := context.WithCancel(ctx)
	cancel()
	d, err := l.Allow(ended, id(0), limiter.PerHour(1), 1)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, d)
	takes := []limiter.Take{{Key: id(0), Limit: limiter.PerHour(1), N: 1, Decision: limiter.Decision{Mark: 1}}}
	_, err = l.AllowAll(ended, time.Time{}, takes)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, takes[0].Decision)
	require.ErrorIs(t, l.Reset(ended, id(0)), context.Canceled)
	require.ErrorIs(t, l.Refund(ended, time.Time{}, &takes[0]), context.Canceled)
	require.Zero(t, l.Len())
	require.True(t, allow(t, l, id(0), limiter.PerHour(1), 1).Allowed)
}
