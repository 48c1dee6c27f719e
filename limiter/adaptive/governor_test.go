package adaptive_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// script is a law that does as it is told.
type script struct {
	update   func(cur float64, w adaptive.Window, cpu adaptive.Reading) float64
	needsCPU bool
	resets   int
	updates  int
}

func (s *script) Update(cur float64, w adaptive.Window, cpu adaptive.Reading) (float64, adaptive.Reason) {
	s.updates++
	return s.update(cur, w, cpu), adaptive.ReasonHold
}
func (s *script) Reset()         { s.resets++ }
func (s *script) NeedsCPU() bool { return s.needsCPU }

// stage is a controller in virtual time, with as much traffic as it is told.
type stage struct {
	t       *testing.T
	c       *adaptive.Controller
	now     time.Time
	next    time.Time
	log     bytes.Buffer
	events  []limiter.Event
	load    float64 // of the processors
	unknown bool
}

func newStage(t *testing.T, c adaptive.Config) *stage {
	s := &stage{t: t, now: epoch, load: 0.1}
	if c.Max == 0 && c.Target == adaptive.Concurrency {
		c.Min, c.Max, c.Fixed = 10, 1000, 100
	}
	c.Name = "stage"
	c.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	c.Observer = limiter.ObserverFunc(func(e limiter.Event) { s.events = append(s.events, e) })
	if c.CPUSource == nil {
		c.CPUSource = func() (float64, bool) { return s.load, !s.unknown }
	}
	var err error
	s.c, err = adaptive.NewManual(c, nil)
	require.NoError(t, err)
	s.next = s.c.Advance(s.now)
	return s
}

// pass lets time pass, doing what is due.
func (s *stage) pass(d time.Duration) {
	for until := s.now.Add(d); ; {
		if s.next.After(until) {
			s.now = until
			return
		}
		s.now = s.next
		s.next = s.c.Advance(s.now)
		require.True(s.t, s.next.After(s.now))
	}
}

// traffic is so many requests that come and go one after the other, in 10 ms each.
func (s *stage) traffic(n int, r adaptive.Result) {
	for range n {
		_, _, ok := s.c.Acquire(s.now, 0)
		began := s.now
		s.pass(10 * ms)
		if ok {
			s.c.Release(s.now, began, r)
		}
	}
}

// seconds is a second of traffic for each, and returns the reasons.
func (s *stage) seconds(n int) (reasons []adaptive.Reason) {
	for range n {
		s.traffic(100, adaptive.Succeeded)
		reasons = append(reasons, s.c.State().Reason)
	}
	return reasons
}

func lawOf(s *script) adaptive.MakeLaw {
	return func(adaptive.Thresholds) adaptive.Law { return s }
}

func TestGovernorBoundsSteps(t *testing.T) {
	law := &script{update: func(float64, adaptive.Window, adaptive.Reading) float64 { return 1e9 }}
	s := newStage(t, adaptive.Config{Law: lawOf(law)})
	var got []int
	for range 5 {
		s.seconds(1)
		got = append(got, s.c.Bound())
	}
	require.Equal(t, []int{200, 400, 800, 1000, 1000}, got, "twice as much a step, and never above Max")
	law.update = func(float64, adaptive.Window, adaptive.Reading) float64 { return 0 }
	got = nil
	for range 8 {
		s.seconds(1)
		got = append(got, s.c.Bound())
	}
	require.Equal(t, []int{500, 250, 125, 62, 31, 15, 10, 10}, got, "half as much a step, and never below Min")
}

