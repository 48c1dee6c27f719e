package response

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// The floor: the least that telling three values takes, one buffer, one string, one array of slices.
type floorValues struct{ v [2]string }

func floorHeaders(h http.Header, limit []string, remaining, reset int64) {
	var buf [40]byte
	b := strconv.AppendInt(buf[:0], remaining, 10)
	n := len(b)
	b = strconv.AppendInt(b, reset, 10)
	s := string(b)
	hv := &floorValues{[2]string{s[:n], s[n:]}}
	h["X-Ratelimit-Limit"] = limit
	h["X-Ratelimit-Remaining"] = hv.v[0:1:1]
	h["X-Ratelimit-Reset"] = hv.v[1:2:2]
}

func floorOneHeader(h http.Header, limit []string, remaining, reset int64) {
	var buf [48]byte
	b := append(buf[:0], `"default";r=`...)
	b = strconv.AppendInt(b, remaining, 10)
	b = append(b, ";t="...)
	b = strconv.AppendInt(b, reset, 10)
	h["Ratelimit"] = []string{string(b)}
	h["Ratelimit-Policy"] = limit
}

func benchItems(b *testing.B, n int, denied bool) []Item {
	b.Helper()
	limits := []limiter.Limit{limiter.PerMinute(600), limiter.PerHour(5000), limiter.PerDay(100_000).With(limiter.FixedWindow)}
	items := make([]Item, n)
	for i := range items {
		p, err := NewPolicy("policy"+strconv.Itoa(i), limits[i], "")
		if err != nil {
			b.Fatal(err)
		}
		d := limiter.Decision{Allowed: true, Limit: limits[i], Remaining: 599 - i, ResetAfter: time.Minute, NextAfter: time.Second}
		if denied && i == 0 {
			d.Allowed, d.Remaining, d.RetryAfter = false, 0, 12*time.Second+1
		}
		items[i] = Item{Policy: p, Decision: &d, Violated: denied && i == 0}
	}
	return items
}

// BenchmarkHeaders writes into one reused header, so that the cost of the map itself is the same in every row.
func BenchmarkHeaders(b *testing.B) {
	r := &http.Request{Header: http.Header{"Accept": {"*/*"}, "User-Agent": {"bench"}}, Host: "api.example"}
	now := time.Unix(1767225600, 250_000_000)
	run := func(name string, f func(h http.Header)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			h := http.Header{}
			for b.Loop() {
				clear(h)
				f(h)
			}
		})
	}
	limit := []string{"600"}
	n := int64(599)
	run("floor-x", func(h http.Header) { floorHeaders(h, limit, n, 1767225661) })
	run("floor-draft", func(h http.Header) { floorOneHeader(h, limit, n, 60) })
	for _, set := range []Set{X, Draft11Set, Both} {
		x := mustNew(b, Options{Headers: set})
		for _, policies := range []int{1, 3} {
			items := benchItems(b, policies, false)
			run(set.String()+"/allowed/"+strconv.Itoa(policies), func(h http.Header) { x.WriteHeaders(h, r, now, items) })
			refused := benchItems(b, policies, true)
			run(set.String()+"/refused/"+strconv.Itoa(policies), func(h http.Header) { x.WriteHeaders(h, r, now, refused) })
		}
	}
}

// nullWriter is a ResponseWriter that allocates nothing.
type nullWriter struct {
	h http.Header
	n int
}

func (w *nullWriter) Header() http.Header         { return w.h }
func (w *nullWriter) WriteHeader(int)             {}
func (w *nullWriter) Write(p []byte) (int, error) { w.n += len(p); return len(p), nil }

// BenchmarkRefusal is a whole refusal: limits, fields and body.
func BenchmarkRefusal(b *testing.B) {
	now := time.Unix(1767225600, 250_000_000)
	messages := map[string]string{"en": "Too many requests, please retry later.", "zh-CN": "请求频率超过限制，请稍后重试"}
	for _, c := range []struct {
		name   string
		o      Options
		header http.Header
	}{
		{"x", Options{}, http.Header{"Accept": {"*/*"}}},
		{"both", Options{Headers: Both}, http.Header{"Accept": {"application/json, text/plain, */*"}}},
		{"text", Options{}, http.Header{"Accept": {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}}},
		{"cors", Options{}, http.Header{"Accept": {"*/*"}, "Origin": {"https://app.example"}}},
		{"localised", Options{Messages: messages}, http.Header{"Accept": {"*/*"}, "Accept-Language": {"zh-CN,zh;q=0.9,en;q=0.8"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := mustNew(b, c.o)
			items := benchItems(b, 1, true)
			names := []string{"policy0"}
			r := &http.Request{Method: "GET", Header: c.header, Host: "api.example"}
			w := &nullWriter{h: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				x.WriteRefusal(w, r, items, Refusal{Kind: QuotaExceeded, Policies: names, RetryAfter: items[0].Decision.RetryAfter, At: now})
			}
		})
	}
}
