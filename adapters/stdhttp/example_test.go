package stdhttp_test

import (
	"fmt"
	"net/http"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func Example() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "address", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)},
			{
				Name: "search", Match: spillway.Match{Routes: []string{"GET /search"}},
				Key: keyfunc.IP(), Limit: limiter.PerMinute(2),
			},
		},
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "found") })
	handler := stdhttp.Middleware(guard)(mux) // for http.ListenAndServe

	for range 3 {
		w := get(handler, "/search")
		fmt.Printf("%d remaining=%s retry=%s\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 remaining=1 retry=
	// 200 remaining=0 retry=
	// 429 remaining=0 retry=30
}
