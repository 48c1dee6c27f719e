package client_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
)

// What cannot have a place in flight in time, if no request is quicker than the quickest of late, is refused at once.
func TestTooLateForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{latency: time.Second}
		tr := newTransport(t, client.Config{Base: p, InFlight: 3})
		_, err := get(tr, "how long it takes")
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 13 { // three leave, one has the turn, nine are behind him
			wg.Go(func() {
				_, err := get(tr, fmt.Sprint(i))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "too late", nil)
		e := limited(t, err)
		require.Equal(t, client.ReasonInFlight, e.Reason)
		require.Equal(t, 3*time.Second, e.RetryAfter)
		require.Equal(t, start, time.Now())
		wg.Wait()
		require.Len(t, p.arrivals(""), 14, "each of the others was sent")
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

// Nobody is refused for want of a place while some take long and others do not: the bound is of the quickest.
func TestPlacesThatComeFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answer: func(a arrival) (int, http.Header, error) {
			if a.seq%7 == 0 {
				time.Sleep(5 * time.Second)
			} else {
				time.Sleep(10 * ms)
			}
			return http.StatusOK, nil, nil
		}}
		tr := newTransport(t, client.Config{Base: p, InFlight: 2, MaxWait: 3 * time.Second})
		start := time.Now()
		var wg sync.WaitGroup
		var late atomic.Int64
		for i := range 100 {
			wg.Go(func() {
				if _, err := get(tr, fmt.Sprint(i)); err != nil {
					late.Add(1)
					require.Equal(t, client.ReasonInFlight, limited(t, err).Reason)
					require.Equal(t, 3*time.Second, time.Since(start), "when its time is over, not before")
				}
			})
		}
		wg.Wait()
		require.Positive(t, late.Load())
	})
}
