package response

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// The short way writes what the long one does.
func TestWriteOneAgreesWithWrite(t *testing.T) {
	long, err := New(Options{})
	require.NoError(t, err)
	long.plain = false
	short, err := New(Options{})
	require.NoError(t, err)
	require.True(t, short.plain)
	rapid.Check(t, func(t *rapid.T) {
		p, d := drawState(t)
		items := []Item{{Policy: p, Decision: d, Violated: rapid.Bool().Draw(t, "violated"), Set: drawSet(t)}}
		r, now := drawRequest(t), drawInstant(t)
		want, got := http.Header{}, http.Header{}
		long.WriteHeaders(want, r, now, items)
		short.WriteHeaders(got, r, now, items)
		require.Equal(t, want, got)
		for name, values := range got {
			require.Equal(t, len(values), cap(values), name)
		}
	})
}

func durations() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(-5, 5e9), rapid.Int64Range(0, near*2e9), rapid.Int64Range(0, 9e18), rapid.SampledFrom([]int64{0, 1, 1e9, 1e9 + 1, math.MaxInt64}))
}

func drawState(t *rapid.T) (*Policy, *limiter.Decision) {
	l := rapid.SampledFrom([]limiter.Limit{
		limiter.PerMinute(60), limiter.PerSecond(limiter.MaxRate), limiter.PerDay(3).With(limiter.FixedWindow), limiter.DenyAll, limiter.Unlimited,
	}).Draw(t, "limit")
	p, err := NewPolicy("api", l, rapid.SampledFrom([]string{"", "content-bytes"}).Draw(t, "unit"))
	require.NoError(t, err)
	if rapid.IntRange(0, 9).Draw(t, "known") == 0 {
		return p, nil
	}
	return p, &limiter.Decision{
		Limit:      l,
		Remaining:  rapid.OneOf(rapid.IntRange(-3, 2*near), rapid.Int()).Draw(t, "remaining"),
		RetryAfter: time.Duration(durations().Draw(t, "retry")),
		ResetAfter: time.Duration(durations().Draw(t, "reset")),
		NextAfter:  time.Duration(durations().Draw(t, "next")),
	}
}

func drawSet(t *rapid.T) Set {
	return rapid.SampledFrom([]Set{{}, {}, X, Both, Off, Draft11Set}).Draw(t, "set")
}

func drawRequest(t *rapid.T) *http.Request {
	r := &http.Request{Header: http.Header{}, Host: "api.example", Method: rapid.SampledFrom([]string{"GET", "HEAD", "POST"}).Draw(t, "method")}
	if rapid.Bool().Draw(t, "cross-origin") {
		r.Header.Set("Origin", "https://app.example")
	}
	if accept := rapid.SampledFrom([]string{"", "*/*", "text/html", "application/json"}).Draw(t, "accept"); accept != "" {
		r.Header.Set("Accept", accept)
	}
	return r
}

func drawInstant(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(1, 4e9).Draw(t, "now"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
}

// A refusal written in one go is the one written in two, byte for byte, whatever else is to be said.
func TestWriteRefusalAgreesWithRefuse(t *testing.T) {
	options := map[string]Options{
		"plain":     {},
		"messages":  {Messages: map[string]string{"en": "Slow down."}},
		"body":      {Body: func(*http.Request, Refusal) (string, []byte) { return "text/x", []byte("no") }},
		"date":      {RetryAfterDate: true},
		"no expose": {NoExpose: true},
		"capped":    {MaxRetryAfter: 90 * time.Second},
		"units":     {MaxUnitsPerSecond: 1},
	}
	for name, o := range options {
		t.Run(name, func(t *testing.T) {
			x, err := New(o)
			require.NoError(t, err)
			long := *x
			long.plain = false
			short := 0
			rapid.Check(t, func(t *rapid.T) {
				p, d := drawState(t)
				f := Refusal{
					Kind:       Kind(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 4, 5, 6, 200}).Draw(t, "kind")),
					Policies:   rapid.SampledFrom([][]string{{"api"}, {"api"}, {"other"}, {"api", "other"}, nil}).Draw(t, "policies"),
					RetryAfter: time.Duration(durations().Draw(t, "wait")),
					Message:    rapid.SampledFrom([]string{"", "", "No <more>."}).Draw(t, "message"),
					Instance:   rapid.SampledFrom([]string{"", "", "urn:x"}).Draw(t, "instance"),
					Silent:     rapid.IntRange(0, 9).Draw(t, "silent") == 9,
					At:         drawInstant(t),
				}
				if d != nil && rapid.IntRange(0, 4).Draw(t, "same wait") > 0 {
					f.RetryAfter = d.RetryAfter
				}
				items := []Item{{Policy: p, Decision: d, Violated: rapid.IntRange(0, 9).Draw(t, "violated") < 9, Set: drawSet(t)}}
				r := drawRequest(t)
				before := rapid.SampledFrom([]http.Header{
					{}, {}, {}, {"Retry-After": {"7"}}, {"Content-Encoding": {"gzip"}}, {"Cdn-Cache-Control": {"max-age=9"}}, {"X-Ratelimit-Remaining": {"3"}},
				}).Draw(t, "before")
				if d != nil && rapid.Bool().Draw(t, "usual") { // as most are, which the draws above hardly ever are
					f = Refusal{Kind: QuotaExceeded, Policies: []string{"api"}, RetryAfter: d.RetryAfter, At: f.At}
					items[0].Violated, items[0].Set, before = true, Set{}, nil
					r.Header.Del("Accept")
				}
				want, got := httptest.NewRecorder(), httptest.NewRecorder()
				for key, lines := range before {
					want.Header()[key], got.Header()[key] = lines, lines
				}
				long.WriteHeaders(want.Header(), r, f.At, items)
				long.Refuse(want, r, f)
				x.WriteRefusal(got, r, items, f)
				require.Equal(t, want.Code, got.Code)
				require.Equal(t, want.Header(), got.Header())
				require.Equal(t, want.Body.String(), got.Body.String())
				for name, values := range got.Header() {
					require.Equal(t, len(values), cap(values), name)
				}

				h := http.Header{}
				if x.plain && x.refuseOne(httptest.NewRecorder(), h, r, f.At, &items[0], &f) {
					short++
				}
			})
			if name == "plain" || name == "no expose" || name == "capped" {
				require.NotZero(t, short, "the short way was never taken")
			}
		})
	}
}

// Numbers are shared, also between those that fall into one place, and by many at once.
func TestNumbers(t *testing.T) {
	var table numbers
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := int64(0); n < 3*near; n += 7 {
				for _, m := range []int64{n % near, n, n + near, math.MaxInt64 - n} {
					line := table.line(m)
					if len(line) != 1 || cap(line) != 1 || line[0] != strconv.FormatInt(m, 10) {
						t.Errorf("%d: %q", m, line)
					}
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, testing.AllocsPerRun(100, func() { table.line(near + 1) }))
	numbers := []int64{math.MinInt64, -1, 0, near - 1, near, math.MaxInt64}
	for n := int64(1); n < math.MaxInt64/10; n *= 10 {
		numbers = append(numbers, n-1, n, n+n/9)
	}
	for _, n := range numbers {
		require.Equal(t, []string{strconv.FormatInt(n, 10)}, countLine(n))
		require.Equal(t, []string{strconv.FormatInt(n, 10)}, instantLine(time.Unix(5000, 0), n))
	}
}
