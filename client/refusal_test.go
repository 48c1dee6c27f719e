package client_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
)

// An answer to a request that left before the refusal says nothing of what has been refused since.
func TestLateAnswerDoesNotEndTheTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := http.Header{"Retry-After": {"1"}}
		p := &partner{answer: func(a arrival) (int, http.Header, error) {
			switch a.name {
			case "slow":
				time.Sleep(50 * ms)
				return http.StatusOK, nil, nil
			case "refused":
				time.Sleep(10 * ms)
			default:
				time.Sleep(300 * ms)
			}
			return http.StatusTooManyRequests, refused, nil
		}}
		tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Attempts: 1}, MaxWait: 1400 * ms})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = get(tr, "slow") })
		wg.Go(func() { _, _ = get(tr, "refused") })
		time.Sleep(100 * ms)
		for range 50 {
			wg.Go(func() { _, _ = get(tr, "waiting") })
		}
		time.Sleep(1100 * ms)
		sent := len(p.arrivals(""))
		wg.Wait()
		require.Equal(t, 3, sent, "two before the pause, and one that tries")
	})
}

// A 429 that asks for no wait at all is one that names none, or each of those who wait leaves at once and is refused.
func TestRefusalWithoutAWait(t *testing.T) {
	for _, said := range []string{"0", "Thu, 01 Jan 1970 00:00:00 GMT", "-1", ""} {
		synctest.Test(t, func(t *testing.T) {
			p := &partner{latency: ms, answer: func(arrival) (int, http.Header, error) {
				h := http.Header{}
				if said != "" {
					h.Set("Retry-After", said)
				}
				return http.StatusTooManyRequests, h, nil
			}}
			tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Attempts: 1}})
			var wg sync.WaitGroup
			for stop, i := time.Now().Add(10*time.Second), 0; i < 10; i++ {
				wg.Go(func() {
					for time.Now().Before(stop) {
						_, _ = get(tr, "x")
					}
				})
			}
			wg.Wait()
			// The least penalties: 0.5, 1, 2, 4, 8 s. After those who waited 10 s are told off, no more than each of them once.
			require.LessOrEqual(t, tr.Stats().Sent, uint64(16), "Retry-After %q", said)
		})
	}
}

// The fields say for how long, where Retry-After says nothing of use.
func TestRefusalWithoutAWaitWaitsForTheFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answer: func(a arrival) (int, http.Header, error) {
			if a.seq == 1 {
				return http.StatusTooManyRequests, http.Header{"Retry-After": {"0"}, "Ratelimit": {`"d";r=0;t=20`}}, nil
			}
			return http.StatusOK, nil, nil
		}}
		tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Attempts: 1}})
		_, err := get(tr, "x")
		require.NoError(t, err)
		began := time.Now()
		_, err = get(tr, "y")
		require.NoError(t, err)
		require.Equal(t, 20*time.Second, time.Since(began))
	})
}

// Many refused at once are one event: the pause is no longer than after one, and the next in a row is the second.
func TestRefusedTogether(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			p := &partner{answer: func(a arrival) (int, http.Header, error) {
				time.Sleep(time.Duration(10+a.seq%40) * ms) // answers come one after the other
				if a.seq <= 31 {
					return http.StatusTooManyRequests, nil, nil
				}
				return http.StatusOK, nil, nil
			}}
			tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Attempts: 1}})
			var wg sync.WaitGroup
			for range 30 {
				wg.Go(func() { _, _ = get(tr, "x") })
			}
			wg.Wait()
			first := time.Now()
			for range 2 {
				_, err := get(tr, "x")
				require.NoError(t, err)
			}
			all := p.arrivals("")[30:]
			// Known at 10 ms and not before.
			require.LessOrEqual(t, all[0].at.Sub(first), time.Second)
			second := all[1].at.Sub(all[0].at.Add(41 * ms)) // from its answer
			require.GreaterOrEqual(t, second, time.Second)
			require.LessOrEqual(t, second, 2*time.Second)
		})
	}
}

// A refusal that comes late, after somebody has found the way open again, is no news.
func TestRefusalThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answer: func(a arrival) (int, http.Header, error) {
			switch a.name {
			case "late":
				time.Sleep(3 * time.Second)
				return http.StatusTooManyRequests, nil, nil
			case "refused":
				time.Sleep(10 * ms)
				return http.StatusTooManyRequests, nil, nil
			}
			time.Sleep(10 * ms)
			return http.StatusOK, nil, nil
		}}
		tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Attempts: 1}})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = get(tr, "late") })
		wg.Go(func() { _, _ = get(tr, "refused") })
		time.Sleep(2 * time.Second)
		_, err := get(tr, "tries")
		require.NoError(t, err)
		wg.Wait()
		began := time.Now()
		for range 5 {
			wg.Go(func() {
				_, err := get(tr, "after")
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, 10*ms, time.Since(began), "all leave at once")
	})
}
