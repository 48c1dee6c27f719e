package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// What a stage's traits pass over changes nothing: a guard that finds everything out policy by policy writes the same bytes,
// shows its observer the same events and asks the callbacks as often, whatever the policies and the requests.
func TestTraitsChangeNothing(t *testing.T) {
	var seen struct{ short, passed, refused, failed, degraded int }
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { // without the Deadline, which a bubble does not tell
			cfg := drawConfig(rt)
			quick, long := newTwin(t, cfg), newTwin(t, cfg)
			if middleware.TakeTraits(long.guard) {
				seen.short++
			}
			for range rapid.IntRange(1, 12).Draw(rt, "requests") {
				time.Sleep(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 400, 1000, 61_000}).Draw(rt, "pause")) * time.Millisecond)
				quick.fails = rapid.IntRange(0, 5).Draw(rt, "store") == 0
				long.fails = quick.fails
				r := drawRequest(rt)
				want, got := long.serve(r), quick.serve(r)
				require.Equal(rt, want, got)
				switch {
				case want.code == 200:
					seen.passed++
				case want.code == 429:
					seen.refused++
				case want.code == 503:
					seen.failed++
				default:
					seen.degraded++
				}
			}
		})
	})
	t.Logf("%+v", seen)
	require.NotZero(t, seen.short, "no stage was of the short way")
	require.NotZero(t, seen.passed)
	require.NotZero(t, seen.refused)
	require.NotZero(t, seen.failed)
}

// twin is one of two guards of the same settings, with a store and an observer of its own.
type twin struct {
	guard *middleware.Guard
	seen  recorder
	calls []string // of callbacks
	fails bool     // the store is away
}

// seenOf is what a request comes to.
type seenOf struct {
	code      int
	header    http.Header
	body      string
	served    int
	undecided []string
	info      degrade.Info // that it proceeds degraded
	events    []limiter.Event
	calls     []string
}

func (x *twin) serve(r *http.Request) seenOf {
	w := httptest.NewRecorder()
	if r.Header.Get("Before") != "" {
		w.Header().Set("X-Ratelimit-Remaining", "2")
		w.Header().Set("Vary", "Origin")
	}
	out := seenOf{}
	x.guard.Serve(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out.served++
		out.info, _ = degrade.FromContext(r.Context())
		out.undecided = middleware.Undecided(r.Context())
		w.WriteHeader(http.StatusOK)
	}))
	out.code, out.header, out.body = w.Code, w.Header(), w.Body.String()
	for _, e := range x.seen.events {
		e.Context = nil
		if e.Err != nil {
			e.Err = errors.New(e.Err.Error())
		}
		out.events = append(out.events, e)
	}
	out.calls, x.calls, x.seen.events = x.calls, nil, nil
	return out
}

// note says that a callback was called.
func (x *twin) note(format string, args ...any) {
	x.calls = append(x.calls, fmt.Sprintf(format, args...))
}

// AllowAll and Allow are those of the store until it is away.
type failing struct {
	*memory.Limiter
	of *twin
}

func (f failing) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if f.of.note("takes %d", len(takes)); f.of.fails && len(takes) > 0 {
		return false, limiter.ErrUnavailable
	}
	return f.Limiter.AllowAll(ctx, at, takes)
}

// moving is a limit of which nobody knows that it stays.
type moving struct{ limit limiter.Limit }

func (m moving) Current() limiter.Limit { return m.limit }

// drawn is a config as a function of who uses it.
type drawn func(x *twin) config

func newTwin(t *testing.T, cfg drawn) *twin {
	x := new(twin)
	x.guard = newGuard(t, cfg(x))
	return x
}

// rare is true in one of n cases.
func rare(rt *rapid.T, n int, label string) bool { return rapid.IntRange(1, n).Draw(rt, label) == n }

// drawConfig draws settings of which about half are of the plain kind.
func drawConfig(rt *rapid.T) drawn {
	odd := 6 // how rare features are
	if rapid.Bool().Draw(rt, "plain") {
		odd = 1000
	}
	own, watched := rare(rt, odd, "failing"), rapid.Bool().Draw(rt, "observed")
	headers := rapid.SampledFrom([]response.Set{{}, {}, response.Off, response.Both}).Draw(rt, "headers")
	exempt := rare(rt, odd, "exempt")
	var policies []func(x *twin) policy
	for k := range rapid.IntRange(1, 3).Draw(rt, "policies") {
		policies = append(policies, drawPolicy(rt, k, odd))
	}
	return func(x *twin) config {
		store, err := memory.New(memory.Config{})
		if err != nil {
			panic(err)
		}
		cfg := config{Limiter: store, Response: response.Options{Headers: headers}}
		if own {
			cfg.Limiter = failing{store, x}
		}
		if watched {
			cfg.Observer = &x.seen
		}
		if exempt {
			cfg.Exempt = match{Methods: []string{"POST"}}
		}
		for _, p := range policies {
			cfg.Policies = append(cfg.Policies, p(x))
		}
		return cfg
	}
}

