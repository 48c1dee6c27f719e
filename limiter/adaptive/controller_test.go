package adaptive_test

import (
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		c     adaptive.Config
		bound int
		limit float64
	}{
		"the middle of 5 and 500": {adaptive.Config{Max: 500}, 50, 50},
		"a small Max":             {adaptive.Config{Max: 3}, 3, 3},
		"given":                   {adaptive.Config{Min: 2, Max: 50, Fixed: 20}, 20, 20},
		"rate":                    {adaptive.Config{Target: adaptive.Rate}, math.MaxInt, 1},
		"rate, given":             {adaptive.Config{Target: adaptive.Rate, Min: 0.2, Max: 2, Fixed: 0.5}, math.MaxInt, 0.5},
	} {
		a, err := adaptive.New(c.c)
		require.NoError(t, err, name)
		require.Equal(t, c.bound, a.Bound(), name)
		require.Equal(t, c.limit, a.State().Limit, name)
		require.Equal(t, adaptive.ReasonStart, a.State().Reason, name)
		require.NoError(t, a.Close())
	}
}

func TestConfigIsValidated(t *testing.T) {
	nan := math.NaN()
	ok := adaptive.Config{Max: 100}
	for name, change := range map[string]func(*adaptive.Config){
		"Max":                   func(c *adaptive.Config) { c.Max = 0 },
		"Max NaN":               func(c *adaptive.Config) { c.Max = nan },
		"Max 2e+06":             func(c *adaptive.Config) { c.Max = 2e6 },
		"Max -1":                func(c *adaptive.Config) { c.Max = -1 },
		"Min 0.5":               func(c *adaptive.Config) { c.Min = 0.5 },
		"Min NaN":               func(c *adaptive.Config) { c.Min = nan },
		"Min 101 is above Max":  func(c *adaptive.Config) { c.Min = 101 },
		"Min 1.9 is no whole":   func(c *adaptive.Config) { c.Min = 1.9 },
		"Max 99.5 is no whole":  func(c *adaptive.Config) { c.Max = 99.5 },
		"Fixed 20.5 is no":      func(c *adaptive.Config) { c.Fixed = 20.5 },
		"Fixed 3 is outside 5…": func(c *adaptive.Config) { c.Fixed = 3 },
		"Fixed +Inf":            func(c *adaptive.Config) { c.Fixed = math.Inf(1) },
		"CPU 80":                func(c *adaptive.Config) { c.CPU = 80 },
		"CPU NaN":               func(c *adaptive.Config) { c.CPU = nan },
		"RTT -1s":               func(c *adaptive.Config) { c.RTT = -time.Second },
		"Errors 5":              func(c *adaptive.Config) { c.Errors = 5 },
		"Errors NaN":            func(c *adaptive.Config) { c.Errors = nan },
		"QueueDelay":            func(c *adaptive.Config) { c.QueueDelay = -1 },
		"Runnable":              func(c *adaptive.Config) { c.Runnable = nan },
		"Window 1ms":            func(c *adaptive.Config) { c.Window = ms },
		"Interval 1s":           func(c *adaptive.Config) { c.Window, c.Interval = 2*time.Second, time.Second },
		"Interval 2h":           func(c *adaptive.Config) { c.Interval = 2 * time.Hour },
		"MinSamples":            func(c *adaptive.Config) { c.MinSamples = -1 },
		"CPUQuota":              func(c *adaptive.Config) { c.CPUQuota = -1 },
		"Target(7)":             func(c *adaptive.Config) { c.Target = 7 },
		"Max 11 is outside":     func(c *adaptive.Config) { c.Target, c.Max = adaptive.Rate, 11 },
		"Min -1 is outside":     func(c *adaptive.Config) { c.Target, c.Max, c.Min = adaptive.Rate, 1, -1 },
	} {
		c := ok
		change(&c)
		_, err := adaptive.New(c)
		require.ErrorIs(t, err, limiter.ErrInvalid, name)
		require.ErrorContains(t, err, name)
		require.True(t, strings.HasPrefix(err.Error(), "adaptive: "), name)
	}
	_, err := adaptive.New(adaptive.Config{CPU: 2, RTT: -2, Errors: 2, MinSamples: -1})
	for _, field := range []string{"Max", "CPU", "RTT", "Errors", "MinSamples"} {
		require.ErrorContains(t, err, field, "all at once")
	}
	require.NoError(t, ok.Validate())
	require.NoError(t, adaptive.Config{Max: 1, RTT: -1, Errors: -1, Interval: 100 * ms}.Validate())
}

