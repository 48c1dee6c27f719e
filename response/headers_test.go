package response_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

func allowed(left int) *limiter.Decision {
	return &limiter.Decision{Allowed: true, Remaining: left, ResetAfter: 30 * time.Second, NextAfter: time.Second}
}

func denied(wait time.Duration) *limiter.Decision {
	return &limiter.Decision{RetryAfter: wait, ResetAfter: 30 * time.Second, NextAfter: wait}
}

func TestHeaders(t *testing.T) {
	a := policyOf(t, "a", limiter.PerMinute(60))
	b := policyOf(t, "b", limiter.PerHour(100))
	bytes, err := response.NewPolicy("bytes", limiter.PerMinute(6000), "content-bytes")
	require.NoError(t, err)
	none := policyOf(t, "none", limiter.Unlimited)
	deny := policyOf(t, "deny", limiter.DenyAll)
	inflight, err := response.NewInFlight("a.inflight", 8)
	require.NoError(t, err)
	nine := response.Set{Draft: response.Draft06}
	seven := response.Set{Draft: response.Draft07}

	type fields map[string]string
	for _, c := range []struct {
		name    string
		options response.Options
		before  fields
		items   []response.Item
		want    fields
	}{
		{name: "no policy, nothing told", before: fields{"X-Other": "1"}, want: fields{"X-Other": "1"}},
		{
			name:  "x is the default",
			items: []response.Item{{Policy: a, Decision: allowed(59)}, {Policy: b, Decision: allowed(99)}},
			want:  fields{"X-Ratelimit-Limit": "60", "X-Ratelimit-Remaining": "59", "X-Ratelimit-Reset": epoch(31)},
		},
		{
			name:    "delta",
			options: response.Options{ResetDelta: true},
			items:   []response.Item{{Policy: a, Decision: allowed(59)}},
			want:    fields{"X-Ratelimit-Limit": "60", "X-Ratelimit-Remaining": "59", "X-Ratelimit-Reset": "30"},
		},
		{
			name:    "off is silent, the other is told",
			options: response.Options{Headers: response.Draft11Set},
			items:   []response.Item{{Policy: a, Decision: allowed(0), Set: response.Off}, {Policy: b, Decision: allowed(50)}},
			want:    fields{"Ratelimit": `"b";r=50;t=1800`, "Ratelimit-Policy": `"b";q=100;w=3600`},
		},
		{
			name:    "off for the guard, a policy speaks",
			options: response.Options{Headers: response.Off},
			items:   []response.Item{{Policy: a, Decision: allowed(0)}, {Policy: b, Decision: allowed(50), Set: response.Draft11Set}},
			want:    fields{"Ratelimit": `"b";r=50;t=1800`, "Ratelimit-Policy": `"b";q=100;w=3600`},
		},
		{
			name:    "all silent, refused",
			options: response.Options{Headers: response.Off},
			items:   []response.Item{{Policy: a, Decision: denied(time.Second), Violated: true}},
			want:    fields{},
		},
		{
			name:  "the silent one refuses: the others do not take the blame",
			items: []response.Item{{Policy: a, Decision: denied(time.Second), Violated: true, Set: response.Off}, {Policy: b, Decision: allowed(50)}},
			want:  fields{},
		},
		{
			name:  "a silent wait counts beside a told one",
			items: []response.Item{{Policy: a, Decision: denied(9 * time.Second), Violated: true, Set: response.Off}, {Policy: b, Decision: denied(time.Second), Violated: true}},
			want:  fields{"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": epoch(31), "Retry-After": "9"},
		},
		{
			name:    "the silent one refuses: what a pass told goes",
			options: response.Options{Headers: response.Off},
			before:  fields{"X-Ratelimit-Limit": "9", "X-Ratelimit-Remaining": "8", "X-Ratelimit-Reset": "7", "Ratelimit": `"z";r=1`, "Ratelimit-Policy": `"z";q=1`},
			items:   []response.Item{{Policy: a, Decision: denied(time.Second), Violated: true}},
			want:    fields{"Ratelimit-Policy": `"z";q=1`},
		},
		{
			name:    "unlimited is not told, by policy or by decision",
			options: response.Options{Headers: response.Both},
			items:   []response.Item{{Policy: none, Decision: allowed(1)}, {Policy: a, Decision: &limiter.Decision{Allowed: true, Limit: limiter.Unlimited, Remaining: 1 << 62}}},
			want:    fields{},
		},
		{
			name:    "deny all",
			options: response.Options{Headers: response.Both},
			items:   []response.Item{{Policy: deny, Decision: denied(limiter.Never), Violated: true}},
			want: fields{
				"Ratelimit": `"deny";r=0`, "Ratelimit-Policy": `"deny";q=0`,
				"X-Ratelimit-Limit": "0", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": epoch(31),
			},
		},
		{
			name:    "cost that never fits: no wait anywhere",
			options: response.Options{Headers: response.Both},
			items: []response.Item{
				{Policy: a, Decision: &limiter.Decision{Remaining: 60, RetryAfter: limiter.Never}, Violated: true},
				{Policy: b, Decision: denied(time.Second), Violated: true},
			},
			want: fields{
				"Ratelimit": `"a";r=60, "b";r=0;t=1`, "Ratelimit-Policy": `"a";q=60;w=60, "b";q=100;w=3600`,
				"X-Ratelimit-Limit": "60", "X-Ratelimit-Remaining": "60", "X-Ratelimit-Reset": epoch(1),
			},
		},
		{
			name:    "more left than the nominal quota",
			options: response.Options{Headers: response.Both},
			items:   []response.Item{{Policy: a, Decision: allowed(500)}},
			want: fields{
				"Ratelimit": `"a";r=60;t=60`, "Ratelimit-Policy": `"a";q=60;w=60`,
				"X-Ratelimit-Limit": "60", "X-Ratelimit-Remaining": "60", "X-Ratelimit-Reset": epoch(31),
			},
		},
		{
			name:    "cap of units per second lowers r everywhere",
			options: response.Options{Headers: response.Both, MaxUnitsPerSecond: 2},
			items:   []response.Item{{Policy: policyOf(t, "w", limiter.PerMinute(1000).With(limiter.FixedWindow)), Decision: &limiter.Decision{Allowed: true, Remaining: 900, ResetAfter: 10 * time.Second}}},
			want: fields{
				"Ratelimit": `"w";r=20;t=10`, "Ratelimit-Policy": `"w";q=1000;w=60`,
				"X-Ratelimit-Limit": "1000", "X-Ratelimit-Remaining": "20", "X-Ratelimit-Reset": epoch(11),
			},
		},
		{
			name:    "cap of Retry-After is the cap of t",
			options: response.Options{Headers: response.Draft11Set, MaxRetryAfter: 1500 * time.Millisecond},
			items:   []response.Item{{Policy: a, Decision: denied(time.Hour), Violated: true}},
			want:    fields{"Ratelimit": `"a";r=0;t=1`, "Ratelimit-Policy": `"a";q=60;w=60`, "Retry-After": "1"},
		},
		{
			name:    "partition, cut at 16 bytes",
			options: response.Options{Headers: response.Draft11Set},
			items:   []response.Item{{Policy: a, Decision: allowed(1), Partition: []byte("0123456789abcdefXYZ")}},
			want:    fields{"Ratelimit": `"a";r=1;t=1;pk=:MDEyMzQ1Njc4OWFiY2RlZg==:`, "Ratelimit-Policy": `"a";q=60;w=60;pk=:MDEyMzQ1Njc4OWFiY2RlZg==:`},
		},
		{
			name:    "state not known",
			options: response.Options{Headers: response.Both},
			items:   []response.Item{{Policy: a}, {Policy: b, Decision: allowed(50)}},
			want: fields{
				"Ratelimit": `"b";r=50;t=1800`, "Ratelimit-Policy": `"a";q=60;w=60, "b";q=100;w=3600`,
				"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "50", "X-Ratelimit-Reset": epoch(31),
			},
		},
		{
			name:  "a byte quota is in the families of its own set only",
			items: []response.Item{{Policy: a, Decision: allowed(50)}, {Policy: bytes, Decision: allowed(1), Set: response.Draft11Set}},
			want: fields{
				"Ratelimit": `"a";r=50;t=50, "bytes";r=1;t=1`, "Ratelimit-Policy": `"a";q=60;w=60, "bytes";q=6000;qu="content-bytes";w=60`,
				"X-Ratelimit-Limit": "60", "X-Ratelimit-Remaining": "50", "X-Ratelimit-Reset": epoch(31),
			},
		},
		{
			name:    "bound in flight refuses: 1 s if unknown, no t",
			options: response.Options{Headers: response.Both},
			items:   []response.Item{{Policy: a, Decision: allowed(50)}, {Policy: inflight, Decision: &limiter.Decision{}, Violated: true}},
			want: fields{
				"Ratelimit": `"a.inflight";r=0`, "Ratelimit-Policy": `"a";q=60;w=60, "a.inflight";q=8;qu="concurrent-requests"`,
				"X-Ratelimit-Limit": "8", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": epoch(1), "Retry-After": "1",
			},
		},
		{
			name:    "draft 06",
			options: response.Options{Headers: nine},
			items:   []response.Item{{Policy: a, Decision: allowed(50)}, {Policy: b, Decision: allowed(5)}, {Policy: inflight, Decision: allowed(7)}},
			want:    fields{"Ratelimit-Limit": "100", "Ratelimit-Remaining": "5", "Ratelimit-Reset": "180", "Ratelimit-Policy": "60;w=60, 100;w=3600"},
		},
		{
			name:    "draft 06, refused",
			options: response.Options{Headers: nine},
			items:   []response.Item{{Policy: inflight, Decision: &limiter.Decision{}, Violated: true}},
			want:    fields{"Ratelimit-Limit": "8", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "1", "Retry-After": "1"},
		},
		{
			name:    "draft 07, several policies",
			options: response.Options{Headers: seven},
			items:   []response.Item{{Policy: a, Decision: allowed(50)}, {Policy: b, Decision: denied(5 * time.Second), Violated: true}},
			want:    fields{"Ratelimit": "limit=100, remaining=0, reset=5", "Ratelimit-Policy": "60;w=60, 100;w=3600", "Retry-After": "5"},
		},
		{
			name:    "draft 07 after draft 07 with less left",
			options: response.Options{Headers: seven},
			before:  fields{"Ratelimit": "limit=9, remaining=3, reset=5", "Ratelimit-Policy": "9;w=60"},
			items:   []response.Item{{Policy: a, Decision: allowed(50)}},
			want:    fields{"Ratelimit": "limit=9, remaining=3, reset=5", "Ratelimit-Policy": "9;w=60, 60;w=60"},
		},
		{
			name:   "x after x: the smaller stays",
			before: fields{"X-Ratelimit-Limit": "9", "X-Ratelimit-Remaining": "8", "X-Ratelimit-Reset": "7"},
			items:  []response.Item{{Policy: a, Decision: allowed(8)}},
			want:   fields{"X-Ratelimit-Limit": "9", "X-Ratelimit-Remaining": "8", "X-Ratelimit-Reset": "7"},
		},
		{
			name:   "x after something unreadable",
			before: fields{"X-Ratelimit-Remaining": "plenty"},
			items:  []response.Item{{Policy: a, Decision: allowed(8)}},
			want:   fields{"X-Ratelimit-Limit": "60", "X-Ratelimit-Remaining": "8", "X-Ratelimit-Reset": epoch(31)},
		},
		{
			name:    "draft 11 after draft 07 cannot be one list: ours stands",
			options: response.Options{Headers: response.Draft11Set},
			before:  fields{"Ratelimit": "limit=9, remaining=3, reset=5", "Ratelimit-Policy": "9;w=60"},
			items:   []response.Item{{Policy: a, Decision: allowed(50)}},
			want:    fields{"Ratelimit": `"a";r=50;t=50`, "Ratelimit-Policy": `"a";q=60;w=60`},
		},
		{
			name:    "two refusals: lists are joined, the longer wait has X",
			options: response.Options{Headers: response.Both},
			before: fields{
				"Ratelimit": `"z";r=0;t=90`, "Ratelimit-Policy": `"z";q=1;w=100`, "Retry-After": "90",
				"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "7",
			},
			items: []response.Item{{Policy: a, Decision: denied(5 * time.Second), Violated: true}},
			want: fields{
				"Ratelimit": `"z";r=0;t=90, "a";r=0;t=5`, "Ratelimit-Policy": `"z";q=1;w=100, "a";q=60;w=60`, "Retry-After": "90",
				"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "7",
			},
		},
		{
			name:   "two refusals: ours is longer",
			before: fields{"Retry-After": "2", "X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "7"},
			items:  []response.Item{{Policy: a, Decision: denied(5 * time.Second), Violated: true}},
			want:   fields{"Retry-After": "5", "X-Ratelimit-Limit": "60", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": epoch(31)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			for k, v := range c.before {
				h[k] = []string{v}
			}
			rendererOf(t, c.options).WriteHeaders(h, httptest.NewRequest("GET", "/", nil), clock, c.items)
			want := http.Header{}
			for k, v := range c.want {
				want[k] = []string{v}
			}
			require.Equal(t, want, h)
		})
	}
}

