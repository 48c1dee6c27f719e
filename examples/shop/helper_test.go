package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
)

// shopFor is the guarded shop of a bubble. change replaces texts of its document.
func shopFor(t *testing.T, change ...string) (*shop, direct) {
	t.Helper()
	text, err := os.ReadFile("shop.yaml")
	require.NoError(t, err)
	document := strings.NewReplacer(change...).Replace(string(text))
	require.Equal(t, len(change) > 0, document != string(text))
	limiters := stores.New(stores.Config{})
	t.Cleanup(func() { require.NoError(t, limiters.Close()) })
	f, err := config.Open(t.Context(), fixed(document), deps(limiters, slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	s := newShop()
	return s, direct{front(s, f.Guard())}
}

// fixed is a document that does not change.
type fixed string

func (f fixed) Load(context.Context) ([]byte, error)    { return []byte(f), nil }
func (fixed) Watch(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }

// direct calls the handler without a network, so that time is that of the bubble.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	w := httptest.NewRecorder()
	d.ServeHTTP(w, served)
	return w.Result(), r.Context().Err()
}

// ask asks as somebody, and returns when it is answered.
func (d direct) ask(method, path, address, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("X-Forwarded-For", address)
	if user != "" {
		r.AddCookie(&http.Cookie{Name: "session", Value: user})
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}