func drawPolicy(rt *rapid.T, k, odd int) func(x *twin) policy {
	quota := rapid.IntRange(1, 4).Draw(rt, "quota")
	limit := limiter.Limit{Rate: quota, Period: time.Minute}
	if limit.Algorithm = rapid.SampledFrom([]limiter.Algorithm{
		limiter.TokenBucket, limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.SlidingLog, limiter.TokenBucket,
	}).Draw(rt, "algorithm"); limit.Algorithm == limiter.TokenBucket {
		limit.Burst = quota
	}
	if k == 0 && rare(rt, odd, "special limit") { // two queues would not do
		limit = rapid.SampledFrom([]limiter.Limit{
			limiter.Unlimited, limiter.DenyAll, limiter.PerMinute(quota).With(limiter.LeakyBucket), limiter.PerSecond(limiter.MaxRate),
		}).Draw(rt, "special")
	}
	p := policy{Name: "p" + string(rune('0'+k))}
	if limit.Algorithm == limiter.LeakyBucket {
		p.MaxDelay = -1
	}
	key := rapid.SampledFrom([]string{"ip", "ip", "header", "first"}).Draw(rt, "key")
	p.OnNoKey = rapid.SampledFrom([]middleware.NoKey{middleware.DenyRequest, middleware.SkipPolicy}).Draw(rt, "no key")
	p.OnStoreError = rapid.SampledFrom([]middleware.OnError{middleware.FailOpen, middleware.FailClosed}).Draw(rt, "store error")
	p.Shadow = rare(rt, odd, "shadow")
	if rare(rt, odd, "off") {
		p.Headers = response.Off
	}
	if rare(rt, odd, "in flight") {
		p.InFlight = rapid.IntRange(1, 2).Draw(rt, "bound")
	}
	if rare(rt, odd, "match") {
		p.Match = match{Routes: []string{"/search"}}
	}
	if rare(rt, odd, "exempt policy") {
		p.Exempt = match{Methods: []string{"HEAD"}}
	}
	proceeds := rapid.Bool().Draw(rt, "proceeds")
	refund, cost, source, serves := rare(rt, odd, "refund"), rare(rt, odd, "cost"), rare(rt, odd, "source"), rare(rt, odd, "degrade")
	partition, messages := rare(rt, odd, "partition"), rare(rt, odd, "messages")
	return func(x *twin) policy {
		p := p
		ip := keyfunc.IP()
		switch key {
		case "ip":
			p.Key = ip
		case "header":
			p.Key = keyfunc.Header("X-Key")
		case "first":
			p.Key = keyfunc.First(keyfunc.Header("X-Key"), ip)
		}
		of := p.Key
		p.Key = func(r *keyfunc.Request) (keyfunc.Key, error) {
			x.note("key %s", p.Name)
			if r.Request != nil && r.Header.Get("Panic") == p.Name {
				panic("key")
			}
			return of(r)
		}
		p.Limit = limit
		if source {
			p.Limit = moving{limit}
		}
		if refund {
			p.Refund = func(status int) bool { return status == http.StatusOK }
		}
		if cost {
			p.Cost = func(*keyfunc.Request) int { return 2 }
		}
		if partition {
			p.Partition = func(keyfunc.Key) []byte { return []byte{1, 2} }
		}
		if messages {
			p.Messages = map[string]string{"": "Later."}
		}
		if serves && !p.Shadow {
			p.Degrade = degrade.Func(func(w http.ResponseWriter, _ *http.Request, _ *degrade.Denial) degrade.Outcome {
				if proceeds {
					return degrade.Proceed
				}
				w.WriteHeader(http.StatusTeapot)
				return degrade.Done
			})
		}
		return p
	}
}

func drawRequest(rt *rapid.T) *http.Request {
	r := request(rapid.SampledFrom([]string{"GET", "GET", "HEAD", "POST", "OPTIONS"}).Draw(rt, "method"),
		rapid.SampledFrom([]string{"/", "/search"}).Draw(rt, "path"))
	r.RemoteAddr = rapid.SampledFrom([]string{"192.0.2.7:1", "192.0.2.7:2", "[2001:db8::1]:1", "192.0.2.8:1", "@"}).Draw(rt, "client")
	for _, field := range []struct {
		name   string
		values []string
	}{
		{"X-Key", []string{"", "a", "b"}},
		{"Panic", []string{"", "", "", "p0", "p1"}},
		{"Before", []string{"", "", "", "yes"}},
		{"Origin", []string{"", "", "https://other.example"}},
		{"Accept", []string{"", "*/*", "text/html"}},
	} {
		if value := rapid.SampledFrom(field.values).Draw(rt, field.name); value != "" {
			r.Header.Set(field.name, value)
		}
	}
	if rare(rt, 12, "ended") {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		r = r.WithContext(ctx)
	}
	return r
}
