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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// In a line everybody leaves in the order he came, evenly, also after a pause in which nobody came.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{latency: 300 * ms}
		tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(10), Headroom: 1})
		var want []string
		for round := range 3 {
			var wg sync.WaitGroup
			start := time.Now()
			for i := range 20 {
				name := fmt.Sprint(round, "-", i)
				want = append(want, name)
				wg.Go(func() {
					_, err := get(tr, name)
					require.NoError(t, err)
				})
				time.Sleep(ms)
			}
			wg.Wait()
			all := p.arrivals("")[20*round:]
			require.Equal(t, start, all[0].at, "nobody was before it")
			for i := range all[1:] {
				require.Equal(t, 100*ms, all[i+1].at.Sub(all[i].at))
			}
			time.Sleep(time.Hour)
		}
		require.Equal(t, want, p.names(""))
	})
}

// What cannot be in time is refused at once, and told when it could be; what can be is sent.
func TestTooLateFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(1), Headroom: 1, MaxWait: 10 * time.Second})
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				_, err := get(tr, fmt.Sprint(i))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "at its deadline", nil)
		e := limited(t, err)
		require.Equal(t, client.ReasonQuota, e.Reason)
		require.Equal(t, 4*time.Second, e.RetryAfter)
		require.Equal(t, start, time.Now(), "it has waited to be refused")
		require.Equal(t, "client: not sent: its turn under the limit comes too late; possible in 4s", err.Error())
		require.NotErrorIs(t, err, context.DeadlineExceeded)

		ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second+2)
		defer cancel()
		_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "just in time", nil)
		require.NoError(t, err)
		wg.Wait()
		require.Equal(t, []string{"0", "1", "2", "3", "just in time"}, p.names(""))
		require.EqualValues(t, 1, tr.Stats().Refused)
		require.EqualValues(t, 5, tr.Stats().Sent)
	})
}

// MaxWait bounds the wait of a request without a deadline, and -1 does not.
func TestMaxWait(t *testing.T) {
	for most, fails := range map[time.Duration]bool{0: true, 90 * time.Second: false, -1: false} {
		synctest.Test(t, func(t *testing.T) {
			tr := newTransport(t, client.Config{Base: &partner{}, Limit: limiter.Per(1, 80*time.Second), Headroom: 1, MaxWait: most})
			_, err := get(tr, "a")
			require.NoError(t, err)
			if _, err = get(tr, "b"); fails {
				require.Equal(t, 80*time.Second, limited(t, err).RetryAfter)
				return
			}
			require.NoError(t, err)
		})
	}
}

// Who leaves the line costs nobody anything; of what was booked already, only the next departure.
func TestCancelledInTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(1), Headroom: 1})
		start := time.Now()
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 40 {
			wg.Go(func() {
				mine := t.Context()
				if i > 1 && i < 39 {
					mine = ctx
				}
				_, _, err := call(mine, tr, http.MethodGet, "https://a.example/", strconv.Itoa(i), nil)
				if i > 1 && i < 39 {
					require.ErrorIs(t, err, context.Canceled)
					return
				}
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		time.Sleep(500 * ms)
		cancel()
		wg.Wait()
		require.Equal(t, []string{"0", "1", "39"}, p.names(""))
		require.Equal(t, 2*time.Second, p.arrivals("")[2].at.Sub(start))
		require.Zero(t, tr.InFlight())
	})
}

// refunds counts what is offered back.
type refunds struct {
	*memory.Limiter
	n int
}

func (r *refunds) Refund(ctx context.Context, at time.Time, take *limiter.Take) error {
	if take.Decision.Mark != 0 && ctx.Err() == nil {
		r.n++
	}
	return r.Limiter.Refund(ctx, at, take)
}

