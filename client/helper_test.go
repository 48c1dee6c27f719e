package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

const ms = time.Millisecond

// arrival is one request that a partner has seen.
type arrival struct {
	at   time.Time
	host string
	name string // X-Name
	body string
	seq  int // of all, from 1
}

// partner is somebody else's service, in memory.
type partner struct {
	latency time.Duration
	answer  func(a arrival) (status int, h http.Header, err error) // nil: 200

	mu     sync.Mutex
	seen   []arrival
	active int
	most   int
	bodies int // handed out and not closed
	broken error
}

// text is a response's body. Who closes a body twice, or reads on, is found out.
type text struct {
	io.Reader
	p      *partner
	closed bool
}

func (b *text) Close() error {
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.p.bodies--
	}
	return nil
}

func (p *partner) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	a := arrival{at: time.Now(), host: r.URL.Host, name: r.Header.Get("X-Name")}
	if r.Body != nil {
		sent, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		a.body = string(sent)
	}
	p.mu.Lock()
	if deadline, ok := ctx.Deadline(); ok && !a.at.Before(deadline) {
		p.broken = errors.Join(p.broken, fmt.Errorf("%s was sent after its deadline", a.name))
	}
	p.active++
	p.most = max(p.most, p.active)
	a.seq = len(p.seen) + 1
	p.seen = append(p.seen, a)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.active--
		p.mu.Unlock()
	}()
	status, h, err := http.StatusOK, http.Header(nil), error(nil)
	if p.answer != nil {
		status, h, err = p.answer(a)
	}
	timer := time.NewTimer(p.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if h == nil {
		h = http.Header{}
	}
	said := fmt.Sprintf("%s %d", a.name, a.seq)
	b := &text{Reader: strings.NewReader(said), p: p}
	p.mu.Lock()
	p.bodies++
	p.mu.Unlock()
	return &http.Response{StatusCode: status, Header: h, Body: b, ContentLength: int64(len(said)), Request: r}, nil
}

// arrivals returns what was seen, for one host or, "", all.
func (p *partner) arrivals(host string) (out []arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.seen {
		if host == "" || a.host == host {
			out = append(out, a)
		}
	}
	return out
}

func (p *partner) names(host string) (out []string) {
	for _, a := range p.arrivals(host) {
		out = append(out, a.name)
	}
	return out
}

func newMemory(t testing.TB) *memory.Limiter {
	t.Helper()
	m, err := memory.New(memory.Config{})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func newTransport(t testing.TB, c client.Config) *client.Transport {
	t.Helper()
	if c.Limiter == nil && (c.Limit != nil || c.Plan != nil) {
		c.Limiter = newMemory(t)
	}
	tr, err := client.New(c)
	require.NoError(t, err)
	return tr
}

// call sends a request and reads its answer to the end.
func call(ctx context.Context, rt http.RoundTripper, method, url, name string, body io.Reader) (status int, said string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("X-Name", name)
	return finish(rt.RoundTrip(r))
}

func finish(res *http.Response, err error) (int, string, error) {
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	return res.StatusCode, string(text), err
}

func get(rt http.RoundTripper, name string) (int, error) {
	status, _, err := call(context.Background(), rt, http.MethodGet, "https://a.example/", name, nil)
	return status, err
}

func limited(t testing.TB, err error) *client.LimitedError {
	t.Helper()
	var e *client.LimitedError
	require.ErrorAs(t, err, &e)
	return e
}

// faulty is a limiter whose next answers are errors.
type faulty struct {
	*memory.Limiter
	mu  sync.Mutex
	err error
	via limiter.Via
}

func (f *faulty) set(err error) {
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
}

func (f *faulty) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	f.mu.Lock()
	err, via := f.err, f.via
	f.mu.Unlock()
	if err != nil {
		return false, err
	}
	ok, err := f.Limiter.AllowAll(ctx, at, takes)
	for i := range takes {
		takes[i].Decision.Via = via
	}
	return ok, err
}
