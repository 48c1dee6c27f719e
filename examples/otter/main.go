// Command otter keeps the copies of pages in a cache of the application's choice. It is a module of its own, so that
// spillway does not depend on that cache.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/examples/otter/copies"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func main() {
	store := spillway.Must(copies.New(64 << 20))
	server := &http.Server{
		Addr: "127.0.0.1:8097", Handler: spillway.Must(handler(store)), ReadHeaderTimeout: 5 * time.Second,
	}
	log.Print("try: for i in 1 2 3 4 5; do curl -i http://127.0.0.1:8097/article; done")
	log.Fatal(server.ListenAndServe())
}

// handler serves three requests a minute to each address, and copies of what it has served to those who want more.
func handler(store degrade.Store) (http.Handler, error) {
	guard, err := spillway.New(spillway.Config{
		Policies: []spillway.Policy{{
			Name: "readers", Key: keyfunc.IP(), Limit: limiter.PerMinute(3),
			Degrade: degrade.Cached(degrade.NewPages(degrade.PagesConfig{Store: store, MaxStale: time.Minute})),
		}},
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{page}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s, as of %s\n", r.PathValue("page"), time.Now().Format(time.TimeOnly))
	})
	return stdhttp.Middleware(guard)(mux), nil
}
