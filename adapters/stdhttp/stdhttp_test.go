package stdhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

func guardOf(policies ...spillway.Policy) *middleware.Guard {
	return spillway.Must(spillway.New(spillway.Config{Policies: policies}))
}

func policy(limit limiter.Limit) spillway.Policy {
	return spillway.Policy{Name: "default", Key: keyfunc.IP(), Limit: limit}
}

// keyed returns a guard that notes the key of every decision.
func keyed(key keyfunc.Func, keys *[]string) *middleware.Guard {
	return spillway.Must(spillway.New(spillway.Config{
		Policies: []spillway.Policy{{Name: "default", Key: key, OnNoKey: middleware.SkipPolicy, Limit: limiter.PerHour(100)}},
		Observer: limiter.ObserverFunc(func(e limiter.Event) {
			if e.Kind == limiter.EventDecision {
				*keys = append(*keys, e.Key.ID)
			}
		}),
	}))
}

// settling returns a policy that notes the statuses it settles by.
func settling(statuses *[]int) spillway.Policy {
	p := policy(limiter.PerHour(100))
	p.Refund = func(status int) bool {
		*statuses = append(*statuses, status)
		return false
	}
	return p
}

func get(h http.Handler, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
	return w
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

// The route of a key is the mux's pattern, wherever the guard stands.
func TestRouteKeys(t *testing.T) {
	build := func() *http.ServeMux {
		mux := http.NewServeMux()
		mux.Handle("GET /users/{id}", text("user"))
		mux.Handle("api.example/orders/{id}", text("order"))
		mux.Handle("/files/", text("files"))
		return mux
	}
	for name, mount := range map[string]func(*middleware.Guard) http.Handler{
		"around the mux": func(g *middleware.Guard) http.Handler { return stdhttp.Middleware(g)(build()) },
		"WithMux": func(g *middleware.Guard) http.Handler {
			mux := build()
			return stdhttp.Middleware(g, stdhttp.WithMux(mux))(http.MaxBytesHandler(mux, 1<<20))
		},
		"WithMux around another mux": func(g *middleware.Guard) http.Handler {
			mux, outer := build(), http.NewServeMux()
			outer.Handle("/", mux)
			return stdhttp.Middleware(g, stdhttp.WithMux(mux))(outer)
		},
		"in a mux, around a mux": func(g *middleware.Guard) http.Handler {
			outer := http.NewServeMux()
			outer.Handle("/", stdhttp.Middleware(g)(build()))
			return outer
		},
		"in each handler": func(g *middleware.Guard) http.Handler {
			mux, limit := http.NewServeMux(), stdhttp.Middleware(g)
			mux.Handle("GET /users/{id}", limit(text("user")))
			mux.Handle("api.example/orders/{id}", limit(text("order")))
			mux.Handle("/files/", limit(text("files")))
			mux.Handle("/", limit(http.NotFoundHandler()))
			return mux
		},
	} {
		t.Run(name, func(t *testing.T) {
			var keys []string
			h := mount(keyed(keyfunc.Route(), &keys))
			for _, url := range []string{"/users/1", "http://api.example/orders/1", "/files/a/b", "/nothing"} {
				get(h, url)
			}
			rest := "route=GET%20-"
			if name == "in each handler" {
				rest = "route=GET%20/"
			}
			require.Equal(t, []string{
				"route=GET%20/users/%7Bid%7D", "route=GET%20api.example/orders/%7Bid%7D", "route=GET%20/files/", rest,
			}, keys)
		})
	}
}

// Parameters are known outside of the mux as well.
func TestParameters(t *testing.T) {
	for name, tc := range map[string]struct{ pattern, url, name, want string }{
		"one":            {"GET /users/{id}", "/users/7", "id", "id=7"},
		"behind another": {"/a/{x}/b/{id}", "/a/1/b/2", "id", "id=2"},
		"with a host":    {"example.com/users/{id}", "/users/7", "id", "id=7"},
		"the rest":       {"/files/{path...}", "/files/a/b", "path", "path=a/b"},
		"no rest":        {"/files/{path...}", "/files/", "path", ""},
		"the end":        {"/users/{id}/{$}", "/users/7/", "id", "id=7"},
		"escaped":        {"/users/{id}", "/users/a%2Fb", "id", "id=a/b"},
		"spelled out":    {"/users/{id}", "/users/%37", "id", "id=7"},
		"another name":   {"/users/{id}", "/users/7", "name", ""},
		"no match":       {"/users/{id}", "/other", "id", ""},
		"a prefix":       {"/users/", "/users/7", "id", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var keys []string
			mux, value := http.NewServeMux(), ""
			mux.HandleFunc(tc.pattern, func(_ http.ResponseWriter, r *http.Request) { value = r.PathValue(tc.name) })
			get(stdhttp.Middleware(keyed(keyfunc.Param(tc.name), &keys))(mux), tc.url)
			if tc.want == "" {
				require.Empty(t, keys)
				require.Empty(t, value)
				return
			}
			require.Equal(t, []string{tc.want}, keys)
			require.Equal(t, tc.want, tc.name+"="+value, "as the handler sees it")
		})
	}
}

