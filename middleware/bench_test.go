package middleware_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// quiet is a ResponseWriter that costs nothing: what is measured is the guard.
type quiet struct {
	h    http.Header
	code int
}

func newQuiet() *quiet { return &quiet{h: make(http.Header, 16)} }

func (w *quiet) Header() http.Header         { return w.h }
func (w *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (w *quiet) WriteHeader(code int)        { w.code = code }

func (w *quiet) reset() {
	clear(w.h)
	w.code = 0
}

var bare = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

// benchGuard is n policies by address, all allowing or the last one refusing.
func benchGuard(tb testing.TB, set response.Set, n int, denied bool) *middleware.Guard {
	tb.Helper()
	store, err := memory.New(memory.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	cfg := middleware.Config{Limiter: store, Response: response.Options{Headers: set}}
	for k := range n {
		limit := limiter.PerSecond(limiter.MaxRate)
		if denied && k == n-1 {
			limit = limiter.PerDay(1)
		}
		cfg.Policies = append(cfg.Policies, middleware.Policy{Name: fmt.Sprintf("p%d", k), Key: keyfunc.IP(), Limit: limit})
	}
	g, err := middleware.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func BenchmarkServe(b *testing.B) {
	run := func(name string, h http.Handler) {
		b.Run(name, func(b *testing.B) {
			w, r := newQuiet(), request("GET", "/search")
			h.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				w.reset()
				h.ServeHTTP(w, r)
			}
		})
	}
	run("bare", bare)
	for _, denied := range []bool{false, true} {
		for _, set := range []response.Set{response.Off, response.X, response.Both} {
			for _, n := range []int{1, 3} {
				g := benchGuard(b, set, n, denied)
				run(fmt.Sprintf("denied=%v/%v/policies=%d", denied, set, n), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					g.Serve(w, r, bare)
				}))
			}
		}
	}
}
