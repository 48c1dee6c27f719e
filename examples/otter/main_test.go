package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/examples/otter/copies"
)

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

// Who is limited gets what was served before, for a minute, and the refusal for what was not.
func TestCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := copies.New(1 << 20)
		require.NoError(t, err)
		h, err := handler(store)
		require.NoError(t, err)
		var fresh string
		for range 3 {
			w := get(h, "/article")
			require.Equal(t, http.StatusOK, w.Code)
			require.Empty(t, w.Header().Get("Age"))
			fresh = w.Body.String()
		}
		time.Sleep(5 * time.Second)
		w := get(h, "/article")
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, fresh, w.Body.String())
		require.Equal(t, "5", w.Header().Get("Age"))
		require.Equal(t, "cache", w.Header().Get("X-RateLimit-Degraded"))
		require.Contains(t, w.Header().Get("Cache-Status"), "ratelimit;hit")
		require.Equal(t, http.StatusTooManyRequests, get(h, "/another").Code, "nobody has had this page")

		require.Equal(t, 1, store.Len(), "the copy is in the store")
	})
}
