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
	require.Positive(t, r.copies)
	require.Zero(t, r.oversold())
}

// shopFor is the guarded shop of a bubble.
func shopFor(t *testing.T, stock int) (*shop, http.Handler) {
	t.Helper()
	text, err := os.ReadFile("limits.yaml")
	require.NoError(t, err)
	limiters := stores.New(stores.Config{})
	t.Cleanup(func() { require.NoError(t, limiters.Close()) })
	f, err := config.Open(t.Context(), fixed(text), deps(limiters, slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	s := newShop(stock)
	return s, front(s, f.Guard())
}

// fixed is a document that does not change.
type fixed string

func (f fixed) Load(context.Context) ([]byte, error)    { return []byte(f), nil }
func (fixed) Watch(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }

func ask(h http.Handler, method, path, user, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.Header.Set("X-User", user)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func buy(h http.Handler, user, item, accept string) *httptest.ResponseRecorder {
	return ask(h, http.MethodPost, "/buy/"+item, user, accept)
}

// Whoever is refused is sent to a page that leads back to where the item is, and programs are told in their own way.
func TestRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := shopFor(t, 100)
		require.Equal(t, 200, buy(h, "ann", "bag", "text/html").Code)
		w := buy(h, "ann", "bag", "text/html,application/xhtml+xml")
		require.Equal(t, 303, w.Code, "a GET follows, which buys nothing")
		require.Equal(t, "/wait?seconds=10&back=%2Fbuy%2Fbag", w.Header().Get("Location"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))

		w = ask(h, http.MethodGet, w.Header().Get("Location"), "ann", "text/html")
		require.Equal(t, 200, w.Code)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		require.Contains(t, w.Body.String(), "It goes on in 10 s")
		require.Contains(t, w.Body.String(), `location.replace("/stock/bag"), 10000 + 2000 * Math.random())`)

		w = buy(h, "ann", "bag", "application/json")
		require.Equal(t, 429, w.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Regexp(t, `^1[0-2]$`, w.Header().Get("Retry-After")) // 10 s less a transaction, and up to 2 more

		require.Equal(t, 200, buy(h, "ann", "lamp", "text/html").Code, "another item")
		require.Equal(t, 200, buy(h, "bob", "bag", "text/html").Code, "another person")
		require.Equal(t, 401, buy(h, "", "bag", "text/html").Code)
		require.Equal(t, 404, buy(h, "ann", "yacht", "text/html").Code)
		time.Sleep(personWindow)
		require.Equal(t, 200, buy(h, "ann", "bag", "text/html").Code)
		require.Len(t, s.ledger, 4)
	})
}

// The waiting page leads to items of the shop and nowhere else, and buys nothing.
func TestWait(t *testing.T) {
	s, h := shopFor(t, 1)
	for query, want := range map[string]int{
		"seconds=1&back=/buy/bag": 200, "seconds=60&back=/stock/bag": 200,
		"seconds=0&back=/buy/bag": 404, "seconds=61&back=/buy/bag": 404, "seconds=1e1&back=/buy/bag": 404, "back=/buy/bag": 404,
		"seconds=1": 404, "seconds=1&back=/buy/yacht": 404, "seconds=1&back=https://evil.example/": 404, "seconds=1&back=//evil.example/bag": 404,
		`seconds=1&back=/buy/"><script>`: 404,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/wait", http.NoBody)
		r.URL.RawQuery = query
		r.Header.Set("X-User", "ann")
		h.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, query)
		require.NotContains(t, w.Body.String(), "evil")
		require.NotContains(t, w.Body.String(), "/buy/")
	}
	require.Empty(t, s.ledger)
}

// Many look at what few are asked for.
func TestStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := shopFor(t, 100)
		look := func(user, accept string) *httptest.ResponseRecorder {
			return ask(h, http.MethodGet, "/stock/bag", user, accept)
		}
		asked := make(map[int]int)
		for range 100 {
			asked[look("ann", "text/html").Code]++
		}
		// A look takes 5 ms, in which a tenth of one is given back.
		require.Equal(t, map[int]int{200: 100}, asked)
		require.Equal(t, lookBurst, s.looked["bag"])
		require.Equal(t, 200, buy(h, "bob", "bag", "text/html").Code)
		w := look("eve", "text/html")
		require.Contains(t, w.Body.String(), "100 left", "the copy is for everybody, and older than what bob bought")
		require.Equal(t, "cache", w.Header().Get("X-RateLimit-Degraded"))
		time.Sleep(time.Second / lookRate)
		w = look("eve", "text/html")
		require.Contains(t, w.Body.String(), "99 left")
		require.Empty(t, w.Header().Get("X-RateLimit-Degraded"))

		for k := range lookBurst { // nobody has looked at this one before
			go ask(h, http.MethodGet, "/stock/lamp", "user-"+string(rune('a'+k)), "text/html")
		}
		synctest.Wait()
		w = ask(h, http.MethodGet, "/stock/lamp", "ann", "text/html")
		require.Equal(t, 307, w.Code, "no copy yet")
		require.Equal(t, "/wait?seconds=1&back=%2Fstock%2Flamp", w.Header().Get("Location"))
		require.Equal(t, 429, ask(h, http.MethodGet, "/stock/lamp", "ann", "application/json").Code)
		time.Sleep(lookup)
		synctest.Wait()
		require.Equal(t, 200, ask(h, http.MethodGet, "/stock/lamp", "ann", "text/html").Code)
		require.Equal(t, lookBurst, s.looked["lamp"])
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
		w := buy(h, "ann", "bag", "text/html")
		require.Equal(t, "/wait?seconds=1&back=%2Fbuy%2Fbag", w.Header().Get("Location"))
		time.Sleep(time.Second / itemRate)
		require.Equal(t, 200, buy(h, "ann", "bag", "text/html").Code, "at once when the item has a place")
		require.Equal(t, 200, buy(h, "bob", "bag", "text/html").Code)
		require.Zero(t, s.left["bag"])
		for range 3 {
			require.Equal(t, 409, buy(h, "eve", "bag", "text/html").Code, "sold out is told as often as asked")
		}
	})
}
