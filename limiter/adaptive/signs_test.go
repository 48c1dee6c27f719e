package adaptive_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// What a limit is judged by: requests of which it is known how they did, and what hangs by the service's fault.

// A flood of requests that say nothing does not make a window of a few that failed or were slow one that says something.
func TestFloodsOfNothing(t *testing.T) {
	for name, law := range laws {
		for _, r := range []limiter.Result{limiter.ResultUnmeasured, limiter.ResultWithdrawn} {
			for kind, few := range map[string]func(s *stage){
				"a failure": func(s *stage) {
					for k := range 9 {
						s.c.Acquire(s.now.Add(-ms), 0)
						s.c.Release(s.now, s.now.Add(-ms), map[bool]limiter.Result{true: adaptive.Failed, false: adaptive.Succeeded}[k == 0])
					}
				},
				"nothing but a failure": func(s *stage) {
					s.c.Acquire(s.now, 0)
					s.c.Release(s.now, s.now, adaptive.Failed)
				},
				"a slow one": func(s *stage) {
					s.c.Acquire(s.now.Add(-2*time.Second), 0)
					s.c.Release(s.now, s.now.Add(-2*time.Second), adaptive.Succeeded)
				},
				"some that hang": func(s *stage) {
					if s.c.InFlight() < 9 {
						s.c.Acquire(s.now, 0)
					}
				},
			} {
				s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 50})
				for range 60 {
					few(s)
					s.traffic(40, r)
					s.pass(600 * ms)
					require.Equal(t, 50, s.c.Bound(), "%s: %s and %v", name, kind, r)
					require.Contains(t, []adaptive.Reason{adaptive.ReasonUnready, adaptive.ReasonHold}, s.c.State().Reason)
				}
			}
		}
	}
}

// Where clients leave before they are answered nothing is measured; that everything hangs is seen by its age, though nobody
// stays. And where nobody is late either, the processors tell.
func TestClientsThatLeaveWhileEverythingHangs(t *testing.T) {
	for name, law := range laws {
		s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 50})
		s.seconds(3)
		var there []time.Time
		reasons := map[adaptive.Reason]bool{}
		for range 2000 { // 100 a second, who leave after 1.5 s
			if len(there) > 0 && s.now.Sub(there[0]) >= 1500*ms {
				s.c.Release(s.now, there[0], adaptive.Unmeasured)
				there = there[1:]
			}
			if _, _, ok := s.c.Acquire(s.now, 0); ok {
				there = append(there, s.now)
			}
			s.pass(10 * ms)
			reasons[s.c.State().Reason] = true
			require.LessOrEqual(t, s.c.Bound(), 50, name)
			require.Empty(t, s.c.State().Fallback)
		}
		require.True(t, reasons[adaptive.ReasonRTT], "%s: %v", name, reasons)
		if name == "aimd" {
			require.Less(t, s.c.Bound(), 35)
		}
	}
}

// Clients that hold places for long, as uploads that never end do, are not the service's fault while others are served well.
func TestClientsThatHang(t *testing.T) {
	for name, law := range laws {
		for kind, c := range map[string]struct {
			many  int           // who hang
			apart time.Duration // how long after one another they come
			stay  time.Duration // and for how long they stay
		}{
			"a dozen at once":                  {12, 0, time.Hour},
			"a dozen, one after another":       {12, 3 * time.Second, time.Hour},
			"half of the limit":                {24, 0, time.Hour},
			"a dozen, and others in turn":      {12, 3 * time.Second, 30 * time.Second},
			"a tenth of what comes, for long":  {400, 90 * ms, 2 * time.Second},
			"a dozen at once, again and again": {12, 0, 5 * time.Second},
		} {
			s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 50, CPUSource: func() (float64, bool) { return 0.05, true }})
			var hang []time.Time
			refused, last := 0, s.now.Add(-time.Hour)
			for range 12000 {
				for len(hang) > 0 && s.now.Sub(hang[0]) >= c.stay {
					s.c.Release(s.now, hang[0], adaptive.Unmeasured)
					hang = hang[1:]
				}
				for ; c.many > len(hang) && s.now.Sub(last) >= c.apart; last = s.now {
					if _, _, ok := s.c.Acquire(s.now, 0); ok {
						hang = append(hang, s.now)
					}
				}
				began := s.now
				_, _, ok := s.c.Acquire(began, 0)
				s.pass(10 * ms)
				if ok {
					s.c.Release(s.now, began, adaptive.Succeeded)
				} else {
					refused++
				}
			}
			require.Zero(t, refused, "%s: %s: bound %d, %s", name, kind, s.c.Bound(), s.c.State().Reason)
			require.Empty(t, s.c.State().Fallback)
		}
	}
}

