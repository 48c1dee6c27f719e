package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// A handler can learn which policies let its request pass undecided, over all stages; the client cannot.
func TestUndecided(t *testing.T) {
	far := newFake()
	proceed := degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Proceed })
	g := guardOf(t,
		policy{Name: "a", Limit: perMinute, Limiter: far},
		policy{Name: "trial", Limit: perMinute, Limiter: far, Shadow: true},
		policy{Name: "near", Limit: limiter.PerDay(3), Degrade: proceed},
		policy{Name: "b", Limit: perMinute, Limiter: far},
		policy{Name: "c", Stage: "identity", Limit: perMinute, Limiter: far},
		policy{Name: "d", Stage: "identity", Limit: perMinute, Match: match{Methods: []string{"POST"}}, OnStoreError: middleware.FailClosed, Limiter: far},
	)
	var names []string
	var isDegraded bool
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		names = middleware.Undecided(r.Context())
		_, isDegraded = degrade.FromContext(r.Context())
	})
	ask := func(method string) (int, http.Header) {
		names, isDegraded = nil, false
		inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.Stage("identity").Serve(w, r, handler) })
		w := serve(g, request(method, "/"), inner)
		return w.Code, w.Header()
	}

	code, whole := ask("GET")
	require.Equal(t, 200, code)
	require.Empty(t, names)

	far.fail(errAway)
	code, told := ask("GET")
	require.Equal(t, 200, code)
	require.Equal(t, []string{"a", "b", "c"}, names, "the shadow policy would not have refused")
	require.Subset(t, keysOf(whole), keysOf(told), "not a field more")

	code, _ = ask("POST")
	require.Equal(t, 503, code)
	require.Empty(t, names, "one that fails closed is not served")

	code, _ = ask("GET")
	require.Equal(t, 200, code)
	require.True(t, isDegraded)
	require.Equal(t, []string{"a", "b", "c"}, names, "beside the mark of a degraded request")

	far.fail(nil)
	_, _ = ask("GET")
	require.True(t, isDegraded)
	require.Empty(t, names)
}

func keysOf(h http.Header) (out []string) {
	for name := range h {
		out = append(out, name)
	}
	return out
}
