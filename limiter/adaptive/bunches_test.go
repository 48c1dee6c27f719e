package adaptive_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

// bunch is so many requests at once, which take as long. It returns how many were refused.
func (s *stage) bunch(n int, took time.Duration, r adaptive.Result) (refused int) {
	began, let := s.now, 0
	for range n {
		if _, _, ok := s.c.Acquire(began, 0); ok {
			let++
		}
	}
	s.pass(took)
	for range let {
		s.c.Release(s.now, began, r)
	}
	return n - let
}

// A limit that lets fewer through in a window than are a window's worth grows all the same, where requests come in bunches and nothing
// hurts.
func TestBunches(t *testing.T) {
	for name, law := range laws {
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 3700 * ms} {
			for _, fixed := range []float64{5, 8} {
				s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: fixed})
				refused := 0
				for k := range 120 {
					n := s.bunch(15+k%11, 100*ms, adaptive.Succeeded)
					if s.pass(pause - 100*ms); k >= 60 {
						refused += n
					}
				}
				require.Zero(t, refused, "%s from %v, every %v: bound %d, %s", name, fixed, pause, s.c.Bound(), s.c.State().Reason)
				require.LessOrEqual(t, s.c.Bound(), 60, "%s: nobody needs more", name)
				require.Empty(t, s.c.State().Fallback)
			}
		}
	}
}

// It does not where they fail, are late, or say nothing, nor where they are too few in sixty windows.
func TestBunchesThatHurt(t *testing.T) {
	for name, law := range laws {
		for kind, c := range map[string]struct {
			n      int
			took   time.Duration
			result adaptive.Result
			pause  time.Duration
		}{
			"failures":        {20, 100 * ms, adaptive.Failed, 2 * time.Second},
			"late":            {20, 1500 * ms, adaptive.Succeeded, 3 * time.Second},
			"unmeasured":      {20, 100 * ms, adaptive.Unmeasured, 2 * time.Second},
			"nobody refused":  {2, 100 * ms, adaptive.Succeeded, 2 * time.Second},
			"once in a while": {20, 100 * ms, adaptive.Succeeded, 70 * time.Second},
		} {
			s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 8})
			for range 20 {
				s.bunch(c.n, c.took, c.result)
				s.pass(c.pause - c.took)
				require.LessOrEqual(t, s.c.Bound(), 8, "%s: %s", name, kind)
			}
		}
	}
}

// Full processors are seen though few requests are done and the limit is far: three windows in a row with some in flight are
// enough, with any law, to lower it and never to raise it.
func TestBusyThoughFewAreDone(t *testing.T) {
	for name, law := range laws {
		for kind, c := range map[string]struct {
			load func(second int) float64
			n    int // in flight
			cut  bool
		}{
			"full":                {func(int) float64 { return 1 }, 9, true},
			"full, with two":      {func(int) float64 { return 1 }, 2, true},
			"full, without any":   {func(int) float64 { return 1 }, 0, false},
			"at their threshold":  {func(int) float64 { return 0.8 }, 9, false},
			"full, now and then":  {func(k int) float64 { return []float64{1, 1, 0.3}[k%3] }, 9, false},
			"full, and then idle": {func(k int) float64 { return map[bool]float64{true: 1, false: 0.1}[k < 2] }, 9, false},
		} {
			s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 300, RTT: time.Hour})
			for k := range 30 {
				s.load = c.load(k)
				for range c.n - s.c.InFlight() {
					s.c.Acquire(s.now, 0)
				}
				if s.pass(time.Second); c.n > 0 { // one is done
					s.c.Release(s.now, s.now.Add(-8*time.Second), adaptive.Succeeded)
				}
				require.LessOrEqual(t, s.c.Bound(), 300, name)
				if c.cut && k == 4 {
					require.Less(t, s.c.Bound(), 300, "%s: %s: %s", name, kind, s.c.State().Reason)
				}
			}
			if c.cut {
				require.LessOrEqual(t, s.c.Bound(), 20, "%s: %s", name, kind)
			} else {
				require.Equal(t, 300, s.c.Bound(), "%s: %s", name, kind)
			}
			require.Empty(t, s.c.State().Fallback)
		}
	}
}

// Short intervals see the same reading of the processors several times.
func TestBusyInShortIntervals(t *testing.T) {
	for name, law := range laws {
		s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 300, Window: 10 * ms, Interval: 10 * ms})
		for k := range 40 {
			s.load = []float64{1, 0.3}[k%2]
			s.c.Acquire(s.now, 0)
			s.pass(250 * ms)
			s.c.Release(s.now, s.now.Add(-250*ms), adaptive.Succeeded)
		}
		require.Equal(t, 300, s.c.Bound(), name)
	}
}

// A minute at the least limit is judged as a whole: who is refused in it, in each quarter, and how many of all its requests fail.
func TestPinnedIsOfAMinute(t *testing.T) {
	for kind, c := range map[string]struct {
		every time.Duration // a bunch
		fail  int           // one of so many; 0: none
		falls bool
	}{
		"a bunch every three seconds":    {3 * time.Second, 0, true},
		"a bunch every ten seconds":      {10 * time.Second, 0, true},
		"a bunch every forty seconds":    {40 * time.Second, 0, false},
		"one of 25 fails":                {time.Second, 25, true},
		"one of 25 fails, and in a rush": {3 * time.Second, 25, true},
		"one of ten fails":               {time.Second, 10, false},
		"all fail":                       {time.Second, 1, false},
	} {
		law := &script{update: func(float64, adaptive.Window, adaptive.Reading) float64 { return 0 }}
		s := newStage(t, adaptive.Config{Law: lawOf(law), Min: 5, Max: 500, Fixed: 20, MinSamples: 1})
		n, fell := 0, false
		for end := s.now.Add(5 * time.Minute); s.now.Before(end); {
			began := s.now
			for range 5 {
				s.c.Acquire(began, 0)
			}
			s.c.Acquire(began, 0) // one too many
			s.pass(50 * ms)
			for range 5 {
				n++
				s.c.Release(s.now, began, map[bool]adaptive.Result{true: adaptive.Failed, false: adaptive.Succeeded}[c.fail > 0 && n%max(c.fail, 1) == 0])
			}
			for range s.c.InFlight() {
				s.c.Release(s.now, began, adaptive.Succeeded)
			}
			s.pass(c.every - 50*ms)
			fell = fell || s.c.State().Fallback == adaptive.FallbackPinned
			if fell {
				require.GreaterOrEqual(t, s.now.Sub(epoch), time.Minute, kind)
				break
			}
		}
		require.Equal(t, c.falls, fell, kind)
	}
}
