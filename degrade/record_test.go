package degrade_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
)

// plainWriter can nothing but what it must.
type plainWriter struct {
	h      http.Header
	bytes  int
	failAt int // write that fails, from 1; 0: none
	writes int
}

func (w *plainWriter) Header() http.Header { return w.h }
func (w *plainWriter) WriteHeader(int)     {}
func (w *plainWriter) Write(b []byte) (int, error) {
	if w.writes++; w.writes == w.failAt {
		return 0, errors.New("gone")
	}
	w.bytes += len(b)
	return len(b), nil
}

// fullWriter is one of a server of HTTP/1.1.
type fullWriter struct {
	plainWriter
	flushes int
	read    io.Reader // what it was asked to read from
}

func (w *fullWriter) Flush() { w.flushes++ }
func (w *fullWriter) ReadFrom(src io.Reader) (int64, error) {
	w.read = src
	return io.Copy(&w.plainWriter, src)
}
func (w *fullWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }
func (w *fullWriter) WriteString(s string) (int, error)            { return w.Write([]byte(s)) }

func record(s *site, w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func(bool)) {
	return s.h.(degrade.Recorder).Record(w, s.request(r), s.policy, "")
}

// What a writer can do survives, what it cannot does not appear, and it can still be unwrapped.
func TestRecordKeepsInterfaces(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, nil)
	full := &fullWriter{plainWriter: plainWriter{h: http.Header{}}}
	w, done := record(s, full, fetch("/"))
	defer done(true)
	for _, ok := range []bool{is[http.Flusher](w), is[http.Hijacker](w), is[io.ReaderFrom](w), is[io.StringWriter](w)} {
		require.True(t, ok)
	}
	require.False(t, is[http.Pusher](w))
	require.Same(t, full, w.(interface{ Unwrap() http.ResponseWriter }).Unwrap())
	plain := &plainWriter{h: http.Header{}}
	w, done = record(s, plain, fetch("/"))
	defer done(true)
	for _, ok := range []bool{is[http.Flusher](w), is[http.Hijacker](w), is[io.ReaderFrom](w)} {
		require.False(t, ok)
	}
}

func is[T any](w http.ResponseWriter) bool { _, ok := w.(T); return ok }

// Every byte is passed on before the next one is asked for, whatever the length; beyond the bound nothing is kept.
func TestRecordDoesNotBuffer(t *testing.T) {
	const size, piece = 10 << 20, 32 << 10
	for name, write := range map[string]func(http.ResponseWriter, []byte) (int, error){
		"Write":       func(w http.ResponseWriter, b []byte) (int, error) { return w.Write(b) },
		"WriteString": func(w http.ResponseWriter, b []byte) (int, error) { return w.(io.StringWriter).WriteString(string(b)) },
	} {
		out := &fullWriter{plainWriter: plainWriter{h: http.Header{}}}
		s := newSite(t, degrade.PagesConfig{}, nil)
		w, done := record(s, out, fetch("/"))
		b := make([]byte, piece)
		for n := piece; n <= size; n += piece {
			_, err := write(w, b)
			require.NoError(t, err)
			require.Equal(t, n, out.bytes, "%s: passed on at once", name)
		}
		done(true)
		require.Zero(t, out.flushes)
		require.Nil(t, s.refuse(fetch("/")))
	}
}

// The first byte of a body is with the client while the handler still waits, over a real connection.
func TestRecordFirstByteAtOnce(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		s := newSite(t, degrade.PagesConfig{Flushed: flushed}, nil)
		goOn := make(chan struct{})
		s.origin = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			<-goOn
			_, _ = io.WriteString(w, strings.Repeat("b", 10_000))
		}
		server := httptest.NewServer(http.HandlerFunc(s.serve))
		resp, err := server.Client().Get(server.URL + "/")
		require.NoError(t, err)
		first := make([]byte, 1)
		_, err = io.ReadFull(resp.Body, first)
		require.NoError(t, err)
		require.Equal(t, "a", string(first))
		close(goOn)
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Len(t, rest, 10_000)
		require.NoError(t, resp.Body.Close())
		host := server.Listener.Addr().String()
		server.Close() // waits for the handler
		want := "refused"
		if flushed {
			want = "a" + string(rest)
		}
		require.Equal(t, want, copyOf(s.refuse(fetch("http://"+host+"/"))))
	}
}

