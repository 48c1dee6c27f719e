package response_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

const types = "https://iana.org/assignments/http-problem-types#"

func refuse(t *testing.T, o response.Options, f response.Refusal, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	for k, v := range header {
		r.Header[k] = v
	}
	w := httptest.NewRecorder()
	rendererOf(t, o).Refuse(w, r, f)
	require.Equal(t, strconv.Itoa(w.Body.Len()), w.Header().Get("Content-Length"))
	return w
}

func TestRefuseKinds(t *testing.T) {
	names := []string{"a", "b"}
	for _, c := range []struct {
		kind   response.Kind
		name   string
		status int
		body   string
		retry  string
	}{
		{response.QuotaExceeded, "quota_exceeded", 429, `{"type":"` + types + `quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["a","b"],"retry_after":2}`, "2"},
		{response.Overloaded, "overloaded", 503, `{"type":"` + types + `temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"violated-policies":["a","b"],"retry_after":2}`, "2"},
		{response.ReadOnlyQuota, "read_only_quota", 429, `{"type":"` + types + `quota-exceeded","title":"Quota Exceeded","status":429,"detail":"Only reads are served at the moment.","violated-policies":["a","b"],"code":"read_only","retry_after":2}`, "2"},
		{response.ReadOnlyService, "read_only_service", 503, `{"type":"` + types + `temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"Only reads are served at the moment.","violated-policies":["a","b"],"retry_after":2}`, "2"},
		{response.Unavailable, "unavailable", 503, `{"type":"about:blank","title":"Service Unavailable","status":503,"retry_after":2}`, "2"},
		{response.Forbidden, "forbidden", 403, `{"type":"about:blank","title":"Forbidden","status":403}`, ""},
		{response.Abuse, "abuse", 429, `{"type":"` + types + `abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"violated-policies":["a","b"],"retry_after":2}`, "2"},
		{response.Kind(99), "Kind(99)", 503, `{"type":"about:blank","title":"Service Unavailable","status":503,"retry_after":2}`, "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.name, c.kind.String())
			w := refuse(t, response.Options{}, response.Refusal{Kind: c.kind, Policies: names, RetryAfter: 1200 * time.Millisecond}, nil)
			require.Equal(t, c.status, w.Code)
			require.Equal(t, c.body, w.Body.String())
			require.Equal(t, c.retry, w.Header().Get("Retry-After"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		})
	}
}

// The body repeats the header that is sent, whoever set it.
func TestRefuseRetryAfter(t *testing.T) {
	for _, c := range []struct {
		name    string
		options response.Options
		kind    response.Kind
		silent  bool
		wait    time.Duration
		before  []string
		want    []string
		body    int64 // 0: no member
	}{
		{name: "unknown", want: []string{"1"}, body: 1},
		{name: "never", wait: limiter.Never},
		{name: "silent", silent: true, wait: time.Minute},
		{name: "set before and enough", wait: 5 * time.Second, before: []string{"30"}, want: []string{"30"}, body: 30},
		{name: "set before and too short", wait: 5 * time.Second, before: []string{"3"}, want: []string{"5"}, body: 5},
		{name: "zero", before: []string{"0"}, want: []string{"1"}, body: 1},
		{name: "several lines become the longest", wait: time.Second, before: []string{"3", "x", " 12 ", "9"}, want: []string{" 12 "}, body: 12},
		{name: "date before", wait: 5 * time.Second, before: []string{"Thu, 01 Jan 2026 00:00:30 GMT"}, want: []string{"Thu, 01 Jan 2026 00:00:30 GMT"}, body: 30},
		{name: "date before the end of the wait, in the same rounded second", wait: 4900 * time.Millisecond, before: []string{"Thu, 01 Jan 2026 00:00:05 GMT"}, want: []string{"5"}, body: 5},
		{name: "date gone by", before: []string{"Thu, 01 Jan 1970 00:00:30 GMT"}, want: []string{"1"}, body: 1},
		{name: "never, but another asks to wait", wait: limiter.Never, before: []string{"30"}, want: []string{"30"}, body: 30},
		{name: "unreadable", wait: 5 * time.Second, before: []string{"5.5"}, want: []string{"5"}, body: 5},
		{name: "negative", wait: 5 * time.Second, before: []string{"-9"}, want: []string{"5"}, body: 5},
		{name: "huge", wait: 5 * time.Second, before: []string{strings.Repeat("9", 40)}, want: []string{strings.Repeat("9", 40)}, body: 9_000_000_000},
		{name: "date centuries away", before: []string{"Thu, 01 Jan 9026 00:00:00 GMT"}, want: []string{"Thu, 01 Jan 9026 00:00:00 GMT"}, body: 9_000_000_000},
		{name: "as a date", options: response.Options{RetryAfterDate: true}, wait: 90 * time.Second, want: []string{"Thu, 01 Jan 2026 00:01:31 GMT"}, body: 91},
		{name: "as a date, capped", options: response.Options{RetryAfterDate: true, MaxRetryAfter: time.Minute}, wait: time.Hour, want: []string{"Thu, 01 Jan 2026 00:01:01 GMT"}, body: 61},
		{name: "capped, and what is there reaches the cap", options: response.Options{MaxRetryAfter: time.Minute}, wait: time.Hour, before: []string{"60"}, want: []string{"60"}, body: 60},
		{name: "longest of all", wait: 9_000_000_000_000_000_000, want: []string{"2147483647"}, body: 2147483647},
		{name: "no key", kind: response.Forbidden, wait: time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			if c.before != nil {
				w.Header()["Retry-After"] = c.before
			}
			rendererOf(t, c.options).Refuse(w, httptest.NewRequest("GET", "/", nil),
				response.Refusal{Kind: c.kind, Policies: []string{"p"}, RetryAfter: c.wait, Silent: c.silent, At: clock})
			require.Equal(t, c.want, w.Header()["Retry-After"])
			var body struct {
				RetryAfter *int64   `json:"retry_after"`
				Violated   []string `json:"violated-policies"`
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
			if c.body == 0 {
				require.Nil(t, body.RetryAfter)
			} else {
				require.Equal(t, c.body, *body.RetryAfter)
			}
			if c.silent {
				require.Empty(t, body.Violated)
			}
		})
	}
}

// No decision, or no key: what an earlier stage told does not travel with the answer.
func TestRefuseWithoutDecisionTellsNoLimits(t *testing.T) {
	for _, kind := range []response.Kind{response.Unavailable, response.Forbidden} {
		w := httptest.NewRecorder()
		x := rendererOf(t, response.Options{Headers: response.Both})
		x.WriteHeaders(w.Header(), nil, clock, []response.Item{{Policy: policyOf(t, "edge", limiter.PerMinute(9)), Decision: allowed(8)}})
		require.NotEmpty(t, w.Header())
		x.Refuse(w, nil, response.Refusal{Kind: kind, Policies: []string{"secret"}, RetryAfter: time.Second})
		for name := range w.Header() {
			require.NotContains(t, strings.ToLower(name), "ratelimit")
		}
		require.NotContains(t, w.Body.String(), "secret")
	}
}

func TestRefuseNegotiation(t *testing.T) {
	for accept, problem := range map[string]bool{
		"*/*":                                true,
		"":                                   true,
		"application/json":                   true,
		"APPLICATION/Problem+JSON":           true,
		"application/vnd.api+json, text/*":   true,
		"application/json, text/plain, */*":  true,
		"text/plain":                         false,
		"text/html":                          false,
		"TEXT/HTML;q=0.3":                    false,
		"text/*":                             false,
		"text/plain, application/json;q=0.1": true,
		"text/plain, application/json;q=0":   false,
		"text/plain;q=0":                     true,
		"text/plain;q=0, */*":                true,
		"text/plain;q=0.5, */*":              true,
		"text/plain, */*;q=0.8":              false,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": false,
		"application/problem+json;q=0, */*":                               false,
		"application/problem+json;q=0":                                    true,
		"application/*":                                                   true,
		"image/png":                                                       true,
		"text/plain;level=1;q=0.000":                                      true,
		"text/plain; q=1.0 ,,;":                                           false,
		"text/plain;q=abc":                                                false,
		"text/plain;q=0.5;q=0":                                            false,
		",":                                                               true,
	} {
		t.Run(accept, func(t *testing.T) {
			w := refuse(t, response.Options{}, response.Refusal{RetryAfter: time.Second}, http.Header{"Accept": {accept}})
			if problem {
				require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
				require.True(t, json.Valid(w.Body.Bytes()))
			} else {
				require.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
				require.Equal(t, "Too Many Requests\n", w.Body.String())
			}
		})
	}
	w := refuse(t, response.Options{}, response.Refusal{Kind: response.Forbidden}, http.Header{"Accept": {"text/html", "image/png"}})
	require.Equal(t, "Forbidden\n", w.Body.String())
}

func TestRefuseMessages(t *testing.T) {
	const zh, en = "请求频率超过限制，请稍后重试", "Too many requests."
	detail := func(t *testing.T, o response.Options, f response.Refusal, languages ...string) string {
		t.Helper()
		header := http.Header{}
		if languages != nil {
			header["Accept-Language"] = languages
		}
		var body struct{ Title, Detail string }
		require.NoError(t, json.Unmarshal(refuse(t, o, f, header).Body.Bytes(), &body))
		require.NotContains(t, body.Title, "请", "titles stay")
		return body.Detail
	}
	one := response.Options{Messages: map[string]string{"zh-CN": zh}}
	two := response.Options{Messages: map[string]string{"zh-CN": zh, "en": en}}
	rest := response.Options{Messages: map[string]string{"zh-CN": zh, "": en}}

	require.Equal(t, zh, detail(t, one, response.Refusal{}))
	require.Equal(t, zh, detail(t, one, response.Refusal{}, "*"))
	require.Equal(t, zh, detail(t, one, response.Refusal{}, "zh-CN,zh;q=0.9,en;q=0.8"))
	require.Equal(t, zh, detail(t, one, response.Refusal{}, "zh"))
	require.Empty(t, detail(t, one, response.Refusal{}, "fr"))
	require.Empty(t, detail(t, two, response.Refusal{}), "nobody said which")
	require.Equal(t, en, detail(t, two, response.Refusal{}, "de, en-GB;q=0.5"))
	require.Equal(t, zh, detail(t, two, response.Refusal{}, "en;q=0.5, zh-Hans-SG"))
	require.Empty(t, detail(t, two, response.Refusal{}, "zh;q="), "malformed")
	require.Empty(t, detail(t, two, response.Refusal{}, "en"+strings.Repeat(",fr", 200)), "too long to look at")
	require.Equal(t, en, detail(t, rest, response.Refusal{}, "fr"))
	require.Equal(t, en, detail(t, rest, response.Refusal{}))
	require.Empty(t, detail(t, two, response.Refusal{Kind: response.Unavailable}, "en"), "no limit was reached")
	require.Empty(t, detail(t, two, response.Refusal{Kind: response.Forbidden}, "en"))
	require.Equal(t, en, detail(t, two, response.Refusal{Kind: response.ReadOnlyQuota}, "en"))

	own, err := response.NewMessages(map[string]string{"en": "Search is limited."})
	require.NoError(t, err)
	require.Equal(t, "Search is limited.", detail(t, two, response.Refusal{Messages: own}, "en"))
	require.Equal(t, "x\"\\\n<\u2028é\ufffd", detail(t, two, response.Refusal{Messages: own, Message: "x\"\\\n<\u2028é\xff"}, "en"))

	// Clients choose what is remembered: it stays bounded, and answers stay right beyond the bound.
	for i := range 400 {
		require.Equal(t, "Search is limited.", own.For(&http.Request{Header: http.Header{"Accept-Language": {"en, fr;q=0." + strconv.Itoa(i)}}}))
	}
	require.Empty(t, (*response.Messages)(nil).For(nil))
	none, err := response.NewMessages(nil)
	require.NoError(t, err)
	require.Empty(t, none.For(&http.Request{Header: http.Header{"Accept-Language": {"en"}}}))
}

func TestRefuseOwnBody(t *testing.T) {
	var seen response.Refusal
	o := response.Options{
		Messages: map[string]string{"en": "Slow down."},
		Body: func(_ *http.Request, f response.Refusal) (string, []byte) {
			seen = f
			switch f.Kind {
			case response.Abuse:
				panic("a fault of the callback")
			case response.Forbidden:
				return "", nil
			}
			return "application/xml", []byte("<slow/>")
		},
	}
	w := refuse(t, o, response.Refusal{Policies: []string{"p"}, RetryAfter: 1500 * time.Millisecond}, nil)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "application/xml", w.Header().Get("Content-Type"))
	require.Equal(t, "<slow/>", w.Body.String())
	require.Equal(t, 2*time.Second, seen.RetryAfter)
	require.Equal(t, "Slow down.", seen.Message)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))

	w = refuse(t, o, response.Refusal{Kind: response.Abuse, RetryAfter: limiter.Never}, nil)
	require.Equal(t, limiter.Never, seen.RetryAfter)
	require.Contains(t, w.Body.String(), "Abnormal Usage Detected")
	w = refuse(t, o, response.Refusal{Kind: response.Forbidden}, nil)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Contains(t, w.Body.String(), `"title":"Forbidden"`)
}

