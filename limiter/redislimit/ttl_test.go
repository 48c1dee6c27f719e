package redislimit_test

import (
	"context"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// digits draws a number up to most, as many of one size as of another.
func digits(t *rapid.T, most int64, what string) int64 {
	size := rapid.Int64Range(0, int64(math.Log10(float64(most)))).Draw(t, "digits of "+what)
	return min(most, rapid.Int64Range(1, int64(math.Pow10(int(size)+1))).Draw(t, what))
}

func anyLimit(t *rapid.T, a limiter.Algorithm) limiter.Limit {
	rate := int64(limiter.MaxRate)
	if a == limiter.SlidingLog {
		rate = limiter.MaxLogRate
	}
	l := limiter.Per(int(digits(t, rate, "rate")), time.Duration(digits(t, int64(limiter.MaxPeriod/1000), "period"))*time.Microsecond).With(a)
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		l.Burst = int(digits(t, limiter.MaxRate, "burst"))
	case limiter.FixedWindow:
		if rapid.IntRange(0, 3).Draw(t, "calendar") == 0 {
			l.Align = limiter.Align{Unit: limiter.Unit(rapid.IntRange(1, 3).Draw(t, "unit")), Zone: "Europe/Berlin"}
		}
	case limiter.SlidingWindow:
		cells := rapid.IntRange(1, limiter.MaxCells).Draw(t, "cells")
		l.Period = max(1, l.Period/time.Duration(cells)/time.Microsecond) * time.Microsecond * time.Duration(cells)
		if l.Cells = cells; l.Period > limiter.MaxPeriod {
			l.Period = limiter.MaxPeriod / time.Duration(cells) / time.Microsecond * time.Microsecond * time.Duration(cells)
		}
	}
	return l
}

const longest = 9_000_000_000_000 // ms: 285 years

// ttlOf returns the shortest TTL in ms that is right for a state written at a reading, all in µs.
func ttlOf(s limiter.State, now int64) int64 {
	life := s.Gone() - s.At
	lag := max(0, s.At-(now+s.Shift))
	if life > longest*1000-s.Shift-lag {
		return longest
	}
	return (life + s.Shift + lag + 999) / 1000
}

// The invariant of the end of a key: after every write it is the time to full, rounded up, and a millisecond (with callers' clocks a
// second) more; and nothing but a write moves it.
func TestEndOfKey(t *testing.T) {
	v := newVirtual(t)
	limiters := map[bool]*redislimit.Limiter{false: v.open(t, redislimit.Config{}), true: v.open(t, redislimit.Config{CallerClock: true})}
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		caller := rapid.Bool().Draw(t, "caller's clock")
		a := rapid.SampledFrom(limiter.Algorithms()).Draw(t, "algorithm")
		l, limit, key := limiters[caller], anyLimit(t, a), limiter.Key{Space: "end", ID: strconv.Itoa(n)}
		now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC).UnixMicro() + rapid.Int64Range(0, 1e9).Draw(t, "begin")
		written, slack := false, int64(1)
		if caller {
			slack = 1001
		}
		var last limiter.Decision
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "pause") {
			case 0:
				now += rapid.Int64Range(0, int64(limit.Period/1000)).Draw(t, "within a period")
			case 1:
				now += min(int64(last.NextAfter/1000), 1e12)
			case 2:
				now -= rapid.Int64Range(0, 1e6).Draw(t, "late")
			case 3:
				now -= rapid.Int64Range(1e6, 1e11).Draw(t, "back")
			}
			if rapid.IntRange(0, 7).Draw(t, "relimit") == 0 {
				limit = anyLimit(t, a)
			}
			quota := limit.Quota()
			take := limiter.Take{Key: key, Limit: limit, MaxDelay: forever, N: rapid.SampledFrom([]int{
				0, 1, 1, 2, quota, quota + 1, last.Remaining, max(1, last.Remaining/2),
			}).Draw(t, "n")}
			if last.Mark != 0 && rapid.IntRange(0, 5).Draw(t, "refund") == 0 {
				take.N, take.Decision = rapid.IntRange(1, 3).Draw(t, "units back"), last
				at := time.UnixMicro(now)
				v.set(at.UnixNano())
				require.NoError(t, l.Refund(context.Background(), at, &take))
			} else {
				takes := []limiter.Take{take}
				at := time.UnixMicro(now)
				v.set(at.UnixNano())
				_, err := l.AllowAll(context.Background(), at, takes)
				require.NoError(t, err)
				last = takes[0].Decision
			}
			wrote := false
			for _, c := range v.commands() {
				switch c.name {
				case "SET", "PEXPIRE":
					wrote, written = true, true
					ttl, err := strconv.ParseInt(c.ttl, 10, 64)
					require.NoError(t, err, "whole milliseconds")
					stored, err := v.Get(context.Background(), c.key).Result()
					require.NoError(t, err)
					s, err := redislimit.StateOf(limit, stored)
					require.NoError(t, err)
					exact, off := ttlOf(s, now)+slack, int64(0)
					if float64(limit.Quota())*float64(limit.Period/time.Microsecond) > 1<<52 {
						off = 1 // Lua's product may be the next double
					}
					require.GreaterOrEqual(t, ttl, min(exact-off, longest), "%+v %+v", limit, s)
					require.LessOrEqual(t, ttl, exact+off, "%+v %+v", limit, s)
					require.Positive(t, ttl)
				case "SETRANGE", "DEL":
					wrote = true
				}
			}
			require.False(t, wrote && take.N == 0, "a peek wrote")
			require.False(t, wrote && last.RetryAfter == limiter.Never && take.Decision.Mark == 0, "a take that can never pass wrote")
			if written && v.Exists(context.Background(), v.key(key, a)).Val() == 1 {
				require.NotEqual(t, int64(-1), v.ttl(v.key(key, a)), "a key without an end")
			}
		}
	})
}

