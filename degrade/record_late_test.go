package degrade_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
)

// late is a writer of a middleware further out, such as one of sessions, that adds fields when the header goes out: at the
// first byte beyond a number of them.
type late struct {
	http.ResponseWriter
	add    func(http.Header)
	behind int
	bytes  int
	done   bool
}

func (l *late) out() {
	if !l.done && l.bytes >= l.behind {
		l.done = true
		l.add(l.Header())
	}
}

func (l *late) WriteHeader(status int) { l.out(); l.ResponseWriter.WriteHeader(status) }
func (l *late) Write(b []byte) (int, error) {
	l.bytes += len(b)
	l.out()
	return l.ResponseWriter.Write(b)
}
func (l *late) WriteString(s string) (int, error) { return l.Write([]byte(s)) }
func (l *late) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{l}, src)
}
func (l *late) Flush() { l.out() }

// What is further out may forbid to store a response while its header goes out, however that comes about.
func TestLeakLateFields(t *testing.T) {
	ways := map[string]func(http.ResponseWriter){
		"status":      func(w http.ResponseWriter) { w.WriteHeader(200); _, _ = w.Write([]byte("page")) },
		"Write":       func(w http.ResponseWriter) { _, _ = w.Write([]byte("page")) },
		"WriteString": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "page") },
		"ReadFrom":    func(w http.ResponseWriter) { _, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("page")}) },
		"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush(); _, _ = w.Write([]byte("page")) },
		"FlushError":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush(); _, _ = w.Write([]byte("page")) },
		"pieces":      func(w http.ResponseWriter) { _, _ = w.Write([]byte("pa")); _, _ = w.Write([]byte("ge")) },
	}
	for _, c := range []struct {
		add    []string
		behind int
		want   string
	}{
		{nil, 0, "page"},
		{[]string{"X-Frame-Options: DENY"}, 0, "page"},
		{[]string{"Set-Cookie: session=1"}, 0, "refused"},
		{[]string{"Set-Cookie: session=1", `Cache-Control: no-cache="Set-Cookie"`}, 0, "refused"},
		{[]string{"Cache-Control: private"}, 0, "refused"},
		{[]string{"Cache-Control: no-store"}, 0, "refused"},
		{[]string{"Cache-Control: s-maxage=1"}, 0, "refused"},
		{[]string{"Vary: *"}, 0, "refused"},
		{[]string{"Vary: A, B, C, D, E, F, G, H, I"}, 0, "refused"},
		{[]string{"Pragma: no-cache"}, 0, "refused"},
		{[]string{"Surrogate-Control: no-store"}, 0, "refused"},
		{[]string{"X-Accel-Expires: 0"}, 0, "refused"},
		{[]string{"Set-Cookie: session=1"}, 3, "refused"},
	} {
		for name, write := range ways {
			s := newSite(t, degrade.PagesConfig{Flushed: true}, nil)
			s.origin = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				write(w)
			}
			s.allow(fetch("/"))
			require.NotNil(t, s.refuse(fetch("/")), "an older copy, by %s", name)
			around := &late{ResponseWriter: httptest.NewRecorder(), behind: c.behind, add: func(h http.Header) { setFields(h, c.add) }}
			s.serve(around, fetch("/"))
			require.True(t, around.done)
			require.Equal(t, c.want, copyOf(s.refuse(fetch("/"))), "%s: %q behind %d", name, c.add, c.behind)
		}
	}
}