// A framework prepares, and writes the body itself.
func TestPrepareAndBody(t *testing.T) {
	x := rendererOf(t, response.Options{})
	r := httptest.NewRequest("GET", "/", nil)
	h := http.Header{"Retry-After": {"30"}}
	f := x.Prepare(h, r, response.Refusal{Policies: []string{"p"}, RetryAfter: time.Second, Instance: "urn:x:1", At: clock})
	contentType, body := x.Body(r, f)
	require.Equal(t, "application/problem+json", contentType)
	require.Equal(t, `{"type":"`+types+`quota-exceeded","title":"Quota Exceeded","status":429,"instance":"urn:x:1","violated-policies":["p"],"retry_after":30}`, string(body))
	require.Empty(t, h.Get("Content-Type"))

	r.Header.Set("Accept", "text/plain")
	contentType, body = x.Body(r, f)
	require.Equal(t, "text/plain; charset=utf-8", contentType)
	require.Equal(t, "Too Many Requests\n", string(body))
}

func TestRefuseHead(t *testing.T) {
	w := httptest.NewRecorder()
	x := rendererOf(t, response.Options{})
	x.Refuse(w, httptest.NewRequest("HEAD", "/", nil), response.Refusal{RetryAfter: time.Second})
	require.Empty(t, w.Body.Bytes())
	_, body := x.Body(nil, response.Refusal{RetryAfter: time.Second})
	require.Equal(t, strconv.Itoa(len(body)), w.Header().Get("Content-Length"), "the length a GET would have")
}

