package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/response"
)

// inBubbles runs each case in a bubble of its own.
func inBubbles(t *testing.T, cases map[string]func(t *testing.T)) {
	t.Helper()
	for name, f := range cases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
}

// Faults of other limiters in what they tell to wait, met by this client: it neither hammers nor stays away for days.
func TestFaultsOfRetryAfter(t *testing.T) {
	// gaps are between the requests that arrive, until one is let in, of a client that retries.
	gaps := func(t *testing.T, c client.Config, refusals ...string) (out []time.Duration) {
		t.Helper()
		p := &partner{answer: func(a arrival) (int, http.Header, error) {
			if a.seq > len(refusals) {
				return http.StatusOK, nil, nil
			}
			return http.StatusTooManyRequests, fields("Retry-After", refusals[a.seq-1]), nil
		}}
		c.Base, c.MaxWait, c.Retry = p, -1, client.Retry{Attempts: 10, Base: 1, Cap: 1}
		status, err := get(newTransport(t, c), "x")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		all := p.arrivals("")
		for i := range all[1:] {
			out = append(out, all[i+1].at.Sub(all[i].at))
		}
		return out
	}
	inBubbles(t, map[string]func(t *testing.T){
		"RA-01 a denial that says 0 is no leave to come back at once": func(t *testing.T) {
			require.GreaterOrEqual(t, gaps(t, client.Config{}, "0")[0], 500*ms)
		},
		"RA-02 always 0, from a fleet of guards": func(t *testing.T) {
			p := &partner{answer: func(arrival) (int, http.Header, error) {
				return http.StatusTooManyRequests, fields("Retry-After", "0"), nil
			}}
			tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Attempts: 20, Ratio: -1}, MaxWait: -1})
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					_, _, _ = call(ctx, tr, http.MethodGet, "https://a.example/", "x", nil)
				})
			}
			wg.Wait()
			// 20 at once, then one at a time after at least 0.5, 1, 2, 4, 8 and 16 s.
			require.LessOrEqual(t, len(p.arrivals("")), 26)
		},
		"RA-03 told N, then 0, then a negative epoch": func(t *testing.T) {
			got := gaps(t, client.Config{}, "2", "0", "-1484742195")
			require.Equal(t, 2*time.Second, got[0])
			require.GreaterOrEqual(t, got[1], time.Second, "the second in a row")
			require.GreaterOrEqual(t, got[2], 2*time.Second, "the third")
			require.LessOrEqual(t, got[2], 4*time.Second)
		},
		"RA-05 milliseconds in a field of seconds": func(t *testing.T) {
			require.Equal(t, []time.Duration{15 * time.Minute}, gaps(t, client.Config{MaxPause: 15 * time.Minute}, "900000"), "10 days, capped")
		},
		"RA-06 a fraction of a second": func(t *testing.T) {
			require.GreaterOrEqual(t, gaps(t, client.Config{}, "0.493")[0], 493*ms)
		},
	})
}

// What our own guard tells is enough, and not more than a second too much: the client is let in at its second attempt.
func TestToldWaitsAreEnough(t *testing.T) {
	every := func(d time.Duration, n int) (out []time.Duration) {
		for i := range n {
			out = append(out, time.Duration(i)*d)
		}
		return out
	}
	for id, c := range map[string]struct {
		limit limiter.Limit
		used  []time.Duration // since an edge of the window
		at    time.Duration   // when the client asks
		free  time.Duration   // when it can be let in
	}{
		"RA-07": {limiter.PerMinute(10).With(limiter.FixedWindow), every(2*time.Second, 10), 20 * time.Second, 60 * time.Second},
		"RA-08": {limiter.Per(5, 300*time.Second).With(limiter.FixedWindow), every(0, 5), 295 * time.Second, 300 * time.Second},
		"RA-11": {limiter.PerSecond(1).WithBurst(1), every(0, 1), 200 * ms, time.Second},
		"RA-12": {limiter.Per(10, 60*time.Second).With(limiter.FixedWindow), every(100*ms, 10), time.Second, 60 * time.Second},
		"RA-13": {limiter.PerMinute(6).WithBurst(6), every(0, 6), 0, 10 * time.Second},
	} {
		t.Run(id+" "+c.limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &served{h: guarded(t, response.X, c.limit)}
				edge := time.Now() // 2000-01-01 00:00:00 UTC
				for _, at := range c.used {
					time.Sleep(time.Until(edge.Add(at)))
					status, err := get(s, "other")
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, status)
				}
				time.Sleep(time.Until(edge.Add(c.at)))
				tr := newTransport(t, client.Config{Base: s, MaxWait: -1, Retry: client.Retry{Base: 1, Cap: 1}})
				status, err := get(tr, "client")
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, uint64(1), tr.Stats().Retried, "told a wait that was not enough")
				late := time.Since(edge) - c.free
				require.GreaterOrEqual(t, late, time.Duration(0))
				require.LessOrEqual(t, late, time.Second)
			})
		})
	}
}

