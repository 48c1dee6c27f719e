package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
)

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

// Who is limited gets what was served before, for a minute, and the refusal for what was not.
func TestCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := newCopies(1 << 20)
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

		store.cache.InvalidateAll()
		require.Equal(t, http.StatusTooManyRequests, get(h, "/article").Code, "the copy was in the store")
	})
}

// The bound is one of bytes: small pages stay in greater number than big ones.
func TestBound(t *testing.T) {
	const bound = 1 << 20
	for _, body := range []int{1 << 10, 64 << 10} {
		store, err := newCopies(bound)
		require.NoError(t, err)
		for k := range 4096 {
			store.Set(fmt.Sprint("page-", k), page(body))
		}
		store.cache.CleanUp()
		held := 0
		for key, c := range store.cache.All() {
			held += int(weight(key, c))
		}
		require.LessOrEqual(t, held, bound)
		require.Greater(t, held, bound/2, "%d bytes of body", body)
	}
}

func page(body int) *degrade.Copies {
	return &degrade.Copies{Pages: []degrade.Page{{Status: http.StatusOK, Body: make([]byte, body)}}}
}

func TestStore(t *testing.T) {
	store, err := newCopies(1 << 20)
	require.NoError(t, err)
	_, ok := store.Get("key")
	require.False(t, ok)
	store.Update("key", func(old *degrade.Copies) *degrade.Copies {
		require.Nil(t, old)
		return old
	})
	_, ok = store.Get("key")
	require.False(t, ok, "nothing was there, and nothing is")
	one := page(1)
	store.Set("key", one)
	got, ok := store.Get("key")
	require.True(t, ok)
	require.Same(t, one, got)
	store.Delete("key")
	_, ok = store.Get("key")
	require.False(t, ok)
	store.Set("key", one)
	store.Update("key", func(*degrade.Copies) *degrade.Copies { return nil })
	_, ok = store.Get("key")
	require.False(t, ok, "an update may take away")
}

// Every update sees the one before.
func TestUpdate(t *testing.T) {
	store, err := newCopies(1 << 20)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			store.Update("key", func(old *degrade.Copies) *degrade.Copies {
				next := &degrade.Copies{Pages: make([]degrade.Page, 1)}
				if old != nil {
					next.Pages = append(next.Pages, old.Pages...)
				}
				return next
			})
		})
	}
	wg.Wait()
	c, ok := store.Get("key")
	require.True(t, ok)
	require.Len(t, c.Pages, 100)
}