func TestAcquireWithReserve(t *testing.T) {
	c, err := adaptive.NewManual(adaptive.Config{Min: 1, Max: 10, Fixed: 10}, nil)
	require.NoError(t, err)
	take := func(reserve float64) [3]int {
		n, bound, ok := c.Acquire(epoch, reserve)
		return [3]int{n, bound, map[bool]int{true: 1}[ok]}
	}
	require.Equal(t, [3]int{0, 10, 0}, take(1), "everything is reserved")
	require.Equal(t, [3]int{0, 10, 0}, take(math.Inf(1)))
	require.Equal(t, [3]int{1, 10, 1}, take(0.85), "1.5 of 10, rounded down, is 1")
	require.Equal(t, [3]int{1, 10, 0}, take(0.85))
	for k := 2; k <= 5; k++ {
		require.Equal(t, [3]int{k, 10, 1}, take(0.5))
	}
	require.Equal(t, [3]int{5, 10, 0}, take(0.5))
	for k := 6; k <= 10; k++ {
		require.Equal(t, [3]int{k, 10, 1}, take([]float64{0, -1, math.NaN()}[k%3]))
	}
	require.Equal(t, [3]int{10, 10, 0}, take(0))
	n, bound, ok := c.Admit(epoch)
	require.Equal(t, []any{11, 10, false}, []any{n, bound, ok}, "one in shadow")
	for range 20 {
		c.Release(epoch.Add(ms), epoch, adaptive.Succeeded)
	}
	require.Zero(t, c.InFlight(), "more releases than places open nothing")
	require.Equal(t, [3]int{1, 10, 1}, take(0))
}

// A window holds what happened in it, and refusals have no time.
func TestWindowOfAController(t *testing.T) {
	s := newStage(t, adaptive.Config{MinSamples: 5, RTT: 200 * ms})
	done := func(n int, took time.Duration, r adaptive.Result) {
		for range n {
			s.c.Acquire(s.now.Add(-took), 0)
			s.c.Release(s.now, s.now.Add(-took), r)
		}
	}
	s.pass(500 * ms)
	done(10, 20*ms, adaptive.Succeeded)
	done(3, ms, adaptive.Failed)
	done(2, 400*ms, adaptive.Unmeasured)
	for range 7 {
		s.c.Reject(s.now)
	}
	began := s.now
	s.c.Acquire(began, 0)
	s.c.Acquire(began, 0)
	s.c.Detach(began)
	s.pass(500 * ms)
	w := s.c.State().Window
	require.Equal(t, time.Second, w.Span)
	require.Equal(t, []int{24, 17, 7, 15, 3, 10}, []int{w.Arrivals, w.Admitted, w.Rejected, w.Completed, w.Failed, w.Measured})
	require.Equal(t, []int{1, 1, 1}, []int{w.MaxInFlight, w.InFlight, w.Overdue}, "what was detached takes no part of the bound, and is not overdue")
	require.Equal(t, []int{1, 1}, []int{s.c.State().InFlight, s.c.State().Detached})
	require.Equal(t, 20*ms, w.Min)
	require.Equal(t, 20*ms, w.Mean)
	require.InDelta(t, 3.0/13, w.ErrorRatio(), 1e-9)
	require.InDelta(t, float64(500*ms), float64(w.Oldest), float64(13*ms))
	s.c.Release(s.now, began, adaptive.Detached)
	s.c.Release(s.now, began, adaptive.Succeeded)
	s.pass(time.Second)
	w = s.c.State().Window
	require.Equal(t, []int{0, 2, 1, 0, 0}, []int{w.Arrivals, w.Completed, w.Measured, w.InFlight, w.Overdue})
	require.Equal(t, 1, w.MaxInFlight, "it was there when it began")
}

// The classic rhythm: every ten seconds by the last five of them.
func TestWindowShorterThanTheInterval(t *testing.T) {
	var spans []time.Duration
	var seen []int
	law := &script{update: func(cur float64, w adaptive.Window, _ adaptive.Reading) float64 {
		spans, seen = append(spans, w.Span), append(seen, w.Arrivals)
		return cur
	}}
	s := newStage(t, adaptive.Config{Law: lawOf(law), Window: 5 * time.Second, Interval: 10 * time.Second})
	s.seconds(40)
	require.Equal(t, []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second}, spans)
	for _, n := range seen {
		require.InDelta(t, 500, n, 1)
	}
}