// leaver is a limiter during whose decision callers leave whose context has a way to.
type leaver struct{ *memory.Limiter }

type leaveKey struct{}

func (l *leaver) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	ok, err := l.Limiter.AllowAll(ctx, at, takes)
	if cancel, leaves := ctx.Value(leaveKey{}).(context.CancelFunc); leaves {
		cancel()
	}
	return ok, err
}

// leaveDuring sends a request that is cancelled while its unit is taken.
func leaveDuring(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, _, err := call(context.WithValue(ctx, leaveKey{}, cancel), rt, http.MethodGet, "https://a.example/", "leaves", nil)
	require.ErrorIs(t, err, context.Canceled)
}

// silent is a store that says nothing before its caller leaves, and calls that an outage.
type silent struct{ *faulty }

func (s silent) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	s.mu.Lock()
	silence := s.err
	s.mu.Unlock()
	if silence == nil {
		return s.Limiter.AllowAll(ctx, at, takes)
	}
	<-ctx.Done()
	return false, fmt.Errorf("%w: %w", limiter.ErrUnavailable, ctx.Err())
}

// Faults of other limiters in what they give back.
func TestFaultsOfCancelling(t *testing.T) {
	bucket := func(t *testing.T, n int) (*leaver, *partner, *client.Transport) {
		t.Helper()
		l, p := &leaver{newMemory(t)}, &partner{}
		return l, p, newTransport(t, client.Config{
			Base: p, Limiter: l, Limit: limiter.PerDay(n).WithBurst(n), Headroom: 1, Retry: once, Breaker: client.Breaker{Failures: 1},
		})
	}
	// passes returns how many are sent before one is refused.
	passes := func(t *testing.T, rt http.RoundTripper) (n int) {
		t.Helper()
		for ; ; n++ {
			if _, err := get(rt, "x"); err != nil {
				require.Equal(t, client.ReasonQuota, limited(t, err).Reason)
				return n
			}
		}
	}
	inBubbles(t, map[string]func(t *testing.T){
		"REF-03 many units given back at once are as many, of their own key": func(t *testing.T) {
			_, p, tr := bucket(t, 20)
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { leaveDuring(t, tr) })
				wg.Go(func() {
					_, _, err := call(t.Context(), tr, http.MethodGet, "https://b.example/", "x", nil)
					require.NoError(t, err)
				})
			}
			wg.Wait()
			require.Empty(t, p.arrivals("a.example"))
			require.Equal(t, 20, passes(t, tr))
			_, _, err := call(t.Context(), tr, http.MethodGet, "https://b.example/", "x", nil)
			require.Equal(t, client.ReasonQuota, limited(t, err).Reason, "b has what it used")
		},
		"REF-04 a unit given back cancels nobody's": func(t *testing.T) {
			_, _, tr := bucket(t, 7)
			for range 5 {
				_, err := get(tr, "x")
				require.NoError(t, err)
			}
			leaveDuring(t, tr) // takes the sixth, and gives it back
			require.Equal(t, 2, passes(t, tr))
		},
		"REF-05 what was sent and broke is not given back": func(t *testing.T) {
			l, p, tr := bucket(t, 1)
			p.answer = func(arrival) (int, http.Header, error) { return 0, nil, io.EOF }
			_, _, err := call(t.Context(), tr, http.MethodPost, "https://a.example/", "x", strings.NewReader("pay"))
			require.ErrorIs(t, err, io.EOF)
			d, err := l.Allow(t.Context(), limiter.Key{Space: "client", ID: "host=a.example"}, limiter.PerDay(1).WithBurst(1), 1)
			require.NoError(t, err)
			require.False(t, d.Allowed, "the partner has seen it")
		},
		"REF-07 what could not be in time delays nobody": func(t *testing.T) {
			p := &partner{}
			tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(1), Headroom: 1})
			began := time.Now()
			_, err := get(tr, "a")
			require.NoError(t, err)
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
				_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "late", nil)
				cancel()
				require.Equal(t, client.ReasonQuota, limited(t, err).Reason)
			}
			_, err = get(tr, "b")
			require.NoError(t, err)
			require.Equal(t, time.Second, time.Since(began))
		},
		"REF-08 a context that is done takes nothing": func(t *testing.T) {
			_, p, tr := bucket(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for range 10 {
				_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "x", nil)
				require.ErrorIs(t, err, context.Canceled)
			}
			require.Empty(t, p.arrivals(""))
			require.Equal(t, 1, passes(t, tr))
		},
		"REF-09 a hundred who leave during the call are no outage": func(t *testing.T) {
			s, p := silent{&faulty{Limiter: newMemory(t), err: limiter.ErrUnavailable}}, &partner{}
			seen := &recorder{}
			tr := newTransport(t, client.Config{
				Base: p, Limiter: s, Limit: limiter.PerSecond(10), Headroom: 1, Observer: seen, Breaker: client.Breaker{Failures: 1},
			})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "leaves", nil)
					require.ErrorIs(t, err, context.Canceled)
				})
			}
			synctest.Wait()
			cancel()
			wg.Wait()
			require.Empty(t, p.arrivals(""), "nobody has left by his share")
			s.set(nil)
			_, err := get(tr, "stays")
			require.NoError(t, err)
			require.Empty(t, seen.states(), "the breaker has not moved")
		},
		"REF-10 what is given back is never more than the limit": func(t *testing.T) {
			_, _, tr := bucket(t, 2)
			leaveDuring(t, tr)
			require.Equal(t, 2, passes(t, tr))
		},
	})
}

