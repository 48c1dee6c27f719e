package limiter_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

const (
	ms       = time.Millisecond
	sec      = time.Second
	never    = limiter.Never
	whatever = -1 // a number the case does not fix
)

// midnight is an edge of every window used here.
var midnight = time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)

// moment is a take at a time after midnight and the right answer.
type moment struct {
	at    time.Duration
	n     int
	ok    bool
	left  int
	retry time.Duration
}

func pass(at time.Duration, n, left int) moment { return moment{at, n, true, left, 0} }

func deny(at time.Duration, n, left int, retry time.Duration) moment {
	return moment{at, n, false, left, retry}
}

// repeat is count takes of one unit, every apart from begin on, with the same answer but for what is left.
func repeat(count int, begin, every time.Duration, ok bool) (takes []moment) {
	for k := range count {
		takes = append(takes, moment{begin + time.Duration(k)*every, 1, ok, whatever, whatever})
	}
	return takes
}

func timeline(parts ...any) (takes []moment) {
	for _, p := range parts {
		switch p := p.(type) {
		case moment:
			takes = append(takes, p)
		case []moment:
			takes = append(takes, p...)
		}
	}
	return takes
}

func bucket(rate int, period time.Duration, burst int) limiter.Limit {
	return limiter.Per(rate, period).WithBurst(burst)
}

func fixed(rate int, period time.Duration) limiter.Limit {
	return limiter.Per(rate, period).With(limiter.FixedWindow)
}

func slog(rate int, period time.Duration) limiter.Limit {
	return limiter.Per(rate, period).With(limiter.SlidingLog)
}

