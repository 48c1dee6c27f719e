package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// patience is how long somebody looks at an empty page.
const patience = 2 * time.Second

// crowd is who comes to a sale.
type crowd struct {
	users, bots int // bots are some of the users: they look at no page, click 20 times a second, and never have enough
	length      time.Duration
}

// tally is what users saw.
type tally struct {
	requests, pages, bought, waiting, soldOut, gaveUp, failed int

	copies int             // of pages, which are those of items
	bots   int             // of bought
	took   []time.Duration // of each purchase
}

func (t *tally) add(o *tally) {
	t.requests += o.requests
	t.pages += o.pages
	t.copies += o.copies
	t.bought += o.bought
	t.waiting += o.waiting
	t.soldOut += o.soldOut
	t.gaveUp += o.gaveUp
	t.failed += o.failed
	t.bots += o.bots
	t.took = append(t.took, o.took...)
}

// quantile returns how long all but a share of the purchases took, 0 if there was none.
func (t *tally) quantile(q float64) time.Duration {
	if len(t.took) == 0 {
		return 0
	}
	slices.Sort(t.took)
	return t.took[int(q*float64(len(t.took)-1))]
}

// rush sends a crowd to a shop, and returns once the last request is answered.
func (c crowd) rush(ctx context.Context, url string) *tally {
	transport := &http.Transport{MaxIdleConnsPerHost: c.users}
	defer transport.CloseIdleConnections()
	ctx, stop := context.WithTimeout(ctx, c.length)
	defer stop()
	tallies := make([]tally, c.users)
	var wg sync.WaitGroup
	for k := range tallies {
		b := &buyer{
			tally: &tallies[k], url: url, name: fmt.Sprintf("user-%d", k), item: items[0],
			client: &http.Client{Transport: transport, Timeout: patience},
		}
		if k%10 >= 7 {
			b.item = items[k%10-6]
		}
		if k < c.bots {
			wg.Go(func() { b.bot(ctx) })
		} else {
			wg.Go(func() { b.person(ctx) })
		}
	}
	wg.Wait()
	var all tally
	for k := range tallies {
		all.add(&tallies[k])
	}
	return &all
}
