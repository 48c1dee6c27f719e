package fallback_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

func TestNewNamesEveryFault(t *testing.T) {
	_, err := fallback.New(fallback.Config{Replicas: -1, Failures: -1, SlowCall: -2, Cooldown: -1})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	for _, what := range []string{"Primary", "Replicas", "Failures", "SlowCall", "Cooldown"} {
		require.ErrorContains(t, err, what)
	}
	_, err = fallback.NewCensus(fallback.CensusConfig{Interval: time.Millisecond, Timeout: -1})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	for _, what := range []string{"Client", "Interval", "Timeout"} {
		require.ErrorContains(t, err, what)
	}
}

// Refunds go by where a decision was made, which is said once.
func TestNoNesting(t *testing.T) {
	inner := newLimiter(t, fallback.Config{Primary: newMemory(t)})
	_, err := fallback.New(fallback.Config{Primary: inner, Secondary: inner})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.ErrorContains(t, err, "Primary is a *fallback.Limiter")
	require.ErrorContains(t, err, "Secondary is a *fallback.Limiter")
}

func TestShareIsWhatTheSecondaryCountsBy(t *testing.T) {
	s := newStore(t)
	l := newLimiter(t, fallback.Config{Primary: s, Replicas: 4})
	trip(t, l, s)
	d := take(t, l, limiter.PerMinute(100), 3)
	require.Equal(t, limiter.PerMinute(25).WithBurst(25), d.Limit)
	require.Equal(t, 22, d.Remaining)
	require.Equal(t, limiter.ViaFallback, d.Via)
}

// What a replica let through before the outage is not there for a second time.
func TestAFlipGivesNoFreshBurst(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			s := newStore(t)
			l := newLimiter(t, fallback.Config{Primary: s, Replicas: 2})
			limit := limiter.Limit{Algorithm: a, Rate: 10, Period: 24 * time.Hour, Burst: 10}
			ask := func(n int) bool {
				takes := []limiter.Take{{Key: key, Limit: limit, N: n, MaxDelay: math.MaxInt64}}
				passed, err := l.AllowAll(ctx, time.Time{}, takes)
				require.NoError(t, err)
				return passed
			}
			require.True(t, ask(3))
			trip(t, l, s)
			require.False(t, ask(3), "the share is 5")
			require.True(t, ask(2))
			require.False(t, ask(1))
		})
	}
}

// A replica that has let through more than its share has nothing left of it, and owes nothing.
func TestAShareIsDrained(t *testing.T) {
	s := newStore(t)
	l := newLimiter(t, fallback.Config{Primary: s, Replicas: 3})
	limit := limiter.PerDay(100)
	require.True(t, take(t, l, limit, 20).Allowed)
	require.True(t, take(t, l, limit, 60).Allowed, "the share is 33, of which 13 are left")
	passed, err := l.AllowAll(ctx, time.Time{}, []limiter.Take{
		{Key: key, Limit: limit, N: 10},
		{Key: limiter.Key{Space: "search", ID: "tenant=other"}, Limit: limit, N: 40},
		{Key: limiter.Key{Space: "search", ID: "tenant=third"}, Limit: limit, N: 30},
	})
	require.NoError(t, err)
	require.True(t, passed)
	trip(t, l, s)
	for id, want := range map[string]int{"tenant=acme": 0, "tenant=other": 0, "tenant=third": 3, "tenant=new": 33} {
		d, err := l.Allow(ctx, limiter.Key{Space: "search", ID: id}, limit, 0)
		require.NoError(t, err)
		require.Equal(t, want, d.Remaining, id)
	}
}

// Takes of one key in one call are charged together: what the share has left of them, however they are cut.
func TestTakesOfOneKeyDrainTogether(t *testing.T) {
	for _, units := range [][]int{{1, 1, 1, 1, 1}, {10, 10}, {3, 0, 3}, {1, 4}} {
		for _, shadow := range []bool{false, true} {
			s := newStore(t)
			l := newLimiter(t, fallback.Config{Primary: s, Replicas: 5})
			limit := limiter.PerDay(20)
			var takes []limiter.Take
			for k, n := range units {
				takes = append(takes, limiter.Take{Key: key, Limit: limit, N: n, Shadow: shadow && k > 0})
			}
			passed, err := l.AllowAll(ctx, time.Time{}, takes)
			require.NoError(t, err)
			require.True(t, passed)
			trip(t, l, s)
			require.Zero(t, take(t, l, limit, 0).Remaining, "%v units are more than the share of 4", units)
		}
	}
}