// What is said late of whom a response is for, of what it depends on and of how long it is good is heard, too.
func TestRecordLateFields(t *testing.T) {
	serve := func(response []string, r *http.Request, add ...string) *site {
		s := newSite(t, degrade.PagesConfig{MaxStale: -1}, answers(200, "page", response...))
		s.serve(&late{ResponseWriter: httptest.NewRecorder(), add: func(h http.Header) {
			for _, f := range add {
				name, value, _ := strings.Cut(f, ": ")
				if name == "Vary" {
					h.Add(name, value)
				} else {
					h.Set(name, value)
				}
			}
		}}, r)
		return s
	}
	long := "Cache-Control: public, max-age=60"
	cookie := "Cookie: sid=1"
	require.NotNil(t, serve([]string{long}, fetch("/", cookie)).refuse(fetch("/", cookie)))
	require.NotNil(t, serve([]string{long}, fetch("/"), "X-A: b").refuse(fetch("/", cookie)))
	require.Nil(t, serve([]string{long}, fetch("/", cookie), "Cache-Control: max-age=60", "X-A: b").refuse(fetch("/", cookie)), "not public after all")
	s := serve([]string{long}, fetch("/"), "Cache-Control: max-age=60", "X-A: b")
	require.Nil(t, s.refuse(fetch("/", cookie)), "for the anonymous alone")
	require.NotNil(t, s.refuse(fetch("/")))
	require.Nil(t, serve([]string{"Cache-Control: max-age=60"}, fetch("/"), "Cache-Control: public, max-age=60", "X-A: b").refuse(fetch("/", cookie)), "nor public by others")

	s = serve([]string{long, "Vary: Accept"}, fetch("/", "Accept: a", cookie), "Vary: Cookie", "X-A: b")
	require.NotNil(t, s.refuse(fetch("/", "Accept: a", cookie)))
	require.Nil(t, s.refuse(fetch("/", "Accept: a", "Cookie: sid=2")))
	require.Nil(t, s.refuse(fetch("/", "Accept: b", cookie)))
	s = serve([]string{long}, fetch("/", "Accept-Encoding: gzip"), "Vary: Accept-Encoding", "Content-Encoding: gzip")
	rec := s.refuse(fetch("/"))
	require.NotNil(t, rec, "is compressed further out, as the copy will be")
	require.Empty(t, rec.Header()["Content-Encoding"])

	s = serve([]string{long}, fetch("/"), "Cache-Control: public, max-age=0", "X-A: b")
	require.Nil(t, s.refuse(fetch("/", "Cache-Control: max-stale=0")), "as fresh as is said last")
}

// A store that does its work later does it with what belongs to its request, not with what a pool has given to the next.
func TestRecordDeferredUpdate(t *testing.T) {
	store := &laterStore{MemoryStore: degrade.NewMemoryStore(0)}
	s := newSite(t, degrade.PagesConfig{Store: store}, nil)
	meanwhile := func() {}
	s.origin = func(w http.ResponseWriter, r *http.Request) {
		meanwhile()
		w.Header().Set("Vary", "X-Tenant, Host")
		_, _ = io.WriteString(w, "page of "+r.Header.Get("X-Tenant"))
	}
	for range 50 { // a pool need not give back what it has been given
		s.allow(fetch("/", "X-Tenant: alice"))
		todo := store.later
		store.later = nil
		meanwhile = func() { // while bob is served
			for _, f := range todo {
				f()
			}
		}
		s.allow(fetch("/", "X-Tenant: bob"))
		require.NotEqual(t, "page of alice", copyOf(s.refuse(fetch("/", "X-Tenant: bob"))))
		require.Equal(t, "page of alice", copyOf(s.refuse(fetch("/", "X-Tenant: alice"))))
		meanwhile, store.later = func() {}, nil
	}
	// Nor does it bring back what was written to meanwhile.
	s.allow(fetch("/late", "X-Tenant: alice"))
	s.allow(cacheRequest("POST", "/late"))
	keys := store.Len()
	for _, f := range store.later {
		f()
	}
	require.Equal(t, keys, store.Len())
}

// laterStore does updates when it likes.
type laterStore struct {
	*degrade.MemoryStore
	later []func()
}

func (s *laterStore) Update(key string, change func(*degrade.Copies) *degrade.Copies) {
	s.later = append(s.later, func() { s.MemoryStore.Update(key, change) })
}

// mixedStore takes all keys for one.
type mixedStore struct{ *degrade.MemoryStore }

func (s mixedStore) Get(string) (*degrade.Copies, bool) { return s.MemoryStore.Get("") }
func (s mixedStore) Set(_ string, c *degrade.Copies)    { s.MemoryStore.Set("", c) }
func (s mixedStore) Delete(string)                      { s.MemoryStore.Delete("") }
func (s mixedStore) Update(_ string, change func(*degrade.Copies) *degrade.Copies) {
	s.MemoryStore.Update("", change)
}

