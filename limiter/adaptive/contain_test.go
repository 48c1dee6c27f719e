package adaptive_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// What the user's code does, the controller lives on, with the fixed limit where the law is what fails.

// hostile is a law that does something else at one of its methods.
type hostile struct {
	update, reset, needs func()
}

func (h *hostile) Update(cur float64, _ adaptive.Window, _ adaptive.Reading) (float64, adaptive.Reason) {
	h.update()
	return cur - 1, adaptive.ReasonHold
}
func (h *hostile) Reset()         { h.reset() }
func (h *hostile) NeedsCPU() bool { h.needs(); return false }

func nothing() {}

// handler is a slog.Handler that calls f.
type handler func()

func (handler) Enabled(context.Context, slog.Level) bool    { return true }
func (h handler) Handle(context.Context, slog.Record) error { h(); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }
func asLaw(h *hostile) func(adaptive.Thresholds) adaptive.Law {
	return func(adaptive.Thresholds) adaptive.Law { return h }
}
func used(c *adaptive.Controller) { c.Release(time.Now(), time.Now(), adaptive.Succeeded) }

// serve is a second and a bit of a few hundred requests.
func serve(c *adaptive.Controller, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * ms) {
		now := time.Now()
		if _, _, ok := c.Acquire(now, 0); ok {
			used(c)
		}
	}
}

var exits = map[string]func(){"panics": func() { panic("boom") }, "panics with nil": func() { panic(nil) }, "exits": runtime.Goexit}

func TestLawsThatPanicOrExit(t *testing.T) {
	for how, exit := range exits {
		for where, law := range map[string]hostile{
			"Update":           {exit, nothing, nothing},
			"NeedsCPU":         {nothing, nothing, exit},
			"Update and Reset": {exit, exit, nothing},
			"all":              {exit, exit, exit},
		} {
			t.Run(where+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var told atomic.Pointer[limiter.Event]
					c, err := adaptive.New(adaptive.Config{
						Min: 5, Max: 50, Fixed: 20, Law: asLaw(&law), Logger: slog.New(slog.DiscardHandler),
						CPUSource: func() (float64, bool) { return 0, false },
						Observer:  limiter.ObserverFunc(func(e limiter.Event) { told.Store(&e) }),
					})
					require.NoError(t, err)
					serve(c, 4500*ms)
					st := c.State()
					require.Equal(t, adaptive.FallbackPanic, st.Fallback)
					require.Equal(t, 20, c.Bound())
					require.ErrorContains(t, told.Load().Err, "panicked")
					serve(c, time.Minute) // which is back after half a minute, and falls again
					require.Equal(t, 20, c.Bound())
					require.True(t, c.State().Time.After(st.Time.Add(50*time.Second)), "steps go on")
					require.NoError(t, c.Close())
					require.Zero(t, c.InFlight())
				})
			})
		}
	}
}

// A law whose Reset fails when it is to rule again does not rule.
func TestResetThatPanics(t *testing.T) {
	law := &hostile{func() { panic("boom") }, nothing, nothing}
	s := newStage(t, adaptive.Config{Law: asLaw(law)})
	s.seconds(2)
	require.Equal(t, adaptive.FallbackPanic, s.c.State().Fallback)
	updates := 0
	law.update, law.reset = func() { updates++ }, func() { panic("boom") }
	s.seconds(35)
	require.Equal(t, adaptive.FallbackPanic, s.c.State().Fallback)
	require.Zero(t, updates)
	law.reset = nothing
	s.seconds(70)
	require.Empty(t, s.c.State().Fallback)
	require.Positive(t, updates)
}

func TestLawThatCannotBeMade(t *testing.T) {
	for how, exit := range exits {
		_, err := adaptive.New(adaptive.Config{Max: 10, Law: func(adaptive.Thresholds) adaptive.Law { exit(); return nil }})
		require.ErrorIs(t, err, limiter.ErrInvalid, how)
		require.ErrorContains(t, err, "Law panicked: ", how)
	}
}

