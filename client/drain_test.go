package client_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
)

// unending is a body whose rest never comes.
type unending struct {
	closed chan struct{}
	close  func()
}

func newUnending() unending {
	c := make(chan struct{})
	return unending{closed: c, close: sync.OnceFunc(func() { close(c) })}
}

func (u unending) Read([]byte) (int, error) {
	<-u.closed
	return 0, errors.New("closed")
}

func (u unending) Close() error {
	u.close()
	return nil
}

// A refusal whose body does not come holds up its retry for a moment, and no place in flight; the last answer is the caller's.
func TestRefusalWithoutItsBody(t *testing.T) {
	for most, each := range map[time.Duration]time.Duration{time.Minute: 100 * ms, -1: 100 * ms, 30 * ms: 30 * ms} {
		synctest.Test(t, func(t *testing.T) {
			b := base(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: newUnending(), ContentLength: 100, Request: r}, nil
			})
			tr := newTransport(t, client.Config{Base: b, InFlight: 1, MaxWait: most, Retry: client.Retry{Attempts: 3, Base: 1, Cap: 1}})
			began := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/", nil)
				require.NoError(t, err)
				res, err := tr.RoundTrip(r)
				require.NoError(t, err)
				require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
				require.NoError(t, res.Body.Close())
			})
			time.Sleep(each / 2)
			require.Zero(t, tr.InFlight())
			wg.Wait()
			require.InDelta(t, 2*each, time.Since(began), 10)
			require.Zero(t, tr.InFlight())
		})
	}
}