func TestGovernorFallsBackAndReturns(t *testing.T) {
	hold := func(cur float64, _ adaptive.Window, _ adaptive.Reading) float64 { return cur }
	returns := func(next float64) script {
		return script{update: func(float64, adaptive.Window, adaptive.Reading) float64 { return next }}
	}
	panics := func(v any) script {
		return script{update: func(float64, adaptive.Window, adaptive.Reading) float64 { panic(v) }}
	}
	for name, c := range map[string]struct {
		reason adaptive.Reason
		law    script
		cpu    bool // the processors cannot be read
		late   bool
	}{
		"not a number":                   {adaptive.FallbackValue, returns(math.NaN()), false, false},
		"an infinity":                    {adaptive.FallbackValue, returns(math.Inf(1)), false, false},
		"less than nothing":              {adaptive.FallbackValue, returns(-1), false, false},
		"a panic":                        {adaptive.FallbackPanic, panics("boom"), false, false},
		"a panic with nil":               {adaptive.FallbackPanic, panics(nil), false, false},
		"no reading":                     {adaptive.FallbackCPU, script{update: hold, needsCPU: true}, true, false},
		"no reading, and none is needed": {"", script{update: hold}, true, false},
		"late":                           {adaptive.FallbackLate, script{update: hold}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			good := script{update: func(cur float64, _ adaptive.Window, _ adaptive.Reading) float64 { return cur - 10 }, needsCPU: c.law.needsCPU}
			law := good
			s := newStage(t, adaptive.Config{Law: lawOf(&law)})
			s.seconds(3)
			require.Equal(t, 70, s.c.Bound())
			law.update = c.law.update
			s.unknown = c.cpu
			if c.late {
				s.now = s.now.Add(4 * time.Second) // due a second after the last one, and three intervals late
				s.next = s.now
			}
			s.seconds(3)
			if c.reason == "" {
				require.Equal(t, 70, s.c.Bound())
				return
			}
			st := s.c.State()
			require.Equal(t, c.reason, st.Fallback)
			require.Equal(t, c.reason, st.Reason)
			require.Equal(t, 100, st.Bound, "the fixed limit, not an open gate")
			require.Equal(t, 1, law.resets)
			require.Equal(t, string(c.reason), s.events[len(s.events)-1].Reason)
			require.Contains(t, s.log.String(), string(c.reason))
			if c.reason == adaptive.FallbackPanic {
				require.ErrorContains(t, s.events[len(s.events)-1].Err, "panic")
			}
			at := st.Until
			require.WithinDuration(t, s.now.Add(30*time.Second), at, 3*time.Second)

			// Well again: back after the hold, from the fixed limit on.
			law.update, s.unknown = good.update, false
			s.pass(at.Sub(s.now) - ms)
			require.Equal(t, c.reason, s.c.State().Fallback)
			updates := law.updates
			s.seconds(3)
			require.Empty(t, s.c.State().Fallback)
			require.Greater(t, law.updates, updates)
			require.Less(t, s.c.Bound(), 100)
			require.Contains(t, s.log.String(), "the law rules again")
		})
	}
}

// The same trouble again holds longer, up to ten minutes; ten minutes without it forgive.
func TestGovernorHoldsLonger(t *testing.T) {
	ill := true
	law := &script{update: func(cur float64, _ adaptive.Window, _ adaptive.Reading) float64 {
		if ill {
			return math.NaN()
		}
		return cur
	}}
	s := newStage(t, adaptive.Config{Law: lawOf(law)})
	fallen := func() time.Duration {
		for range 10 {
			s.seconds(1)
			if st := s.c.State(); st.Fallback != "" {
				d := st.Until.Sub(st.Time)
				s.pass(st.Until.Sub(s.now) - ms)
				return d
			}
		}
		t.Fatal("no fallback")
		return 0
	}
	for _, want := range []time.Duration{30, 60, 120, 240, 480, 600, 600} {
		require.Equal(t, want*time.Second, fallen())
	}
	ill = false
	s.pass(time.Second)
	s.pass(11 * time.Minute)
	require.Empty(t, s.c.State().Fallback)
	ill = true
	require.Equal(t, 30*time.Second, fallen())
}

// A limit at its least that refuses requests while the service does nothing is not what helps.
func TestGovernorPinned(t *testing.T) {
	pinned := func(load float64, r adaptive.Result, pauses bool) adaptive.State {
		law := &script{update: func(float64, adaptive.Window, adaptive.Reading) float64 { return 0 }}
		s := newStage(t, adaptive.Config{Law: lawOf(law)})
		s.load = load
		held := s.now
		for range 10 {
			s.c.Acquire(held, 0) // all places of the least limit
		}
		for k := range 70 {
			s.c.Release(s.now, s.now.Add(-ms), r)
			s.c.Acquire(s.now, 0)
			s.traffic(100, r)
			if s.c.State().Fallback != "" {
				break
			}
			if k == 40 && pauses {
				s.load = 0.7
				s.pass(time.Second)
				s.load = load
			}
		}
		return s.c.State()
	}
	st := pinned(0.1, adaptive.Succeeded, false)
	require.Equal(t, adaptive.FallbackPinned, st.Fallback)
	require.LessOrEqual(t, st.Time.Sub(epoch), 68*time.Second, "four seconds to the least, a minute there, three intervals more")
	require.Empty(t, pinned(0.4, adaptive.Succeeded, false).Fallback, "half the threshold")
	require.Empty(t, pinned(0.1, adaptive.Failed, false).Fallback, "errors")
	require.Empty(t, pinned(0.1, adaptive.Succeeded, true).Fallback, "a minute, but not in one piece")
}

