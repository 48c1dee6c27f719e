package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/middleware"
)

// overdue is a context whose deadline has passed and whose timer has not run yet.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now(), true }

// A store that goes by the deadline itself may notice its end before the context does. That is no outage all the same.
func TestDeadlineNoticedFirstByTheStore(t *testing.T) {
	for _, rule := range []middleware.OnError{middleware.FailOpen, middleware.FailClosed} {
		f, o, log := newFake(), new(recorder), new(logged)
		g := newGuard(t, config{Limiter: f, Observer: o, Logger: log.logger(), Policies: byIP(policy{Name: "a", Limit: perMinute, OnStoreError: rule})})
		f.fail(context.DeadlineExceeded)
		r := request("GET", "/").WithContext(overdue{t.Context()})
		require.Equal(t, 504, serve(g, r, answer(200)).Code)
		require.Equal(t, []string{"a error canceled"}, o.take())
		_, err := g.Check(r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = g.Take(r.Context(), "a", "x", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, o.take())
		require.Empty(t, log.take())

		// A deadline that is far away is the store's own.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		serve(g, request("GET", "/").WithContext(ctx), ok)
		require.Contains(t, o.take(), "a error unavailable")
	}
}