func TestStallIdleAndRejections(t *testing.T) {
	for name, law := range laws {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, adaptive.Config{Law: law, Min: 10, Max: 1000, Fixed: 100})
			s.load = 0.05
			s.pass(time.Hour)
			require.Equal(t, 100, s.c.Bound(), "an hour without traffic")
			require.Equal(t, adaptive.ReasonIdle, s.c.State().Reason)

			// Everything hangs, with the limit full and the processors idle.
			began := s.now
			for range 200 {
				s.c.Acquire(began, 0)
			}
			highest := 0
			for range 50 {
				s.c.Acquire(s.now, 0)
				s.pass(time.Second)
				if s.c.State().Fallback == "" {
					highest = max(highest, s.c.Bound())
				}
			}
			require.LessOrEqual(t, highest, 100)
			for range s.c.InFlight() {
				s.c.Release(s.now, s.now.Add(-ms), adaptive.Unmeasured)
			}
		})
		t.Run(name+", nothing but rejections", func(t *testing.T) {
			s := newStage(t, adaptive.Config{Law: law})
			for range 20 {
				s.c.Reject(s.now)
				s.pass(time.Second)
				w := s.c.State().Window
				require.Zero(t, []time.Duration{w.Min, w.Mean, w.P50, w.P90}[0])
				require.Zero(t, w.Measured)
			}
			require.Equal(t, 100, s.c.Bound())
			require.Equal(t, adaptive.ReasonUnready, s.c.State().Reason)
		})
	}
}

// Events come when the limit has moved by a whole unit or for another reason, and one an interval at most.
func TestEventsAreFew(t *testing.T) {
	delta := 0.4
	law := &script{update: func(cur float64, _ adaptive.Window, _ adaptive.Reading) float64 { return cur + delta }}
	s := newStage(t, adaptive.Config{Law: lawOf(law)})
	s.seconds(5)
	require.Len(t, s.events, 3, "the first; 100.8 to 101.2; 101.6 to 102")
	e := s.events[1]
	require.Equal(t, limiter.EventAdapt, e.Kind)
	require.Equal(t, "stage", e.Policy)
	require.Equal(t, "hold", e.Reason)
	require.Equal(t, limiter.Limit{Burst: 101}, e.Decision.Limit)
	require.False(t, e.Time.IsZero())
	delta = 0
	s.seconds(20)
	require.Len(t, s.events, 3)
}

func TestObserverThatPanics(t *testing.T) {
	c, err := adaptive.NewManual(adaptive.Config{
		Max: 100, Observer: limiter.ObserverFunc(func(limiter.Event) { panic(errBoom) }),
		CPUSource: func() (float64, bool) { panic(errBoom) }, Logger: slog.New(slog.DiscardHandler),
	}, nil)
	require.NoError(t, err)
	for at := epoch; at.Before(epoch.Add(10 * time.Second)); {
		at = c.Advance(at)
	}
	require.Equal(t, adaptive.FallbackCPU, c.State().Fallback, "what panics is no reading")
}

func TestCPUSource(t *testing.T) {
	for v, want := range map[float64]adaptive.Reading{
		0.5: {Value: 0.5, OK: true}, 0: {OK: true}, 1.2: {Value: 1, OK: true}, 80: {}, -1: {}, math.Inf(1): {},
	} {
		s := newStage(t, adaptive.Config{CPUSource: func() (float64, bool) { return v, true }})
		s.pass(time.Second)
		r := s.c.State().CPU
		require.Equal(t, want.OK, r.OK, v)
		if want.OK {
			require.Equal(t, want.Value, r.Value)
		}
	}
	s := newStage(t, adaptive.Config{CPUSource: func() (float64, bool) { return math.NaN(), true }})
	s.pass(time.Second)
	require.False(t, s.c.State().CPU.OK)
}

// More goroutines than wait for a processor in this test.
func TestRunnableCountsLikeTheCPU(t *testing.T) {
	s := newStage(t, adaptive.Config{Runnable: 1e-9})
	s.load = 0
	var stop atomic.Bool
	defer stop.Store(true)
	for range 64 {
		go func() {
			for !stop.Load() {
				runtime.Gosched()
			}
		}()
	}
	for range 1000 {
		s.pass(time.Second)
		if r := s.c.State().CPU; r.Runnable > 0 {
			require.GreaterOrEqual(t, r.Value, 0.8)
			return
		}
	}
	t.Skip("this version of Go does not tell how many goroutines are runnable")
}

