package middleware

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// asked remembers the takes of the last call.
type asked struct {
	*limitertest.Model
	takes []limiter.Take
}

func (a *asked) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	a.takes = append([]limiter.Take(nil), takes...)
	return a.Model.AllowAll(ctx, at, takes)
}

// A denial must not be remembered where units may come back before its wait is over.
func TestRefundablePoliciesAreAlwaysAsked(t *testing.T) {
	store := &asked{Model: limitertest.NewModel()}
	g, err := New(Config{Limiter: store, Policies: []Policy{
		{Name: "plain", Key: keyfunc.Global(), Limit: limiter.PerSecond(10)},
		{Name: "refundable", Key: keyfunc.Global(), Limit: limiter.PerSecond(10), Refund: func(status int) bool { return status >= 500 }},
	}})
	require.NoError(t, err)
	g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.Len(t, store.takes, 2)
	for _, take := range store.takes {
		require.Equal(t, take.Key.Space == "refundable", take.NoCache, take.Key.Space)
	}
}