func TestAQueueIsKeptWarmThroughAllow(t *testing.T) {
	s := newStore(t)
	l := newLimiter(t, fallback.Config{Primary: s, Replicas: 2})
	limit := limiter.Limit{Algorithm: limiter.LeakyBucket, Rate: 1, Period: time.Hour, Burst: 4}
	require.True(t, take(t, l, limit, 2).Allowed)
	trip(t, l, s)
	require.Zero(t, take(t, l, limit, 0).Remaining, "2 places are the share")
}

// A take that fits into the limit and not into a share is not told "never": the primary can admit it when it is back.
func TestNeverIsSaidOnlyWhereItIsMeant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		l := newLimiter(t, fallback.Config{Primary: s, Replicas: 4, Cooldown: 10 * time.Second})
		limit := limiter.PerMinute(100)
		s.fail(errGone)
		d := take(t, l, limit, 30)
		require.False(t, d.Allowed)
		require.Equal(t, 10*time.Second, d.RetryAfter, "while the breaker is closed")

		trip(t, l, s)
		s.fail(nil)
		d = take(t, l, limit, 30)
		require.False(t, d.Allowed)
		require.LessOrEqual(t, d.RetryAfter, 15*time.Second)
		require.Equal(t, limiter.Never, take(t, l, limit, 101).RetryAfter)
		require.Equal(t, limiter.Never, take(t, l, limiter.DenyAll, 1).RetryAfter)

		takes := []limiter.Take{
			{Key: key, Limit: limit, N: 20},
			{Key: key, Limit: limit, N: 20},
			{Key: limiter.Key{ID: "b"}, Limit: limit, N: 60},
			{Key: limiter.Key{ID: "b"}, Limit: limit, N: 60},
		}
		passed, err := l.AllowAll(ctx, time.Time{}, takes)
		require.NoError(t, err)
		require.False(t, passed)
		require.LessOrEqual(t, takes[0].Decision.RetryAfter, 15*time.Second, "together 40 of 100")
		require.Equal(t, limiter.Never, takes[2].Decision.RetryAfter, "together 120 of 100")
		require.Equal(t, limit, takes[0].Limit, "the caller's limits are left alone")

		time.Sleep(d.RetryAfter)
		require.True(t, take(t, l, limit, 30).Allowed)
	})
}

func TestGroupsArePassedWhole(t *testing.T) {
	s := newStore(t)
	l := newLimiter(t, fallback.Config{Primary: s, Replicas: 2})
	trip(t, l, s)
	narrow := limiter.Key{Space: "narrow", ID: "a"}
	takes := func() []limiter.Take {
		return []limiter.Take{{Key: key, Limit: limiter.PerDay(100), N: 1}, {Key: narrow, Limit: limiter.PerDay(4), N: 1}}
	}
	for k := range 4 {
		group := takes()
		passed, err := l.AllowAll(ctx, time.Time{}, group)
		require.NoError(t, err)
		require.Equal(t, k < 2, passed)
		require.Equal(t, limiter.ViaFallback, group[0].Decision.Via)
		require.Equal(t, passed, group[1].Decision.Allowed)
	}
	require.Equal(t, 48, take(t, l, limiter.PerDay(100), 0).Remaining, "refused groups were charged")
}

// The instant that a caller gives is handed on to whoever decides, and to the share that is kept warm.
func TestInstantsAreHandedOn(t *testing.T) {
	s := newStore(t)
	l := newLimiter(t, fallback.Config{Primary: s})
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	ask := func(after time.Duration) limiter.Decision {
		takes := []limiter.Take{{Key: key, Limit: limiter.PerMinute(1).With(limiter.FixedWindow), N: 1}}
		_, err := l.AllowAll(ctx, at.Add(after), takes)
		require.NoError(t, err)
		return takes[0].Decision
	}
	require.True(t, ask(10*time.Second).Allowed)
	trip(t, l, s)
	require.Equal(t, 30*time.Second, ask(30*time.Second).RetryAfter)
	require.True(t, ask(time.Minute).Allowed)
}