// A file that says how long it is and is not stored goes out as it is, by sendfile. What is read otherwise is counted.
func TestRecordReadFrom(t *testing.T) {
	serve := func(length string, src io.Reader, cfg degrade.PagesConfig) (*site, *fullWriter) {
		s := newSite(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			_, err := io.Copy(w, struct{ io.Reader }{src}) // a reader that cannot write itself
			require.NoError(t, err)
		})
		out := &fullWriter{plainWriter: plainWriter{h: http.Header{}}}
		s.serve(out, fetch("/"))
		return s, out
	}
	s, out := serve("", strings.NewReader("page"), degrade.PagesConfig{})
	require.Equal(t, "page", copyOf(s.refuse(fetch("/"))))
	require.NotNil(t, out.read)
	s, _ = serve("4", strings.NewReader("page"), degrade.PagesConfig{})
	require.Equal(t, "page", copyOf(s.refuse(fetch("/"))))
	s, out = serve("5", strings.NewReader("pages"), degrade.PagesConfig{MaxPage: 4})
	require.Nil(t, s.refuse(fetch("/")))
	require.IsType(t, struct{ io.Reader }{}, out.read, "not read through")
	s, out = serve("", strings.NewReader("pages"), degrade.PagesConfig{MaxPage: 4})
	require.Nil(t, s.refuse(fetch("/")))
	require.Equal(t, 5, out.bytes)

	broken := newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.(io.ReaderFrom).ReadFrom(io.MultiReader(strings.NewReader("pa"), errorReader{}))
	})
	broken.serve(&fullWriter{plainWriter: plainWriter{h: http.Header{}}}, fetch("/"))
	require.Nil(t, broken.refuse(fetch("/")))
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

// Who has not got it all, or whose handler may have stopped for them, makes no copy.
func TestRecordIncomplete(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "page")
		}
	})
	s.serve(&plainWriter{h: http.Header{}, failAt: 2}, fetch("/"))
	require.Nil(t, s.refuse(fetch("/")), "a write failed")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.allow(fetch("/").WithContext(ctx))
	require.Nil(t, s.refuse(fetch("/")), "the client is gone")
	s.serve(&plainWriter{h: http.Header{}}, fetch("/"))
	require.Equal(t, "pagepagepage", copyOf(s.refuse(fetch("/"))))

	s = newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "page")
		_, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
	})
	s.serve(&fullWriter{plainWriter: plainWriter{h: http.Header{}}}, fetch("/"))
	require.Nil(t, s.refuse(fetch("/")), "hijacked")
	s.origin = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		_, _ = io.WriteString(w.(interface{ Unwrap() http.ResponseWriter }).Unwrap(), "past it")
	}
	s.allow(fetch("/"))
	require.Nil(t, s.refuse(fetch("/")), "written past the recorder")
	s.origin = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols)
		_, _ = io.WriteString(w, "not HTTP")
	}
	s.serve(&plainWriter{h: http.Header{}}, fetch("/"))
	require.Nil(t, s.refuse(fetch("/")), "another protocol")
}

// A writer that is kept writes into nobody else's copy.
func TestRecordWritesAfterReturn(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, nil)
	var kept []http.ResponseWriter
	var mu sync.Mutex
	s.origin = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		kept = append(kept, w)
		old := kept
		mu.Unlock()
		for _, w := range old[:len(old)-1] {
			_, _ = io.WriteString(w, "LATE")
			_, _ = w.Write([]byte("LATE"))
			w.WriteHeader(500)
		}
		_, _ = io.WriteString(w, r.URL.Path)
	}
	for _, path := range []string{"/a", "/b", "/c", "/d", "/a"} {
		s.serve(&fullWriter{plainWriter: plainWriter{h: http.Header{}}}, fetch(path))
		require.Equal(t, path, copyOf(s.refuse(fetch(path))))
	}
}