// Faults that published limiters have shown in the field, each as the timeline that showed it and the right answers.
var fieldFaults = []struct {
	id, fault string
	limit     limiter.Limit
	takes     []moment
}{
	{"WIN-02", "a window from the first hit lets twice the limit pass around its edge", slog(100, time.Minute), timeline(
		pass(0, 1, 99), pass(59*sec, 99, 0), deny(59*sec, 1, 0, sec), pass(60*sec, 1, 0), deny(60*sec, 99, 0, 59*sec))},
	{"WIN-03", "a counter that dies with its window is new to a take an instant later", fixed(10, time.Minute), timeline(
		pass(30*sec, 10, 0), deny(time.Minute-1, 1, 0, 1), pass(time.Minute, 10, 0))},
	{"WIN-04", "denied takes feed the window", limiter.Per(5, 10*sec).WithCells(1), timeline(
		repeat(5, 0, sec, true), repeat(6, 5*sec, sec, false), repeat(1, 12*sec, sec, true), repeat(1, 13*sec, sec, false),
		repeat(1, 14*sec, sec, true), repeat(1, 16*sec, sec, true), repeat(1, 18*sec, sec, true))},
	{"WIN-05", "twice the limit in 50 ms around an edge is a surprise", fixed(2, sec), timeline(
		pass(950*ms, 2, 0), pass(sec, 2, 0), deny(sec, 1, 0, sec))},
	{"WIN-05 bucket", "a bucket makes the third wait", bucket(2, sec, 2), timeline(
		pass(950*ms, 2, 0), deny(sec, 1, 0, 450*ms))},
	{"WIN-06", "windows count from whatever", fixed(5, time.Minute), timeline(
		pass(15*time.Hour+11*time.Minute+39*sec, 1, 4), pass(15*time.Hour+11*time.Minute+50*sec, 3, 1),
		pass(15*time.Hour+12*time.Minute+1*sec, 1, 4), pass(15*time.Hour+12*time.Minute+8*sec, 1, 3), pass(15*time.Hour+12*time.Minute+59*sec, 3, 0),
		deny(15*time.Hour+12*time.Minute+59*sec, 1, 0, sec))},
	{"WIN-09", "takes of one second are one entry", slog(100, time.Minute), timeline(
		repeat(100, 0, ms, true), repeat(9900, 100*ms, 1900*time.Microsecond, false))},
	{"WIN-10", "takes of one instant overwrite each other", slog(1, sec), timeline(pass(0, 1, 0), deny(0, 1, 0, sec))},
	{"REM-03", "remaining −1", fixed(2, time.Minute), timeline(pass(0, 1, 1), pass(0, 1, 0), deny(0, 1, 0, time.Minute))},
	{"REM-04", "a burst of one is reported as two, and remaining as nothing", bucket(2, sec, 1), timeline(
		pass(0, 0, 1), pass(0, 1, 0), deny(250*ms, 1, 0, 250*ms), pass(500*ms, 0, 1), pass(500*ms, 1, 0), deny(750*ms, 1, 0, 250*ms), pass(sec, 1, 0))},
	{"REM-07", "the tenth of ten passes or not, by where the count came from", fixed(10, time.Minute), timeline(
		pass(0, 9, 1), pass(0, 1, 0), deny(0, 1, 0, time.Minute))},
	{"RA-01", "105.7 ms to wait become none", bucket(1, sec, 1), timeline(pass(0, 1, 0), deny(894_300*time.Microsecond, 1, 0, 105_700*time.Microsecond))},
	{"RA-03", "waiting as told is not enough", bucket(1, 10*sec, 2), timeline(
		pass(0, 2, 0), deny(3*sec, 1, 0, 7*sec), pass(10*sec, 1, 0), deny(10*sec, 1, 0, 10*sec), pass(20*sec, 1, 0))},
	{"RA-05", "the wait is in a unit of its own", fixed(2, 15*time.Minute), timeline(
		pass(0, 2, 0), deny(0, 1, 0, 900*sec))},
	{"RA-07", "the wait is the window's length", fixed(10, time.Minute), timeline(repeat(10, 0, 2*sec, true), deny(20*sec, 1, 0, 40*sec))},
	{"RA-08", "the wait is the period, whatever is left of it", fixed(5, 300*sec), timeline(pass(0, 5, 0), deny(295*sec, 1, 0, 5*sec))},
	{"RA-11", "the part of a unit that has come back is ignored", bucket(1, sec, 1), timeline(pass(0, 1, 0), deny(200*ms, 1, 0, 800*ms))},
	{"RA-12", "a window's wait is computed as a bucket's", fixed(10, time.Minute), timeline(repeat(10, 0, 100*ms, true), deny(sec, 1, 0, 59*sec))},
	{"RA-13", "rounding admits after half of the wait", bucket(6, time.Minute, 6), timeline(
		pass(0, 6, 0), deny(0, 1, 0, 10*sec), deny(5*sec, 1, 0, 5*sec), deny(10*sec-1, 1, 0, 1), pass(10*sec, 1, 0))},
	{"CLK-07", "a wait 750 times the largest debt", bucket(2000, sec, 5000), timeline(
		pass(0, 5000, 0), deny(0, 5000, 0, 2500*ms), deny(0, 1, 0, 500*time.Microsecond))},
	{"OVF-02", "waits computed in the wrong unit turn negative", bucket(120, sec, 120), timeline(
		pass(0, 120, 0), deny(0, 1, 0, 8_333_334), deny(0, 120, 0, sec))},
	{"OVF-04", "the interval is cut to whole nanoseconds before it is multiplied", bucket(65535, sec, 65535), timeline(
		repeat(10, 0, 100*ms, true), pass(sec, 1, 65534))},
	{"OVF-07", "0.4 s left of a block is cut to none", fixed(1, sec), timeline(pass(0, 1, 0), deny(600*ms, 1, 0, 400*ms), deny(999*ms, 1, 0, ms))},
	{"OVF-08", "2000 a second is a zero rate", bucket(2000, sec, 1), timeline(pass(0, 1, 0), deny(0, 1, 0, 500*time.Microsecond), pass(500*time.Microsecond, 1, 0))},
	{"OVF-08 fastest", "a billion a microsecond is a zero rate", bucket(1_000_000_000, time.Microsecond, 1), timeline(
		pass(0, 1, 0), deny(0, 1, 0, 1), pass(1, 1, 0))},
	{"OVF-09", "a wait under the resolution is none: a busy loop", bucket(1000, sec, 1), timeline(pass(0, 1, 0), deny(0, 1, 0, ms), deny(ms-1, 1, 0, 1), pass(ms, 1, 0))},
	{"COST-01", "more than the capacity never waits and never fails", bucket(1, sec, 1), timeline(
		deny(0, 5, 1, never), deny(0, 5, 1, never), deny(9*sec, 5, 1, never), pass(9*sec, 1, 0))},
	{"COST-03", "an answer that contradicts itself", bucket(1, time.Minute, 5), timeline(deny(0, 10, 5, never), pass(0, 2, 3), deny(0, 10, 3, never), pass(0, 3, 0))},
	{"COST-04", "exactly the capacity is never", bucket(1, sec, 5), timeline(pass(0, 3, 2), deny(0, 5, 2, 3*sec), pass(3*sec, 5, 0))},
	{"COST-05", "a denied cost drains the bucket", bucket(1, sec, 300), timeline(deny(0, 301, 300, never), pass(0, 1, 299))},
	{"COST-07", "a greedy denied call leaves nothing", fixed(100, time.Minute), timeline(pass(0, 60, 40), deny(0, 50, 40, time.Minute), pass(0, 40, 0))},
	{"REF-07", "a reservation that failed delays the next", limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(2), timeline(
		pass(0, 2, 0), deny(0, 1, 0, sec), deny(0, 2, 0, 2*sec), pass(sec, 1, 0))},
	{"peer 27", "products overflow: 100 too many on the second day", limiter.PerDay(200_000).WithCells(1), timeline(
		pass(23*time.Hour, 200_000, 0), deny(24*time.Hour+time.Minute, 139, 138, whatever), pass(24*time.Hour+time.Minute, 138, 0), deny(24*time.Hour+time.Minute, 1, 0, whatever))},
	{"peer 20", "elapsed time is not applied to a look", bucket(5, sec, 5), timeline(pass(0, 5, 0), pass(sec, 0, 5))},
	{"peer 31", "idling refills", bucket(1, 100*sec, 5), timeline(pass(0, 5, 0), deny(1750*ms, 1, 0, 98_250*ms), deny(99*sec, 1, 0, sec), pass(100*sec, 1, 0))},
	{"peer 34", "the window starts again at every admission", fixed(4, 2*sec), timeline(repeat(100, 0, 900*ms, true))},
	{"peer 35", "a period under a second is no limit", slog(3, 100*ms), timeline(pass(0, 3, 0), deny(99*ms, 1, 0, ms), pass(100*ms, 3, 0))},
	{"peer 37", "the take that refills is free", bucket(10, sec, 10), timeline(pass(0, 10, 0), pass(sec, 1, 9), pass(sec, 9, 0), deny(sec, 1, 0, 100*ms))},
	{"fault 5", "a count after an increment admits one too few, and denied takes lock out", fixed(3, sec), timeline(
		repeat(3, 0, 0, true), repeat(500, 0, ms, false), repeat(3, sec, 0, true), repeat(1, sec, 0, false))},
	{"fault 12", "a fraction thrown away at each look: the real rate is far below the nominal", bucket(3, sec, 1), timeline(
		pass(0, 1, 0), repeat(3, 100*ms, 100*ms, false), pass(333_333_334, 1, 0), repeat(3, 400*ms, 100*ms, false), pass(666_666_668, 1, 0), pass(sec+2, 1, 0))},
	{"fault 3", "0.6 left is rounded up to 1", bucket(10, sec, 1), timeline(pass(0, 1, 0), pass(60*ms, 0, 0), deny(60*ms, 1, 0, 40*ms))},
}

