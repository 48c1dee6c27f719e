package degrade_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
)

// The vectors of what is replayed. A refusal is a Skip here; what it looks like is up to the guard.
func TestCachedVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/cached.json")
	require.NoError(t, err)
	var vectors []struct {
		ID    string `json:"id"`
		Input struct {
			Method   string      `json:"method"`
			Age      int         `json:"cached_age_s"`
			Lifetime int         `json:"cached_lifetime_s"`
			Headers  [][2]string `json:"cached_headers"`
		} `json:"input"`
		Expected struct {
			Status   int                `json:"status"`
			Headers  map[string]*string `json:"headers"`
			BodyText *string            `json:"body_text"`
		} `json:"expected"`
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Len(t, vectors, 4)
	served := 0
	for _, v := range vectors {
		t.Run(v.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, _ *http.Request) {
					controlled := false
					for _, f := range v.Input.Headers {
						controlled = controlled || f[0] == "Cache-Control"
						if f[0] != "Set-Cookie" { // what has one is not stored at all
							w.Header().Add(f[0], f[1])
						}
					}
					if !controlled {
						w.Header().Set("Cache-Control", "max-age="+strconv.Itoa(v.Input.Lifetime))
					}
					_, _ = w.Write([]byte("cached"))
				})
				s.allow(fetch("/"))
				time.Sleep(time.Duration(v.Input.Age) * time.Second)
				rec := s.refuse(cacheRequest(v.Input.Method, "/"))
				if v.Expected.BodyText == nil {
					require.Equal(t, http.StatusTooManyRequests, v.Expected.Status)
					require.Nil(t, rec)
					return
				}
				served++
				require.Equal(t, v.Expected.Status, rec.Code)
				require.Equal(t, *v.Expected.BodyText, rec.Body.String())
				for name, want := range v.Expected.Headers {
					if want == nil {
						require.NotContains(t, rec.Header(), name)
					} else {
						require.Equal(t, *want, rec.Header().Get(name), name)
					}
				}
			})
		})
	}
	require.Equal(t, 2, served)
}

// A store that others fill holds what we would not store; a field of one connection or a cookie is not replayed from it.
func TestCachedForeignStore(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{Store: degrade.NewMemoryStore(0)}, answers(200, "page"))
	s.allow(fetch("/"))
	store := s.h.(interface{ Pages() *degrade.Pages }).Pages().Store()
	for _, key := range degrade.StoreKeys(store) {
		c, _ := store.Get(key)
		page := c.Pages[0]
		page.Header = fieldsOf("Set-Cookie: sid=1", "Connection: close", "X-RateLimit-Remaining: 5", "X-Kept: 1")
		store.Set(key, &degrade.Copies{Key: key, Pages: []degrade.Page{page}})
	}
	h := s.refuse(fetch("/")).Header()
	require.NotContains(t, h, "Set-Cookie")
	require.NotContains(t, h, "Connection")
	require.NotContains(t, h, "X-Ratelimit-Remaining")
	require.Equal(t, "1", h.Get("X-Kept"))
}

// A Cache-Status of caches further in stays, and comes first; RFC 9211 2.
func TestCachedStatusIsAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, degrade.PagesConfig{Name: "edge/1"}, answers(200, "page", "Cache-Status: origin;fwd=miss", "Cache-Status: cdn;hit"))
		s.allow(fetch("/"))
		rec := s.refuse(fetch("/"), degrade.Capacity)
		require.Equal(t, []string{"origin;fwd=miss, cdn;hit, edge/1;hit;ttl=0;detail=temporary-reduced-capacity"}, rec.Header()["Cache-Status"])
		rec = httptest.NewRecorder()
		rec.Header().Set("Cache-Status", "before")
		s = newSite(t, degrade.PagesConfig{}, answers(200, "page"))
		s.allow(fetch("/"))
		require.Equal(t, degrade.Done, s.h.Degrade(rec, fetch("/"), &degrade.Denial{Policy: s.policy, Request: s.request(fetch("/"))}))
		require.Equal(t, "before, ratelimit;hit;ttl=0;detail=quota-exceeded", rec.Header().Get("Cache-Status"))
	})
}
