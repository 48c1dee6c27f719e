package response_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// told writes one policy's decision and returns the header.
func told(t *testing.T, o response.Options, l limiter.Limit, d limiter.Decision) http.Header {
	t.Helper()
	h := http.Header{}
	d.Limit = l
	rendererOf(t, o).WriteHeaders(h, nil, clock, []response.Item{
		{Policy: policyOf(t, "default", l), Decision: &d, Violated: !d.Allowed},
	})
	return h
}

func refusal(wait, reset time.Duration) limiter.Decision {
	return limiter.Decision{RetryAfter: wait, ResetAfter: reset, NextAfter: wait}
}

func epoch(secs int64) string { return strconv.FormatInt(clock.Unix()+secs, 10) }

// Each fault was reported against a published limiter; the names are those of the collection. Faults of counting, not of
// telling, are tested with the algorithms and the guard.
func TestFieldFaults(t *testing.T) {
	fixed := func(n int, d time.Duration) limiter.Limit { return limiter.Per(n, d).With(limiter.FixedWindow) }

	t.Run("REM-03 no negative remaining", func(t *testing.T) {
		d := refusal(30*time.Second, 60*time.Second)
		d.Remaining = -1
		h := told(t, response.Options{Headers: response.Both}, limiter.PerMinute(2), d)
		require.Equal(t, "0", h.Get("X-RateLimit-Remaining"))
		require.Equal(t, `"default";r=0;t=30`, h.Get("RateLimit"))
	})
	t.Run("REM-04 the limit is the burst, not burst+1", func(t *testing.T) {
		h := told(t, response.Options{}, limiter.PerSecond(2).WithBurst(3), limiter.Decision{Allowed: true, Remaining: 2})
		require.Equal(t, "3", h.Get("X-RateLimit-Limit"))
		require.Equal(t, "2", h.Get("X-RateLimit-Remaining"))
	})
	t.Run("RA-01 never 0 on a denial", func(t *testing.T) {
		h := told(t, response.Options{}, limiter.PerSecond(9), refusal(105_700*time.Microsecond, time.Second))
		require.Equal(t, "1", h.Get("Retry-After"))
	})
	t.Run("RA-02 denial with no wait is told 1", func(t *testing.T) {
		require.Equal(t, "1", told(t, response.Options{}, limiter.PerSecond(9), refusal(0, 0)).Get("Retry-After"))
	})
	t.Run("RA-03 no negative wait", func(t *testing.T) {
		h := told(t, response.Options{Headers: response.Both}, limiter.PerMinute(9), refusal(-1484742195*time.Second, -5*time.Second))
		require.Equal(t, "1", h.Get("Retry-After"))
		require.Equal(t, epoch(1), h.Get("X-RateLimit-Reset"))
		require.Equal(t, `"default";r=0;t=1`, h.Get("RateLimit"))
	})
	t.Run("RA-05 seconds, not milliseconds", func(t *testing.T) {
		h := told(t, response.Options{}, fixed(2, 15*time.Minute), refusal(15*time.Minute, 15*time.Minute))
		require.Equal(t, "900", h.Get("Retry-After"))
	})
	t.Run("RA-06 no fraction", func(t *testing.T) {
		h := told(t, response.Options{}, limiter.PerSecond(2), refusal(493*time.Millisecond, time.Second))
		require.Equal(t, "1", h.Get("Retry-After"))
	})
	t.Run("RA-07 what is left of the window, not its length", func(t *testing.T) {
		h := told(t, response.Options{Headers: response.Both}, fixed(10, time.Minute), refusal(40*time.Second, 40*time.Second))
		require.Equal(t, "40", h.Get("Retry-After"))
		require.Equal(t, `"default";r=0;t=40`, h.Get("RateLimit"))
	})
	t.Run("RA-08 five seconds before the end", func(t *testing.T) {
		h := told(t, response.Options{}, fixed(5, 300*time.Second), refusal(5*time.Second, 5*time.Second))
		require.Equal(t, "5", h.Get("Retry-After"))
	})
	t.Run("RA-11 a part of a second is a second", func(t *testing.T) {
		h := told(t, response.Options{}, limiter.PerSecond(1), refusal(800*time.Millisecond, 800*time.Millisecond))
		require.Equal(t, "1", h.Get("Retry-After"))
	})
	t.Run("RA-12 not the period over the rate", func(t *testing.T) {
		h := told(t, response.Options{}, fixed(10, time.Minute), refusal(59*time.Second, 59*time.Second))
		require.Equal(t, "59", h.Get("Retry-After"))
	})
	t.Run("RA-13 exact waits stay exact", func(t *testing.T) {
		h := told(t, response.Options{}, limiter.PerMinute(6), refusal(10*time.Second, time.Minute))
		require.Equal(t, "10", h.Get("Retry-After"))
	})
	t.Run("RST-01 reset is full replenishment, Retry-After before it", func(t *testing.T) {
		h := told(t, response.Options{ResetDelta: true}, limiter.PerHour(3600).WithBurst(5), refusal(time.Second, 5*time.Second))
		require.Equal(t, "5", h.Get("X-RateLimit-Reset"))
		require.Equal(t, "1", h.Get("Retry-After"))
	})
	t.Run("RST-02 reset is not 0 because remaining is", func(t *testing.T) {
		h := told(t, response.Options{ResetDelta: true}, fixed(2, time.Minute), refusal(57*time.Second, 57*time.Second))
		require.Equal(t, "57", h.Get("X-RateLimit-Reset"))
		h = told(t, response.Options{ResetDelta: true}, fixed(2, time.Minute), refusal(0, 0))
		require.Equal(t, "1", h.Get("X-RateLimit-Reset"))
	})
	t.Run("RST-04 one unit", func(t *testing.T) {
		h := told(t, response.Options{}, fixed(2, time.Minute), limiter.Decision{Allowed: true, Remaining: 1, ResetAfter: time.Minute})
		require.Equal(t, epoch(61), h.Get("X-RateLimit-Reset"))
		h = told(t, response.Options{}, fixed(2, time.Minute), limiter.Decision{Allowed: true, Remaining: 2, ResetAfter: -time.Millisecond})
		require.Equal(t, epoch(1), h.Get("X-RateLimit-Reset"), "never in the past")
	})
	t.Run("RST-05 log: wait and reset are two numbers", func(t *testing.T) {
		h := told(t, response.Options{ResetDelta: true}, limiter.PerMinute(10).With(limiter.SlidingLog), refusal(50*time.Second, 59*time.Second))
		require.Equal(t, "50", h.Get("Retry-After"))
		require.Equal(t, "59", h.Get("X-RateLimit-Reset"))
	})
	t.Run("HDR-03 the limit that denied", func(t *testing.T) {
		h := http.Header{}
		budget := refusal(50*time.Minute, 50*time.Minute)
		rendererOf(t, response.Options{Headers: response.Both, ResetDelta: true}).WriteHeaders(h, nil, clock, []response.Item{
			{Policy: policyOf(t, "minute", limiter.PerMinute(60)), Decision: &limiter.Decision{Allowed: true, Remaining: 56, ResetAfter: 12 * time.Second}},
			{Policy: policyOf(t, "tokens", limiter.PerMinute(100)), Decision: &limiter.Decision{Allowed: true, Remaining: 0, ResetAfter: 12 * time.Second}},
			{Policy: policyOf(t, "hourly", limiter.PerHour(10)), Decision: &budget, Violated: true},
		})
		require.Equal(t, "10", h.Get("X-RateLimit-Limit"))
		require.Equal(t, "0", h.Get("X-RateLimit-Remaining"))
		require.Equal(t, "3000", h.Get("X-RateLimit-Reset"))
		require.Equal(t, `"hourly";r=0;t=3000`, h.Get("RateLimit"))
		require.Equal(t, "3000", h.Get("Retry-After"))
	})
	t.Run("HDR-04 always the tightest", func(t *testing.T) {
		x := rendererOf(t, response.Options{})
		app, def := policyOf(t, "app", limiter.PerMinute(20)), policyOf(t, "default", limiter.PerMinute(2))
		for i, want := range []string{"1", "0", "0"} {
			h := http.Header{}
			d := limiter.Decision{Allowed: i < 2, Remaining: max(0, 1-i), RetryAfter: 30 * time.Second}
			x.WriteHeaders(h, nil, clock, []response.Item{
				{Policy: app, Decision: &limiter.Decision{Allowed: true, Remaining: 19 - i}},
				{Policy: def, Decision: &d, Violated: i == 2},
			})
			require.Equal(t, "2", h.Get("X-RateLimit-Limit"))
			require.Equal(t, want, h.Get("X-RateLimit-Remaining"))
		}
	})
	t.Run("HDR-06 a denial is never overwritten", func(t *testing.T) {
		x := rendererOf(t, response.Options{Headers: response.Both})
		inner := refusal(7*time.Second, 60*time.Second)
		denied := []response.Item{{Policy: policyOf(t, "inner", limiter.PerMinute(100)), Decision: &inner, Violated: true}}
		passed := []response.Item{{Policy: policyOf(t, "outer", limiter.PerMinute(100)), Decision: &limiter.Decision{Allowed: true, Remaining: 99}}}

		first := http.Header{}
		x.WriteHeaders(first, nil, clock, denied)
		want := first.Clone()
		x.WriteHeaders(first, nil, clock, passed)
		require.Equal(t, want, first)

		last := http.Header{}
		x.WriteHeaders(last, nil, clock, passed)
		x.WriteHeaders(last, nil, clock, denied)
		require.Equal(t, "0", last.Get("X-RateLimit-Remaining"))
		require.Equal(t, `"inner";r=0;t=7`, last.Get("RateLimit"))
		require.Equal(t, `"outer";q=100;w=60, "inner";q=100;w=60`, last.Get("RateLimit-Policy"))
		require.Equal(t, "7", last.Get("Retry-After"))
	})
	t.Run("HDR-07 all families describe one policy", func(t *testing.T) {
		global := response.Item{Policy: policyOf(t, "global", limiter.PerMinute(3000)), Decision: &limiter.Decision{Allowed: true, Remaining: 2999}, Set: response.X}
		route := response.Item{Policy: policyOf(t, "route", limiter.Per(5, 15*time.Minute)), Decision: &limiter.Decision{Allowed: true, Remaining: 4}, Set: response.Draft11Set}
		x := rendererOf(t, response.Options{})
		together, stacked := http.Header{}, http.Header{}
		x.WriteHeaders(together, nil, clock, []response.Item{global, route})
		x.WriteHeaders(stacked, nil, clock, []response.Item{global})
		x.WriteHeaders(stacked, nil, clock, []response.Item{route})
		for _, h := range []http.Header{together, stacked} {
			require.Equal(t, "5", h.Get("X-RateLimit-Limit"))
			require.Equal(t, "4", h.Get("X-RateLimit-Remaining"))
			require.Contains(t, h.Get("RateLimit"), `"route";r=4;t=720`)
		}
		require.Contains(t, together.Get("RateLimit"), `"global";r=2999`)
	})
	t.Run("HDR-08 fields on both answers", func(t *testing.T) {
		pass := told(t, response.Options{}, limiter.PerMinute(2), limiter.Decision{Allowed: true, Remaining: 1})
		deny := told(t, response.Options{}, limiter.PerMinute(2), refusal(time.Second, time.Second))
		for _, h := range []http.Header{pass, deny} {
			for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
				require.Len(t, h.Values(name), 1, name)
			}
		}
		require.Empty(t, pass.Values("Retry-After"))
		require.Len(t, deny.Values("Retry-After"), 1)
	})
	t.Run("HDR-09 on every response", func(t *testing.T) {
		x := rendererOf(t, response.Options{})
		p := policyOf(t, "p", limiter.PerMinute(10))
		for left := 9; left >= 0; left-- {
			h := http.Header{}
			x.WriteHeaders(h, nil, clock, []response.Item{{Policy: p, Decision: &limiter.Decision{Allowed: true, Remaining: left}}})
			require.Equal(t, strconv.Itoa(left), h.Get("X-RateLimit-Remaining"))
		}
	})
	cross := httptest.NewRequest("POST", "https://api.example/", nil)
	cross.Header.Set("Origin", "https://app.example")
	t.Run("CORS-03 and CORS-05 a denial keeps what earlier middleware set", func(t *testing.T) {
		w := httptest.NewRecorder()
		w.Header().Set("Access-Control-Allow-Origin", "https://app.example")
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Cache-Control", "public, max-age=60")
		rendererOf(t, response.Options{}).Refuse(w, cross, response.Refusal{Policies: []string{"p"}, RetryAfter: time.Second})
		require.Equal(t, "https://app.example", w.Header().Get("Access-Control-Allow-Origin"))
		require.Equal(t, "true", w.Header().Get("Access-Control-Allow-Credentials"))
		require.Equal(t, "Origin", w.Header().Get("Vary"))
		require.Equal(t, []string{"no-store"}, w.Header().Values("Cache-Control"))
	})
	t.Run("CORS-06 exposed, merged, not replaced", func(t *testing.T) {
		w := httptest.NewRecorder()
		w.Header().Set("Access-Control-Expose-Headers", "X-Request-Id, retry-after")
		rendererOf(t, response.Options{}).Refuse(w, cross, response.Refusal{RetryAfter: time.Second})
		require.Equal(t, []string{"X-Request-Id, retry-after, RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"},
			w.Header().Values("Access-Control-Expose-Headers"))
	})
}

