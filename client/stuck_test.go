package client_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// dripping is a body that does not end before its context.
type dripping struct{ ctx context.Context }

func (d dripping) Read([]byte) (int, error) { <-d.ctx.Done(); return 0, d.ctx.Err() }
func (dripping) Close() error               { return nil }

// Nobody waits for the rest of an answer that is thrown away.
func TestNoWaitForABodyNobodyWants(t *testing.T) {
	for name, length := range map[string]int64{"unknown": -1, "large": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				tr := newTransport(t, client.Config{Base: base(func(r *http.Request) (*http.Response, error) {
					if first {
						first = false
						return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: dripping{r.Context()}, ContentLength: length}, nil
					}
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				})})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				status, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "x", nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, status)
				require.LessOrEqual(t, time.Since(began), 100*ms, "the jitter before the first retry")
				require.Zero(t, tr.InFlight())
			})
		})
	}
}

// hanging answers nothing before the end of its context.
type hanging struct{ *faulty }

func (hanging) AllowAll(ctx context.Context, _ time.Time, _ []limiter.Take) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

type hangingPauses struct{}

func (hangingPauses) Pause(context.Context, limiter.Key, time.Duration) error { return nil }
func (hangingPauses) Paused(ctx context.Context, _ limiter.Key) (time.Duration, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// MaxWait holds also where the store or the other processes do not answer at all.
func TestHangingStores(t *testing.T) {
	for name, c := range map[string]struct {
		config client.Config
		after  time.Duration
		reason client.Reason // "": it is sent
	}{
		"limiter":          {client.Config{Limiter: hanging{}, Limit: limiter.PerSecond(1)}, time.Second, client.ReasonUnavailable},
		"limiter, strict":  {client.Config{Limiter: hanging{}, Limit: limiter.PerSecond(1), Strict: true}, time.Second, client.ReasonUnavailable},
		"pauses":           {client.Config{Pauses: hangingPauses{}}, 250 * ms, ""},
		"pauses, strict":   {client.Config{Pauses: hangingPauses{}, Strict: true}, time.Second, client.ReasonUnavailable},
		"pauses, no bound": {client.Config{Pauses: hangingPauses{}, MaxWait: -1}, 250 * ms, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.config.Base, c.config.MaxWait = &partner{}, or(c.config.MaxWait, time.Second)
				tr := newTransport(t, c.config)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "x", nil)
				require.Equal(t, c.after, time.Since(began))
				if c.reason == "" {
					require.NoError(t, err)
				} else {
					e := limited(t, err)
					require.Equal(t, c.reason, e.Reason)
					require.ErrorIs(t, e, context.DeadlineExceeded)
					require.ErrorIs(t, e, limiter.ErrUnavailable, "one error for a store that is away, however it is")
				}
				require.Zero(t, tr.InFlight()+tr.Waiting())
			})
		})
	}
}

func or(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}
