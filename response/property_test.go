package response_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

func drawLimit(t *rapid.T) limiter.Limit {
	l := limiter.Per(
		rapid.OneOf(rapid.IntRange(1, 1000), rapid.IntRange(1, limiter.MaxRate)).Draw(t, "rate"),
		time.Duration(rapid.Int64Range(int64(time.Microsecond), int64(limiter.MaxPeriod)).Draw(t, "period")).Truncate(time.Microsecond),
	)
	switch rapid.IntRange(0, 6).Draw(t, "algorithm") {
	case 0:
		return l.WithBurst(rapid.IntRange(0, limiter.MaxRate).Draw(t, "burst"))
	case 1:
		return l.With(limiter.LeakyBucket).WithBurst(rapid.IntRange(0, limiter.MaxRate).Draw(t, "burst"))
	case 2:
		return l.With(limiter.FixedWindow)
	case 3:
		return l.With(limiter.SlidingWindow)
	case 4:
		l.Rate = min(l.Rate, limiter.MaxLogRate)
		return l.With(limiter.SlidingLog)
	case 5:
		return limiter.DenyAll
	}
	return l.Aligned(limiter.Unit(rapid.IntRange(1, 3).Draw(t, "unit")), "")
}

func drawWait(t *rapid.T, label string) time.Duration {
	return time.Duration(rapid.OneOf(
		rapid.Int64Range(0, 5_000_000_000),
		rapid.Int64Range(0, 9_000_000_000_000_000_000),
	).Draw(t, label))
}

func drawItems(t *rapid.T) (items []response.Item, refused bool) {
	n := rapid.IntRange(1, 6).Draw(t, "policies")
	for i := range n {
		p, err := response.NewPolicy("p"+strconv.Itoa(i), drawLimit(t), rapid.SampledFrom([]string{"", "requests", "content-bytes"}).Draw(t, "qu"))
		require.NoError(t, err)
		d := limiter.Decision{
			Allowed:    !rapid.Bool().Draw(t, "violated"),
			Remaining:  rapid.OneOf(rapid.IntRange(0, 20), rapid.Int()).Draw(t, "remaining"),
			ResetAfter: drawWait(t, "reset"),
			NextAfter:  drawWait(t, "next"),
		}
		if !d.Allowed {
			refused = true
			d.RetryAfter = drawWait(t, "retry")
			if rapid.IntRange(0, 9).Draw(t, "never") == 0 {
				d.RetryAfter = limiter.Never
			}
		}
		items = append(items, response.Item{
			Policy: p, Decision: &d, Violated: !d.Allowed,
			Partition: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "pk"),
		})
	}
	return items, refused
}

func param[T any](t *rapid.T, it httpsfv.Item, name string) (v T, ok bool) {
	raw, ok := it.Params.Get(name)
	if !ok {
		return v, false
	}
	v, good := raw.(T)
	require.True(t, good, "%s is a %T", name, raw)
	return v, true
}

func parseList(t *rapid.T, lines []string) map[string]httpsfv.Item {
	list, err := httpsfv.UnmarshalList(lines)
	require.NoError(t, err, "%q", lines)
	members := map[string]httpsfv.Item{}
	for _, m := range list {
		it, ok := m.(httpsfv.Item)
		require.True(t, ok)
		name, ok := it.Value.(string)
		require.True(t, ok)
		require.NotContains(t, members, name)
		members[name] = it
	}
	text, err := httpsfv.Marshal(list)
	require.NoError(t, err)
	require.Equal(t, strings.Join(lines, ", "), text, "canonical form")
	return members
}

