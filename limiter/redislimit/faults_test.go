package redislimit_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// midnight is an edge of every window used here.
var midnight = time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)

// scene is one key on a Redis whose clock is the test's.
type scene struct {
	*testing.T
	v *virtual
	l *redislimit.Limiter
}

func newScene(t *testing.T, c redislimit.Config) *scene {
	v := newVirtual(t)
	return &scene{t, v, v.open(t, c)}
}

var who = limiter.Key{Space: "policy", ID: "who"}

// take takes n units at a time after midnight.
func (s *scene) take(after time.Duration, limit limiter.Limit, n int) limiter.Decision {
	s.Helper()
	at := midnight.Add(after)
	s.v.set(at.UnixNano())
	takes := []limiter.Take{{Key: who, Limit: limit, N: n}}
	_, err := s.l.AllowAll(s.Context(), at, takes)
	require.NoError(s, err)
	return takes[0].Decision
}

// passed counts what passes of single takes at regular times.
func (s *scene) passed(limit limiter.Limit, from, to, every time.Duration) (n int) {
	s.Helper()
	for at := from; at < to; at += every {
		if s.take(at, limit, 1).Allowed {
			n++
		}
	}
	return n
}

func (s *scene) ttl(limit limiter.Limit) time.Duration {
	return time.Duration(s.v.ttl(s.v.key(who, limit.Algorithm))) * time.Millisecond
}

func fixed(n int, d time.Duration) limiter.Limit { return limiter.Per(n, d).With(limiter.FixedWindow) }

// Each of these faults is in a published design.

func TestFault1_MembersOfALogThatCollide(t *testing.T) {
	s, limit := newScene(t, redislimit.Config{}), limiter.PerMinute(50).With(limiter.SlidingLog)
	for k := range 50 {
		require.Equal(t, 49-k, s.take(time.Second, limit, 1).Remaining, "all takes of one instant count")
	}
	require.False(t, s.take(time.Second, limit, 1).Allowed)
}

func TestFault2_EndsThatAreNoWholeMilliseconds(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		for _, limit := range []limiter.Limit{limiter.Per(7, 997*time.Microsecond), limiter.Per(3, time.Second), limiter.Per(1e9, limiter.MaxPeriod)} {
			if a == limiter.SlidingLog {
				limit.Rate = min(limit.Rate, limiter.MaxLogRate)
			}
			d, err := open(t, redislimit.Config{}).Allow(t.Context(), who, limit.With(a), 1)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
	}
}

func TestFault3_NumbersCutOrRoundedInReplies(t *testing.T) {
	s, limit := newScene(t, redislimit.Config{}), limiter.PerSecond(1)
	require.True(t, s.take(0, limit, 1).Allowed)
	d := s.take(600*time.Millisecond, limit, 1)
	require.False(t, d.Allowed)
	require.Zero(t, d.Remaining, "0.6 units are none")
	require.Equal(t, 400*time.Millisecond, d.RetryAfter)
}

func TestFault4_ClocksOfNodes(t *testing.T) {
	l, ctx, limit := open(t, redislimit.Config{}), t.Context(), limiter.Per(1, time.Hour).WithBurst(2)
	passed := 0
	for k := range 20 {
		at := time.Now().Add(time.Duration(k%2) * 10 * time.Hour)
		ok, err := l.AllowAll(ctx, at, []limiter.Take{{Key: who, Limit: limit, N: 1}})
		require.NoError(t, err)
		if ok {
			passed++
		}
	}
	require.Equal(t, 2, passed, "what the nodes believe the time to be does not count")
}

func TestFault6_WaitsThatDoNotWait(t *testing.T) {
	l, limit := open(t, redislimit.Config{}), limiter.PerSecond(50).WithBurst(1)
	for range 3 {
		d, err := limiter.Wait(t.Context(), l, who, limit, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	slow, other := limiter.Per(1, time.Hour), limiter.Key{Space: "policy", ID: "other"}
	d, err := l.Allow(t.Context(), other, slow, 1)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = limiter.Wait(ctx, l, other, slow, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Allow(ctx, who, limit, 1)
	require.ErrorIs(t, err, context.Canceled, "and nothing is taken")
}

func TestFault7_AnIncrementAndAnEndApart(t *testing.T) {
	server := redistest.Shared(t)
	proxy := redistest.StartProxy(t, server.Addr())
	c := proxyClient(t, proxy)
	for _, a := range limiter.Algorithms() {
		l := open(t, redislimit.Config{Client: c, DenyCache: -1})
		_, err := l.Allow(t.Context(), who, small(a), 1)
		require.NoError(t, err)
		before := proxy.Requests()
		for range 3 {
			_, err := l.Allow(t.Context(), who, small(a), 1)
			require.NoError(t, err)
		}
		require.Equal(t, before+3, proxy.Requests(), "a take is one request, so nothing comes between its writes")
	}
	s, limit := newScene(t, redislimit.Config{}), fixed(60, time.Hour)
	require.Equal(t, 60, s.passed(limit, 0, time.Hour, 10*time.Second), "hits do not move the end")
	require.Equal(t, 60, s.passed(limit, time.Hour, 2*time.Hour, 10*time.Second))
}

func TestFault8_OneLifeForAllKeys(t *testing.T) {
	s, limit := newScene(t, redislimit.Config{}), limiter.Per(1, time.Hour).WithBurst(5)
	require.True(t, s.take(0, limit, 5).Allowed)
	require.Equal(t, 5*time.Hour+time.Millisecond, s.ttl(limit))
	require.False(t, s.take(601*time.Second, limit, 1).Allowed)
	require.False(t, s.take(time.Hour-time.Microsecond, limit, 1).Allowed)
	require.Equal(t, time.Microsecond, s.take(time.Hour-time.Microsecond, limit, 1).RetryAfter)
	require.True(t, s.take(time.Hour, limit, 1).Allowed)

	s = newScene(t, redislimit.Config{})
	require.False(t, s.take(0, limit, 6).Allowed)
	require.Zero(t, s.v.Exists(t.Context(), s.v.key(who, limit.Algorithm)).Val(), "a denial of a new key leaves nothing")
}

// together makes takes at the same time and counts those that pass.
func together(t *testing.T, l limiter.Limiter, limit limiter.Limit, n int) int64 {
	t.Helper()
	var passed, failed atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			switch d, err := l.Allow(t.Context(), who, limit, 1); {
			case err != nil:
				failed.Add(1)
			case d.Allowed:
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, failed.Load())
	return passed.Load()
}
