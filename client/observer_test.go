package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// An observer that is slow holds up answers, never a departure.
func TestSlowObserverHoldsUpNoDeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{}
		slow := limiter.ObserverFunc(func(limiter.Event) { time.Sleep(1100 * ms) })
		tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(1), Headroom: 1, Observer: slow})
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 3 {
			ctx := t.Context()
			if i == 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			wg.Go(func() { _, _, _ = call(ctx, tr, http.MethodGet, "https://a.example/", fmt.Sprint(i), nil) })
			synctest.Wait()
		}
		wg.Wait()
		require.NoError(t, p.broken)
		for i, a := range p.arrivals("") {
			require.Equal(t, time.Duration(i)*time.Second, a.at.Sub(began))
		}
		require.Len(t, p.arrivals(""), 3)
	})
}

// Nobody tells the observer for others, so none of many callers is kept.
func TestNobodyTellsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events, longest atomic.Int64
		slow := limiter.ObserverFunc(func(limiter.Event) {
			events.Add(1)
			time.Sleep(5 * ms)
		})
		tr := newTransport(t, client.Config{Base: &partner{latency: 10 * ms}, Observer: slow, InFlight: -1})
		var wg sync.WaitGroup
		stop := time.Now().Add(10 * time.Second)
		for range 10 {
			wg.Go(func() {
				for time.Now().Before(stop) {
					began := time.Now()
					_, err := get(tr, "x")
					require.NoError(t, err)
					for d, was := int64(time.Since(began)), longest.Load(); d > was && !longest.CompareAndSwap(was, d); {
						was = longest.Load()
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, 15*ms, time.Duration(longest.Load()))
		require.Equal(t, int64(tr.Stats().Sent), events.Load())
	})
}

// An observer that ends its goroutine takes nothing with it, neither by an event of a request nor by one of a breaker.
func TestObserverThatExits(t *testing.T) {
	for _, kind := range []limiter.EventKind{limiter.EventDecision, limiter.EventBreaker} {
		p := &partner{answer: func(arrival) (int, http.Header, error) { return 0, nil, errors.New("broken") }}
		var breakers atomic.Int64
		o := limiter.ObserverFunc(func(e limiter.Event) {
			if e.Kind == limiter.EventBreaker {
				breakers.Add(1)
			}
			if e.Kind == kind {
				runtime.Goexit()
			}
		})
		tr := newTransport(t, client.Config{Base: p, Observer: o, Breaker: client.Breaker{Failures: 1}, Retry: client.Retry{Attempts: 1}})
		for range 2 {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = get(tr, "x")
			}()
			<-done
		}
		require.Zero(t, tr.InFlight()+tr.Waiting())
		require.Equal(t, int64(1), breakers.Load())
	}
}