// The longest wait of the violated, whatever their order.
func TestHeadersManyPolicies(t *testing.T) {
	var items []response.Item
	for i := range 9 {
		items = append(items, response.Item{
			Policy:   policyOf(t, "a-rather-long-name-of-a-policy-"+strconv.Itoa(i), limiter.PerHour(100)),
			Decision: denied(time.Duration((i*5)%9+1) * time.Second),
			Violated: true,
		})
	}
	h := http.Header{}
	rendererOf(t, response.Options{Headers: response.Both}).WriteHeaders(h, nil, clock, items)
	require.Equal(t, "9", h.Get("Retry-After"))
	require.Len(t, strings.Split(h.Get("RateLimit"), ", "), 9)
	require.Len(t, strings.Split(h.Get("RateLimit-Policy"), ", "), 9)
}

// A jittered wait lies between the wait and the wait with all of the jitter, and t stays without it.
func TestHeadersJitter(t *testing.T) {
	x := rendererOf(t, response.Options{Headers: response.Draft11Set, Jitter: 5 * time.Second})
	item := response.Item{Policy: policyOf(t, "a", limiter.PerMinute(60)), Decision: denied(10 * time.Second), Violated: true}
	seen := map[string]bool{}
	for range 300 {
		h := http.Header{}
		x.WriteHeaders(h, nil, clock, []response.Item{item})
		seen[h.Get("Retry-After")] = true
		require.Equal(t, `"a";r=0;t=10`, h.Get("RateLimit"))

		// The refusal repeats what was drawn, it does not draw again.
		f := x.Prepare(h, nil, response.Refusal{RetryAfter: item.Decision.RetryAfter, At: clock})
		require.Equal(t, h.Get("Retry-After"), strconv.Itoa(int(f.RetryAfter/time.Second)))
	}
	require.Greater(t, len(seen), 3)
	for v := range seen {
		secs, err := strconv.Atoi(v)
		require.NoError(t, err)
		require.GreaterOrEqual(t, secs, 10)
		require.LessOrEqual(t, secs, 15)
	}
}

