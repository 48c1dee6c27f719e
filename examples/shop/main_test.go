package main

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The whole load in the time of a bubble.
func TestLoad(t *testing.T) {
	l := load{browsers: 500, length: 7 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		s, shop := shopFor(t)
		begin := time.Now()
		r := &result{seen: l.run(t.Context(), shop, "http://shop.example"), shop: s}
		r.took = time.Since(begin)
		require.NoError(t, r.audit(true))
		for what, n := range map[string]int{
			"fresh": r.fresh, "copies": r.copies, "shared": r.shared, "whole": r.whole, "lesser": r.lesser, "refused pages": r.refusedPages,
			"refused searches of the scraper": r.visitors[0].refusedSearches, "done": r.done,
		} {
			require.Positive(t, n, what)
		}
		require.Equal(t, r.tried, r.done)
		require.Len(t, s.orders, r.done)
		require.Zero(t, r.gaveUp)
		require.Positive(t, r.customers.shared, "copies of their own")
		require.Less(t, r.customers.asked, r.asked/3)
	})
}

// A document that promises less breaks what the audit asks for.
func TestBrokenPromises(t *testing.T) {
	for complaint, c := range map[string]struct {
		was, is  string
		browsers int
		length   time.Duration
	}{
		"that were no checkouts":      {`["POST /checkout"], sheddable_plus: ["GET`, `["POST /checkout", "GET`, 600, 2 * time.Second},
		"checkouts were refused":      {`6/m burst 3`, `deny_all`, 10, time.Second},
		"were made for somebody else": {`partition: user`, `partition: global`, 600, 2 * time.Second},
		"copies were too old":         {`max_stale: 5s`, `max_stale: 1m`, 10, 10 * time.Second},
		"198.18.0.0 had":              {`5/s burst 10`, `50/s burst 100`, 10, 2 * time.Second},
		"searches were whole":         {`limit: 20/s`, `limit: 200/s`, 300, 2 * time.Second},
	} {
		t.Run(complaint, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, shop := shopFor(t, c.was, c.is)
				l := load{browsers: c.browsers, length: c.length}
				r := &result{seen: l.run(t.Context(), shop, "http://shop.example"), shop: s, took: l.length}
				require.ErrorContains(t, r.audit(true), complaint)
			})
		})
	}
}

// Without a guard the shop still says nothing untrue.
func TestUnguardedLoad(t *testing.T) {
	l := load{browsers: 300, length: 3 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		s := newShop()
		r := &result{seen: l.run(t.Context(), direct{front(s, nil)}, "http://shop.example"), shop: s, took: l.length}
		require.NoError(t, r.audit(false))
		require.Zero(t, r.copies+r.shared+r.lesser+r.refusedPages+r.refusedSearches)
		require.Positive(t, r.fresh)
	})
}

// At the bound of the service everybody gets his own copy or none, and checks out.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := shopFor(t)
		for _, user := range []string{"", "ann"} {
			require.Equal(t, 200, shop.ask("GET", "/products/7", "198.18.0.1", user).Code)
		}
		time.Sleep(2 * time.Second)
		for range connections { // the database hangs
			s.database <- struct{}{}
		}
		var wg sync.WaitGroup
		for k := range places {
			wg.Go(func() { shop.ask("GET", "/products/1", addressOf(10+k), "") })
		}
		synctest.Wait()
		require.LessOrEqual(t, s.inside.now, places*6/10, "pages leave four of ten places to what matters more")
		require.GreaterOrEqual(t, s.inside.now, places*4/10)
		for range places {
			wg.Go(func() { shop.ask("GET", "/search", "198.18.0.2", "") })
		}

		for _, who := range []struct{ user, hello string }{{"", "Hello, stranger!"}, {"ann", "Hello, ann!"}} {
			// From an address that has not been limited yet.
			w := shop.ask("GET", "/products/7", "198.18.0.3", who.user)
			require.Equal(t, 200, w.Code, who.user)
			require.Contains(t, w.Body.String(), who.hello)
			require.Equal(t, "2", w.Header().Get("Age"))
			require.Equal(t, "cache", w.Header().Get("X-RateLimit-Degraded"))
			require.Contains(t, w.Header().Get("Cache-Status"), "detail=temporary-reduced-capacity")
		}
		require.Equal(t, 503, shop.ask("GET", "/products/7", "198.18.0.3", "bob").Code, "bob has not been here")
		require.Equal(t, 503, shop.ask("GET", "/products/8", "198.18.0.3", "ann").Code, "nor has ann been there")

		done := make(chan int, 1)
		wg.Go(func() { done <- shop.ask("POST", "/checkout", "198.18.0.3", "eve").Code })
		synctest.Wait()
		require.Empty(t, done, "it is inside, and waits for the database")
		time.Sleep(maxStale - 2*time.Second)
		require.Equal(t, 200, shop.ask("GET", "/products/7", "198.18.0.3", "ann").Code)
		time.Sleep(time.Second)
		require.Equal(t, 503, shop.ask("GET", "/products/7", "198.18.0.3", "ann").Code, "the copy is too old")
		for range connections {
			<-s.database
		}
		wg.Wait()
		require.Equal(t, 200, <-done)
		require.Equal(t, 200, shop.ask("GET", "/products/7", "198.18.0.3", "ann").Code, "over")
	})
}

// Who looks at too many pages gets copies, and not too many of them either.
func TestScraper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := shopFor(t)
		codes := make(map[int]int)
		for range pageBurst + copyRate + 10 {
			codes[shop.ask("GET", "/products/7", "198.18.0.1", "").Code]++
		}
		// Each page has taken 20 ms, in which a fifth of a second one is given back.
		require.Equal(t, pageBurst+1, s.pages)
		require.Equal(t, map[int]int{200: pageBurst + 1 + copyRate, 429: 9}, codes)
		require.Equal(t, 429, shop.ask("GET", "/products/8", "198.18.0.1", "").Code, "no copy")
		require.Equal(t, 200, shop.ask("GET", "/products/8", "198.18.0.2", "").Code, "somebody else")
	})
}

func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, shop := shopFor(t)
		bodies := make(chan string, wholeRate+2)
		for k := range cap(bodies) {
			go func() { bodies <- shop.ask("GET", "/search?q=x", addressOf(k), "").Body.String() }()
		}
		got := make(map[string]int)
		for range cap(bodies) {
			got[<-bodies]++
		}
		require.Equal(t, map[string]int{"20 results\n": wholeRate, "3 results\n": 2}, got)
	})
}

// Nothing but his own haste keeps a customer from checking out.
func TestCheckout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := shopFor(t)
		require.Equal(t, 403, shop.ask("POST", "/checkout", "198.18.0.1", "").Code, "nobody to count by")
		for range 3 {
			require.Equal(t, 200, shop.ask("POST", "/checkout", "198.18.0.1", "ann").Code)
		}
		require.Equal(t, 429, shop.ask("POST", "/checkout", "198.18.0.1", "ann").Code)
		require.Equal(t, 200, shop.ask("POST", "/checkout", "198.18.0.1", "bob").Code)
		require.Equal(t, []string{"ann", "ann", "ann", "bob"}, s.orders)
	})
}

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-limits", "shop.yaml", "-browsers", "50", "-for", "1s"}, &out, io.Discard), "%s", &out)
	require.Contains(t, out.String(), "| checkouts, tried |")
}