// Whatever is called may close the controller, and may panic or exit.
func TestCallsThatCloseOrExit(t *testing.T) {
	for where, set := range map[string]func(c *adaptive.Config, f func()){
		"Observer": func(c *adaptive.Config, f func()) { c.Observer = limiter.ObserverFunc(func(limiter.Event) { f() }) },
		"Logger": func(c *adaptive.Config, f func()) {
			c.Logger = slog.New(handler(f))
			c.Law = asLaw(&hostile{func() { panic("boom") }, nothing, nothing})
		},
		"CPUSource": func(c *adaptive.Config, f func()) { c.CPUSource = func() (float64, bool) { f(); return 0.1, true } },
		"Update":    func(c *adaptive.Config, f func()) { c.Law = asLaw(&hostile{f, nothing, nothing}) },
	} {
		for how, exit := range exits {
			t.Run(where+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					config := adaptive.Config{Min: 5, Max: 50, Fixed: 20, CPUSource: func() (float64, bool) { return 0.1, true }}
					set(&config, exit)
					if config.Logger == nil {
						config.Logger = slog.New(slog.DiscardHandler)
					}
					c, err := adaptive.New(config)
					require.NoError(t, err)
					serve(c, 5*time.Second)
					require.WithinDuration(t, time.Now(), c.State().Time, 1100*ms, "it still runs")
					require.NoError(t, c.Close())
				})
			})
		}
		t.Run(where+" closes", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c *adaptive.Controller
				var calls atomic.Int32
				config := adaptive.Config{Min: 5, Max: 50, Fixed: 20, CPUSource: func() (float64, bool) { return 0.1, true }}
				set(&config, func() {
					calls.Add(1)
					_ = c.Close()
					_ = c.Close()
				})
				if config.Logger == nil {
					config.Logger = slog.New(slog.DiscardHandler)
				}
				c, err := adaptive.New(config)
				require.NoError(t, err)
				serve(c, 5*time.Second)
				require.EqualValues(t, 1, calls.Load(), "nothing is called after that")
				require.Equal(t, adaptive.FallbackClosed, c.State().Fallback)
				require.Equal(t, 20, c.Bound())
				require.NoError(t, c.Close())
			}) // in which nothing runs any more
		})
	}
}

// One that hangs holds up neither requests nor Close, and after three intervals the fixed limit is in force.
func TestCallsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		law := &hostile{update: nothing, reset: nothing, needs: nothing}
		c, err := adaptive.New(adaptive.Config{
			Min: 5, Max: 50, Fixed: 20, Law: asLaw(law), CPUSource: func() (float64, bool) { return 0.1, true }, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		serve(c, 5500*ms)
		require.Equal(t, 15, c.Bound())
		law.update = func() { <-release }
		serve(c, 10*time.Second)
		_, bound, _ := c.Acquire(time.Now(), 0)
		require.Equal(t, 20, bound)
		used(c)
		require.NoError(t, c.Close())
		require.Equal(t, adaptive.FallbackClosed, c.State().Fallback)
		close(release)
		synctest.Wait()
		require.Equal(t, adaptive.FallbackClosed, c.State().Fallback, "what was decided meanwhile comes too late")
		require.Equal(t, 20, c.Bound())
	})
}

// Closed from everywhere at once while requests come and go: the fixed limit is in force, and nothing is left.
func TestCloseUnderLoad(t *testing.T) {
	for range 20 {
		var c *adaptive.Controller
		c, err := adaptive.New(adaptive.Config{
			Min: 5, Max: 50, Fixed: 20, Window: 10 * ms, Interval: 10 * ms, Logger: slog.New(slog.DiscardHandler),
			CPUSource: func() (float64, bool) { return 0.1, true },
			Observer:  limiter.ObserverFunc(func(limiter.Event) { _ = c.State(); c.Reject(time.Now()) }),
		})
		require.NoError(t, err)
		var begin, all sync.WaitGroup
		var open atomic.Int32
		begin.Add(1)
		for k := range 8 {
			all.Go(func() {
				begin.Wait()
				for i := range 300 {
					now := time.Now()
					if _, _, ok := c.Acquire(now, 0); ok {
						c.Release(time.Now(), now, adaptive.Result(i%3))
					}
					if i == 100*(k%3)+50 {
						_ = c.Close()
						if c.State().Fallback != adaptive.FallbackClosed {
							open.Add(1)
						}
					}
					_ = c.State()
				}
			})
		}
		begin.Done()
		all.Wait()
		require.Zero(t, open.Load())
		require.Zero(t, c.InFlight())
		require.Equal(t, adaptive.FallbackClosed, c.State().Fallback)
		require.Equal(t, 20, c.Bound())
	}
}
