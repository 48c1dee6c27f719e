package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// visitor asks, and looks closely at what comes back.
type visitor struct {
	*tally
	client             *http.Client
	url, address, user string
}

// answer is what came back; status 0: nothing in time.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask asks once. What has been asked is waited for, also after the run is over.
func (v *visitor) ask(ctx context.Context, method, path string) (answer, error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, v.url+path, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-Forwarded-For", v.address)
	if v.user != "" {
		req.AddCookie(&http.Cookie{Name: "session", Value: v.user})
	}
	res, err := v.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body)}, err
}

// get counts what was not answered as it should, and reports whether the rest is for the caller to count.
func (v *visitor) get(ctx context.Context, method, path string, refused *int) (answer, bool) {
	v.asked++
	a, err := v.ask(ctx, method, path)
	var late interface{ Timeout() bool }
	switch {
	case errors.As(err, &late) && late.Timeout():
		v.gaveUp++
	case err == nil && a.status == http.StatusOK:
		return a, true
	case err == nil && (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable):
		*refused++
	default:
		v.failed++
	}
	return a, false
}

var (
	hello = regexp.MustCompile(`Hello, (.*)!`)
	made  = regexp.MustCompile(`data-made="(\d+)"`)
)

// product looks at a page: whose it is, and how old.
func (v *visitor) product(ctx context.Context, id int) {
	begin := time.Now()
	a, ok := v.get(ctx, http.MethodGet, fmt.Sprintf("/products/%d", id), &v.refusedPages)
	if !ok {
		return
	}
	switch status := a.header.Get("Cache-Status"); {
	case status == "":
		v.fresh++
	case strings.Contains(status, "detail=quota-exceeded"):
		v.copies++
	default:
		v.shared++
	}
	v.look(a.body, id, begin)
}

func (v *visitor) look(body string, id int, begin time.Time) {
	name, at := hello.FindStringSubmatch(body), made.FindStringSubmatch(body)
	if name == nil || at == nil || !strings.Contains(body, fmt.Sprintf("Product %d<", id)) {
		v.failed++
		return
	}
	if name[1] != greeted(v.user) {
		v.foreign++
	}
	milli, err := strconv.ParseInt(at[1], 10, 64)
	if err != nil || begin.Sub(time.UnixMilli(milli)) > maxStale+leeway {
		v.old++
	}
}

func (v *visitor) search(ctx context.Context) {
	a, ok := v.get(ctx, http.MethodGet, "/search?q=thing", &v.refusedSearches)
	switch {
	case !ok:
	case a.body == "20 results\n":
		v.whole++
	case a.body == "3 results\n":
		v.lesser++
	default:
		v.failed++
	}
}

func (v *visitor) checkout(ctx context.Context) {
	begin := time.Now()
	v.tried++
	a, ok := v.get(ctx, http.MethodPost, "/checkout", &v.refusedCheckouts)
	switch {
	case !ok:
	case a.body == "thank you, "+v.user+"\n":
		v.done++
		v.took = append(v.took, time.Since(begin))
	default:
		v.foreign++
	}
}