// At night, with nobody else there, they are no stall.
func TestClientsThatHangAlone(t *testing.T) {
	for name, law := range laws {
		s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 50})
		for range 20 {
			var hang []time.Time
			for range 12 {
				s.c.Acquire(s.now, 0)
				hang = append(hang, s.now)
			}
			s.pass(20 * time.Second)
			for _, began := range hang {
				s.c.Release(s.now, began, adaptive.Unmeasured)
			}
			require.Equal(t, 50, s.c.Bound(), name)
		}
	}
}

// A service that stalls is no crowd of slow clients: nothing is answered any more, and the limit falls, or stays where the law
// says that it is not ours; when all is well again it is a limit that grows.
func TestServiceThatStalls(t *testing.T) {
	for name, law := range laws {
		for _, rate := range []int{20, 100} {
			s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 50, CPUSource: func() (float64, bool) { return 0.05, true }})
			s.seconds(3)
			var there []time.Time
			pause := time.Second / time.Duration(rate)
			for range 30 * rate {
				if _, _, ok := s.c.Acquire(s.now, 0); ok {
					there = append(there, s.now)
				}
				s.pass(pause)
				require.LessOrEqual(t, s.c.Bound(), 50, name)
				require.Empty(t, s.c.State().Fallback, name)
			}
			require.Equal(t, adaptive.ReasonRTT, or(s.c.State().Reason, adaptive.ReasonHold, adaptive.ReasonRTT), name)
			if name == "aimd" {
				require.LessOrEqual(t, s.c.Bound(), 10, "%d a second", rate)
			}
			for _, began := range there {
				s.c.Release(s.now, began, adaptive.Failed)
			}
			low := s.c.Bound()
			for range 60 {
				s.c.Reject(s.now)
				s.seconds(1)
			}
			require.Greater(t, s.c.Bound(), low, name)
		}
	}
}

// or is what a reason stands for: a hold between two cuts is one of them.
func or(r, hold, is adaptive.Reason) adaptive.Reason {
	if r == hold {
		return is
	}
	return r
}

// Where errors do not count, failures are still no reason to grow.
func TestFailuresAreNoReasonToGrow(t *testing.T) {
	for name, law := range laws {
		for _, errors := range []float64{-1, 0.05} {
			s := newStage(t, adaptive.Config{Law: law, Errors: errors, Min: 5, Max: 500, Fixed: 50})
			for range 60 {
				s.c.Reject(s.now)
				s.traffic(100, adaptive.Failed)
				require.LessOrEqual(t, s.c.Bound(), 50, name)
			}
		}
	}
}

// slowService is requests of 6 s in a service of one processor that can do five a second: 30 in flight.
var slowService = plantPhase{
	length: 15 * time.Minute, settled: 10 * time.Minute, rate: 20, cores: 1,
	wait: 5800 * ms, work: 200 * ms, patience: time.Hour, inTime: 15 * time.Second,
}