// Whatever is decided, an independent parser of structured fields reads it, and the numbers keep their promises.
func TestPropertyFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := response.Options{
			Headers:           response.Both,
			Jitter:            time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "jitter")),
			MaxUnitsPerSecond: rapid.SampledFrom([]int{0, 0, 1, 100, limiter.MaxRate}).Draw(t, "cap"),
		}
		if rapid.Bool().Draw(t, "capped") {
			o.MaxRetryAfter = time.Duration(rapid.Int64Range(int64(time.Second), int64(24*time.Hour)).Draw(t, "max"))
		}
		x, err := response.New(o)
		require.NoError(t, err)
		items, refused := drawItems(t)
		now := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "now"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))

		h := http.Header{}
		x.WriteHeaders(h, nil, now, items)
		states, policies := parseList(t, h["Ratelimit"]), parseList(t, h["Ratelimit-Policy"])

		retry, hasRetry := int64(0), false
		if v := h.Values("Retry-After"); len(v) > 0 {
			require.Len(t, v, 1)
			retry, err = strconv.ParseInt(v[0], 10, 64)
			require.NoError(t, err)
			hasRetry = true
			require.GreaterOrEqual(t, retry, int64(1))
			require.LessOrEqual(t, retry, int64(1<<31-1))
		}
		wait := time.Duration(0)
		require.Len(t, policies, len(items))
		tightest := int64(-1)
		for _, it := range items {
			name := it.Policy.Name()
			q, ok := param[int64](t, policies[name], "q")
			require.True(t, ok)
			w, windowed := param[int64](t, policies[name], "w")
			if windowed {
				require.GreaterOrEqual(t, w, int64(1))
			}
			pk, _ := param[[]byte](t, policies[name], "pk")
			require.LessOrEqual(t, len(pk), 16)

			state, told := states[name]
			require.Equal(t, !refused || it.Violated, told, "a refusal tells the violated ones, a pass all")
			if it.Violated {
				wait = max(wait, it.Decision.RetryAfter)
			}
			if !told {
				continue
			}
			r, ok := param[int64](t, state, "r")
			require.True(t, ok)
			require.GreaterOrEqual(t, r, int64(0))
			require.LessOrEqual(t, r, q)
			require.LessOrEqual(t, r, max(0, int64(it.Decision.Remaining)))
			if tightest < 0 || r < tightest {
				tightest = r
			}
			tt, has := param[int64](t, state, "t")
			if !windowed || it.Violated && it.Decision.RetryAfter == limiter.Never {
				require.False(t, has)
				continue
			}
			require.True(t, has)
			require.GreaterOrEqual(t, tt, int64(1))
			if it.Violated && hasRetry {
				require.GreaterOrEqual(t, retry, tt, "Retry-After is not earlier than t")
			}
			if o.MaxUnitsPerSecond > 0 && tt <= 1<<31-1 {
				require.LessOrEqual(t, r, tt*int64(o.MaxUnitsPerSecond))
			}
		}
		require.Equal(t, refused && wait != limiter.Never, hasRetry)
		if hasRetry && o.MaxRetryAfter == 0 && wait < (1<<31-1)*time.Second {
			require.GreaterOrEqual(t, time.Duration(retry)*time.Second, wait, "waiting as told is enough")
			require.Less(t, time.Duration(retry)*time.Second, max(wait+o.Jitter, 1)+time.Second, "and no more than a second too long")
		}
		left, err := strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64)
		require.NoError(t, err)
		if !refused {
			require.Equal(t, tightest, left)
		}
		reset, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, reset, now.Unix())
	})
}

// Stages one after another tell what one stage with all policies would.
func TestPropertyStages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, err := response.New(response.Options{Headers: response.Both})
		require.NoError(t, err)
		items, refused := drawItems(t)
		for i := range items {
			d := *items[i].Decision
			items[i].Decision, items[i].Violated = &d, false
			if i == len(items)-1 && refused {
				items[i].Violated, d.RetryAfter = true, 3*time.Second
			}
		}
		at := rapid.IntRange(0, len(items)-1).Draw(t, "stage")
		one, two := http.Header{}, http.Header{}
		x.WriteHeaders(one, nil, clock, items)
		x.WriteHeaders(two, nil, clock, items[:at])
		x.WriteHeaders(two, nil, clock, items[at:])
		// The reset breaks a tie in one stage; the earlier stage keeps the fields in two.
		for _, h := range []http.Header{one, two} {
			h.Del("X-RateLimit-Reset")
			if !refused {
				h.Del("X-RateLimit-Limit")
			}
		}
		require.Equal(t, one, two)
	})
}