// Of nested muxes the inner one knows more, and what the outer one has matched is known as well.
func TestParametersOfNestedMuxes(t *testing.T) {
	var keys []string
	inner, outer := http.NewServeMux(), http.NewServeMux()
	inner.Handle("/{tenant}/users/{id}", text("user"))
	outer.Handle("/{tenant}/", stdhttp.Middleware(keyed(keyfunc.Join(keyfunc.Param("tenant"), keyfunc.Param("id")), &keys))(inner))
	require.Equal(t, 200, get(outer, "/acme/users/7").Code)
	require.Equal(t, []string{"tenant=acme|id=7"}, keys)

	keys, inner, outer = nil, http.NewServeMux(), http.NewServeMux()
	inner.Handle("/users/{id}", text("user"))
	key := keyfunc.Join(keyfunc.Param("id"), keyfunc.Route())
	outer.Handle("/api/", http.StripPrefix("/api", stdhttp.Middleware(keyed(key, &keys))(inner)))
	require.Equal(t, 200, get(outer, "/api/users/7").Code)
	require.Equal(t, []string{"id=7|route=GET%20/users/%7Bid%7D"}, keys)
}

// Inside of StripPrefix policies match what is left of the path, outside the whole.
func TestStripPrefix(t *testing.T) {
	at := func(route string) func(http.Handler) http.Handler {
		p := policy(limiter.DenyAll)
		p.Match.Routes = []string{route}
		return stdhttp.Middleware(guardOf(p))
	}
	h := text("x")
	require.Equal(t, 429, get(http.StripPrefix("/api", at("/users")(h)), "/api/users").Code)
	require.Equal(t, 200, get(http.StripPrefix("/api", at("/api/users")(h)), "/api/users").Code)
	require.Equal(t, 429, get(at("/api/users")(http.StripPrefix("/api", h)), "/api/users").Code)
}

// Redirects of the mux are requests, if the guard stands outside of it.
func TestWhatAMuxAnswersByItself(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /dir/", text("dir"))
	h := stdhttp.Middleware(guardOf(policy(limiter.PerHour(3))))(mux)
	require.Equal(t, http.StatusTemporaryRedirect, get(h, "/dir").Code)
	require.Equal(t, http.StatusTemporaryRedirect, get(h, "/x/../dir/").Code)
	require.Equal(t, http.StatusNotFound, get(h, "/other").Code)
	require.Equal(t, http.StatusTooManyRequests, get(h, "/dir/").Code)
}

// A TimeoutHandler inside of the guard is seen; one outside answers the client before the guard knows.
func TestTimeoutHandler(t *testing.T) {
	slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(2 * time.Second)
		w.WriteHeader(http.StatusCreated)
	})
	for name, tc := range map[string]struct {
		build   func(limit func(http.Handler) http.Handler) http.Handler
		settled int
	}{
		"inside": {func(limit func(http.Handler) http.Handler) http.Handler {
			return limit(http.TimeoutHandler(slow, time.Second, "slow"))
		}, 503},
		"outside": {func(limit func(http.Handler) http.Handler) http.Handler {
			return http.TimeoutHandler(limit(slow), time.Second, "slow")
		}, 201},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var settled []int
				w := get(tc.build(stdhttp.Middleware(guardOf(settling(&settled)))), "/x")
				require.Equal(t, 503, w.Code)
				require.Equal(t, "slow", w.Body.String())
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, []int{tc.settled}, settled)
			})
		})
	}
}

// A request whose time runs out while it is held is answered by the one who set the time.
func TestAQueueInsideOfATimeoutHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(limiter.Per(1, time.Minute).WithBurst(3).With(limiter.LeakyBucket))
		h := http.TimeoutHandler(stdhttp.Middleware(guardOf(p))(text("x")), time.Second, "slow")
		require.Equal(t, 200, get(h, "/x").Code)
		start := time.Now()
		w := get(h, "/x") // its turn comes after the deadline: there is no point in holding it
		require.Equal(t, 429, w.Code)
		require.Equal(t, start, time.Now())
		require.Equal(t, "59", w.Header().Get("Retry-After")) // it could then be held for the last second
	})
}

// A body that is too large is the handler's affair, as without a guard.
func TestMaxBytesHandler(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	})
	var settled []int
	limit := stdhttp.Middleware(guardOf(settling(&settled)))
	for _, h := range []http.Handler{http.MaxBytesHandler(limit(read), 3), limit(http.MaxBytesHandler(read, 3))} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("four")))
		require.Equal(t, 413, w.Code)
	}
	require.Equal(t, []int{413, 413}, settled)
}

