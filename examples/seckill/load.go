package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// patience is how long somebody looks at an empty page.
const patience = 2 * time.Second

// crowd is who comes to a sale.
type crowd struct {
	users, bots int // bots are some of the users: they ignore waiting pages, click 20 times a second, and never have enough
	length      time.Duration
}

// tally is what users saw.
type tally struct {
	requests, bought, waiting, soldOut, gaveUp, failed int

	bots int             // of bought
	took []time.Duration // of each purchase
}

func (t *tally) add(o *tally) {
	t.requests += o.requests
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
	client := &http.Client{Transport: transport, Timeout: patience}
	ctx, stop := context.WithTimeout(ctx, c.length)
	defer stop()
	tallies := make([]tally, c.users)
	var wg sync.WaitGroup
	for k := range tallies {
		wg.Go(func() { c.shopping(ctx, client, url, k, &tallies[k]) })
	}
	wg.Wait()
	var all tally
	for k := range tallies {
		all.add(&tallies[k])
	}
	return &all
}

// shopping is one user's sale.
func (c crowd) shopping(ctx context.Context, client *http.Client, url string, k int, t *tally) {
	item, bot := items[0], k < c.bots
	if k%10 >= 7 {
		item = items[k%10-6]
	}
	pause := rand.N(time.Second / 2) // not everybody's clock is right
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		begin := time.Now()
		// A click that has been made is answered, also after the sale is over.
		status, wait := click(context.WithoutCancel(ctx), client, url+"/buy/"+item, fmt.Sprintf("user-%d", k))
		t.requests++
		pause = time.Second/2 + rand.N(time.Second) // until somebody clicks again
		switch status {
		case http.StatusOK:
			t.bought++
			t.took = append(t.took, time.Since(begin))
			if !bot {
				return
			}
			t.bots++
		case http.StatusConflict:
			t.soldOut++
			return
		case http.StatusTooManyRequests:
			t.waiting++
			pause = wait + rand.N(time.Second) // as the waiting page does
		case 0:
			t.gaveUp++
		default:
			t.failed++
		}
		if bot {
			pause = time.Second / 20
		}
	}
}

// click returns the status of a purchase, 0 for none in time, and how long the answer says to wait.
func click(ctx context.Context, client *http.Client, url, user string) (status int, wait time.Duration) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return -1, 0
	}
	req.Header.Set("X-User", user)
	req.Header.Set("Accept", "text/html")
	res, err := client.Do(req)
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		return 0, 0
	}
	if err != nil {
		return -1, 0
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return res.StatusCode, time.Duration(seconds) * time.Second
}