// A body is always JSON that says what the header says.
func TestPropertyBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := response.Options{RetryAfterDate: rapid.Bool().Draw(t, "date"), Jitter: time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "jitter"))}
		x, err := response.New(o)
		require.NoError(t, err)
		f := response.Refusal{
			Kind:       response.Kind(rapid.IntRange(0, 7).Draw(t, "kind")),
			Policies:   rapid.SliceOf(rapid.String()).Draw(t, "names"),
			RetryAfter: drawWait(t, "wait"),
			Message:    string(rapid.SliceOf(rapid.Byte()).Draw(t, "message")),
			At:         clock,
		}
		w := httptest.NewRecorder()
		if rapid.Bool().Draw(t, "existing") {
			w.Header().Set("Retry-After", strconv.Itoa(rapid.IntRange(0, 1<<31-1).Draw(t, "before")))
		}
		x.Refuse(w, httptest.NewRequest("GET", "/", nil), f)
		var body struct {
			Type, Title, Detail string
			Status              int
			Violated            []string `json:"violated-policies"`
			RetryAfter          *int64   `json:"retry_after"`
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), w.Body.String())
		require.Equal(t, w.Code, body.Status)
		if f.Message != "" {
			require.Equal(t, toValid(f.Message), body.Detail)
		}
		if len(f.Policies) > 0 && body.Type != "about:blank" {
			require.Equal(t, f.Policies, body.Violated)
		} else {
			require.Nil(t, body.Violated)
		}
		v := w.Header().Get("Retry-After")
		if v == "" {
			require.Nil(t, body.RetryAfter)
			return
		}
		if secs, err := strconv.ParseInt(v, 10, 64); err == nil {
			require.Equal(t, max(secs, 1), *body.RetryAfter)
			return
		}
		at, err := http.ParseTime(v)
		require.NoError(t, err)
		require.Equal(t, int64(at.Sub(clock).Seconds()+0.9999), *body.RetryAfter)
	})
}

// toValid replaces each bad byte on its own, as JSON encoders do.
func toValid(s string) string { return string([]rune(s)) }

func FuzzExistingRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "1", "30", "1.5", "soon", "-1", "99999999999999999999", "Thu, 01 Jan 2026 00:00:30 GMT", "Thursday, 01-Jan-26 00:00:30 GMT", " 7\t"} {
		f.Add(s, int64(5_000_000_000))
	}
	x, err := response.New(response.Options{})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, existing string, wait int64) {
		if wait < 0 || wait > int64(1<<31-1)*int64(time.Second) {
			return
		}
		h := http.Header{"Retry-After": {existing}}
		told := x.Prepare(h, nil, response.Refusal{RetryAfter: time.Duration(wait), At: clock})
		require.Len(t, h["Retry-After"], 1)
		require.GreaterOrEqual(t, told.RetryAfter, time.Duration(wait))
		require.GreaterOrEqual(t, told.RetryAfter, time.Second)
		if v := h.Get("Retry-After"); v != existing {
			require.Equal(t, strconv.FormatInt(int64(told.RetryAfter/time.Second), 10), v)
		}
	})
}

func FuzzNegotiation(f *testing.F) {
	f.Add("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "zh-CN,zh;q=0.9,en;q=0.8")
	f.Add("application/json;q=0.1", "*")
	f.Add(";,=q=;", "en;q=2")
	x, err := response.New(response.Options{Messages: map[string]string{"en": "slow", "zh-CN": "慢", "": "none"}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, accept, languages string) {
		r := &http.Request{Method: "GET", Header: http.Header{"Accept": {accept}, "Accept-Language": {languages}}}
		w := httptest.NewRecorder()
		x.Refuse(w, r, response.Refusal{})
		switch w.Header().Get("Content-Type") {
		case "text/plain; charset=utf-8":
			require.Contains(t, strings.ToLower(accept), "/")
			require.Equal(t, "Too Many Requests\n", w.Body.String())
		case "application/problem+json":
			var body struct{ Detail string }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
			require.Contains(t, []string{"slow", "慢", "none"}, body.Detail)
		default:
			t.Fatal(w.Header())
		}
	})
}

func FuzzExistingFields(f *testing.F) {
	f.Add(`"global";r=900;t=54`, `"global";q=1000;w=60`, "900", "X-A, *")
	f.Add("limit=9, remaining=3, reset=5", "9;w=60", "-1", "")
	p, err := response.NewPolicy("p", limiter.PerMinute(60), "")
	require.NoError(f, err)
	x, err := response.New(response.Options{Headers: response.Both})
	require.NoError(f, err)
	r := &http.Request{Header: http.Header{"Origin": {"null"}}}
	f.Fuzz(func(t *testing.T, state, policy, left, expose string) {
		h := http.Header{"Ratelimit": {state}, "Ratelimit-Policy": {policy}, "X-Ratelimit-Remaining": {left}, "Access-Control-Expose-Headers": {expose}}
		x.WriteHeaders(h, r, clock, []response.Item{{Policy: p, Decision: &limiter.Decision{Allowed: true, Remaining: 5}}})
		require.Contains(t, h.Get("RateLimit"), `"p";r=5;t=5`)
		require.Contains(t, h.Get("RateLimit-Policy"), `"p";q=60;w=60`)
		require.Len(t, h["X-Ratelimit-Remaining"], 1)
	})
}