// A recording ends once: its buffers are another's when it is told so again.
func TestRecordEndsOnce(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, nil)
	w, done := record(s, httptest.NewRecorder(), fetch("/"))
	_, _ = io.WriteString(w, "page")
	done(true)
	store := s.h.(interface{ Pages() *degrade.Pages }).Pages().Store()
	for _, key := range degrade.StoreKeys(store) {
		store.Delete(key)
	}
	require.Nil(t, s.refuse(fetch("/")))
	done(true)
	require.Empty(t, degrade.StoreKeys(store))
}

// Nothing is recorded of what cannot be stored: the writer is the same, and there is no function to call.
func TestRecordEarlyOut(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, nil)
	for _, r := range []*http.Request{
		cacheRequest("HEAD", "/"), cacheRequest("OPTIONS", "/"), cacheRequest("TRACE", "/"), fetch("/", "Range: bytes=0-"), fetch("/", "Cache-Control: no-store"),
		fetch("/", "Upgrade: websocket"), httptest.NewRequest("GET", "/", strings.NewReader("x")),
	} {
		rec := httptest.NewRecorder()
		w, done := record(s, rec, r)
		require.Same(t, rec, w)
		require.Nil(t, done)
		if !cachedUnderRace {
			k := s.request(r)
			require.Zero(t, testing.AllocsPerRun(100, func() { s.h.(degrade.Recorder).Record(rec, k, "p", "") }))
		}
	}
}

// What others set around the handler, for each request anew, is not a part of the copy; what the handler sets is.
func TestRecordWhoseFields(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Both", "handler")
		w.Header().Set("X-Handler", "1")
		w.Header().Add("Vary", "Accept")
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "page")
	})
	around := func(n string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		setFields(rec.Header(), []string{
			"X-Nonce: " + n, "X-Both: around", "Vary: Origin", "Content-Type: application/json", "Access-Control-Allow-Origin: https://" + n,
		})
		return rec
	}
	s.serve(around("one"), fetch("/"))
	rec := around("two")
	require.Equal(t, degrade.Done, s.h.Degrade(rec, fetch("/"), &degrade.Denial{Policy: s.policy, Request: s.request(fetch("/"))}))
	h := rec.Header()
	require.Equal(t, "two", h.Get("X-Nonce"))
	require.Equal(t, "handler", h.Get("X-Both"))
	require.Equal(t, "1", h.Get("X-Handler"))
	require.Equal(t, []string{"Origin", "Accept"}, h["Vary"])
	require.Equal(t, "text/html", h.Get("Content-Type"))
	require.Equal(t, "https://two", h.Get("Access-Control-Allow-Origin"))
	h["X-Handler"][0] = "changed" // as a writer further out may
	h["Vary"][1] = "changed"
	require.Equal(t, "1", s.refuse(fetch("/")).Header().Get("X-Handler"))
	require.Equal(t, []string{"Origin", "Accept"}, s.refuse(fetch("/")).Header()["Vary"])
}

// Readers, writers and those that take away at once: each copy is whole and somebody's own.
func TestCachedConcurrently(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{Partition: byIdentity, MaxBytes: 1 << 20, MaxPage: 64 << 10}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forbid") != "" {
			w.Header().Set("Cache-Control", "private")
		}
		w.Header().Set("Vary", "X-Tenant")
		for range 50 {
			_, _ = io.WriteString(w, r.Header.Get("X-Identity")+r.Header.Get("X-Tenant")+",")
		}
	})
	var wg sync.WaitGroup
	for k := range 6 {
		wg.Go(func() {
			who, tenant := []string{"alice", "bob", "carol"}[k%3], string(rune('a'+k%2))
			fields := []string{"X-Identity: " + who, "X-Tenant: " + tenant}
			want := strings.Repeat(who+tenant+",", 50)
			for i := range 300 {
				switch {
				case i%29 == 28:
					s.allow(cacheRequest("POST", "/", fields...))
				case i%7 == 6:
					s.allow(fetch("/", append(fields, "X-Forbid: 1")...))
				default:
					s.allow(fetch("/", fields...))
				}
				if rec := s.refuse(fetch("/", fields...)); rec != nil && rec.Body.String() != want {
					t.Errorf("%s got %.40s", want[:10], rec.Body.String())
				}
			}
		})
	}
	wg.Wait()
}