func TestHeadersExpose(t *testing.T) {
	const all = "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
	p := policyOf(t, "a", limiter.PerMinute(60))
	for _, c := range []struct {
		name, origin, host string
		tls                bool
		options            response.Options
		before             http.Header
		want               []string
	}{
		{name: "no origin"},
		{name: "same origin", origin: "https://api.example", host: "api.example"},
		{name: "same origin, other case and port", origin: "http://API.example:8080", host: "api.example:8080"},
		{name: "other host", origin: "https://app.example", want: []string{all}},
		{name: "other port", origin: "https://api.example:8443", want: []string{all}},
		{name: "other scheme", origin: "http://api.example", host: "api.example", tls: true, want: []string{all}},
		{name: "opaque origin", origin: "null", want: []string{all}},
		{name: "switched off", origin: "https://app.example", options: response.Options{NoExpose: true}},
		{name: "nothing told", origin: "https://app.example", options: response.Options{Headers: response.Off}},
		{
			name: "draft 06 has names of its own", origin: "https://app.example",
			options: response.Options{Headers: response.Set{Draft: response.Draft06}},
			want:    []string{all + ", RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset"},
		},
		{
			name: "merged", origin: "https://app.example",
			before: http.Header{"Access-Control-Expose-Headers": {"X-A", "ratelimit ,X-RateLimit-Limit"}},
			want:   []string{"X-A, ratelimit ,X-RateLimit-Limit, RateLimit-Policy, Retry-After, X-RateLimit-Remaining, X-RateLimit-Reset"},
		},
		{
			name: "nothing missing", origin: "https://app.example",
			before: http.Header{"Access-Control-Expose-Headers": {strings.ToLower(all)}},
			want:   []string{strings.ToLower(all)},
		},
		{
			name: "star without credentials is all", origin: "https://app.example",
			before: http.Header{"Access-Control-Expose-Headers": {"*"}},
			want:   []string{"*"},
		},
		{
			name: "star with credentials is a name", origin: "https://app.example",
			before: http.Header{"Access-Control-Expose-Headers": {"*"}, "Access-Control-Allow-Credentials": {"true"}},
			want:   []string{"*, " + all},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			if c.host == "" {
				c.host = "api.example"
			}
			r.Host = c.host
			if c.tls {
				r.TLS = &tls.ConnectionState{}
			}
			h := http.Header{}
			for k, v := range c.before {
				h[k] = v
			}
			x := rendererOf(t, c.options)
			for range 2 { // a second stage repeats nothing
				x.WriteHeaders(h, r, clock, []response.Item{{Policy: p, Decision: allowed(5)}})
				require.Equal(t, c.want, h["Access-Control-Expose-Headers"])
			}
		})
	}
}

