package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	buyers   = 8  // at a time, one customer after the other
	scrapers = 20 // connections of the one scraper, from one address
	patience = 2 * time.Second
)

// load is who comes, and for how long.
type load struct {
	browsers int // one in four is a customer, and logged in
	length   time.Duration
}

// tally is what somebody saw.
type tally struct {
	asked, gaveUp, failed int
	fresh, copies, shared int // product pages: made, copies for the quota's sake, copies for the service's
	refusedPages          int
	whole, lesser         int // searches
	refusedSearches       int
	tried, done           int // checkouts
	refusedCheckouts      int
	foreign, old          int // pages made for somebody else, copies that are too old

	took []time.Duration // of each checkout that was done
}

func (t *tally) add(o *tally) {
	for _, x := range []struct{ to, of *int }{
		{&t.asked, &o.asked},
		{&t.gaveUp, &o.gaveUp},
		{&t.failed, &o.failed},
		{&t.fresh, &o.fresh},
		{&t.copies, &o.copies},
		{&t.shared, &o.shared},
		{&t.refusedPages, &o.refusedPages},
		{&t.whole, &o.whole},
		{&t.lesser, &o.lesser},
		{&t.refusedSearches, &o.refusedSearches},
		{&t.tried, &o.tried},
		{&t.done, &o.done},
		{&t.refusedCheckouts, &o.refusedCheckouts},
		{&t.foreign, &o.foreign},
		{&t.old, &o.old},
	} {
		*x.to += *x.of
	}
	t.took = append(t.took, o.took...)
}

// quantile returns how long all but a share of the checkouts took, 0 if there was none.
func (t *tally) quantile(q float64) time.Duration {
	if len(t.took) == 0 {
		return 0
	}
	slices.Sort(t.took)
	return t.took[int(q*float64(len(t.took)-1))]
}

// seen is what everybody saw: all together, by address with the scraper first, those who browse, and the customers of them.
type seen struct {
	tally
	visitors            []tally
	browsing, customers tally
}

// isCustomer says who of those who browse is logged in.
func isCustomer(k int) bool { return k%4 == 0 }

// run sends the load to a shop, and returns once the last request is answered.
func (l load) run(ctx context.Context, transport http.RoundTripper, url string) *seen {
	ctx, stop := context.WithTimeout(ctx, l.length)
	defer stop()
	tallies := make([]tally, scrapers+l.browsers+buyers)
	var wg sync.WaitGroup
	for k := range tallies {
		v := &visitor{client: &http.Client{Transport: transport, Timeout: patience}, url: url, tally: &tallies[k]}
		wg.Go(func() {
			switch {
			case k < scrapers:
				v.address = addressOf(0)
				v.scrape(ctx)
			case k < scrapers+l.browsers:
				v.address = addressOf(k)
				v.browse(ctx, k)
			default:
				v.address = addressOf(k)
				v.buy(ctx, k)
			}
		})
	}
	wg.Wait()
	s := &seen{visitors: make([]tally, 1, 1+l.browsers+buyers)}
	for k := range tallies {
		s.add(&tallies[k])
		if k < scrapers {
			s.visitors[0].add(&tallies[k])
		} else {
			s.visitors = append(s.visitors, tallies[k])
		}
		if k >= scrapers && k < scrapers+l.browsers {
			s.browsing.add(&tallies[k])
			if isCustomer(k) {
				s.customers.add(&tallies[k])
			}
		}
	}
	return s
}

// addressOf is one address for each visitor.
func addressOf(k int) string {
	return netip.AddrFrom4([4]byte{198, 18, byte(k >> 8), byte(k)}).String()
}

// wait is false once it is over.
func wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// browse looks at a page a second: at any of the products, or at three favourites where somebody is logged in. One page in
// five is a search.
func (v *visitor) browse(ctx context.Context, k int) {
	customer := isCustomer(k)
	if customer {
		v.user = fmt.Sprintf("customer-%d", k)
	}
	pause := rand.N(time.Second)
	for wait(ctx, pause) {
		id := rand.N(products)
		if customer {
			id = (k + rand.N(3)) % products
		}
		if rand.N(5) == 0 {
			v.search(ctx)
		} else {
			v.product(ctx, id)
		}
		pause = time.Second/2 + rand.N(time.Second)
	}
}

// scrape takes what it can get, page after page.
func (v *visitor) scrape(ctx context.Context) {
	for k := rand.N(products); wait(ctx, 20*time.Millisecond); k++ {
		if k%5 == 0 {
			v.search(ctx)
		} else {
			v.product(ctx, k%products)
		}
	}
}

// buy checks out, for one customer after the other.
func (v *visitor) buy(ctx context.Context, k int) {
	for n := 0; wait(ctx, time.Second/10+rand.N(time.Second/5)); n++ {
		v.user = fmt.Sprintf("buyer-%d-%d", k, n)
		v.checkout(ctx)
	}
}
