// Command stages limits in two places of the chain: addresses before authentication, so that guessing tokens is limited,
// and tenants by their plan behind it, where the identity is verified.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

type account struct{ tenant, plan string }

type accountKey struct{}

// accounts stands for whatever verifies tokens.
var accounts = map[string]account{
	"gold-token": {"acme", "gold"},
	"free-token": {"hobby", "free"},
}

var plans = map[string]limiter.Limit{
	"gold": limiter.PerMinute(600).WithBurst(100),
	"free": limiter.PerMinute(6).WithBurst(2),
}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := accounts[r.Header.Get("X-Token")]
		if !ok {
			http.Error(w, "unknown token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, a)))
	})
}

func accountOf(r *keyfunc.Request) account {
	a, _ := r.Context().Value(accountKey{}).(account)
	return a
}

func main() {
	guard := spillway.Must(spillway.New(spillway.Config{
		Response: response.Options{Headers: response.Both},
		Policies: []spillway.Policy{
			{
				Name: "address", Key: keyfunc.IP(), Limit: limiter.PerMinute(60).WithBurst(10),
				Headers: response.Off, // nobody learns how fast tokens may be guessed
			},
			{
				Name: "tenant", Stage: middleware.StageIdentity,
				Key:   keyfunc.Tenant(func(r *keyfunc.Request) string { return accountOf(r).tenant }),
				Limit: plans["free"],
				Plan: func(r *keyfunc.Request) (limiter.Limit, bool) {
					l, ok := plans[accountOf(r).plan]
					return l, ok
				},
			},
		},
	}))
	api := http.NewServeMux()
	api.HandleFunc("GET /data", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "data") })

	edge := stdhttp.Middleware(guard)
	identity := stdhttp.Middleware(guard.Stage(middleware.StageIdentity))
	server := &http.Server{
		Addr: "127.0.0.1:8093", Handler: edge(authenticate(identity(api))), ReadHeaderTimeout: 5 * time.Second,
	}
	log.Print("try: curl -i -H 'X-Token: free-token' http://127.0.0.1:8093/data")
	log.Fatal(server.ListenAndServe())
}
