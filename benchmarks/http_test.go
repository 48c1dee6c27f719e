package benchmarks

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/spillway-go/spillway/benchmarks/internal/probe"
	"github.com/spillway-go/spillway/benchmarks/peer"
)

// nullWriter is a ResponseWriter that allocates nothing and reuses its header map.
type nullWriter struct {
	header http.Header
	status int
}

func (w *nullWriter) Header() http.Header         { return w.header }
func (w *nullWriter) WriteHeader(status int)      { w.status = status }
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *nullWriter) Flush()                      {}

func (w *nullWriter) reset() {
	clear(w.header)
	w.status = http.StatusOK
}

var httpScenarios = []struct {
	name     string
	policies int
	clients  int
	profile  peer.Profile
	status   int
}{
	{"allow", 1, 1, peer.Open, http.StatusOK},
	// A quota of which much is used and much is left, so that no response says the numbers of another.
	{"allow-used", 1, 1, peer.Live, http.StatusOK},
	{"deny", 1, 1, peer.Closed, http.StatusTooManyRequests},
	{"allow-3policies", 3, 1, peer.Open, http.StatusOK},
	{"deny-100k-clients", 1, 100_000, peer.Closed, http.StatusTooManyRequests},
}

// BenchmarkHTTP is a whole request through framework, middleware and an "ok" handler. Names are
// scenario/framework/limiter.
func BenchmarkHTTP(b *testing.B) {
	for _, sc := range httpScenarios {
		clients := []string{"10.20.30.40:51234"}
		if sc.clients > 1 {
			clients = make([]string, size(sc.clients))
			for i := range clients {
				clients[i] = peer.Address(i) + ":51234"
			}
		}
		for _, m := range peer.MWs() {
			b.Run(sc.name+"/"+m.FullName(), func(b *testing.B) {
				benchHTTP(b, m.Build(sc.profile, sc.policies), clients)
				if m.Name != "none" {
					checkStatus(b, m.Build(sc.profile, sc.policies), sc.status)
				}
			})
		}
	}
}

func benchHTTP(b *testing.B, h http.Handler, clients []string) {
	w := &nullWriter{header: http.Header{}}
	r := request(b)
	for range 2 { // fills the limiter, and the closed profiles with it
		for _, r.RemoteAddr = range clients {
			w.reset()
			h.ServeHTTP(w, r)
		}
	}
	r.RemoteAddr = clients[0]
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	cpu, i := probe.CPU(), 0
	for b.Loop() {
		if len(clients) > 1 {
			i = (i + 7919) % len(clients)
			r.RemoteAddr = clients[i]
		}
		w.reset()
		h.ServeHTTP(w, r)
	}
	b.StopTimer()
	reportCPU(b, cpu)
}

// checkStatus fails a benchmark whose handler does not answer as its scenario says.
func checkStatus(b *testing.B, h http.Handler, want int) {
	w, r := &nullWriter{header: http.Header{}}, request(b)
	for range 2 {
		w.reset()
		h.ServeHTTP(w, r)
	}
	if w.status != want {
		b.Fatalf("status %d, want %d", w.status, want)
	}
}

func request(b *testing.B) *http.Request {
	r, err := http.NewRequest(http.MethodGet, "http://example.test/", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.RemoteAddr = "10.20.30.40:51234"
	return r
}
