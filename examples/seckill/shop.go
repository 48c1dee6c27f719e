package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
)

// items are on sale. 7 of 10 users want the first.
var items = []string{"phone", "watch", "bag", "lamp"}

// The stock service has 8 connections. A purchase takes one of them for 20 ms: 400 a second at best. To look at the stock
// takes one for 5 ms.
const (
	connections = 8
	transaction = 20 * time.Millisecond
	lookup      = 5 * time.Millisecond
)

// purchase is one entry of the ledger.
type purchase struct{ user, item string }

// shop sells.
type shop struct {
	stockService chan struct{}

	mu     sync.Mutex
	left   map[string]int
	ledger []purchase     // what was sold, told apart from what is left
	asked  map[string]int // purchases that got to the stock service
	looked map[string]int // looks that got there
}

func newShop(stock int) *shop {
	s := &shop{stockService: make(chan struct{}, connections), left: make(map[string]int), asked: make(map[string]int), looked: make(map[string]int)}
	for _, item := range items {
		s.left[item] = stock
	}
	return s
}

// routes are what the guard stands in front of.
func (s *shop) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stock/{item}", s.stock)
	mux.HandleFunc("POST /buy/{item}", s.buy)
	mux.HandleFunc("GET /wait", s.wait)
	return mux
}

// count counts a request for an item in one of the maps, and reports whether there is such an item.
func (s *shop) count(in map[string]int, item string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.left[item]; !known {
		return false
	}
	in[item]++
	return true
}

// stock is the page of an item. It is the same for all, and says so: a session is no reason to keep it from others.
func (s *shop) stock(w http.ResponseWriter, r *http.Request) {
	item := r.PathValue("item")
	if !s.count(s.looked, item) {
		http.NotFound(w, r)
		return
	}
	leave, err := s.connect(r.Context())
	if err != nil {
		http.Error(w, "the stock service has no time", http.StatusServiceUnavailable)
		return
	}
	<-time.After(lookup)
	s.mu.Lock()
	left := s.left[item]
	s.mu.Unlock()
	leave()
	w.Header().Set("Cache-Control", "public")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, stockPage, item, left, item)
}

const stockPage = `<!doctype html>
<title>%s</title>
<p>%d left
<form method="post" action="/buy/%s"><button>Buy</button></form>
`

func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	item := r.PathValue("item")
	if !s.count(s.asked, item) {
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

// connect waits for a connection to the stock service. Who leaves while waiting costs nothing.
func (s *shop) connect(ctx context.Context) (leave func(), err error) {
	select {
	case s.stockService <- struct{}{}:
		return func() { <-s.stockService }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// take is a transaction. One that has begun ends.
func (s *shop) take(ctx context.Context, user, item string) (sold bool, err error) {
	leave, err := s.connect(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
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