// Faults of other queues.
func TestFaultsOfWaiting(t *testing.T) {
	inBubbles(t, map[string]func(t *testing.T){
		// Each request costs one here. What comes again later is a retry: newcomers do not keep it out.
		"WAIT-01 a retry in a stream of newcomers has its turn": func(t *testing.T) {
			first := true
			p := &partner{answer: func(a arrival) (int, http.Header, error) {
				if a.name == "again" && first {
					first = false
					return http.StatusServiceUnavailable, nil, nil
				}
				return http.StatusOK, nil, nil
			}}
			tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(10), Headroom: 1, Retry: client.Retry{Base: 1, Cap: 1}})
			began := time.Now()
			var wg sync.WaitGroup
			for i := range 8 { // there is a line all the time
				wg.Go(func() {
					for time.Since(began) < 20*time.Second {
						_, err := get(tr, fmt.Sprint(i))
						require.NoError(t, err)
					}
				})
			}
			time.Sleep(5*time.Second + 3*ms)
			start := time.Now()
			status, err := get(tr, "again")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			require.LessOrEqual(t, time.Since(start), 2*time.Second, "twice behind the eight that were there")
			wg.Wait()
		},
		"WAIT-02 each of a hundred has a slot of its own": func(t *testing.T) {
			p := &partner{}
			tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerMinute(300), Headroom: 1, MaxWait: 5 * time.Minute})
			began := time.Now()
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() {
					_, err := get(tr, fmt.Sprint(i))
					require.NoError(t, err)
				})
			}
			wg.Wait()
			for i, at := range offsets(p, began) {
				require.Equal(t, time.Duration(i)*200*ms, at)
			}
		},
		"WAIT-03 ten wait, one comes each second, nobody waits longer than those before him": func(t *testing.T) {
			p := &partner{}
			tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(1), Headroom: 1})
			var wg sync.WaitGroup
			var want []string
			send := func(i int) {
				want = append(want, fmt.Sprint(i))
				wg.Go(func() {
					start := time.Now()
					_, err := get(tr, fmt.Sprint(i))
					require.NoError(t, err)
					require.LessOrEqual(t, time.Since(start), 10*time.Second)
				})
				synctest.Wait()
			}
			for i := range 10 {
				send(i)
			}
			for i := range 200 {
				time.Sleep(time.Second)
				send(10 + i)
			}
			wg.Wait()
			require.Equal(t, want, p.names(""))
		},
	})
}
