package client_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// hostile is a partner whose hosts that begin with "evil" ask for a day.
func hostile() *partner {
	return &partner{answer: func(a arrival) (int, http.Header, error) {
		if strings.HasPrefix(a.host, "evil") {
			return http.StatusTooManyRequests, fields("Retry-After", "86400"), nil
		}
		return http.StatusOK, nil, nil
	}}
}

func visit(t *testing.T, tr *client.Transport, host string) error {
	t.Helper()
	_, _, err := call(t.Context(), tr, http.MethodGet, "https://"+host+".example/", "x", nil)
	return err
}

// Destinations that are paused for long hinder nobody from putting away idle ones.
func TestPausedDestinationsDoNotStopOthers(t *testing.T) {
	for _, paused := range []int{8, 40} {
		synctest.Test(t, func(t *testing.T) {
			tr := newTransport(t, client.Config{Base: hostile(), Retry: client.Retry{Attempts: 1}, MaxDestinations: 64})
			for i := range paused {
				require.NoError(t, visit(t, tr, fmt.Sprint("evil", i)))
			}
			for i := range 64 - paused {
				require.NoError(t, visit(t, tr, fmt.Sprint("good", i)))
			}
			time.Sleep(15 * time.Minute)
			require.NoError(t, visit(t, tr, "evil-too"))
			refused := 0
			for i := range 20 {
				if visit(t, tr, fmt.Sprint("fresh", i)) != nil {
					refused++
				}
			}
			require.LessOrEqual(t, refused, paused/8, "one look for each 8 that are paused")
			for i := range paused { // and no pause is forgotten
				require.Equal(t, client.ReasonTold, limited(t, visit(t, tr, fmt.Sprint("evil", i))).Reason)
			}
		})
	}
}

// What one of those who share a line is told closes it for a minute at most.
func TestPauseOfTheSharedLine(t *testing.T) {
	for name, answer := range map[string]http.Header{
		"Retry-After": fields("Retry-After", "86400"),
		"fields":      fields("RateLimit", `"d";r=0;t=86400`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hostile()
				tr := newTransport(t, client.Config{Base: p, Retry: client.Retry{Attempts: 1}, MaxDestinations: 1})
				require.NoError(t, visit(t, tr, "evil"))
				p.answer = func(a arrival) (int, http.Header, error) {
					if a.host == "worse.example" {
						return http.StatusTooManyRequests, answer, nil
					}
					return http.StatusOK, nil, nil
				}
				require.NoError(t, visit(t, tr, "worse"))
				began := time.Now()
				require.NoError(t, visit(t, tr, "fresh"))
				require.Equal(t, time.Minute, time.Since(began))
			})
		})
	}
}

// known is a memory of pauses that knows one for each key that begins with "evil".
type known struct{ hangingPauses }

func (known) Paused(_ context.Context, key limiter.Key) (time.Duration, error) {
	if strings.Contains(key.ID, "evil") {
		return time.Hour, nil
	}
	return 0, nil
}

// What other processes know of a destination does not close the line that it shares.
func TestKnownPauseInTheSharedLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hostile()
		tr := newTransport(t, client.Config{Base: p, Pauses: known{}, Retry: client.Retry{Attempts: 1}, MaxDestinations: 1})
		require.Equal(t, client.ReasonTold, limited(t, visit(t, tr, "evil")).Reason)
		require.Equal(t, client.ReasonTold, limited(t, visit(t, tr, "evil-too")).Reason)
		began := time.Now()
		require.NoError(t, visit(t, tr, "fresh"))
		require.Zero(t, time.Since(began))
	})
}
