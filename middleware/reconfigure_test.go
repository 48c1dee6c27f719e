package middleware_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/response"
)

// Everything that a Config says comes into force with the policies, and counters live on.
func TestReconfigure(t *testing.T) {
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	two := func() []policy { return byIP(policy{Name: "a", Limit: limiter.PerDay(2)}) }
	g := newGuard(t, config{Limiter: store, Policies: two()})
	from := func(peer, client, path string) *httptest.ResponseRecorder {
		r := request("GET", path)
		r.RemoteAddr = peer + ":1"
		r.Header.Set("X-Forwarded-For", client)
		return serve(g, r, ok)
	}
	require.Equal(t, "1", from("192.0.2.1", "203.0.113.9", "/").Header().Get("X-RateLimit-Remaining"))

	require.NoError(t, g.Reconfigure(config{
		Limiter: store, Policies: two(), Exempt: match{Routes: []string{"/healthz"}}, Response: response.Options{Headers: response.Draft11Set},
		ClientIP: keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"192.0.2.0/24"}},
	}))
	w := from("192.0.2.9", "192.0.2.1", "/") // all of them trusted: the rightmost
	require.Equal(t, `"a";r=0;t=`, w.Header().Get("RateLimit")[:10])
	require.Empty(t, w.Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, 429, from("192.0.2.9", "192.0.2.1", "/").Code)
	require.Equal(t, 200, from("192.0.2.9", "192.0.2.1", "/healthz").Code)
	require.Equal(t, 200, from("192.0.2.9", "203.0.113.9", "/").Code)

	err = g.Reconfigure(config{MaxWaiting: -2, Exempt: match{CIDRs: []string{"x"}}, Policies: []policy{{Name: "?"}}})
	for _, what := range []string{"MaxWaiting", "Exempt", `"?"`, "Key is required"} {
		require.ErrorContains(t, err, what)
	}
	require.Equal(t, 429, from("192.0.2.9", "192.0.2.1", "/").Code)
	require.NoError(t, g.Update(byIP(policy{Name: "b", Limit: perMinute})))
	require.Equal(t, 200, from("192.0.2.9", "192.0.2.1", "/healthz").Code)
	require.Equal(t, `"b";r=9`, from("192.0.2.9", "192.0.2.1", "/").Header().Get("RateLimit")[:7])
}
