package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// A policy that moves between stages meets every request in one of them.
func TestPinnedStages(t *testing.T) {
	in := func(stage string) []policy {
		return byIP(policy{Name: "a", Stage: stage, Limit: limiter.DenyAll}, policy{Name: "b", Stage: middleware.StageManual, Limit: perMinute})
	}
	g := newGuard(t, config{Policies: in("later")})
	require.Equal(t, []string{"edge", "later"}, g.StagesOf(t.Context()))
	r := request("GET", "/")
	r = r.WithContext(g.Pin(r.Context()))
	require.NoError(t, g.Update(in(middleware.StageIdentity)))
	require.Equal(t, []string{"edge", "identity"}, g.StagesOf(t.Context()))
	require.Equal(t, []string{"edge", "later"}, g.StagesOf(r.Context()))

	require.Equal(t, http.StatusOK, serve(g, r, ok).Code)
	require.Equal(t, http.StatusOK, serve(g.Stage("identity"), r, ok).Code, "by the policies before")
	require.Equal(t, http.StatusTooManyRequests, serve(g.Stage("later"), r, ok).Code)
	require.Equal(t, http.StatusTooManyRequests, serve(g.Stage("identity"), request("GET", "/"), ok).Code)
	require.Equal(t, http.StatusOK, serve(newGuard(t, config{Policies: byIP(policy{Name: "a", Limit: perMinute})}), r, ok).Code, "of another guard")
	v, err := g.Stage("later").Check(r)
	require.NoError(t, err)
	require.False(t, v.Allowed)
}