// A service whose requests take longer than a window never does ten in one of them: several windows are looked at together,
// and the limit moves up where it is too low, down where it is too high, and stays where it protects.
func TestSlowServices(t *testing.T) {
	for name, law := range laws {
		for _, fixed := range []float64{8, 200} {
			if raceEnabled && (name != "hybrid" || fixed == 200) {
				continue
			}
			config := plantConfig(law)
			config.Fixed, config.RTT = fixed, 20*time.Second
			g := newControlled(config)
			stats := newPlant(g).run(slowService)
			for _, st := range g.states {
				require.Empty(t, st.Fallback, name)
			}
			limit := g.c.State().Limit
			t.Logf("%-10s from %3.0f to %5.1f, good %.1f/s of 5, late %d after ten minutes",
				name, fixed, limit, stats.settledGoodput(slowService), stats.lateSettled)
			require.Greater(t, limit, 12.0, "%s from %v", name, fixed)
			require.Less(t, limit, 60.0, "%s from %v", name, fixed)
			require.GreaterOrEqual(t, stats.settledGoodput(slowService), 2.5, "%s from %v", name, fixed)
		}
	}
}

// A window that has enough is judged alone, one in which the limit was not used up begins nothing, and what is gathered has an end.
func TestGatheredWindows(t *testing.T) {
	var seen []adaptive.Window
	law := &script{update: func(cur float64, w adaptive.Window, _ adaptive.Reading) float64 {
		seen = append(seen, w)
		return cur
	}}
	s := newStage(t, adaptive.Config{Law: lawOf(law), Min: 1, Max: 100, Fixed: 10, RTT: time.Minute})
	done := func(n int, took time.Duration, r adaptive.Result) {
		for range n {
			s.c.Admit(s.now.Add(-took))
			s.c.Release(s.now, s.now.Add(-took), r)
		}
	}
	slow := func(n int) { // that use the limit up
		s.c.Reject(s.now)
		done(n, 6*time.Second, adaptive.Succeeded)
		s.pass(time.Second)
	}
	slow(9)
	require.Empty(t, seen)
	slow(1)
	require.Len(t, seen, 1)
	require.Equal(t, []int{10, 10, 2, 12}, []int{seen[0].Measured, seen[0].Completed, seen[0].Rejected, seen[0].Arrivals})
	require.Equal(t, 2*time.Second, seen[0].Span)
	require.Equal(t, 6*time.Second, seen[0].Mean)
	slow(10)
	require.Len(t, seen, 2)
	require.Equal(t, time.Second, seen[1].Span, "what has been judged is not judged again")

	slow(9)
	done(1, 6*time.Second, adaptive.Succeeded) // nobody is refused
	s.pass(time.Second)
	require.Len(t, seen, 3, "ten are ten")
	slow(5)
	s.pass(time.Second) // idle
	done(1, 10*ms, adaptive.Succeeded)
	s.pass(time.Second)
	require.Len(t, seen, 3)
	slow(4)
	require.Len(t, seen, 4, "a pause does not end it")
	require.Equal(t, []int{10, 2}, []int{seen[3].Measured, seen[3].Rejected})
	require.Equal(t, 4*time.Second, seen[3].Span)
	for range 30 {
		done(4, 10*ms, adaptive.Succeeded)
		s.pass(time.Second)
	}
	require.Len(t, seen, 4, "few, and nobody needs more: there is little traffic")
	for range 30 {
		s.c.Reject(s.now)
		done(4, 10*ms, adaptive.Succeeded)
		s.pass(time.Second)
	}
	require.Len(t, seen, 14, "few, as no more are let in")

	s.pass(time.Second)
	for k := range 120 {
		s.c.Reject(s.now)
		if k == 0 || k == 61 {
			done(5, 6*time.Second, adaptive.Succeeded)
		}
		held := s.now.Add(-30 * time.Second)
		s.c.Admit(held)
		s.pass(time.Second)
		s.c.Release(s.now, held, adaptive.Detached)
		s.c.Detach(held)
	}
	require.Len(t, seen, 14, "a minute is over")
}