// small is a limit of two units a minute.
func small(a limiter.Algorithm) limiter.Limit {
	l := limiter.PerMinute(2).With(a)
	if a == limiter.TokenBucket || a == limiter.LeakyBucket {
		l.Burst = 2
	}
	return l
}

// The same on Redis' own clock: a key is there until it is full, and not much longer.
func TestRealEndOfKey(t *testing.T) {
	c, ctx := redistest.Shared(t).Client(), t.Context()
	for _, a := range limiter.Algorithms() {
		for _, limit := range []limiter.Limit{small(a), limiter.Per(2, time.Microsecond).With(a), limiter.Per(1, limiter.MaxPeriod).With(a)} {
			if a == limiter.TokenBucket || a == limiter.LeakyBucket {
				limit.Burst = limiter.MaxRate
			}
			prefix := "e" + strconv.FormatInt(prefixes.Add(1), 10)
			l := open(t, redislimit.Config{Prefix: prefix, DenyCache: -1, Client: c})
			key := limiter.Key{Space: "end", ID: "k"}
			from := c.Time(ctx).Val().UnixMilli()
			takes := []limiter.Take{{Key: key, Limit: limit, N: 1, MaxDelay: forever}}
			_, err := l.AllowAll(ctx, time.Time{}, takes)
			require.NoError(t, err)
			until := c.Time(ctx).Val().UnixMilli()
			end, err := c.Do(ctx, "PEXPIRETIME", key.Render(prefix, a.Tag())).Int64()
			require.NoError(t, err)
			if end == -2 {
				require.Less(t, limit.Period, time.Second, "%+v", limit)
				continue // full again meanwhile
			}
			mark := takes[0].Decision.Mark / int64(time.Millisecond)
			full := int64((takes[0].Decision.ResetAfter + time.Millisecond - 1) / time.Millisecond)
			require.GreaterOrEqual(t, end, min(mark+full, from+longest), "%+v", limit)
			require.LessOrEqual(t, end, until+full+2, "%+v", limit)
		}
	}
}

// A peek and a plain refusal leave the end of a key as it was, and a key without one gets one by whoever takes next.
func TestKeyWithoutAnEnd(t *testing.T) {
	v := newVirtual(t)
	l := v.open(t, redislimit.Config{})
	at := time.Date(2026, 3, 4, 5, 6, 0, 100, time.UTC)
	for _, a := range limiter.Algorithms() {
		key, limit := limiter.Key{Space: "without", ID: a.String()}, small(a)
		rendered := v.key(key, a)
		try := func(after time.Duration, n int, more ...limiter.Take) limiter.Decision {
			v.set(at.Add(after).UnixNano())
			takes := append([]limiter.Take{{Key: key, Limit: limit, N: n, MaxDelay: forever}}, more...)
			_, err := l.AllowAll(t.Context(), time.Time{}, takes)
			require.NoError(t, err)
			return takes[0].Decision
		}
		require.True(t, try(0, 1).Allowed)
		v.persist(rendered)
		try(time.Second, 0)
		try(time.Second, 3)
		require.Equal(t, int64(-1), v.ttl(rendered), "neither a look nor what can never pass writes")
		require.True(t, try(time.Second, 1).Allowed)
		end := v.ttl(rendered)
		require.Positive(t, end, a)

		v.commands()
		require.False(t, try(time.Second+time.Millisecond, 2).Allowed)
		require.Equal(t, end-1, v.ttl(rendered), "%v: time went on, nothing else", a)
		for _, c := range v.commands() {
			require.Contains(t, []string{"TIME", "GET", "GETRANGE", "PTTL"}, c.name)
		}

		v.persist(rendered)
		require.False(t, try(2*time.Second, 2).Allowed)
		require.InDelta(t, end-1000, v.ttl(rendered), 1, "%v: by a refusal", a)
		v.persist(rendered)
		require.False(t, try(3*time.Second, 2, limiter.Take{Key: key, Limit: limiter.DenyAll}).Allowed)
		other := limiter.Take{Key: limiter.Key{Space: "other", ID: a.String()}, Limit: limiter.PerSecond(1), N: 1}
		require.False(t, try(3*time.Second, 2, other).Allowed)
		require.InDelta(t, end-2000, v.ttl(rendered), 1, "%v: by the refusal of a group", a)
		require.True(t, try(4*time.Minute, 2).Allowed)
	}
}