// What was taken is offered back, by a context that is alive; a place of a queue, which takes nothing back, is the next one's.
func TestCancelledWithAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &refunds{Limiter: newMemory(t)}
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, Limiter: l, Limit: limiter.PerSecond(1), Headroom: 1})
		began := time.Now()
		_, err := get(tr, "a")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*ms, cancel)
		_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "b", nil)
		require.ErrorIs(t, err, context.Canceled)
		_, err = get(tr, "c")
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		require.Zero(t, l.n)
	})
	// A breaker that others have opened meanwhile: the unit of a bucket is there again.
	synctest.Test(t, func(t *testing.T) {
		l := &refunds{Limiter: newMemory(t)}
		p := &partner{latency: time.Second, answer: func(arrival) (int, http.Header, error) { return 500, nil, nil }}
		tr := newTransport(t, client.Config{
			Base: p, Limiter: l, Limit: limiter.PerHour(2).WithBurst(2), Headroom: 1, InFlight: 1, Breaker: client.Breaker{Failures: 1},
		})
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { _, _ = get(tr, fmt.Sprint(i)) })
			synctest.Wait()
		}
		wg.Wait()
		require.Len(t, p.arrivals(""), 1)
		require.Equal(t, 1, l.n)
	})
}

// A context that is over before takes nothing.
func TestOverBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(1)})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "a", nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, client.ReasonCanceled, limited(t, err).Reason, "nothing was sent")
		start := time.Now()
		_, err = get(tr, "b")
		require.NoError(t, err)
		require.Equal(t, start, time.Now())
		require.Equal(t, []string{"b"}, p.names(""))
	})
}

// No more than InFlight are under way, to the end of their bodies, for each destination.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{latency: time.Second}
		tr := newTransport(t, client.Config{Base: p, InFlight: 3})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				_, err := get(tr, fmt.Sprint(i))
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, 3, p.most)

		var open []*http.Response
		for range 3 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/", http.NoBody)
			require.NoError(t, err)
			res, err := tr.RoundTrip(r)
			require.NoError(t, err)
			open = append(open, res)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute/2)
		defer cancel()
		_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "no place", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Contains(t, []client.Reason{client.ReasonInFlight, client.ReasonCanceled}, limited(t, err).Reason, "both are over at once")
		_, _, err = call(t.Context(), tr, http.MethodGet, "https://b.example/", "elsewhere", nil)
		require.NoError(t, err)
		require.Equal(t, client.ReasonInFlight, limited(t, func() error { _, err := get(tr, "x"); return err }()).Reason, "MaxWait is over")
		_, err = io.ReadAll(open[0].Body) // read to the end and not closed yet
		require.NoError(t, err)
		_, err = get(tr, "y")
		require.NoError(t, err)
		for _, res := range open {
			require.NoError(t, res.Body.Close())
			require.NoError(t, res.Body.Close())
		}
		require.Zero(t, tr.InFlight())
	})
}

func TestMaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(1), MaxWaiting: 5})
		var wg sync.WaitGroup
		for i := range 7 { // one has left, one has the turn
			wg.Go(func() {
				_, err := get(tr, fmt.Sprint(i))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		_, err := get(tr, "too many")
		require.Equal(t, client.ReasonWaiting, limited(t, err).Reason)
		wg.Wait()
	})
}

// A store that is away: with Strict nothing is sent without its word.
func TestStrict(t *testing.T) {
	gone := fmt.Errorf("%w: gone", limiter.ErrUnavailable)
	synctest.Test(t, func(t *testing.T) {
		l := &faulty{Limiter: newMemory(t), err: gone}
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, Limiter: l, Limit: limiter.PerSecond(1), Strict: true, MaxWait: 10 * time.Second})
		start := time.Now()
		_, err := get(tr, "a")
		e := limited(t, err)
		require.Equal(t, client.ReasonUnavailable, e.Reason)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.Empty(t, p.arrivals(""))
		waited := time.Since(start)
		require.Greater(t, waited, 8*time.Second, "it waits for the store")
		require.LessOrEqual(t, waited, 10*time.Second)

		time.AfterFunc(3*time.Second, func() { l.set(nil) })
		_, err = get(tr, "b")
		require.NoError(t, err, "the store is back in time")

		l.mu.Lock()
		l.via = limiter.ViaFallback
		l.mu.Unlock()
		_, err = get(tr, "c")
		require.ErrorIs(t, err, limiter.ErrUnavailable, "a fallback is not the store")
		require.Equal(t, []string{"b"}, p.names(""))
	})
}

