package response_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// A request that passed, told in both families.
func ExampleRenderer_WriteHeaders() {
	x, err := response.New(response.Options{Headers: response.Both})
	if err != nil {
		panic(err)
	}
	burst, _ := response.NewPolicy("burst", limiter.PerSecond(10), "")
	daily, _ := response.NewPolicy("daily", limiter.PerDay(1000), "")
	now := time.Date(2026, 1, 1, 0, 0, 0, 250_000_000, time.UTC)

	h := http.Header{}
	x.WriteHeaders(h, nil, now, []response.Item{
		{Policy: burst, Decision: &limiter.Decision{Allowed: true, Remaining: 9, ResetAfter: 100 * time.Millisecond}},
		{Policy: daily, Decision: &limiter.Decision{Allowed: true, Remaining: 500, ResetAfter: 12 * time.Hour}},
	})
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		fmt.Println(name+":", h.Get(name))
	}
	// Output:
	// RateLimit-Policy: "burst";q=10;w=1, "daily";q=1000;w=86400
	// RateLimit: "burst";r=9;t=1, "daily";r=500;t=43200
	// X-RateLimit-Limit: 10
	// X-RateLimit-Remaining: 9
	// X-RateLimit-Reset: 1767225601
}

// A refusal: the limits, then status and body.
func ExampleRenderer_Refuse() {
	x, err := response.New(response.Options{})
	if err != nil {
		panic(err)
	}
	policy, _ := response.NewPolicy("default", limiter.PerMinute(100), "")
	now := time.Date(2026, 1, 1, 0, 0, 0, 250_000_000, time.UTC)
	d := limiter.Decision{RetryAfter: 12001 * time.Millisecond, ResetAfter: 30 * time.Second}

	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	x.WriteHeaders(w.Header(), r, now, []response.Item{{Policy: policy, Decision: &d, Violated: true}})
	x.Refuse(w, r, response.Refusal{Policies: []string{"default"}, RetryAfter: d.RetryAfter, At: now})
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("X-RateLimit-Reset"))
	fmt.Println(w.Body)
	// Output:
	// 429 13 1767225631
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["default"],"retry_after":13}
}

// The detail in the client's language; the title stays.
func ExampleOptions_messages() {
	x, err := response.New(response.Options{Messages: map[string]string{
		"en":    "Too many requests, please retry later.",
		"zh-CN": "请求频率超过限制，请稍后重试",
	}})
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept-Language", "zh-CN,zh;q=0.9")
	_, body := x.Body(r, response.Refusal{RetryAfter: time.Second})
	fmt.Println(string(body))
	// Output:
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"请求频率超过限制，请稍后重试","retry_after":1}
}

// An envelope of one's own.
func ExampleOptions_body() {
	x, err := response.New(response.Options{Body: func(_ *http.Request, f response.Refusal) (string, []byte) {
		return "application/json", fmt.Appendf(nil, `{"code":%d,"wait":%q}`, f.Status(), f.RetryAfter)
	}})
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	x.Refuse(w, httptest.NewRequest("GET", "/", nil), response.Refusal{RetryAfter: 90 * time.Second})
	fmt.Println(w.Body)
	// Output: {"code":429,"wait":"1m30s"}
}

func ExampleParseSet() {
	for _, text := range []string{"x", "both", "x+draft-07", "off"} {
		set, err := response.ParseSet(text)
		fmt.Println(set, set.X, set.Draft, err)
	}
	// Output:
	// x true  <nil>
	// both true draft-11 <nil>
	// x+draft-07 true draft-07 <nil>
	// off false  <nil>
}