// simpleStore hides Update.
type simpleStore struct{ degrade.Store }

// A store that mixes up its keys costs copies and mixes no callers.
func TestLeakMixedStore(t *testing.T) {
	mixed := mixedStore{degrade.NewMemoryStore(0)}
	for _, store := range []degrade.Store{mixed, simpleStore{mixed}} {
		s := newSite(t, degrade.PagesConfig{Store: store, Partition: byIdentity}, secretOf("X-Identity"))
		s.allow(fetch("/", "X-Identity: alice"))
		require.Equal(t, "secret of alice", copyOf(s.refuse(fetch("/", "X-Identity: alice"))))
		require.Nil(t, s.refuse(fetch("/", "X-Identity: bob")))
		require.Nil(t, s.refuse(fetch("/other", "X-Identity: alice")))
		s.allow(fetch("/", "X-Identity: bob", "Accept: x"))
		require.Equal(t, "secret of bob", copyOf(s.refuse(fetch("/", "X-Identity: bob"))))
		require.Nil(t, s.refuse(fetch("/", "X-Identity: alice")))
		c, ok := store.Get("")
		require.True(t, ok)
		require.Len(t, c.Pages, 1, "another's page is not taken over")
		s.origin = answers(200, "", "Cache-Control: private")
		s.allow(fetch("/", "X-Identity: carol"))
		require.Nil(t, s.refuse(fetch("/", "X-Identity: bob")))
	}
}

// A short name or value may be a part of a long text. A copy does not keep that.
func TestRecordSharesNoText(t *testing.T) {
	text := strings.Repeat("Z", 1<<20)
	inside := func(s string) bool {
		at, from := uintptr(unsafe.Pointer(unsafe.StringData(s))), uintptr(unsafe.Pointer(unsafe.StringData(text)))
		return from <= at && at < from+uintptr(len(text))
	}
	s := newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Vary"], h["Z"], h["Content-Type"] = []string{text[:1]}, []string{text[:8], "", text[:3]}, []string{text[:5]}
		h[text[:1]] = h["Z"]
		_, _ = io.WriteString(w, "page")
	})
	s.allow(fetch("/"))
	store := s.h.(interface{ Pages() *degrade.Pages }).Pages().Store()
	c, ok := store.Get(degrade.StoreKeys(store)[0])
	require.True(t, ok)
	require.Equal(t, []string{"Z"}, c.Vary)
	require.False(t, inside(c.Vary[0]))
	for name, values := range c.Pages[0].Header {
		require.False(t, inside(name))
		for _, v := range values {
			require.False(t, inside(v), name)
		}
	}
	require.Equal(t, []string{"ZZZZZZZZ", "", "ZZZ"}, c.Pages[0].Header["Z"])
	require.Equal(t, []string{"ZZZZZ"}, c.Pages[0].Header["Content-Type"])
}

// The table of writes is there once something is written, and is inherited with the store.
func TestRecordCutsAreLazy(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, answers(200, "page"))
	pages := func(s *site) *degrade.Pages { return s.h.(interface{ Pages() *degrade.Pages }).Pages() }
	s.allow(fetch("/"))
	require.NotNil(t, s.refuse(fetch("/")))
	require.False(t, pages(s).HasCuts())
	next := newSite(t, degrade.PagesConfig{}, answers(200, "page"))
	require.True(t, next.h.(degrade.Heir).Inherit(s.h))
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() { s.allow(cacheRequest("POST", fmt.Sprintf("/%d", k))) })
	}
	wg.Wait()
	require.True(t, pages(s).HasCuts())
	require.True(t, pages(next).HasCuts())
	for k := range 4 {
		w, done := record(s, httptest.NewRecorder(), fetch(fmt.Sprintf("/%d", k)))
		next.allow(cacheRequest("POST", fmt.Sprintf("/%d", k)))
		_, _ = io.WriteString(w, "before the write")
		done(true)
		require.Nil(t, s.refuse(fetch(fmt.Sprintf("/%d", k))))
	}
}
