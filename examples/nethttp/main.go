// Command nethttp is the smallest guarded net/http server: 20 requests a second per client address, bursts included.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func main() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{
			{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerSecond(20)},
		},
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	server := &http.Server{
		Addr: "127.0.0.1:8090", Handler: stdhttp.Middleware(guard)(mux), ReadHeaderTimeout: 5 * time.Second,
	}
	log.Print("try: curl -i http://127.0.0.1:8090/")
	log.Fatal(server.ListenAndServe())
}