// Values are shared between responses: appending to one must not show on another, and requests run at once.
func TestHeadersSharedValues(t *testing.T) {
	x := rendererOf(t, response.Options{Headers: response.Both})
	items := []response.Item{{Policy: policyOf(t, "a", limiter.PerMinute(60)), Decision: denied(time.Second), Violated: true}}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Origin", "https://app.example")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				w := httptest.NewRecorder()
				x.WriteHeaders(w.Header(), r, clock, items)
				x.Refuse(w, r, response.Refusal{Policies: []string{"a"}, RetryAfter: time.Second, At: clock})
				for name, v := range w.Header() {
					if !assertOne(v) {
						t.Errorf("%s: %q", name, v)
					}
					w.Header().Add(name, "intruder")
				}
			}
		})
	}
	wg.Wait()
}

func assertOne(v []string) bool { return len(v) == 1 && v[0] != "intruder" }

func TestHeadersAllocations(t *testing.T) {
	h := http.Header{}
	for _, set := range []response.Set{response.X, response.Draft11Set, response.Both} {
		x := rendererOf(t, response.Options{Headers: set})
		for _, d := range []*limiter.Decision{allowed(599), denied(12 * time.Second)} {
			items := []response.Item{
				{Policy: policyOf(t, "a", limiter.PerMinute(600)), Decision: d, Violated: !d.Allowed},
				{Policy: policyOf(t, "b", limiter.PerHour(6000)), Decision: allowed(5000)},
				{Policy: policyOf(t, "c", limiter.PerDay(60000)), Decision: allowed(5000)},
			}
			for n := 1; n <= len(items); n++ {
				got := testing.AllocsPerRun(100, func() {
					clear(h)
					x.WriteHeaders(h, nil, clock, items[:n])
				})
				require.LessOrEqual(t, got, 2.0, "%v, %d policies", set, n)
			}
		}
	}
}
