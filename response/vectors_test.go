package response

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

type vectorFile struct {
	RetryAfter []retryVector   `json:"retry_after"`
	Fields     []fieldVector   `json:"ratelimit_fields"`
	Problems   []problemVector `json:"problem_json"`
}

type retryVector struct {
	ID, Desc, Format, Existing string
	Denied                     bool
	MS                         json.Number
	JitterMS                   int64 `json:"jitter_ms"`
	MaxS                       int64 `json:"max_s"`
	NowMS                      int64 `json:"now_ms"`
	Expected                   struct {
		Value  string
		Absent bool
	}
}

type fieldVector struct {
	ID, Kind, Desc, Style string
	XReset                string `json:"x_reset"`
	NowMS                 int64  `json:"now_ms"`
	Policies              []struct {
		Name, Unit   string
		Quota        int64
		WindowMS     int64  `json:"window_ms"`
		PartitionHex string `json:"partition_hex"`
	}
	Items []struct {
		Policy       string
		Remaining    int64
		TMS          int64 `json:"t_ms"`
		ResetMS      int64 `json:"reset_ms"`
		Denied       bool
		RetryAfterMS int64 `json:"retry_after_ms"`
	}
	Existing map[string]string
	Derive   *struct {
		Algorithm    string
		Denied       bool
		Quota        int
		Remaining    int
		ResetMS      int64 `json:"reset_ms"`
		RetryAfterMS int64 `json:"retry_after_ms"`
		WindowMS     int64 `json:"window_ms"`
		Rate, Burst  int
		PeriodMS     int64 `json:"period_ms"`
	}
	Expected map[string]*string
}

type problemVector struct {
	ID, Kind, Desc string
	Input          struct {
		Outcome      string
		Violated     []string `json:"violated_policies"`
		RetryAfterMS int64    `json:"retry_after_ms"`
		Method       string
		Accept       string
		AllowOrigin  string `json:"cors_allow_origin"`
	}
	Expected struct {
		Status     int
		Headers    map[string]*string
		Body       map[string]any
		BodyAbsent bool    `json:"body_absent"`
		BodyText   *string `json:"body_text"`
	}
	MustNot []string `json:"body_must_not_contain"`
}