// Without Strict a process goes on with its share, evenly, from where it was.
func TestShareWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &faulty{Limiter: newMemory(t)}
		p := &partner{}
		tr := newTransport(t, client.Config{Base: p, Limiter: l, Limit: limiter.PerSecond(10), Headroom: 1, Replicas: 4})
		_, err := get(tr, "a")
		require.NoError(t, err)
		l.set(fmt.Errorf("%w: gone", limiter.ErrUnavailable))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				_, err := get(tr, fmt.Sprint(i))
				require.NoError(t, err)
			})
		}
		wg.Wait()
		all := p.arrivals("")
		for i := range all[1:] {
			require.Equal(t, 400*ms, all[i+1].at.Sub(all[i].at), "a quarter of ten a second")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*ms)
		defer cancel()
		_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "late", nil)
		require.Equal(t, 400*ms, limited(t, err).RetryAfter)
	})
}

// What is no outage opens nothing: a limiter that is closed or finds the limit invalid sends nobody.
func TestErrorsOfTheLimiter(t *testing.T) {
	for _, cause := range []error{limiter.ErrInvalid, limiter.ErrClosed, errors.New("else")} {
		synctest.Test(t, func(t *testing.T) {
			p := &partner{}
			tr := newTransport(t, client.Config{Base: p, Limiter: &faulty{Limiter: newMemory(t), err: cause}, Limit: limiter.PerSecond(10)})
			_, err := get(tr, "a")
			require.ErrorIs(t, err, cause)
			require.True(t, strings.HasPrefix(err.Error(), "client: "))
			require.Empty(t, p.arrivals(""))
			require.Zero(t, tr.InFlight())
		})
	}
}

// Other algorithms are counted as they say, with the headroom taken off, and in order.
func TestOtherAlgorithms(t *testing.T) {
	for text, want := range map[string][]int{ // seconds
		"10/10s burst 3":         {0, 0, 0, 1, 2, 3},
		"3/10s fixed_window":     {0, 0, 0, 10, 10, 10},
		"3/10s sliding_log":      {0, 0, 0, 10, 10, 10},
		"1/s leaky_bucket":       {0, 1, 2, 3, 4, 5},
		"1/s":                    {0, 1, 2, 3, 4, 5},
		"1/s burst 1":            {0, 1, 2, 3, 4, 5},
		"1/2s leaky_bucket":      {0, 2, 4, 6, 8, 10},
		"2/10s sliding_window 2": nil,
	} {
		l, err := limiter.ParseLimit(text)
		if want == nil {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, text)
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{}
				tr := newTransport(t, client.Config{Base: p, Limit: l, Headroom: 1})
				start := time.Now()
				var wg sync.WaitGroup
				for i := range want {
					wg.Go(func() {
						_, err := get(tr, strconv.Itoa(i))
						require.NoError(t, err)
					})
					synctest.Wait()
				}
				wg.Wait()
				var got []int
				for i, a := range p.arrivals("") {
					require.Equal(t, strconv.Itoa(i), a.name)
					got = append(got, int(a.at.Sub(start)/time.Second))
				}
				require.Equal(t, want, got)
			})
		})
	}
}

// Unlimited is no limit, DenyAll lets nobody pass, and a Source that has lost its limit does neither.
func TestEdgesOfLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			_, err := get(newTransport(t, client.Config{Base: &partner{}, Limit: limiter.Unlimited}), "a")
			require.NoError(t, err)
		}
		_, err := get(newTransport(t, client.Config{Base: &partner{}, Limit: limiter.DenyAll}), "a")
		require.Equal(t, limiter.Never, limited(t, err).RetryAfter)
		p := &partner{}
		lost := sourceFunc(func() limiter.Limit { return limiter.Limit{} })
		_, err = client.New(client.Config{Base: p, Limiter: newMemory(t), Limit: lost})
		require.ErrorIs(t, err, limiter.ErrInvalid)
		n := 0
		later := sourceFunc(func() limiter.Limit {
			if n++; n > 1 {
				return limiter.Limit{}
			}
			return limiter.PerSecond(1)
		})
		_, err = get(newTransport(t, client.Config{Base: p, Limit: later}), "a")
		require.ErrorIs(t, err, limiter.ErrInvalid)
		require.Empty(t, p.arrivals(""))
	})
}

type sourceFunc func() limiter.Limit

func (f sourceFunc) Current() limiter.Limit { return f() }
