package redislimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// What went wrong in other programs, by the clock of the test.
func TestCasesInTime(t *testing.T) {
	caller := redislimit.Config{CallerClock: true}
	for name, test := range map[string]struct {
		config redislimit.Config
		check  func(s *scene)
	}{
		"TTL-01 a key that lost its end": {check: func(s *scene) {
			limit := fixed(10, time.Minute)
			require.True(s, s.take(0, limit, 1).Allowed)
			s.v.persist(s.v.key(who, limit.Algorithm))
			require.Equal(s, 19, s.passed(limit, 3*time.Minute, time.Hour, 3*time.Minute))
			require.Equal(s, time.Minute+ms, s.ttl(limit))
		}},
		"TTL-03 a first increment of any cost": {check: func(s *scene) {
			limit := fixed(1000, time.Minute)
			require.True(s, s.take(0, limit, 250).Allowed)
			require.Equal(s, time.Minute+ms, s.ttl(limit))
			require.True(s, s.take(sec, limit, 180).Allowed)
			require.Equal(s, 59*sec+ms, s.ttl(limit))
		}},
		"TTL-04 hits do not lengthen a window": {check: func(s *scene) {
			limit := fixed(60, time.Hour)
			for at := time.Duration(0); at < time.Hour; at += 10 * sec {
				s.take(at, limit, 1)
				require.Equal(s, time.Hour-at+ms, s.ttl(limit))
			}
			require.True(s, s.take(time.Hour, limit, 1).Allowed)
		}},
		"TTL-07 a life as long as a slow drain": {check: func(s *scene) {
			limit := limiter.Per(1, 10*sec).With(limiter.LeakyBucket)
			var passed []time.Duration
			for at := time.Duration(0); at < 20*sec; at += 2 * sec {
				if s.take(at, limit, 1).Allowed {
					passed = append(passed, at)
				}
			}
			require.Equal(s, []time.Duration{0, 10 * sec}, passed)
		}},
		"TTL-08 every algorithm ends": {check: func(s *scene) {
			for _, a := range limiter.Algorithms() {
				s.take(0, small(a), 1)
				require.Positive(s, s.ttl(small(a)), a)
				require.LessOrEqual(s, s.ttl(small(a)), 2*time.Minute+ms, a)
			}
		}},
		"TTL-10 a key that ended just before": {check: func(s *scene) {
			limit := fixed(10, time.Minute)
			s.take(59900*ms, limit, 3)
			require.Equal(s, 9, s.take(60100*ms, limit, 1).Remaining)
			require.Equal(s, 59900*ms+ms, s.ttl(limit))
		}},
		"TTL-12 an active key is not dropped": {check: func(s *scene) {
			require.Equal(s, 10, s.passed(limiter.PerSecond(1), 0, 10*sec, 10*ms))
		}},
		"TTL-14 old writes do not end a key": {check: func(s *scene) {
			for k := range time.Duration(5) {
				require.Equal(s, 60, s.passed(fixed(60, time.Minute), k*time.Minute, (k+1)*time.Minute, 650*ms))
			}
		}},
		"TTL-15 probes do not lengthen a window": {check: func(s *scene) {
			limit := fixed(20, 30*sec)
			s.take(0, limit, 20)
			require.False(s, s.take(10*sec, limit, 1).Allowed)
			require.False(s, s.take(20*sec, limit, 1).Allowed)
			require.True(s, s.take(30*sec, limit, 1).Allowed)
		}},
		"TTL-16 a slow probe is never denied": {check: func(s *scene) {
			require.Equal(s, 240, s.passed(fixed(120, time.Minute), 0, 2*time.Hour, 30*sec))
		}},
		"TTL-17 after a rest a visitor is new": {check: func(s *scene) {
			require.True(s, s.take(0, limiter.PerSecond(1), 1).Allowed)
			require.True(s, s.take(4*time.Minute, limiter.PerSecond(1), 1).Allowed)
		}},
		"CLK-01 nodes a second apart": {config: caller, check: func(s *scene) {
			passed := 0
			for range 200 {
				for _, at := range []time.Duration{10 * sec, 9 * sec} {
					if s.take(at, limiter.PerSecond(150), 1).Allowed {
						passed++
					}
				}
			}
			require.Equal(s, 150, passed)
		}},
		"CLK-03 a late stamp": {config: caller, check: func(s *scene) {
			limit, passed := limiter.PerSecond(5), 0
			for _, at := range []time.Duration{sec, sec, sec, sec, 0, sec, sec, sec, sec, sec} {
				if s.take(at, limit, 1).Allowed {
					passed++
				}
			}
			require.Equal(s, 5, passed)
		}},
		"CLK-04 stamps that take turns": {config: caller, check: func(s *scene) {
			passed := 0
			for range 100 {
				for _, at := range []time.Duration{sec, 0} {
					if s.take(at, limiter.PerSecond(1), 1).Allowed {
						passed++
					}
				}
			}
			require.Equal(s, 1, passed)
		}},
		"CLK-05 a second refills a second": {config: caller, check: func(s *scene) {
			limit := limiter.PerSecond(100).WithBurst(1000)
			s.take(10*sec, limit, 1000)
			s.take(9*sec, limit.WithBurst(999), 1)
			require.Equal(s, 100, s.take(11*sec, limit.WithBurst(999), 0).Remaining)
		}},
		"CLK-07 no wait beyond the longest debt": {check: func(s *scene) {
			limit := limiter.PerSecond(2000).WithBurst(5000)
			s.take(time.Hour, limit, 5000)
			for _, back := range []time.Duration{0, 1891 * sec, 40 * time.Minute} {
				d := s.take(time.Hour-back, limit, 5000)
				require.False(s, d.Allowed)
				require.LessOrEqual(s, d.RetryAfter, 2500*ms)
			}
		}},
		"OVF-02 a life in one unit": {check: func(s *scene) {
			s.take(0, limiter.PerSecond(120), 1)
			require.Equal(s, 10*ms, s.ttl(limiter.PerSecond(120)))
		}},
		"OVF-04 rates that do not divide a second": {check: func(s *scene) {
			limit := limiter.PerSecond(65535)
			for k := range time.Duration(20) {
				require.Equal(s, 65534, s.take(k*100*ms, limit, 1).Remaining)
			}
		}},
		"OVF-05 a reading older than the key": {config: caller, check: func(s *scene) {
			s.take(sec, limiter.PerMinute(3), 3)
			require.False(s, s.take(sec-1000, limiter.PerMinute(3), 1).Allowed)
		}},
		"OVF-07 a wait below a second is one": {check: func(s *scene) {
			limit := fixed(1, sec)
			s.take(0, limit, 1)
			d := s.take(600*ms, limit, 1)
			require.False(s, d.Allowed)
			require.Equal(s, 400*ms, d.RetryAfter)
		}},
		"OVF-08 rates above one in a millisecond": {check: func(s *scene) {
			for k, rate := range []int{1500, 2000, 1e6, 1e9} {
				limit, at := limiter.PerSecond(rate).WithBurst(10), time.Duration(k)*time.Minute
				require.True(s, s.take(at, limit, 10).Allowed)
				require.Equal(s, min(10, rate/1000), s.take(at+ms, limit, 0).Remaining)
			}
		}},
		"OVF-09 a wait of one unit": {check: func(s *scene) {
			limit := limiter.PerSecond(1000).WithBurst(1)
			s.take(0, limit, 1)
			require.Equal(s, ms, s.take(0, limit, 1).RetryAfter)
			require.False(s, s.take(999*time.Microsecond, limit, 1).Allowed)
			require.True(s, s.take(ms, limit, 1).Allowed)
		}},
		"OVF-11 ends are whole milliseconds": {check: func(s *scene) {
			for _, a := range limiter.Algorithms() {
				s.take(0, limiter.Per(7, 60*sec+1001*time.Microsecond).With(a), 1)
			}
			for _, c := range s.v.commands() {
				require.Regexp(s, `^[0-9]*$`, c.ttl)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) { test.check(newScene(t, test.config)) })
	}
}
