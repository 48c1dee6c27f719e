package response_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// clock is the instant of most tests: a quarter of a second past a whole one, so that rounding shows.
var clock = time.Unix(1767225600, 250_000_000)

func policyOf(t testing.TB, name string, l limiter.Limit) *response.Policy {
	t.Helper()
	p, err := response.NewPolicy(name, l, "")
	require.NoError(t, err)
	return p
}

func rendererOf(t testing.TB, o response.Options) *response.Renderer {
	t.Helper()
	x, err := response.New(o)
	require.NoError(t, err)
	return x
}

func TestPolicyText(t *testing.T) {
	for _, c := range []struct {
		name, want string
		limit      limiter.Limit
		unit       string
	}{
		{"bucket", `"p";q=100;w=60`, limiter.PerMinute(100), ""},
		{"bucket with burst", `"p";q=15;w=15`, limiter.PerMinute(60).WithBurst(15), ""},
		{"bucket rounds the window up", `"p";q=20;w=3`, limiter.Per(7, time.Second).WithBurst(20), ""},
		{"strict queue", `"p";q=1;w=1`, limiter.PerSecond(10).With(limiter.LeakyBucket), ""},
		{"queue", `"p";q=50;w=5`, limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(50), ""},
		{"fixed window", `"p";q=100;w=60`, limiter.PerMinute(100).With(limiter.FixedWindow), ""},
		{"window under a second", `"p";q=5;w=1`, limiter.Per(5, 300*time.Millisecond).With(limiter.SlidingLog), ""},
		{"window of 1.5 s", `"p";q=5;w=2`, limiter.Per(5, 1500*time.Millisecond).WithCells(3), ""},
		{"day", `"p";q=10;w=86400`, limiter.PerDay(10).Aligned(limiter.Day, "Asia/Shanghai"), ""},
		{"week", `"p";q=10;w=604800`, limiter.PerDay(10).Aligned(limiter.Week, ""), ""},
		{"month", `"p";q=10;w=2678400`, limiter.PerDay(10).Aligned(limiter.Month, ""), ""},
		{"bytes", `"p";q=65535;qu="content-bytes";w=10`, limiter.Per(65535, 10*time.Second), "content-bytes"},
		{"requests", `"p";q=1;w=1`, limiter.PerSecond(1), "requests"},
		{"deny all", `"p";q=0`, limiter.DenyAll, ""},
		{"largest", `"p";q=1000000000;w=31622400`, limiter.Per(1e9, limiter.MaxPeriod), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := response.NewPolicy("p", c.limit, c.unit)
			require.NoError(t, err)
			require.Equal(t, "p", p.Name())
			h := http.Header{}
			rendererOf(t, response.Options{Headers: response.Draft11Set}).WriteHeaders(h, nil, clock, []response.Item{{Policy: p}})
			require.Equal(t, http.Header{"Ratelimit-Policy": {c.want}}, h)
		})
	}
}

func TestPolicyInFlight(t *testing.T) {
	p, err := response.NewInFlight("inflight", 8)
	require.NoError(t, err)
	h := http.Header{}
	x := rendererOf(t, response.Options{Headers: response.Draft11Set})
	x.WriteHeaders(h, nil, clock, []response.Item{{Policy: p, Decision: &limiter.Decision{Allowed: true, Remaining: 3}}})
	require.Equal(t, http.Header{
		"Ratelimit-Policy": {`"inflight";q=8;qu="concurrent-requests"`},
		"Ratelimit":        {`"inflight";r=3`},
	}, h)

	_, err = response.NewInFlight(strings.Repeat("a", 64)+".inflight", 1)
	require.NoError(t, err)
	for _, bound := range []int{0, -1, limiter.MaxRate + 1} {
		_, err = response.NewInFlight("a", bound)
		require.Error(t, err)
	}
	_, err = response.NewInFlight("a b", 1)
	require.ErrorIs(t, err, response.ErrPolicyName)
}

func TestPolicyErrors(t *testing.T) {
	for _, name := range []string{"", "küche", "a b", `a"b`, "-a", ".a", strings.Repeat("a", 65), "a\n", "a\x00", "a,b"} {
		_, err := response.NewPolicy(name, limiter.PerSecond(1), "")
		require.ErrorIs(t, err, response.ErrPolicyName, "%q", name)
	}
	_, err := response.NewPolicy("a b", limiter.Limit{}, "büro")
	require.ErrorIs(t, err, response.ErrPolicyName)
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.ErrorContains(t, err, "unit")
}

func TestOptionsErrors(t *testing.T) {
	_, err := response.New(response.Options{
		Headers:           response.Set{Draft: 77},
		MaxRetryAfter:     time.Millisecond,
		Jitter:            -1,
		MaxUnitsPerSecond: -1,
		Messages:          map[string]string{"zh_!": "x", "en": " ", "zh-CN": "a", "zh-cn": "b"},
	})
	for _, word := range []string{"Headers", "MaxRetryAfter", "Jitter", "MaxUnitsPerSecond", `"zh_!"`, `"en"`, "twice"} {
		require.ErrorContains(t, err, word)
	}
	_, err = response.New(response.Options{MaxRetryAfter: 1 << 62})
	require.Error(t, err)
	x := rendererOf(t, response.Options{})
	require.Equal(t, response.X, x.Headers())
}
