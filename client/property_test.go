package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// order is one request of a course.
type order struct {
	at, deadline, cancel time.Duration // 0: none of the latter two
	host                 int
	method               string
	keyed, body, replay  bool
}

// course is a run of the property.
type course struct {
	config  client.Config
	orders  []order
	latency time.Duration
	answers []int // by arrival; an index into replies
}

// replies are what a partner may say.
var replies = []struct {
	status int
	h      []string
	err    error
}{
	{status: 200},
	{status: 200, h: []string{"Ratelimit", `"p";r=3;t=2`, "Ratelimit-Policy", `"p";q=5;w=2`}},
	{status: 200, h: []string{"Ratelimit", `"p";r=0;t=1`}},
	{status: 200, h: []string{"X-Ratelimit-Remaining", "40", "X-Ratelimit-Limit", "60", "X-Ratelimit-Reset", "30"}},
	{status: 429, h: []string{"Retry-After", "1"}},
	{status: 429},
	{status: 503, h: []string{"Retry-After", "2"}},
	{status: 503},
	{status: 500},
	{status: 404},
	{err: io.EOF},
	{err: syscall.ECONNRESET},
	{err: errors.New("no such scheme")},
}

func drawCourse(rt *rapid.T) course {
	c := course{
		config: client.Config{
			Limit:      limiter.Per(rapid.IntRange(1, 20).Draw(rt, "rate"), time.Duration(rapid.IntRange(1, 3000).Draw(rt, "period"))*ms),
			Headroom:   rapid.SampledFrom([]float64{0, 1, 0.5, 0.33}).Draw(rt, "headroom"),
			InFlight:   rapid.SampledFrom([]int{0, -1, 1, 3}).Draw(rt, "in flight"),
			MaxWaiting: rapid.SampledFrom([]int{0, 1, 5}).Draw(rt, "waiting"),
			MaxWait:    rapid.SampledFrom([]time.Duration{0, 500 * ms, -1}).Draw(rt, "max wait"),
			Replicas:   rapid.IntRange(0, 3).Draw(rt, "replicas"),
			Retry:      client.Retry{Attempts: rapid.IntRange(1, 5).Draw(rt, "attempts"), Ratio: rapid.SampledFrom([]float64{0, -1, 0.5}).Draw(rt, "ratio")},
			Breaker:    client.Breaker{Failures: rapid.SampledFrom([]int{0, -1, 2}).Draw(rt, "failures"), Cooldown: 500 * ms},
		},
		latency: time.Duration(rapid.IntRange(0, 400).Draw(rt, "latency")) * ms,
	}
	if rapid.Bool().Draw(rt, "few destinations") {
		c.config.MaxDestinations = 1
	}
	good := rapid.IntRange(0, 9).Draw(rt, "good of ten")
	c.answers = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) int {
		if rapid.IntRange(0, 9).Draw(rt, "luck") < good {
			return 0
		}
		return rapid.IntRange(0, len(replies)-1).Draw(rt, "reply")
	}), 1, 60).Draw(rt, "answers")
	long := func(rt *rapid.T, name string) time.Duration {
		return time.Duration(rapid.SampledFrom([]int{0, 0, 1, 7, 100, 1000, 5000}).Draw(rt, name)) * ms
	}
	c.orders = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) order {
		return order{
			at: time.Duration(rapid.IntRange(0, 2000).Draw(rt, "at")) * ms, deadline: long(rt, "deadline"), cancel: long(rt, "cancel"),
			host: rapid.IntRange(0, 1).Draw(rt, "host"), method: rapid.SampledFrom([]string{"GET", "POST", "PUT", "PATCH"}).Draw(rt, "method"),
			keyed: rapid.Bool().Draw(rt, "keyed"), body: rapid.Bool().Draw(rt, "body"), replay: rapid.Bool().Draw(rt, "replay"),
		}
	}), 1, 40).Draw(rt, "orders")
	return c
}

// outcome is what a request ended in.
type outcome struct {
	status int
	said   string
	err    error
	closed bool // its body, where it had one
}