func TestRefundsGoToWhereTheBookingIs(t *testing.T) {
	s, second := newStore(t), newMemory(t)
	l := newLimiter(t, fallback.Config{Primary: s, Secondary: second, Replicas: 2})
	limit := limiter.PerDay(10)
	left := func(who limiter.Limiter, limit limiter.Limit) int { return take(t, who, limit, 0).Remaining }
	share := fallback.Share(limit, 2)

	booked := limiter.Take{Key: key, Limit: limit, N: 3}
	booked.Decision = take(t, l, limit, 3)
	require.Equal(t, []int{7, 2}, []int{left(s.Limiter, limit), left(second, share)})
	require.NoError(t, l.Refund(ctx, time.Time{}, &booked))
	require.Equal(t, []int{10, 5}, []int{left(s.Limiter, limit), left(second, share)})

	booked.Decision = take(t, l, limit, 3)
	trip(t, l, s)
	require.ErrorIs(t, l.Refund(ctx, time.Time{}, &booked), limiter.ErrUnavailable)
	require.Equal(t, []int{7, 2}, []int{left(s.Limiter, limit), left(second, share)}, "a booking of the primary while it is away")

	local := limiter.Take{Key: key, Limit: limit, N: 2}
	local.Decision = take(t, l, limit, 2)
	require.NoError(t, l.Refund(ctx, time.Time{}, &local))
	require.Equal(t, []int{7, 2}, []int{left(s.Limiter, limit), left(second, share)}, "a booking of the secondary")
}

// ahead is a primary whose clock is a second ahead of this process.
type ahead struct{ *store }

func (s ahead) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	passed, err := s.store.AllowAll(ctx, at, takes)
	for k := range takes {
		if d := &takes[k].Decision; d.Mark != 0 {
			d.Mark += int64(time.Second)
		}
	}
	return passed, err
}

func (s ahead) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	own := *t
	own.Decision.Mark -= int64(time.Second)
	return s.store.Refund(ctx, at, &own)
}

// A refund of the primary's reaches the share if the share can find the booking by the primary's instant. If not, the share
// stays charged.
func TestRefundsFindTheirInstant(t *testing.T) {
	for a, want := range map[limiter.Algorithm]int{
		limiter.TokenBucket: 10, limiter.FixedWindow: 10, limiter.SlidingWindow: 10, limiter.SlidingLog: 7,
	} {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // at midnight: no window ends
				s := newStore(t)
				l := newLimiter(t, fallback.Config{Primary: ahead{s}, Replicas: 2})
				limit := limiter.PerDay(20).With(a)
				takes := []limiter.Take{{Key: key, Limit: limit, N: 3}}
				passed, err := l.AllowAll(ctx, time.Time{}, takes)
				require.NoError(t, err)
				require.True(t, passed)
				require.NoError(t, l.Refund(ctx, time.Time{}, &takes[0]))
				require.Equal(t, 20, take(t, l, limit, 0).Remaining)
				trip(t, l, s)
				require.Equal(t, want, take(t, l, limit, 0).Remaining)
			})
		})
	}
}

func TestResetForgetsOnBothSides(t *testing.T) {
	s, second := newStore(t), newMemory(t)
	l := newLimiter(t, fallback.Config{Primary: s, Secondary: second})
	limit := limiter.PerDay(10)
	take(t, l, limit, 3)
	require.NoError(t, l.Reset(ctx, key))
	require.Equal(t, 10, take(t, s, limit, 0).Remaining)
	require.Equal(t, 10, take(t, second, limit, 0).Remaining)

	take(t, l, limit, 3)
	trip(t, l, s)
	asked := s.asked.Load()
	require.ErrorIs(t, l.Reset(ctx, key), limiter.ErrUnavailable, "the primary has not forgotten")
	require.Equal(t, asked, s.asked.Load())
	require.Equal(t, 10, take(t, second, limit, 0).Remaining)
}

