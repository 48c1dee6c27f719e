package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
)

// items are on sale. 7 of 10 users want the first.
var items = []string{"phone", "watch", "bag", "lamp"}

// The stock service has 8 connections, and a purchase takes one of them for 20 ms: 400 a second at best.
const (
	connections = 8
	transaction = 20 * time.Millisecond
)

// purchase is one entry of the ledger.
type purchase struct{ user, item string }

// shop sells.
type shop struct {
	stockService chan struct{}

	mu     sync.Mutex
	left   map[string]int
	ledger []purchase     // what was sold, told apart from what is left
	asked  map[string]int // requests that got to the stock service
}

func newShop(stock int) *shop {
	s := &shop{stockService: make(chan struct{}, connections), left: make(map[string]int), asked: make(map[string]int)}
	for _, item := range items {
		s.left[item] = stock
	}
	return s
}

// routes are what the guard stands in front of.
func (s *shop) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /buy/{item}", s.buy)
	return mux
}

func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	item := r.PathValue("item")
	s.mu.Lock()
	_, known := s.left[item]
	if known {
		s.asked[item]++
	}
	s.mu.Unlock()
	if !known {
		http.NotFound(w, r)
		return
	}
	sold, err := s.take(r.Context(), userOf(r), item)
	switch {
	case err != nil:
		http.Error(w, "the stock service has no time", http.StatusServiceUnavailable)
	case !sold:
		http.Error(w, "sold out", http.StatusConflict)
	default:
		fmt.Fprintln(w, "it is yours")
	}
}

// take is the stock service. Who leaves while waiting for a connection costs nothing; a transaction that has begun ends.
func (s *shop) take(ctx context.Context, user, item string) (sold bool, err error) {
	select {
	case s.stockService <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-s.stockService }()
	<-time.After(transaction)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[item] == 0 {
		return false, nil
	}
	s.left[item]--
	s.ledger = append(s.ledger, purchase{user, item})
	return true, nil
}

type userKey struct{}

// authenticate stands for whatever verifies sessions.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("X-User")
		if user == "" {
			http.Error(w, "please log in", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

func userOf(r *http.Request) string {
	user, _ := r.Context().Value(userKey{}).(string)
	return user
}

// user is registered: who somebody is, only the application knows.
var user = keyfunc.User(func(r *keyfunc.Request) string { return userOf(r.Request) })

// waitingPage is registered: what browsers get instead of a refusal. Others get the plain refusal.
type waitingPage struct{}

// Mode is what metrics call it.
func (waitingPage) Mode() string { return "static" }

// Degrade writes a page that clicks again when it is time. The status stays that of the refusal, so that no cache and no
// client takes the page for a purchase, and Retry-After with it, from which the page has its time: jitter is in it already.
// But it has whole seconds: all who came in the first half of a second would come back in the first half of another, and
// what the second half has to give would be given to nobody. So the page adds a part of a second, as the users of load.go do.
func (waitingPage) Degrade(w http.ResponseWriter, r *http.Request, d *degrade.Denial) degrade.Outcome {
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return degrade.Skip
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(d.Status)
	fmt.Fprintf(w, page, seconds, seconds*1000)
	return degrade.Done
}

const page = `<!doctype html>
<title>One moment, please</title>
<p>Many want this at once. Your next try is in %d s.
<form method="post"><button>Try again</button></form>
<script>setTimeout(() => document.forms[0].submit(), %d + 1000 * Math.random())</script>
`
