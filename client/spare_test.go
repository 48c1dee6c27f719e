package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// A place that was booked and given up is the next one's: whoever leaves costs those behind him nothing.
func TestPlaceGivenUpIsTheNextOnes(t *testing.T) {
	for _, n := range []int{1, 5, 50} {
		synctest.Test(t, func(t *testing.T) {
			tr := newTransport(t, client.Config{Base: &partner{}, Limit: limiter.PerMinute(10), Headroom: 1, Strict: true, MaxWait: -1})
			began := time.Now()
			_, err := get(tr, "first")
			require.NoError(t, err)
			var wg sync.WaitGroup
			for i := range n {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(i+1)*100*ms, cancel)
				wg.Go(func() { _, _, _ = call(ctx, tr, http.MethodGet, "https://a.example/", fmt.Sprint(i), nil) })
				synctest.Wait()
			}
			wg.Wait()
			for i := 1; i <= 3; i++ {
				ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second+ms)
				_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "next", nil)
				cancel()
				require.NoError(t, err)
				require.Equal(t, time.Duration(i)*6*time.Second, time.Since(began))
			}
		})
	}
}

// Somebody who comes and goes all the time does not starve the others.
func TestComingAndGoingStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, client.Config{Base: &partner{}, Limit: limiter.PerMinute(10), Strict: true})
		stop := time.Now().Add(20 * time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() {
			for time.Now().Before(stop) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(100*ms, cancel)
				_, _, _ = call(ctx, tr, http.MethodGet, "https://a.example/", "comes and goes", nil)
				time.Sleep(3 * time.Second)
			}
		})
		time.Sleep(time.Minute + 1500*ms)
		refused := 0
		for time.Now().Before(stop) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if _, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "stays", nil); err != nil {
				refused++
			}
			cancel()
			time.Sleep(10 * time.Second)
		}
		wg.Wait()
		require.Zero(t, refused)
	})
}

// Whoever gives up when, in whichever process: departures keep their distance.
func TestPlacesGivenUpKeepTheDistance(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lasts := rapid.SliceOfN(rapid.IntRange(0, 4000), 1, 60).Draw(rt, "patience")
		comes := rapid.SliceOfN(rapid.IntRange(0, 300), len(lasts), len(lasts)).Draw(rt, "gap")
		processes := rapid.IntRange(1, 3).Draw(rt, "processes")
		synctest.Test(t, func(t *testing.T) {
			p, m := &partner{}, newMemory(t)
			var trs []*client.Transport
			for range processes {
				trs = append(trs, newTransport(t, client.Config{Base: p, Limiter: m, Limit: limiter.PerSecond(5), Headroom: 1, Strict: true}))
			}
			var wg sync.WaitGroup
			for i, last := range lasts {
				wg.Go(func() {
					ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(last)*ms, errors.New("leaves"))
					if i%2 == 0 {
						// Without a deadline nobody knows that he leaves.
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(time.Duration(last)*ms, cancel)
					}
					defer cancel()
					_, _, _ = call(ctx, trs[i%processes], http.MethodGet, "https://a.example/", fmt.Sprint(i), nil)
				})
				time.Sleep(time.Duration(comes[i]) * ms)
			}
			wg.Wait()
			require.NoError(rt, p.broken)
			a := p.arrivals("")
			for i := 1; i < len(a); i++ {
				require.GreaterOrEqual(rt, a[i].at.Sub(a[i-1].at), 200*ms)
			}
		})
	})
}