func loadVectors(t *testing.T) vectorFile {
	t.Helper()
	data, err := os.ReadFile("testdata/standards.json")
	require.NoError(t, err)
	var f vectorFile
	require.NoError(t, json.Unmarshal(data, &f))
	return f
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func mustNew(t testing.TB, o Options) *Renderer {
	t.Helper()
	x, err := New(o)
	require.NoError(t, err)
	return x
}

// exactMillis turns decimal milliseconds into nanoseconds without a float.
func exactMillis(t *testing.T, n json.Number) time.Duration {
	t.Helper()
	whole, frac, _ := strings.Cut(n.String(), ".")
	d, err := strconv.ParseInt(whole+(frac + "000000")[:6], 10, 64)
	require.NoError(t, err)
	return time.Duration(d)
}

func TestVectorsRetryAfter(t *testing.T) {
	vectors := loadVectors(t).RetryAfter
	require.Len(t, vectors, 18)
	for _, v := range vectors {
		t.Run(v.ID+" "+v.Desc, func(t *testing.T) {
			x := mustNew(t, Options{RetryAfterDate: v.Format == "date", MaxRetryAfter: time.Duration(v.MaxS) * time.Second})
			wait := exactMillis(t, v.MS)
			if v.MS == "-1" {
				wait = limiter.Never
			} else {
				wait += millis(v.JitterMS) // the jitter of a vector is not random
			}
			p, err := NewPolicy("default", limiter.PerMinute(100), "")
			require.NoError(t, err)
			d := limiter.Decision{Allowed: !v.Denied, RetryAfter: wait}
			h := http.Header{}
			if v.Existing != "" {
				h.Set("Retry-After", v.Existing)
			}
			x.WriteHeaders(h, nil, time.UnixMilli(v.NowMS), []Item{{Policy: p, Decision: &d, Violated: v.Denied}})
			if v.Expected.Absent {
				require.Empty(t, h.Values("Retry-After"))
			} else {
				require.Equal(t, []string{v.Expected.Value}, h.Values("Retry-After"))
			}
		})
	}
}

func TestVectorsFields(t *testing.T) {
	vectors := loadVectors(t).Fields
	require.Len(t, vectors, 39)
	for _, v := range vectors {
		t.Run(v.ID+" "+v.Desc, func(t *testing.T) {
			switch {
			case v.Kind == "effective_window":
				runEffectiveWindow(t, v)
			case v.Kind == "policy_mapping":
				d := v.Derive
				p, err := NewPolicy("p", limiter.Per(d.Rate, millis(d.PeriodMS)).WithBurst(d.Burst), "")
				require.NoError(t, err)
				require.Equal(t, `"p";q=`+*v.Expected["q"]+";w="+*v.Expected["w"], p.policy[0])
			case v.Expected["config_error"] != nil:
				_, err := NewPolicy(v.Policies[0].Name, limiter.PerMinute(1), "")
				require.ErrorIs(t, err, ErrPolicyName)
			default:
				runSerialize(t, v)
			}
		})
	}
}

func runEffectiveWindow(t *testing.T, v fieldVector) {
	d := v.Derive
	name := d.Algorithm
	if name == "gcra" {
		name = "token_bucket"
	}
	limit := limiter.Per(d.Quota, millis(d.WindowMS))
	for _, a := range limiter.Algorithms() {
		if a.String() == name {
			limit = limit.With(a)
		}
	}
	p, err := NewPolicy("p", limit, "")
	require.NoError(t, err)
	decision := limiter.Decision{
		Allowed: !d.Denied, Limit: limit, Remaining: d.Remaining,
		ResetAfter: millis(d.ResetMS), RetryAfter: millis(d.RetryAfterMS),
	}
	h := http.Header{}
	mustNew(t, Options{Headers: Draft11Set}).WriteHeaders(h, nil, time.Unix(0, 0),
		[]Item{{Policy: p, Decision: &decision, Violated: d.Denied}})
	require.Equal(t, `"p";r=`+strconv.Itoa(d.Remaining)+";t="+*v.Expected["t"], h.Get("RateLimit"))
}

// runSerialize feeds given numbers to the writer, past the rules that derive them from a decision: vectors hold numbers,
// and names, that no policy of ours can have.
func runSerialize(t *testing.T, v fieldVector) {
	draft, err := ParseSet("x+" + v.Style)
	require.NoError(t, err)
	x := mustNew(t, Options{ResetDelta: v.XReset == "delta"})
	h := http.Header{}
	for k, val := range v.Existing {
		h.Set(k, val)
	}
	s := &sheet{}
	for _, in := range v.Policies {
		if in.Quota < 0 {
			p, err := NewPolicy(in.Name, limiter.Unlimited, "")
			require.NoError(t, err)
			require.True(t, p.silent)
			continue
		}
		p := newPolicy(in.Name, int(in.Quota), ceilSeconds(millis(in.WindowMS)), in.Unit)
		ln := line{item: &Item{Policy: p}, set: draft, t: -1}
		if in.PartitionHex != "" {
			b, err := strconv.ParseUint(in.PartitionHex, 16, 8)
			require.NoError(t, err)
			ln.item.Partition = []byte{byte(b)}
		}
		for _, it := range v.Items {
			if it.Policy != in.Name {
				continue
			}
			ln.known = true
			ln.r = min(max(it.Remaining, 0), p.quota)
			ln.t = ceilSeconds(millis(it.TMS))
			ln.reset = millis(it.ResetMS)
			if it.Denied {
				ln.item.Violated = true
				ln.wait = millis(it.RetryAfterMS)
				ln.t = x.waitSeconds(ln.wait)
				ln.reset = max(ln.reset, ln.wait)
				s.refused, s.retry, s.wait = true, true, max(s.wait, ln.wait)
			}
		}
		s.lines = append(s.lines, ln)
	}
	x.write(h, nil, time.UnixMilli(v.NowMS), s)
	for name, want := range v.Expected {
		if want == nil {
			require.Empty(t, h.Values(name), name)
		} else {
			require.Equal(t, []string{*want}, h.Values(name), name)
		}
	}
}

func TestVectorsProblem(t *testing.T) {
	vectors := loadVectors(t).Problems
	require.Len(t, vectors, 15)
	kindOf := map[string]Kind{
		"quota_exceeded": QuotaExceeded, "reduced_capacity": Overloaded, "read_only": ReadOnlyService,
		"store_unavailable": Unavailable, "abnormal_usage": Abuse,
	}
	for _, v := range vectors {
		if v.Kind == "cached" {
			continue // answers from a copy are written by package degrade
		}
		t.Run(v.ID+" "+v.Desc, func(t *testing.T) {
			kind, ok := kindOf[v.Input.Outcome]
			require.True(t, ok, v.Input.Outcome)
			f := Refusal{Kind: kind, Policies: v.Input.Violated, RetryAfter: millis(v.Input.RetryAfterMS)}
			if v.Input.RetryAfterMS < 0 {
				f.RetryAfter = limiter.Never
			}
			r := httptest.NewRequest(v.Input.Method, "https://api.example/", nil)
			w := httptest.NewRecorder()
			if v.Input.Accept != "" {
				r.Header.Set("Accept", v.Input.Accept)
			}
			if v.Input.AllowOrigin != "" {
				r.Header.Set("Origin", v.Input.AllowOrigin)
				w.Header().Set("Access-Control-Allow-Origin", v.Input.AllowOrigin)
			}
			mustNew(t, Options{}).Refuse(w, r, f)
			require.Equal(t, v.Expected.Status, w.Code)
			for name, want := range v.Expected.Headers {
				if want == nil {
					require.Empty(t, w.Header().Values(name), name)
				} else {
					require.Equal(t, []string{*want}, w.Header().Values(name), name)
				}
			}
			switch {
			case v.Expected.BodyAbsent:
				require.Empty(t, w.Body.Bytes())
			case v.Expected.BodyText != nil:
				require.Equal(t, *v.Expected.BodyText, w.Body.String())
			default:
				var got map[string]any
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
				delete(got, "detail")
				delete(got, "instance")
				require.Equal(t, v.Expected.Body, got)
			}
			for _, word := range v.MustNot {
				require.NotContains(t, w.Body.String(), word)
			}
		})
	}
}

func TestCeilSeconds(t *testing.T) {
	require.EqualValues(t, 0, ceilSeconds(-1))
	require.EqualValues(t, 0, ceilSeconds(0))
	require.EqualValues(t, 1, ceilSeconds(1))
	require.EqualValues(t, 1, ceilSeconds(time.Second))
	require.EqualValues(t, 2, ceilSeconds(time.Second+1))
	require.EqualValues(t, 9_223_372_037, ceilSeconds(math.MaxInt64))
	require.EqualValues(t, 9_000_000_000+5, ceilEpoch(time.Unix(5, 0), 9_000_000_000_000_000_000))
	require.EqualValues(t, maxInteger, ceilMulDiv(1e9, uint64(limiter.MaxPeriod), 1e9))
	require.EqualValues(t, maxInteger, ceilMulDiv(math.MaxUint64, math.MaxUint64, 1))
	require.EqualValues(t, 4, ceilMulDiv(10, 1, 3))
}
