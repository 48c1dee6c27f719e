package main

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
)

// products are numbered from 0.
const products = 50

// The database has 8 connections, and everything keeps one of them for a while: 400 product pages a second at best.
const (
	connections  = 8
	pageTime     = 20 * time.Millisecond
	wholeTime    = 40 * time.Millisecond // a search
	lesserTime   = 10 * time.Millisecond
	checkoutTime = 20 * time.Millisecond
)

// shop is the application.
type shop struct {
	database chan struct{}

	mu     sync.Mutex
	pages  int           // made
	busy   time.Duration // of all connections
	orders []string      // whose
	inside crowded
	others crowded // inside, and not to check out
}

// crowded is how many are there, and how many were at most.
type crowded struct{ now, most int }

func (c *crowded) add(n int) {
	c.now += n
	c.most = max(c.most, c.now)
}

func newShop() *shop { return &shop{database: make(chan struct{}, connections)} }

// routes are what the guard stands in front of.
func (s *shop) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /products/{id}", s.counted(s.product, true))
	mux.HandleFunc("GET /search", s.counted(s.search, true))
	mux.HandleFunc("POST /checkout", s.counted(s.checkout, false))
	return mux
}

// counted counts who is inside, for the audit.
func (s *shop) counted(next http.HandlerFunc, other bool) http.HandlerFunc {
	count := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inside.add(n)
		if other {
			s.others.add(n)
		}
	}
	return func(w http.ResponseWriter, r *http.Request) {
		count(1)
		defer count(-1)
		next(w, r)
	}
}

// query keeps a connection busy. Who leaves while waiting for one costs nothing; a query that has begun ends.
func (s *shop) query(ctx context.Context, takes time.Duration) error {
	select {
	case s.database <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.database }()
	<-time.After(takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += takes
	return nil
}

// product greets customers by name: a page is for one of them, or for everybody who is not logged in.
func (s *shop) product(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || id < 0 || id >= products {
		http.NotFound(w, r)
		return
	}
	if s.query(r.Context(), pageTime) != nil {
		http.Error(w, "no time", http.StatusServiceUnavailable)
		return
	}
	s.mu.Lock()
	s.pages++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, page, id, html.EscapeString(greeted(userOf(r))), time.Now().UnixMilli())
}

const page = `<!doctype html>
<title>Product %d</title>
<p>Hello, %s!
<p data-made="%d">A fine thing.
`

func greeted(user string) string {
	if user == "" {
		return "stranger"
	}
	return user
}

// search shows less where the guard says that there is no more to be had.
func (s *shop) search(w http.ResponseWriter, r *http.Request) {
	results, takes := 20, wholeTime
	if _, degraded := degrade.FromContext(r.Context()); degraded {
		results, takes = 3, lesserTime
	}
	if s.query(r.Context(), takes) != nil {
		http.Error(w, "no time", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Cache-Control", "no-store") // hardly anybody asks the same
	fmt.Fprintf(w, "%d results\n", results)
}

func (s *shop) checkout(w http.ResponseWriter, r *http.Request) {
	user := userOf(r)
	if user == "" {
		http.Error(w, "please log in", http.StatusUnauthorized)
		return
	}
	if s.query(r.Context(), checkoutTime) != nil {
		http.Error(w, "no time", http.StatusServiceUnavailable)
		return
	}
	s.mu.Lock()
	s.orders = append(s.orders, user)
	s.mu.Unlock()
	fmt.Fprintf(w, "thank you, %s\n", user)
}

type userKey struct{}

// authenticate stands for whatever verifies sessions. Who has none is a stranger, and may look around.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if session, err := r.Cookie("session"); err == nil {
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, session.Value))
		}
		next.ServeHTTP(w, r)
	})
}

func userOf(r *http.Request) string {
	user, _ := r.Context().Value(userKey{}).(string)
	return user
}

// user is registered: who somebody is, only the application knows.
var user = keyfunc.User(func(r *keyfunc.Request) string { return userOf(r.Request) })
