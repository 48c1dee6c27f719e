package observe_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe"
)

// Every refusal of a guard reaches the lists, whichever bound it is that refuses.
func TestTopOfAGuard(t *testing.T) {
	top := newTop(t, observe.TopConfig{Clear: true})
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	defer store.Close()
	guard, err := middleware.New(middleware.Config{
		Limiter: store, Observer: top,
		Policies: []middleware.Policy{
			{Name: "trial", Key: keyfunc.IP(), Limit: limiter.PerHour(1), Shadow: true},
			{Name: "real", Key: keyfunc.IP(), Limit: limiter.PerHour(2)},
		},
	})
	require.NoError(t, err)
	for i := range 100 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if r.RemoteAddr = "203.0.113.7:1"; i%10 == 0 {
			r.RemoteAddr = "203.0.113.8:1"
		}
		guard.Serve(httptest.NewRecorder(), r, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	var lines []string
	for _, k := range top.Refused(10) {
		lines = append(lines, fmt.Sprintf("%s %s %.0f %v", k.Policy, k.Key, k.Count, k.Shadow))
	}
	require.Equal(t, []string{
		"trial ip=203.0.113.7 89 true", "real ip=203.0.113.7 88 false",
		"trial ip=203.0.113.8 9 true", "real ip=203.0.113.8 8 false",
	}, lines)
	for _, k := range top.Near(10) {
		require.Zero(t, k.Remaining)
		require.LessOrEqual(t, k.Count, 2.0)
	}
}

// Bounds on requests in flight are limits like others: keys come near to them and are refused for them.
func TestTopOfABoundOnRequestsInFlight(t *testing.T) {
	top := newTop(t, observe.TopConfig{Clear: true})
	guard, err := middleware.New(middleware.Config{
		Observer: top, Policies: []middleware.Policy{{Name: "page", Key: keyfunc.IP(), InFlight: 3}},
	})
	require.NoError(t, err)
	var nest func(depth int) http.HandlerFunc
	nest = func(depth int) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) {
			if depth > 0 {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				guard.Serve(httptest.NewRecorder(), r, nest(depth-1))
			}
		}
	}
	nest(2)(nil, nil)
	require.Empty(t, top.Near(9))
	nest(3)(nil, nil)
	require.Empty(t, top.Refused(9))
	nest(4)(nil, nil)
	near, refused := top.Near(9), top.Refused(9)
	require.Len(t, near, 1)
	require.Len(t, refused, 1)
	near[0].Last, refused[0].Last = time.Time{}, time.Time{}
	require.InDelta(t, 2, near[0].Count, 0.01)
	require.InDelta(t, 1, refused[0].Count, 0.01)
	near[0].Count, refused[0].Count = 0, 0
	require.Equal(t, observe.TopKey{Policy: "page", Key: "ip=192.0.2.1", Quota: 3}, near[0])
	refused[0].Quota = 0 // which a refusal need not tell
	require.Equal(t, observe.TopKey{Policy: "page", Key: "ip=192.0.2.1", Reason: limiter.ReasonInFlight}, refused[0])
}
