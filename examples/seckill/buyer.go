package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// buyer is one of the crowd.
type buyer struct {
	*tally
	client          *http.Client
	url, name, item string
}

// again is false once the sale is over.
func again(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// person looks at the item, clicks, and does what waiting pages say.
func (b *buyer) person(ctx context.Context) {
	pause := rand.N(time.Second / 2) // not everybody's clock is right
	for again(ctx, pause) {
		status, wait := b.look(ctx)
		if status == http.StatusOK {
			if !again(ctx, rand.N(time.Second/2)) { // until somebody clicks
				return
			}
			status, wait = b.click(ctx)
		}
		if status == http.StatusOK || status == http.StatusConflict {
			return
		}
		if pause = wait; wait == 0 {
			pause = time.Second/2 + rand.N(time.Second) // until somebody tries again
		}
	}
}

// bot looks at no page, clicks 20 times a second, and never has enough.
func (b *buyer) bot(ctx context.Context) {
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for pause := rand.N(time.Second / 2); again(ctx, pause); pause = time.Second / 20 {
		switch status, _ := b.click(ctx); status {
		case http.StatusOK:
			b.bots++
		case http.StatusConflict:
			return
		}
	}
}

var (
	goesOn = regexp.MustCompile(`It goes on in (\d+) s`)
	left   = regexp.MustCompile(`(\d+) left`)
)

// look asks for the page of the item. What is sold out is a conflict here, too.
func (b *buyer) look(ctx context.Context) (status int, wait time.Duration) {
	a := b.ask(ctx, http.MethodGet, "/stock/"+b.item)
	switch n := left.FindStringSubmatch(a.body); {
	case a.status != http.StatusOK:
		return b.sentAway(a)
	case n == nil:
		b.failed++
		return -1, 0
	case n[1] == "0":
		b.soldOut++
		return http.StatusConflict, 0
	}
	b.pages++
	if a.header.Get("X-RateLimit-Degraded") == "cache" {
		b.copies++
	}
	return a.status, 0
}

// click buys.
func (b *buyer) click(ctx context.Context) (status int, wait time.Duration) {
	begin := time.Now()
	a := b.ask(ctx, http.MethodPost, "/buy/"+b.item)
	switch a.status {
	case http.StatusOK:
		b.bought++
		b.took = append(b.took, time.Since(begin))
	case http.StatusConflict:
		b.soldOut++
	default:
		return b.sentAway(a)
	}
	return a.status, 0
}

// sentAway counts what is neither a page nor a purchase.
func (b *buyer) sentAway(a answer) (status int, wait time.Duration) {
	switch a.status {
	case http.StatusSeeOther:
		b.waiting++
		if n := goesOn.FindStringSubmatch(a.body); n != nil {
			seconds, _ := strconv.Atoi(n[1])
			wait = time.Duration(seconds)*time.Second + rand.N(spread) // as the page does
		}
	case 0:
		b.gaveUp++
	default:
		b.failed++
	}
	return a.status, wait
}

// answer is what came back. Status 0: nothing in time; 303: the waiting page, whether it was asked for or not.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask asks once. What has been asked is waited for, also after the sale is over.
func (b *buyer) ask(ctx context.Context, method, path string) answer {
	b.requests++
	failed := answer{status: -1}
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, b.url+path, http.NoBody)
	if err != nil {
		return failed
	}
	req.Header.Set("X-User", b.name)
	req.Header.Set("Accept", "text/html")
	res, err := b.client.Do(req)
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		return answer{}
	}
	if err != nil {
		return failed
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return failed
	}
	if res.Request.URL.Path == "/wait" && res.StatusCode == http.StatusOK {
		res.StatusCode = http.StatusSeeOther
	}
	return answer{res.StatusCode, res.Header, string(body)}
}
