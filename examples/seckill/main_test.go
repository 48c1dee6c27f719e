package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
)

// The sale is short, and its promises are those of a long one.
func TestSale(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	err := run(t.Context(), []string{"-limits", "limits.yaml", "-users", "200", "-for", "1s", "-stock", "20"}, &out, io.Discard)
	require.NoError(t, err, "%s", &out)
	require.Contains(t, out.String(), "| oversold | 0 | 0 |\n")
}

// What a guard does is seen in a guarded sale alone.
func TestGuardedSale(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	defer goleak.VerifyNone(t)
	f, closing, err := follow(t.Context(), "limits.yaml", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer closing()
	r, err := sale(t.Context(), crowd{users: 200, bots: 50, length: time.Second}, 20, f.Guard())
	require.NoError(t, err)
	require.NoError(t, r.audit(true))
	require.Positive(t, r.bought)
	require.Positive(t, r.waiting)
	require.Zero(t, r.oversold())
}

// shopFor is the guarded shop of a bubble.
func shopFor(t *testing.T, stock int) (*shop, http.Handler) {
	t.Helper()
	text, err := os.ReadFile("limits.yaml")
	require.NoError(t, err)
	limiters := stores.New(stores.Config{})
	t.Cleanup(func() { require.NoError(t, limiters.Close()) })
	f, err := config.Open(t.Context(), fixed(text), config.Deps{
		Keys:    map[string]keyfunc.Func{"user": user},
		Degrade: map[string]degrade.Handler{"waiting_page": waitingPage{}},
		Central: limiters.Central, Local: limiters.Local, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	s := newShop(stock)
	return s, front(s, f.Guard())
}

// fixed is a document that does not change.
type fixed string

func (f fixed) Load(context.Context) ([]byte, error)    { return []byte(f), nil }
func (fixed) Watch(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }

func buy(h http.Handler, user, item, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/buy/"+item, http.NoBody)
	r.Header.Set("X-User", user)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWaitingPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := shopFor(t, 100)
		require.Equal(t, 200, buy(h, "ann", "bag", "text/html").Code)
		w := buy(h, "ann", "bag", "text/html,application/xhtml+xml")
		require.Equal(t, 429, w.Code)
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		wait := w.Header().Get("Retry-After")
		require.Regexp(t, `^1[0-2]$`, wait) // 10 s less a transaction, and up to 2 more
		require.Contains(t, w.Body.String(), "next try is in "+wait+" s")
		require.Contains(t, w.Body.String(), wait+"000 + 1000 * Math.random())")

		w = buy(h, "ann", "bag", "application/json")
		require.Equal(t, 429, w.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.NotEmpty(t, w.Header().Get("Retry-After"))

		require.Equal(t, 200, buy(h, "ann", "lamp", "text/html").Code, "another item")
		require.Equal(t, 200, buy(h, "bob", "bag", "text/html").Code, "another person")
		require.Equal(t, 401, buy(h, "", "bag", "text/html").Code)
		require.Equal(t, 404, buy(h, "ann", "yacht", "text/html").Code)
		time.Sleep(personWindow)
		require.Equal(t, 200, buy(h, "ann", "bag", "text/html").Code)
		require.Len(t, s.ledger, 4)
	})
}

// Whom the limit of an item refuses has not spent his own try, and neither has who comes too late for the last one.
func TestTriesAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := shopFor(t, itemBurst+2)
		for k := range itemBurst {
			// Nobody may have waited for a token: the bucket gets one in 20 ms, and so long does a transaction take.
			go buy(h, "user-"+string(rune('a'+k)), "bag", "text/html")
		}
		synctest.Wait()
		require.Equal(t, 429, buy(h, "ann", "bag", "text/html").Code)
		time.Sleep(time.Second / itemRate)
		require.Equal(t, 200, buy(h, "ann", "bag", "text/html").Code, "at once when the item has a place")
		require.Equal(t, 200, buy(h, "bob", "bag", "text/html").Code)
		require.Zero(t, s.left["bag"])
		for range 3 {
			require.Equal(t, 409, buy(h, "eve", "bag", "text/html").Code, "sold out is told as often as asked")
		}
	})
}

// An audit that cannot fail is none.
func TestAudit(t *testing.T) {
	sound := func() *result {
		s := newShop(2)
		s.left["bag"], s.ledger, s.asked["bag"] = 1, []purchase{{"ann", "bag"}}, 1
		return &result{tally: &tally{requests: 2, bought: 1, waiting: 1}, shop: s, stock: 2, took: time.Second}
	}
	require.NoError(t, sound().audit(true))
	for name, spoil := range map[string]func(*result){
		"were not there":       func(r *result) { r.stock = 0 },
		"users have":           func(r *result) { r.bought = 2 },
		"left are not":         func(r *result) { r.shop.left["bag"] = 0 },
		"number of answers":    func(r *result) { r.requests = 3 },
		"failed":               func(r *result) { r.failed = 1 },
		"to the stock service": func(r *result) { r.shop.asked["bag"] = itemBurst + itemRate + 1 },
		"somebody bought":      func(r *result) { r.shop.ledger = append(r.shop.ledger, purchase{"ann", "bag"}) },
	} {
		r := sound()
		spoil(r)
		require.ErrorContains(t, r.audit(true), name)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-nope"}, {"-users", "9"}, {"-users", "5001"}, {"-for", "1ms"}, {"-stock", "0"}, {"-limits", ""}} {
		require.Error(t, run(t.Context(), args, io.Discard, io.Discard), "%v", args)
	}
}