func TestFieldFaults(t *testing.T) {
	for _, c := range fieldFaults {
		t.Run(c.id, func(t *testing.T) {
			r := newRule(t, c.limit)
			var s limiter.State
			for k, take := range c.takes {
				d := r.Take(&s, limiter.Reading{Now: midnight.Add(take.at).UnixNano()}, take.n, unbounded)
				require.Equal(t, take.ok, d.Allowed, "%s: take %d at %v: %+v", c.fault, k, take.at, d)
				if take.left != whatever {
					require.Equal(t, take.left, d.Remaining, "%s: take %d at %v: %+v", c.fault, k, take.at, d)
				}
				if take.retry != whatever {
					require.Equal(t, take.retry, d.RetryAfter, "%s: take %d at %v: %+v", c.fault, k, take.at, d)
				}
			}
		})
	}
}

// Clocks of many nodes, and one clock whose readings come out of order.
func TestFieldFaultsOfClocks(t *testing.T) {
	at := func(d time.Duration, caller bool) limiter.Reading {
		return limiter.Reading{Now: midnight.Add(d).UnixNano(), Caller: caller}
	}
	count := func(r *limiter.Rule, s *limiter.State, now limiter.Reading, n int) (passed int) {
		for range n {
			if r.Take(s, now, 1, unbounded).Allowed {
				passed++
			}
		}
		return passed
	}
	for _, caller := range []bool{false, true} {
		t.Run("CLK-01", func(t *testing.T) { // nodes a second apart refill the same second again
			r, s := newRule(t, bucket(150, sec, 150)), new(limiter.State)
			passed := count(r, s, at(10*sec, caller), 150)
			for range 50 {
				passed += count(r, s, at(9*sec, caller), 10) + count(r, s, at(10*sec, caller), 10)
			}
			require.Equal(t, 150, passed)
		})
		t.Run("CLK-03", func(t *testing.T) { // a command that arrives late
			r, s := newRule(t, bucket(5, sec, 5)), new(limiter.State)
			require.LessOrEqual(t, count(r, s, at(sec, caller), 4)+count(r, s, at(0, caller), 1)+count(r, s, at(sec, caller), 5), 5)
		})
		t.Run("CLK-04", func(t *testing.T) { // each flip mints a token
			r, s := newRule(t, bucket(1, sec, 1)), new(limiter.State)
			passed := 0
			for range 100 {
				passed += count(r, s, at(sec, caller), 1) + count(r, s, at(0, caller), 1)
			}
			require.Equal(t, 1, passed)
		})
		t.Run("CLK-05", func(t *testing.T) { // the clock was read before the lock
			r, s := newRule(t, bucket(100, sec, 200)), new(limiter.State)
			require.True(t, r.Take(s, at(10*sec, caller), 150, 0).Allowed)
			require.True(t, r.Take(s, at(9*sec, caller), 10, 0).Allowed)
			require.Equal(t, 140, r.Take(s, at(11*sec, caller), 0, 0).Remaining, "one second of refill, not two")
		})
		t.Run("OVF-05", func(t *testing.T) { // a reading a little older than the key: an unsigned difference is huge
			for _, a := range limiter.Algorithms() {
				l := limiter.PerSecond(5).With(a)
				if a == limiter.LeakyBucket {
					l.Burst = 5
				}
				r, s := newRule(t, l), new(limiter.State)
				require.True(t, r.Take(s, at(100*ms, caller), 5, unbounded).Allowed)
				d := r.Take(s, at(100*ms-1, caller), 1, unbounded)
				require.False(t, d.Allowed, a)
				require.LessOrEqual(t, d.RetryAfter, 2*sec, a)
			}
		})
	}
	t.Run("fault 4", func(t *testing.T) { // two nodes one second apart refill the bucket at every alternation
		r, s := newRule(t, bucket(10, sec, 10)), new(limiter.State)
		passed := 0
		for k := range 300 { // three seconds
			now := time.Duration(k) * 10 * ms
			passed += count(r, s, at(now, true), 5) + count(r, s, at(now+sec, true), 5)
		}
		require.LessOrEqual(t, passed, 10+10*3+10, "the bound of the faster clock")
	})
	t.Run("peer 1", func(t *testing.T) { // a take delayed past an edge must not clear the counts
		r, s := newRule(t, fixed(5, sec)), new(limiter.State)
		require.Equal(t, 5, count(r, s, at(sec, false), 5))
		require.Zero(t, count(r, s, at(sec-1, false), 3))
		require.Zero(t, count(r, s, at(sec, false), 3))
	})
}