// reader is a request's body that tells whether it was closed. It hides what it reads, so no GetBody is made of it.
type reader struct {
	io.Reader
	mu     *sync.Mutex
	closed *bool
}

func (r reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.closed = true
	return nil
}

func (c *course) run(t *testing.T, p *partner) []outcome {
	time.Sleep(17*time.Second + 3*ms)
	config := c.config
	config.Base = p
	tr := newTransport(t, config)
	out := make([]outcome, len(c.orders))
	var wg sync.WaitGroup
	for i, o := range c.orders {
		wg.Go(func() {
			time.Sleep(o.at)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if o.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, o.deadline)
				defer cancel()
			}
			if o.cancel > 0 {
				defer time.AfterFunc(o.cancel, cancel).Stop()
			}
			name := strconv.Itoa(i)
			r, err := http.NewRequestWithContext(ctx, o.method, fmt.Sprintf("https://h%d.example/", o.host), http.NoBody)
			require.NoError(t, err)
			r.Header.Set("X-Name", name)
			if o.keyed {
				r.Header.Set("Idempotency-Key", name)
			}
			var mu sync.Mutex
			closed := !o.body
			if o.body {
				r.Body = reader{strings.NewReader("body of " + name), &mu, &closed}
				if o.replay {
					r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body of " + name)), nil }
				}
			}
			status, said, err := finish(tr.RoundTrip(r))
			mu.Lock()
			out[i] = outcome{status, said, err, closed}
			mu.Unlock()
		})
	}
	wg.Wait()
	require.Zero(t, tr.InFlight(), "places in flight that were not given back")
	require.Zero(t, tr.Waiting(), "somebody is still in a line")
	return out
}

// Whatever arrives, is cancelled, and comes back:
//   - requests of a key leave at least Period/(Rate·Headroom) apart,
//   - none is sent after its deadline,
//   - what is not repeatable is sent once, and a body is never sent cut off or twice from one reader,
//   - the answer handed out is that of the last attempt, and all others are closed,
//   - the request's own body is closed, and every request ends.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCourse(rt)
		var p *partner
		var out []outcome
		synctest.Test(t, func(t *testing.T) {
			p = &partner{latency: c.latency}
			p.answer = func(a arrival) (int, http.Header, error) {
				r := replies[c.answers[(a.seq-1)%len(c.answers)]]
				h := http.Header{}
				for i := 0; i < len(r.h); i += 2 {
					h.Set(r.h[i], r.h[i+1])
				}
				return r.status, h, r.err
			}
			out = c.run(t, p)
		})
		require.NoError(rt, p.broken)
		require.Zero(rt, p.bodies, "bodies left open")
		headroom := c.config.Headroom
		if headroom == 0 {
			headroom = 0.9
		}
		limit := c.config.Limit.(limiter.Limit)
		gap := time.Duration(float64(limit.Period)/headroom) / time.Duration(limit.Rate)
		for host := range 2 {
			all := p.arrivals(fmt.Sprintf("h%d.example", host))
			for i := 1; i < len(all); i++ {
				require.GreaterOrEqual(rt, all[i].at.Sub(all[i-1].at), gap, "%v and %v", all[i-1], all[i])
			}
		}
		sent := make([]int, len(c.orders))
		last := make([]int, len(c.orders))
		for _, a := range p.arrivals("") {
			i, _ := strconv.Atoi(a.name)
			sent[i]++
			last[i] = a.seq
			if c.orders[i].body {
				require.Equal(rt, "body of "+a.name, a.body)
			}
		}
		for i, o := range c.orders {
			require.LessOrEqual(rt, sent[i], c.config.Retry.Attempts)
			if (o.body && !o.replay) || (!o.keyed && (o.method == "POST" || o.method == "PATCH")) {
				require.LessOrEqual(rt, sent[i], 1, "%+v was repeated", o)
			}
			require.True(rt, out[i].closed, "the body of %d was left open", i)
			if out[i].err == nil {
				require.Equal(rt, fmt.Sprintf("%d %d", i, last[i]), out[i].said)
			}
		}
	})
}