// In flight is never above the bound in force when the place was taken, and comes back to nothing.
func TestConcurrentUse(t *testing.T) {
	law := &script{update: func(cur float64, _ adaptive.Window, _ adaptive.Reading) float64 { return 10 + float64(rand.IntN(90)) }}
	c, err := adaptive.NewManual(adaptive.Config{
		Min: 10, Max: 100, Fixed: 50, Law: lawOf(law), CPUSource: func() (float64, bool) { return 0.5, true },
		Logger: slog.New(slog.DiscardHandler),
	}, nil)
	require.NoError(t, err)
	clock := func(n *atomic.Int64) time.Time { return epoch.Add(time.Duration(n.Add(1)) * 100 * time.Microsecond) }
	var n, admitted, over atomic.Int64
	var wg sync.WaitGroup
	for k := range 1000 {
		wg.Go(func() {
			for range 30 {
				began := clock(&n)
				inFlight, bound, ok := c.Acquire(began, 0.3*float64(k%2))
				if !ok {
					continue
				}
				admitted.Add(1)
				if inFlight > bound {
					over.Add(1)
				}
				if k%7 == 0 {
					c.Detach(began)
					c.Release(clock(&n), began, adaptive.Detached)
				} else {
					c.Release(clock(&n), began, adaptive.Result(k%3))
				}
				if k%100 == 0 {
					c.Advance(clock(&n))
					_ = c.State()
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, over.Load())
	require.Positive(t, admitted.Load())
	require.Zero(t, c.InFlight())
	at := epoch.Add(time.Hour)
	c.Advance(at)
	w := c.State().Window
	require.Zero(t, w.Overdue)
	require.Zero(t, w.Oldest)
}

// What handlers do, a place comes back.
func TestDoAndTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := adaptive.New(adaptive.Config{Min: 1, Max: 2, Fixed: 2, CPUSource: func() (float64, bool) { return 0.1, true }})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		require.ErrorIs(t, c.Do(0, func() error { return errBoom }), errBoom)
		require.PanicsWithError(t, "boom", func() { _ = c.Do(0, func() error { panic(errBoom) }) })
		require.Zero(t, c.InFlight())
		require.NoError(t, c.Do(0, func() error {
			return c.Do(0, func() error {
				require.ErrorIs(t, c.Do(0, func() error { return errors.New("called") }), adaptive.ErrLimited)
				return nil
			})
		}))
		for range 5 {
			a, b := c.Ticket(time.Now(), 0), c.Ticket(time.Now(), 0)
			require.NotNil(t, b)
			require.Nil(t, c.Ticket(time.Now(), 0))
			a.Detach()
			a.Detach()
			for range 3 {
				a.Release(time.Now(), adaptive.Succeeded)
				a.Detach()
			}
			require.Equal(t, 1, c.InFlight(), "given back once")
			b.Release(time.Now(), adaptive.Detached)
			require.Zero(t, c.InFlight())
		}
		time.Sleep(1500 * ms)
		w := c.State().Window
		require.Equal(t, []int{14, 2, 6}, []int{w.Completed, w.Measured, w.Arrivals - w.Completed})
		require.Equal(t, 2, w.Failed)
		require.Zero(t, w.Overdue)
	})
}

// The goroutine begins with the first use and ends with Close; the bubble fails if one is left.
func TestOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := adaptive.New(adaptive.Config{Min: 1, Max: 100, Fixed: 10, CPUSource: func() (float64, bool) { return 0.1, true }})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.True(t, c.State().Time.IsZero(), "nobody has used it")
		for range 300 {
			at := time.Now()
			var ok [10]bool
			for k := range ok {
				_, _, ok[k] = c.Acquire(at, 0)
			}
			time.Sleep(100 * ms)
			for k := range ok {
				if ok[k] {
					c.Release(time.Now(), at, adaptive.Succeeded)
				}
			}
		}
		require.Greater(t, c.Bound(), 10, "it has grown")
		require.WithinDuration(t, time.Now(), c.State().Time, time.Second)
		at := time.Now()
		c.Acquire(at, 0)
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		c.Release(time.Now(), at, adaptive.Succeeded)
		require.Equal(t, 10, c.Bound())
		require.Equal(t, adaptive.FallbackClosed, c.State().Fallback)
		time.Sleep(time.Hour)
		_, bound, ok := c.Acquire(time.Now(), 0)
		require.True(t, ok)
		require.Equal(t, 10, bound)
	})
	synctest.Test(t, func(t *testing.T) {
		c, err := adaptive.New(adaptive.Config{Max: 100})
		require.NoError(t, err)
		c.Acquire(time.Now(), 0)
		time.Sleep(2500 * ms)
		require.True(t, c.State().CPU.OK, "it reads the processors by itself")
		require.Empty(t, c.State().Fallback)
		require.NoError(t, c.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		c, err := adaptive.New(adaptive.Config{Max: 100})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		_, _, ok := c.Acquire(time.Now(), 0)
		require.True(t, ok)
	})
}

func TestNothingIsAllocated(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c, err := adaptive.NewManual(adaptive.Config{Max: 100}, nil)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Acquire(epoch, 0.1)
		c.Release(epoch.Add(ms), epoch, adaptive.Succeeded)
	}))
	r, err := adaptive.NewManual(adaptive.Config{Target: adaptive.Rate, Fixed: 0.5}, nil)
	require.NoError(t, err)
	s, err := adaptive.NewSchedule([]adaptive.Rule{{When: "Mon-Sun", Scale: 2}}, october)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Adjust(epoch, r.Adjust(epoch, limiter.PerSecond(10)))
	}))
}