// Fault 3 of widely copied limiters: 0.6 units left were formatted as 1. Decisions carry whole units, rounded down, and
// nothing here rounds them up again, however much time is missing for the next unit.
func TestFaultPartOfAUnitIsNotToldAsOne(t *testing.T) {
	d := limiter.Decision{Allowed: true, Remaining: 0, NextAfter: 400 * time.Millisecond, ResetAfter: 9400 * time.Millisecond}
	h := told(t, response.Options{Headers: response.Both}, limiter.PerSecond(1).WithBurst(10), d)
	require.Equal(t, "0", h.Get("X-RateLimit-Remaining"))
	require.Equal(t, `"default";r=0;t=1`, h.Get("RateLimit"))
}

// Fault 15: a constant Retry-After, whatever the wait.
func TestFaultRetryAfterFollowsTheWait(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		time.Nanosecond: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90", 36 * time.Hour: "129600",
	} {
		h := told(t, response.Options{}, limiter.PerDay(1), refusal(wait, wait))
		require.Equal(t, want, h.Get("Retry-After"), wait)

		w := httptest.NewRecorder()
		rendererOf(t, response.Options{}).Refuse(w, httptest.NewRequest("GET", "/", nil), response.Refusal{RetryAfter: wait})
		require.Equal(t, want, w.Header().Get("Retry-After"), wait)
		require.Contains(t, w.Body.String(), `"retry_after":`+want+`}`)
	}
}