func TestFieldFaultsOfLimits(t *testing.T) {
	for id, l := range map[string]limiter.Limit{
		"ZERO-02": limiter.PerSecond(0).WithBurst(1), "ZERO-06": limiter.PerMinute(0), "ZERO-09": bucket(0, time.Minute, 0),
		"ZERO-07": limiter.PerSecond(1).WithBurst(-1), "ZERO-11": limiter.PerSecond(0), "peer 41": slog(0, sec), "zero": {},
	} {
		_, err := limiter.NewRule(l)
		require.ErrorIs(t, err, limiter.ErrInvalid, id)
	}
	// ZERO-04, 08, 10: absent, none and without a limit are three distinct values.
	require.NotEqual(t, limiter.Unlimited, limiter.DenyAll)
	for range 1000 {
		require.True(t, newRule(t, limiter.Unlimited).Take(new(limiter.State), limiter.Reading{}, 1, 0).Allowed)
		require.False(t, newRule(t, limiter.DenyAll).Take(new(limiter.State), limiter.Reading{}, 1, 0).Allowed)
	}
	// ZERO-12: a burst that was not given is the algorithm's, and one at least.
	share := 0.33
	l := limiter.PerSecond(2).WithBurst(int(2 * share))
	require.True(t, newRule(t, l).Take(new(limiter.State), limiter.Reading{}, 1, 0).Allowed)
	// WIN-13: one day for all nodes, whatever their own zone; there is no way to say "the node's".
	require.Error(t, limiter.PerSecond(25).Aligned(limiter.Day, "Local").Validate())
	at := midnight.Add(20 * time.Hour).UnixNano()
	require.Equal(t, midnight.Add(24*time.Hour).UnixNano(), windowEnd(t, newRule(t, limiter.Limit{Rate: 25}.Aligned(limiter.Day, "")), at))
	require.Equal(t, midnight.Add(40*time.Hour).UnixNano(), windowEnd(t, newRule(t, limiter.Limit{Rate: 25}.Aligned(limiter.Day, "Asia/Shanghai")), at))
}