// file is a writer that can send files by itself.
type file struct {
	*httptest.ResponseRecorder
	sent int64
}

func (f *file) ReadFrom(r io.Reader) (n int64, err error) {
	n, err = io.Copy(f.ResponseRecorder, r)
	f.sent += n
	return n, err
}

// An access log outside of the guard reads the pattern that the mux has found, also where the request had to be copied.
func TestThePatternIsSeenOutside(t *testing.T) {
	flag := policy(limiter.DenyAll)
	flag.Degrade = degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Proceed })
	for name, tc := range map[string]struct {
		guard *middleware.Guard
		twice bool
	}{
		"plain":    {guardOf(policy(limiter.PerHour(9))), false},
		"marked":   {guardOf(policy(limiter.PerHour(9))), true},
		"degraded": {guardOf(flag), false},
	} {
		t.Run(name, func(t *testing.T) {
			mux, limit := http.NewServeMux(), stdhttp.Middleware(tc.guard)
			var h http.Handler = text("user")
			if tc.twice {
				h = limit(h)
			}
			mux.Handle("GET /users/{id}", h)
			r := httptest.NewRequest(http.MethodGet, "/users/1", nil)
			w := httptest.NewRecorder()
			limit(mux).ServeHTTP(w, r)
			require.Equal(t, 200, w.Code)
			require.Equal(t, "GET /users/{id}", r.Pattern)
		})
	}
}

// Files go out by the kernel, also where the status is watched.
func TestReaderFromIsKept(t *testing.T) {
	var settled []int
	for _, p := range []spillway.Policy{policy(limiter.PerHour(9)), settling(&settled)} {
		w := &file{ResponseRecorder: httptest.NewRecorder()}
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader("contents"))
		})
		stdhttp.Middleware(guardOf(p))(h).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, "contents", w.Body.String())
		require.Equal(t, int64(8), w.sent)
	}
	require.Equal(t, []int{200}, settled)
}

// The envelope gets the verdict, with the fields set.
func TestWithDenied(t *testing.T) {
	var verdict middleware.Verdict
	h := stdhttp.Middleware(guardOf(policy(limiter.PerMinute(1))), stdhttp.WithDenied(func(w http.ResponseWriter, _ *http.Request, v *middleware.Verdict) {
		verdict = *v
		w.WriteHeader(v.Status)
	}))(text("x"))
	require.Equal(t, 200, get(h, "/").Code)
	w := get(h, "/")
	require.Equal(t, 429, w.Code)
	require.Equal(t, "60", w.Header().Get("Retry-After"))
	require.Equal(t, 429, verdict.Status)
	require.False(t, verdict.Allowed)
	require.Equal(t, []string{"default"}, verdict.Refusal.Policies)
	require.Equal(t, time.Minute, verdict.Refusal.RetryAfter)
	require.True(t, verdict.Policies[0].Violated)
}

// An envelope that writes nothing does not turn a refusal into a success.
func TestWithDeniedThatWritesNothing(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter, r *http.Request, v *middleware.Verdict){
		"nothing": func(http.ResponseWriter, *http.Request, *middleware.Verdict) {},
		"a hint": func(w http.ResponseWriter, _ *http.Request, _ *middleware.Verdict) {
			w.WriteHeader(http.StatusEarlyHints)
		},
		"a status": func(w http.ResponseWriter, _ *http.Request, v *middleware.Verdict) { w.WriteHeader(v.Status) },
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			s := httptest.NewServer(stdhttp.Middleware(guardOf(policy(limiter.DenyAll)), stdhttp.WithDenied(write))(text("x")))
			defer s.Close()
			res, err := s.Client().Get(s.URL)
			require.NoError(t, err)
			_ = res.Body.Close()
			require.Equal(t, 429, res.StatusCode)
		})
	}
	// A body alone is 200, as everywhere in net/http.
	h := stdhttp.Middleware(guardOf(policy(limiter.DenyAll)), stdhttp.WithDenied(
		func(w http.ResponseWriter, _ *http.Request, _ *middleware.Verdict) { _, _ = io.WriteString(w, "no") }))(text("x"))
	require.Equal(t, "no", get(h, "/").Body.String())
}

// Two guards in a row each count, and a refusal of the inner one does not undo what the outer one took.
func TestTwoGuards(t *testing.T) {
	outer, inner := policy(limiter.PerHour(9)), policy(limiter.PerHour(1))
	h := stdhttp.Middleware(guardOf(outer))(stdhttp.Middleware(guardOf(inner))(text("x")))
	require.Equal(t, "0", get(h, "/").Header().Get("X-RateLimit-Remaining"))
	w := get(h, "/")
	require.Equal(t, 429, w.Code)
	require.Equal(t, []string{"0"}, w.Header().Values("X-RateLimit-Remaining"))
	require.Len(t, w.Header().Values("Retry-After"), 1)
}