func TestWhatNeitherCanIsUnsupported(t *testing.T) {
	for name, c := range map[string]fallback.Config{
		"primary":   {Primary: allowOnly{newMemory(t)}},
		"secondary": {Primary: newMemory(t), Secondary: allowOnly{newMemory(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, c)
			for _, takes := range [][]limiter.Take{nil, {{Key: key, Limit: limit, N: 1}}} {
				_, err := l.AllowAll(ctx, time.Time{}, takes)
				require.ErrorIs(t, err, errors.ErrUnsupported)
			}
			require.True(t, take(t, l, limit, 1).Allowed)
			booked := limiter.Take{Key: key, Limit: limit, N: 1, Decision: take(t, l, limit, 1)}
			if name == "primary" {
				require.ErrorIs(t, l.Refund(ctx, time.Time{}, &booked), errors.ErrUnsupported)
				require.ErrorIs(t, l.Reset(ctx, key), errors.ErrUnsupported)
				return
			}
			require.NoError(t, l.Refund(ctx, time.Time{}, &booked))
			require.NoError(t, l.Reset(ctx, key))
			booked.Decision.Via = limiter.ViaFallback
			require.ErrorIs(t, l.Refund(ctx, time.Time{}, &booked), errors.ErrUnsupported)
		})
	}
	l := newLimiter(t, fallback.Config{Primary: newMemory(t)})
	passed, err := l.AllowAll(ctx, time.Time{}, nil)
	require.NoError(t, err)
	require.True(t, passed)
}

// Asking whether groups are supported says nothing about the store, and is no probe.
func TestTheQuestionIsNoProbe(t *testing.T) {
	s := newStore(t)
	l := newLimiter(t, fallback.Config{Primary: s})
	trip(t, l, s)
	_, err := l.AllowAll(ctx, time.Time{}, nil)
	require.NoError(t, err)
}

func TestCloseClosesOnlyWhatItMade(t *testing.T) {
	s, second := newStore(t), newMemory(t)
	l := newLimiter(t, fallback.Config{Primary: s, Secondary: second})
	l.Close()
	l.Close()
	_, err := l.Allow(ctx, key, limit, 1)
	require.ErrorIs(t, err, limiter.ErrClosed)
	require.ErrorIs(t, l.Reset(ctx, key), limiter.ErrClosed)
	take(t, s, limit, 1)
	take(t, second, limit, 1)
}

// Both sides away is an outage; what the secondary says about the input is not, however the primary fails.
func TestBothFail(t *testing.T) {
	s, second := newStore(t), newStore(t)
	l := newLimiter(t, fallback.Config{Primary: s, Secondary: second})
	s.fail(errGone)
	second.fail(errGone)
	for range 20 {
		d, err := l.Allow(ctx, key, limit, 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Zero(t, d)
		takes := []limiter.Take{{Key: key, Limit: limit, N: 1, Decision: limiter.Decision{Allowed: true}}}
		_, err = l.AllowAll(ctx, time.Time{}, takes)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Zero(t, takes[0].Decision)
	}
	second.fail(nil)
	bad := limit
	bad.Rate = -5
	_, err := l.Allow(ctx, key, bad, 1)
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.NotErrorIs(t, err, limiter.ErrUnavailable)
}

// A take that is booked is charged to the share, whatever became of its caller since.
func TestWarmAfterTheCallerHasLeft(t *testing.T) {
	s := newStore(t)
	leaving, leave := context.WithCancel(ctx)
	l := newLimiter(t, fallback.Config{Primary: leaver{s, leave}})
	d, err := l.Allow(leaving, key, limit, 1)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	trip(t, l, s)
	require.Equal(t, limitOf-1, take(t, l, limit, 0).Remaining)
}

// leaver decides, and its caller leaves before he hears of it.
type leaver struct {
	*store
	leave func()
}

func (s leaver) Allow(ctx context.Context, k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	d, err := s.store.Allow(ctx, k, l, n)
	s.leave()
	return d, err
}