func TestFieldFaultsOverLongTimes(t *testing.T) {
	greedy := func(l limiter.Limit) (passed int) { // as fast as possible for an hour
		r, s := newRule(t, l), new(limiter.State)
		for k := range 36_000 {
			if r.Take(s, limiter.Reading{Now: midnight.Add(time.Duration(k) * 100 * ms).UnixNano()}, 1, 0).Allowed {
				passed++
			}
		}
		return passed
	}
	t.Run("WIN-07", func(t *testing.T) { // a burst comes on top of the rate; a hard quota is another algorithm's
		require.Equal(t, 1999, greedy(limiter.PerHour(1000)))
		require.Equal(t, 1000, greedy(slog(1000, time.Hour)))
	})
	t.Run("REM-06", func(t *testing.T) { // within one fixed window remaining never rises
		r, s := newRule(t, fixed(1000, time.Minute)), new(limiter.State)
		last := 1000
		for k := range 1200 {
			d := r.Take(s, limiter.Reading{Now: midnight.Add(time.Duration(k) * 49 * ms).UnixNano()}, 1, 0)
			require.Equal(t, max(0, last-1), d.Remaining)
			last = d.Remaining
		}
	})
	t.Run("fault 12", func(t *testing.T) { // the whole rate passes, however often the key is looked at
		r, s := newRule(t, bucket(7, sec, 1)), new(limiter.State)
		passed := 0
		for k := range 1_000_000 { // a thousand seconds
			if r.Take(s, limiter.Reading{Now: midnight.Add(time.Duration(k) * ms).UnixNano()}, 1, 0).Allowed {
				passed++
			}
		}
		// Tries every millisecond: a unit is taken up to a millisecond after it is there, but no fraction is lost.
		require.InDelta(t, 6993, passed, 50)
	})
	t.Run("fault 13", func(t *testing.T) { // a leaky bucket that is a meter lets a full bucket through at once
		r, s := newRule(t, limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(10)), new(limiter.State)
		for k := range 10 {
			d := r.Take(s, limiter.Reading{Now: midnight.UnixNano()}, 1, unbounded)
			require.Equal(t, time.Duration(k)*100*ms, d.Delay)
		}
		require.False(t, r.Take(s, limiter.Reading{Now: midnight.UnixNano()}, 1, unbounded).Allowed)
	})
}

