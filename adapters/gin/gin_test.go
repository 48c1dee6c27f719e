package ginlimit_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter, gin.DefaultErrorWriter = io.Discard, io.Discard
	m.Run()
}

func guardOf(p spillway.Policy) *middleware.Guard {
	p.Name, p.Key = "default", keyfunc.IP()
	return spillway.Must(spillway.New(spillway.Config{Policies: []spillway.Policy{p}}))
}

func denyAll() *middleware.Guard { return guardOf(spillway.Policy{Limit: limiter.DenyAll}) }

// settling returns a guard that notes the statuses it settles by.
func settling(statuses *[]int) *middleware.Guard {
	return guardOf(spillway.Policy{Limit: limiter.PerHour(100), Refund: func(status int) bool {
		*statuses = append(*statuses, status)
		return false
	}})
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// FW-01: a refusal stops the chain whatever the callback does, and nothing can answer it with 200.
func TestARefusalAbortsTheChain(t *testing.T) {
	for name, tc := range map[string]struct {
		opts   []ginlimit.Option
		status int
		body   string
	}{
		"plain": {nil, 429, `"status":429`},
		"an envelope": {[]ginlimit.Option{ginlimit.WithDenied(func(c *gin.Context, v *middleware.Verdict) {
			c.JSON(v.Status, gin.H{"error": "slow down", "violated": v.Refusal.Policies})
		})}, 429, `{"error":"slow down","violated":["default"]}`},
		"another status":  {[]ginlimit.Option{ginlimit.WithDenied(func(c *gin.Context, _ *middleware.Verdict) { c.String(418, "tea") })}, 418, "tea"},
		"nothing written": {[]ginlimit.Option{ginlimit.WithDenied(func(*gin.Context, *middleware.Verdict) {})}, 429, ""},
		"it calls Next":   {[]ginlimit.Option{ginlimit.WithDenied(func(c *gin.Context, v *middleware.Verdict) { c.Next(); c.String(v.Status, "no") })}, 429, "no"},
		"it adds an error": {[]ginlimit.Option{ginlimit.WithDenied(func(c *gin.Context, v *middleware.Verdict) {
			_ = c.AbortWithError(v.Status, errors.New("limited"))
		})}, 429, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := gin.New()
			var outside, inside, handler int
			r.Use(func(c *gin.Context) { c.Next(); outside = c.Writer.Status() })
			r.Use(ginlimit.Middleware(denyAll(), tc.opts...))
			r.Use(func(*gin.Context) { inside++ })
			r.GET("/x", func(c *gin.Context) { handler++; c.String(200, "served") })
			w := get(r, "/x")
			require.Equal(t, tc.status, w.Code)
			require.Equal(t, tc.status, outside)
			require.Contains(t, w.Body.String(), tc.body)
			require.NotContains(t, w.Body.String(), "served")
			require.Zero(t, inside)
			require.Zero(t, handler)
			require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		})
	}
}

func TestASkippedRequestGoesOn(t *testing.T) {
	r := gin.New()
	r.Use(ginlimit.Middleware(denyAll(), ginlimit.WithSkipper(func(c *gin.Context) bool { return c.FullPath() == "/health" })))
	r.GET("/health", func(c *gin.Context) { c.String(200, "fine") })
	require.Equal(t, 200, get(r, "/health").Code)
	require.Equal(t, 429, get(r, "/healthy").Code)
}

// REF-05: an error that an outer middleware answers later is no success.
func TestErrorsAnsweredLaterStayCharged(t *testing.T) {
	answer := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(502, gin.H{"error": c.Errors.String()})
		}
	}
	for name, tc := range map[string]struct {
		handler gin.HandlerFunc
		status  int
		settled []int
	}{
		"only an error":       {func(c *gin.Context) { _ = c.Error(errors.New("broken")) }, 502, nil},
		"a status as well":    {func(c *gin.Context) { c.Status(404); _ = c.Error(errors.New("broken")) }, 502, nil},
		"error and abort":     {func(c *gin.Context) { _ = c.AbortWithError(400, errors.New("broken")) }, 400, []int{400}},
		"written, then error": {func(c *gin.Context) { c.String(200, "x"); _ = c.Error(errors.New("late")) }, 200, []int{200}},
		"no error":            {func(c *gin.Context) { c.Status(204) }, 204, []int{204}},
	} {
		t.Run(name, func(t *testing.T) {
			var settled []int
			r := gin.New()
			r.Use(answer, ginlimit.Middleware(settling(&settled)))
			r.GET("/x", tc.handler)
			require.Equal(t, tc.status, get(r, "/x").Code)
			require.Equal(t, tc.settled, settled)
		})
	}
}