func TestGovernorUnsteady(t *testing.T) {
	for name, c := range map[string]struct {
		factor float64
		falls  bool
	}{"by half and double": {2, true}, "by 30 %": {1.35, true}, "by 20 %": {1.24, false}} {
		up := false
		law := &script{update: func(cur float64, _ adaptive.Window, _ adaptive.Reading) float64 {
			if up = !up; up {
				return cur * c.factor
			}
			return cur / c.factor
		}}
		s := newStage(t, adaptive.Config{Law: lawOf(law)})
		s.seconds(7)
		require.Empty(t, s.c.State().Fallback, "%s: six turns are fine", name)
		s.seconds(3)
		require.Equal(t, c.falls, s.c.State().Fallback == adaptive.FallbackUnsteady, name)
	}
}

// Whoever does not run the controller gets the fixed limit, though nobody is there to say so.
func TestNobodyRunsTheController(t *testing.T) {
	law := &script{update: func(float64, adaptive.Window, adaptive.Reading) float64 { return 0 }}
	s := newStage(t, adaptive.Config{Law: lawOf(law)})
	s.seconds(6)
	require.Equal(t, 10, s.c.Bound())
	_, bound, _ := s.c.Acquire(s.now.Add(4*time.Second), 0)
	require.Equal(t, 10, bound)
	_, bound, _ = s.c.Acquire(s.now.Add(4*time.Second+ms), 0)
	require.Equal(t, 100, bound)
}

func TestLawThatMakesNothing(t *testing.T) {
	_, err := adaptive.New(adaptive.Config{Max: 10, Law: func(adaptive.Thresholds) adaptive.Law { return nil }})
	require.ErrorIs(t, err, limiter.ErrInvalid)
}

// No reason is a word of the moment: metrics keep one series for each.
func TestReasonsAreFew(t *testing.T) {
	known := map[adaptive.Reason]bool{}
	for _, r := range adaptive.Reasons() {
		require.Equal(t, strings.ToLower(string(r)), string(r))
		require.False(t, known[r], r)
		known[r] = true
	}
	require.LessOrEqual(t, len(known), 20)
	for name, law := range laws {
		g := newControlled(plantConfig(law))
		p := newPlant(g)
		for _, phase := range plantPhases {
			phase.length /= 20
			p.run(phase)
		}
		for _, st := range g.states {
			require.True(t, known[st.Reason], fmt.Sprint(name, st.Reason))
		}
	}
}

// In an overload in which all clients leave before they are answered, nothing is measured. The limit has to fall all the same, and
// must not grow.
func TestClientsThatLeave(t *testing.T) {
	for name, law := range laws {
		s := newStage(t, adaptive.Config{Law: law, Min: 10, Max: 1000, Fixed: 100})
		s.seconds(3)
		before := s.c.Bound()
		s.load = 1
		for range 20 {
			s.traffic(100, adaptive.Unmeasured)
		}
		require.Less(t, s.c.Bound(), 100, name)
		low := s.c.Bound()
		s.load = 0.1
		for range 30 {
			s.c.Reject(s.now)
			s.traffic(100, adaptive.Unmeasured)
		}
		require.LessOrEqual(t, s.c.Bound(), max(low, before), name)
		if s.c.State().Fallback == "" {
			require.LessOrEqual(t, s.c.Bound(), low, name)
			require.Contains(t, []adaptive.Reason{adaptive.ReasonUnready, adaptive.ReasonHold}, s.c.State().Reason, name)
		}
	}
}

// A sampler needs a while to begin with, and a ticker is late at times: short intervals must not hold that against them.
func TestShortIntervals(t *testing.T) {
	busy := time.Duration(0)
	c, err := adaptive.NewManual(adaptive.Config{Max: 100, Window: 10 * ms, Interval: 10 * ms}, func() (time.Duration, float64) {
		busy += 10 * ms
		return busy, 1
	})
	require.NoError(t, err)
	for at := epoch; at.Before(epoch.Add(3 * time.Second)); {
		at = c.Advance(at)
		if at.Sub(epoch)%(500*ms) < 10*ms {
			at = at.Add(900 * ms) // and the ticker has other things to do at times
		}
		require.Empty(t, c.State().Fallback)
	}
	require.True(t, c.State().CPU.OK)
}
