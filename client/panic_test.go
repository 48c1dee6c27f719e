package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

type panickingPauses struct{ asked bool }

func (p panickingPauses) Pause(context.Context, limiter.Key, time.Duration) error { panic("pause") }
func (p panickingPauses) Paused(context.Context, limiter.Key) (time.Duration, error) {
	if p.asked {
		panic("paused")
	}
	return 0, nil
}

// Code of others that panics takes no place, no turn and no body with it.
func TestPanics(t *testing.T) {
	for name, c := range map[string]struct {
		config  client.Config
		status  int
		getBody func() (io.ReadCloser, error)
	}{
		"Pause":   {client.Config{Pauses: panickingPauses{}}, http.StatusTooManyRequests, nil},
		"Paused":  {client.Config{Pauses: panickingPauses{asked: true}}, http.StatusOK, nil},
		"GetBody": {client.Config{}, http.StatusServiceUnavailable, func() (io.ReadCloser, error) { panic("body") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answer: func(arrival) (int, http.Header, error) { return c.status, fields("Retry-After", "1"), nil }}
				c.config.Base = p
				tr := newTransport(t, c.config)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://a.example/", strings.NewReader("x"))
				require.NoError(t, err)
				if c.getBody != nil {
					r.GetBody = c.getBody
				}
				require.Panics(t, func() { _, _, _ = finish(tr.RoundTrip(r)) })
				require.Zero(t, tr.InFlight())
				require.Zero(t, tr.Waiting())
				require.Zero(t, p.bodies)
			})
		})
	}
}