// One request under several limits, and limits that share a store.
func TestFieldFaultsOfGroups(t *testing.T) {
	m, ctx := limitertest.NewModel(), context.Background()
	key := func(space string) limiter.Key { return limiter.Key{Space: space, ID: "c"} }
	all := func(takes ...limiter.Take) bool {
		ok, err := m.AllowAll(ctx, midnight, takes)
		require.NoError(t, err)
		return ok
	}
	left := func(space string, l limiter.Limit) int {
		d, err := m.Allow(ctx, key(space), l, 0)
		require.NoError(t, err)
		return d.Remaining
	}
	m.SetClock(midnight)

	// COST-08: the site's quota is not burnt by a user whose own is spent.
	site, user := fixed(100, time.Minute), fixed(3, time.Minute)
	for k := range 50 {
		require.Equal(t, k < 3, all(limiter.Take{Key: key("site"), Limit: site, N: 1}, limiter.Take{Key: key("user"), Limit: user, N: 1}))
	}
	require.Equal(t, 97, left("site", site))

	// DBL-01, DBL-02, DBL-05: each policy has a counter of its own, and a request counts once on each.
	app, route := fixed(600, time.Minute), fixed(300, time.Minute)
	require.True(t, all(limiter.Take{Key: key("app"), Limit: app, N: 1}, limiter.Take{Key: key("route"), Limit: route, N: 1}))
	require.Equal(t, 599, left("app", app))
	require.Equal(t, 299, left("route", route))
	for range 5 {
		require.True(t, all(limiter.Take{Key: key("app"), Limit: app, N: 1}))
	}
	require.Equal(t, 299, left("route", route))

	// DBL-04: four windows of one route count a request once each.
	passed := 0
	for range 30 {
		if all(limiter.Take{Key: key("m"), Limit: fixed(20, time.Minute), N: 1}, limiter.Take{Key: key("10m"), Limit: fixed(200, 10*time.Minute), N: 1},
			limiter.Take{Key: key("h"), Limit: fixed(1200, time.Hour), N: 1}, limiter.Take{Key: key("d"), Limit: fixed(5000, 24*time.Hour), N: 1}) {
			passed++
		}
	}
	require.Equal(t, 20, passed)

	// REM-01: two limits in one store, each with the life of its own window.
	a, b := fixed(10, sec), fixed(30, time.Hour)
	for k := range 10 {
		at := midnight.Add(time.Duration(k) * 700 * ms)
		takes := []limiter.Take{{Key: key("a"), Limit: a, N: 1}, {Key: key("b"), Limit: b, N: 1}}
		_, err := m.AllowAll(ctx, at, takes)
		require.NoError(t, err)
		require.Equal(t, 29-k, takes[1].Decision.Remaining)
	}
}

func TestFieldFaultsOfRefunds(t *testing.T) {
	now := limiter.Reading{Now: midnight.UnixNano()}
	// REF-04: A's refund does not cancel B's take.
	r, s := newRule(t, fixed(10, time.Minute)), new(limiter.State)
	require.True(t, r.Take(s, now, 5, 0).Allowed)
	a := r.Take(s, now, 1, 0)
	require.Equal(t, 3, r.Take(s, now, 1, 0).Remaining)
	s.Refund(now, 1, a.Mark)
	require.Equal(t, 4, r.Take(s, now, 0, 0).Remaining)

	// REF-10: a refund before any use is no unit more.
	for _, l := range []limiter.Limit{fixed(2, sec), bucket(2, sec, 2), slog(2, sec), limiter.PerSecond(2).WithCells(1)} {
		r, s := newRule(t, l), new(limiter.State)
		s.Refund(now, 1, now.Now)
		require.Equal(t, limiter.Never, r.Take(s, now, 3, 0).RetryAfter)
		require.Equal(t, 2, r.Take(s, now, 0, 0).Remaining)
	}
	// A refund after the window went over does not turn the next one negative, or above its limit.
	r, s = newRule(t, fixed(5, sec)), new(limiter.State)
	old := r.Take(s, limiter.Reading{Now: now.Now + int64(900*ms)}, 2, 0)
	require.True(t, r.Take(s, limiter.Reading{Now: now.Now + int64(sec)}, 5, 0).Allowed)
	s.Refund(limiter.Reading{Now: now.Now + int64(1100*ms)}, 2, old.Mark)
	require.Zero(t, r.Take(s, limiter.Reading{Now: now.Now + int64(1100*ms)}, 0, 0).Remaining)
}

// Fault 9: a limiter made inside the handler limits nothing. A rule holds no counts, so making one for each decision, as
// a limit that changes needs, is harmless: the state is what counts.
func TestRulesMadeForEachDecision(t *testing.T) {
	s, passed := new(limiter.State), 0
	for range 100 {
		if newRule(t, fixed(5, time.Minute)).Take(s, limiter.Reading{Now: midnight.UnixNano()}, 1, 0).Allowed {
			passed++
		}
	}
	require.Equal(t, 5, passed)
}

// Fault 17: keys fill by arithmetic, not by a goroutine with a ticker each; rates of over 10⁹ a second are no division by
// zero.
func TestNoTickers(t *testing.T) {
	before := runtime.NumGoroutine()
	r := newRule(t, bucket(1_000_000_000, time.Microsecond, 1_000_000_000))
	states := make([]limiter.State, 10_000)
	for k := range states {
		require.True(t, r.Take(&states[k], limiter.Reading{Now: midnight.UnixNano()}, 1_000_000_000, 0).Allowed)
		require.Equal(t, 1_000_000_000, r.Take(&states[k], limiter.Reading{Now: midnight.UnixNano() + 1000}, 0, 0).Remaining)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}
