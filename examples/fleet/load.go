package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// count is what became of requests.
type count struct{ sent, admitted, refused, errors, byShare int }

func (c *count) add(o count) {
	c.sent += o.sent
	c.admitted += o.admitted
	c.refused += o.refused
	c.errors += o.errors
	c.byShare += o.byShare
}

func sum(counts []count) (all count) {
	for _, c := range counts {
		all.add(c)
	}
	return all
}

// load sends requests to all processes for some time. A request that takes long makes fewer, not a burst afterwards.
func (p plan) load(ctx context.Context, client *http.Client, fleet []*process, perSecond int, length time.Duration) []count {
	counts := make([]count, len(fleet))
	over, stop := context.WithTimeout(ctx, length)
	defer stop()
	var wg sync.WaitGroup
	for k, to := range fleet {
		wg.Go(func() {
			tick := time.NewTicker(time.Second * 100 / time.Duration(perSecond*p.servers[k].share))
			defer tick.Stop()
			for {
				select {
				case <-over.Done():
					counts[k].ask(ctx, client, to)
					return
				case <-tick.C:
					counts[k].send(ctx, client, to.url)
				}
			}
		})
	}
	wg.Wait()
	return counts
}

// send sends one request and counts the answer.
func (c *count) send(ctx context.Context, client *http.Client, url string) {
	c.sent++
	switch status, _, err := get(ctx, client, url); {
	case err != nil:
		c.errors++
	case status == http.StatusOK:
		c.admitted++
	case status == http.StatusTooManyRequests:
		c.refused++
	default:
		c.errors++
	}
}

// ask asks a process how many requests it has admitted by its share of the limit since it was asked last.
func (c *count) ask(ctx context.Context, client *http.Client, p *process) {
	_, body, err := get(ctx, client, p.url+"/by-share")
	total, bad := strconv.Atoi(body)
	if err != nil || bad != nil {
		c.errors++
		return
	}
	c.byShare = total - p.byShare
	p.byShare = total
}

func get(ctx context.Context, client *http.Client, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}
