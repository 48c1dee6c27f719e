package degrade_test

import (
	"net/http"
	"testing"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
)

// discard is a writer of a server without its network.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) Flush()                      {}

// What recording adds to an allowed request; "without" is to be subtracted. The request has the fields of a browser.
func BenchmarkRecord(b *testing.B) {
	body := make([]byte, 4<<10)
	browser := []string{
		"Accept: text/html,application/xhtml+xml", "Accept-Encoding: gzip, deflate, br, zstd", "Accept-Language: de,en;q=0.5", "User-Agent: Mozilla/5.0",
		"Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Site: none", "Upgrade-Insecure-Requests: 1", "Dnt: 1", "Referer: http://a.example/",
	}
	for _, c := range []struct {
		name     string
		r        *http.Request
		response []string
		record   bool
	}{
		{"without", fetch("/some/path?q=1", browser...), nil, false},
		{"HEAD", cacheRequest("HEAD", "/some/path?q=1", browser...), nil, true},
		{"stored", fetch("/some/path?q=1", browser...), []string{"public, max-age=60"}, true},
		{"private", fetch("/some/path?q=1", browser...), []string{"private"}, true},
		{"token", fetch("/some/path?q=1", append(browser, "Authorization: Bearer x")...), nil, true},
		{"POST", cacheRequest("POST", "/some/path?q=1", browser...), nil, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := degrade.Cached(degrade.NewPages(degrade.PagesConfig{})).(degrade.Recorder)
			k := new(keyfunc.Request)
			out := &discard{h: http.Header{}}
			typed := []string{"text/html"}
			b.ReportAllocs()
			for b.Loop() {
				clear(out.h)
				k.Reset(c.r, cacheRoute("/some/{path}"), nil)
				w, done := http.ResponseWriter(out), func(bool) {}
				if c.record {
					if x, f := h.Record(out, k, "default", ""); f != nil {
						w, done = x, f
					}
				}
				w.Header()["Content-Type"] = typed
				if c.response != nil {
					w.Header()["Cache-Control"] = c.response
				}
				_, _ = w.Write(body)
				done(true)
			}
		})
	}
}

func BenchmarkServe(b *testing.B) {
	for name, target := range map[string]string{"hit": "/", "miss": "/none"} {
		b.Run(name, func(b *testing.B) {
			s := newSite(b, degrade.PagesConfig{}, answers(200, string(make([]byte, 4<<10)), "Content-Type: text/html", "Vary: Accept-Encoding"))
			s.allow(fetch("/"))
			r := fetch(target)
			d := &degrade.Denial{Policy: s.policy, Request: s.request(r)}
			out := &discard{h: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(out.h)
				s.h.Degrade(out, r, d)
			}
		})
	}
}