// A panic is 500, whichever side recovery stands on, and the writer is Gin's own again.
func TestRecovery(t *testing.T) {
	quiet := gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) })
	for name, build := range map[string]func(*gin.Engine, gin.HandlerFunc){
		"outside": func(r *gin.Engine, limit gin.HandlerFunc) { r.Use(quiet, limit) },
		"inside":  func(r *gin.Engine, limit gin.HandlerFunc) { r.Use(limit, quiet) },
	} {
		t.Run(name, func(t *testing.T) {
			var settled []int
			r := gin.New()
			var before, after gin.ResponseWriter
			r.Use(func(c *gin.Context) {
				before = c.Writer
				defer func() { after = c.Writer }()
				c.Next()
			})
			build(r, ginlimit.Middleware(settling(&settled)))
			r.GET("/x", func(*gin.Context) { panic("broken") })
			require.Equal(t, 500, get(r, "/x").Code)
			require.Equal(t, []int{500}, settled)
			require.Same(t, before, after)
		})
	}
}

// Gin answers its redirects without running middleware. Nothing a guard does can change that.
func TestWhatGinHides(t *testing.T) {
	r := gin.New()
	r.RedirectTrailingSlash, r.RedirectFixedPath, r.HandleMethodNotAllowed, r.RemoveExtraSlash = true, true, true, false
	r.Use(ginlimit.Middleware(denyAll()))
	r.GET("/users/:id", func(*gin.Context) {})
	for path, status := range map[string]int{
		"/users/1": 429, "/nothing": 429,
		"/users/1/": 301, "/USERS/1": 301, // hidden
		"//users/1": 301, // to the fixed path
	} {
		w := get(r, path)
		require.Equal(t, status, w.Code, path)
		if status == 301 {
			require.Empty(t, w.Header().Get("X-RateLimit-Limit"), path)
			require.Equal(t, 429, get(r, w.Header().Get("Location")).Code, path)
		}
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/users/1", nil))
	require.Equal(t, 429, w.Code, "405 is not hidden")
}

// One object has one key, however its path is spelled.
func TestParametersOfRawPaths(t *testing.T) {
	guard := spillway.Must(spillway.New(spillway.Config{Policies: []spillway.Policy{
		{Name: "file", Key: keyfunc.Param("name"), Limit: limiter.PerHour(1)},
	}}))
	r := gin.New()
	r.UseRawPath = true
	r.Use(ginlimit.Middleware(guard))
	var got string
	r.GET("/files/:name", func(c *gin.Context) { got = c.Param("name") })
	require.Equal(t, 200, get(r, "/files/a%2Fb").Code)
	require.Equal(t, "a/b", got)
	require.Equal(t, 429, get(r, "/files/%61%2Fb").Code)
	require.Equal(t, 200, get(r, "/files/a%2Fc").Code)
}

// A copy for a goroutine has the values and the request, and survives the end of the chain.
func TestCopies(t *testing.T) {
	done := make(chan bool)
	r := gin.New()
	r.Use(ginlimit.Middleware(guardOf(spillway.Policy{Limit: limiter.PerHour(9), Refund: func(int) bool { return false }})))
	r.GET("/users/:id", func(c *gin.Context) {
		c.Set("k", "v")
		cp := c.Copy()
		go func() {
			done <- cp.GetString("k") == "v" && cp.Param("id") == "1" && cp.FullPath() == "/users/:id" && cp.Request.URL.Path == "/users/1"
		}()
	})
	get(r, "/users/1")
	require.True(t, <-done)
}

type pusher struct {
	*httptest.ResponseRecorder
	pushed []string
}

func (p *pusher) Push(target string, _ *http.PushOptions) error {
	p.pushed = append(p.pushed, target)
	return nil
}

func (p *pusher) CloseNotify() <-chan bool { return make(chan bool) }

// tape records, so that the writer has to be wrapped.
type tape struct{ http.ResponseWriter }

func (tape) Degrade(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome {
	return degrade.Skip
}

func (tape) Record(w http.ResponseWriter, _ *keyfunc.Request, _, _ string) (http.ResponseWriter, func(bool)) {
	return tape{w}, func(bool) {}
}

func TestTheWriterIsStillGins(t *testing.T) {
	for name, p := range map[string]spillway.Policy{
		"plain":    {},
		"settled":  {Refund: func(int) bool { return false }},
		"recorded": {Degrade: tape{}},
	} {
		t.Run(name, func(t *testing.T) {
			p.Limit = limiter.PerHour(9)
			r := gin.New()
			var size int
			r.Use(func(c *gin.Context) { c.Next(); size = c.Writer.Size() })
			r.Use(ginlimit.Middleware(guardOf(p)))
			r.GET("/x", func(c *gin.Context) {
				require.False(t, c.Writer.Written())
				require.Equal(t, -1, c.Writer.Size())
				require.Equal(t, 200, c.Writer.Status())
				require.NotNil(t, c.Writer.CloseNotify())
				require.NoError(t, c.Writer.Pusher().Push("/style.css", nil))
				c.Status(201)
				require.Equal(t, 201, c.Writer.Status())
				require.False(t, c.Writer.Written())
				c.Header("X-Late", "yes") // behind the status, as c.JSON does it
				_, _ = c.Writer.WriteString("four")
				require.True(t, c.Writer.Written())
				_, _ = c.Writer.Write([]byte("more"))
				c.Status(500) // too late
				require.Equal(t, 201, c.Writer.Status())
				require.Equal(t, 8, c.Writer.Size())
				c.Writer.Flush()
			})
			r.GET("/now", func(c *gin.Context) {
				c.Status(202)
				c.Writer.WriteHeaderNow()
				require.True(t, c.Writer.Written())
				require.Zero(t, c.Writer.Size())
			})
			w := &pusher{ResponseRecorder: httptest.NewRecorder()}
			r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/x", nil))
			require.Equal(t, 201, w.Code)
			require.Equal(t, "fourmore", w.Body.String())
			require.Equal(t, "yes", w.Result().Header.Get("X-Late"))
			require.Equal(t, []string{"/style.css"}, w.pushed)
			require.True(t, w.Flushed)
			require.Equal(t, 8, size)
			require.Equal(t, 202, get(r, "/now").Code)
		})
	}
}

// A recorder gets the fields that Gin sets after the status.
func TestRecordersSeeFieldsSetAfterTheStatus(t *testing.T) {
	var seen []string
	rec := recorder(func(h http.Header, status int) {
		seen = append(seen, http.StatusText(status)+" "+h.Get("Content-Type"))
	})
	r := gin.New()
	r.Use(ginlimit.Middleware(guardOf(spillway.Policy{Limit: limiter.PerHour(9), Degrade: rec})))
	r.GET("/json", func(c *gin.Context) { c.JSON(201, gin.H{}) })
	r.GET("/empty", func(c *gin.Context) { c.Header("Content-Type", "x/y"); c.Status(204) })
	get(r, "/json")
	get(r, "/empty")
	require.Equal(t, []string{"Created application/json; charset=utf-8", "No Content x/y"}, seen)
}

type recorder func(h http.Header, status int)

func (recorder) Degrade(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome {
	return degrade.Skip
}

func (f recorder) Record(w http.ResponseWriter, _ *keyfunc.Request, _, _ string) (http.ResponseWriter, func(bool)) {
	return recording{w, f}, func(bool) {}
}

type recording struct {
	http.ResponseWriter
	note recorder
}

func (w recording) WriteHeader(code int) {
	w.note(w.Header(), code)
	w.ResponseWriter.WriteHeader(code)
}

// A degraded request is marked in the context of the request, and in Gin's own if the engine looks there.
func TestDegradedRequestsAreMarked(t *testing.T) {
	flag := degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Proceed })
	for _, fallback := range []bool{false, true} {
		r := gin.New()
		r.ContextWithFallback = fallback
		r.Use(ginlimit.Middleware(guardOf(spillway.Policy{Limit: limiter.DenyAll, Degrade: flag})))
		r.GET("/x", func(c *gin.Context) {
			info, ok := degrade.FromContext(c.Request.Context())
			require.True(t, ok)
			require.Equal(t, "default", info.Policy)
			_, ok = degrade.FromContext(c)
			require.Equal(t, fallback, ok)
		})
		require.Equal(t, 200, get(r, "/x").Code)
	}
}
