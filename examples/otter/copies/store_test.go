package copies

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
)

// The bound is one of bytes: small pages stay in greater number than big ones.
func TestBound(t *testing.T) {
	const bound = 1 << 20
	for _, body := range []int{1 << 10, 64 << 10} {
		store, err := New(bound)
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
	store, err := New(1 << 20)
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

func TestBoundIsRequired(t *testing.T) {
	_, err := New(0)
	require.ErrorContains(t, err, "copies: ")
}

// Every update sees the one before.
func TestUpdate(t *testing.T) {
	store, err := New(1 << 20)
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