// Who compresses announces it first: the length is not known then.
func TestRefuseCompressed(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", "12")
	rendererOf(t, response.Options{}).Refuse(w, httptest.NewRequest("GET", "/", nil), response.Refusal{})
	require.Empty(t, w.Header().Get("Content-Length"))
}

func TestRefuseLongBody(t *testing.T) {
	var names []string
	for i := range 80 {
		names = append(names, "policy-"+strconv.Itoa(i))
	}
	w := refuse(t, response.Options{}, response.Refusal{Policies: names}, nil)
	require.True(t, json.Valid(w.Body.Bytes()))
}

type quiet struct{ h http.Header }

func (w quiet) Header() http.Header       { return w.h }
func (quiet) WriteHeader(int)             {}
func (quiet) Write(p []byte) (int, error) { return len(p), nil }

func TestRefuseAllocations(t *testing.T) {
	for _, set := range []response.Set{response.X, response.Both} {
		x := rendererOf(t, response.Options{Headers: set, Messages: map[string]string{"en": "Slow down.", "zh-CN": "请稍后"}})
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", "application/json, text/plain, */*")
		r.Header.Set("Accept-Language", "zh-CN,zh;q=0.9,en;q=0.8")
		r.Header.Set("Origin", "https://app.example")
		items := []response.Item{{Policy: policyOf(t, "a", limiter.PerMinute(600)), Decision: denied(12 * time.Second), Violated: true}}
		names := []string{"a"}
		w := quiet{http.Header{}}
		got := testing.AllocsPerRun(100, func() {
			clear(w.h)
			x.WriteHeaders(w.h, r, clock, items)
			x.Refuse(w, r, response.Refusal{Policies: names, RetryAfter: 12 * time.Second, At: clock})
		})
		require.LessOrEqual(t, got, 4.0)
	}
}

// What the route says to single caches does not outlive its answer: theirs would win over no-store.
func TestRefuseCaches(t *testing.T) {
	x, err := response.New(response.Options{})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	for _, name := range []string{"Cache-Control", "CDN-Cache-Control", "Surrogate-Control"} {
		w.Header().Set(name, "public, max-age=300")
	}
	x.Refuse(w, httptest.NewRequest("GET", "/", nil), response.Refusal{RetryAfter: time.Second})
	require.Equal(t, http.Header{
		"Cache-Control": {"no-store"}, "Content-Type": {"application/problem+json"}, "X-Content-Type-Options": {"nosniff"}, "Retry-After": {"1"},
		"Content-Length": w.Header()["Content-Length"],
	}, w.Header())
}
