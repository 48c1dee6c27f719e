package echolimit_test

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

func guardOf(p spillway.Policy) *middleware.Guard {
	p.Name = "default"
	if p.Key == nil {
		p.Key = keyfunc.IP()
	}
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

func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for k := 0; k < len(header); k += 2 {
		r.Header.Set(header[k], header[k+1])
	}
	h.ServeHTTP(w, r)
	return w
}

// FW-04: a refusal is answered once, by whoever answers it, and the error handler runs once.
func TestARefusalIsAnsweredOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    []echolimit.Option
		status  int
		body    string
		handled int
	}{
		"plain": {nil, 429, `"status":429`, 0},
		"an error for the error handler": {[]echolimit.Option{echolimit.WithDenied(func(_ echo.Context, v *middleware.Verdict) error {
			return echo.NewHTTPError(v.Status, "slow down")
		})}, 429, "handled: slow down", 1},
		"written": {[]echolimit.Option{echolimit.WithDenied(func(c echo.Context, v *middleware.Verdict) error {
			return c.JSON(v.Status, map[string]any{"violated": v.Refusal.Policies})
		})}, 429, `{"violated":["default"]}`, 0},
		"written and returned": {[]echolimit.Option{echolimit.WithDenied(func(c echo.Context, v *middleware.Verdict) error {
			_ = c.String(v.Status, "no")
			return echo.NewHTTPError(v.Status)
		})}, 429, "no", 1},
		"handled and returned": {[]echolimit.Option{echolimit.WithDenied(func(c echo.Context, v *middleware.Verdict) error {
			c.Error(echo.NewHTTPError(v.Status, "slow down"))
			return nil
		})}, 429, "handled: slow down", 1},
		"nothing": {[]echolimit.Option{echolimit.WithDenied(func(echo.Context, *middleware.Verdict) error { return nil })}, 429, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.New()
			handled, served, outside := 0, 0, 0
			e.HTTPErrorHandler = func(err error, c echo.Context) {
				handled++
				var he *echo.HTTPError
				if !c.Response().Committed && errors.As(err, &he) {
					_ = c.String(he.Code, "handled: "+he.Message.(string))
				}
			}
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					err := next(c)
					if err == nil {
						require.True(t, c.Response().Committed)
						outside = c.Response().Status
					}
					return err
				}
			})
			e.Use(echolimit.Middleware(denyAll(), tc.opts...))
			e.GET("/x", func(c echo.Context) error { served++; return c.String(200, "served") })
			w := get(e, "/x")
			require.Equal(t, tc.status, w.Code)
			require.Contains(t, w.Body.String(), tc.body)
			require.NotContains(t, w.Body.String(), "served")
			require.Equal(t, tc.handled, handled)
			require.Zero(t, served)
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			if outside != 0 {
				require.Equal(t, tc.status, outside)
			}
		})
	}
}

// Right after a refusal Echo's response says what was sent.
func TestTheResponseAfterARefusal(t *testing.T) {
	e := echo.New()
	hooks := ""
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Before(func() { hooks += "before " })
			c.Response().After(func() { hooks += "after" })
			err := next(c)
			require.True(t, c.Response().Committed)
			require.Equal(t, 429, c.Response().Status)
			require.Positive(t, c.Response().Size)
			return err
		}
	})
	e.Use(echolimit.Middleware(denyAll()))
	w := get(e, "/x")
	require.Equal(t, 429, w.Code)
	require.Equal(t, "before after", hooks)
	require.Equal(t, w.Header().Get("Content-Length"), w.Result().Header.Get("Content-Length"))
}

// A skipper of Echo's own middleware fits.
func TestSkipper(t *testing.T) {
	var skipper echomiddleware.Skipper = func(c echo.Context) bool { return c.Path() == "/health" }
	e := echo.New()
	e.Use(echolimit.Middleware(denyAll(), echolimit.WithSkipper(skipper)))
	e.GET("/health", func(c echo.Context) error { return c.String(200, "fine") })
	require.Equal(t, 200, get(e, "/health").Code)
	require.Equal(t, 429, get(e, "/other").Code)
	e = echo.New()
	e.Use(echolimit.Middleware(denyAll(), echolimit.WithSkipper(echomiddleware.DefaultSkipper)))
	require.Equal(t, 429, get(e, "/other").Code)
}

// REF-05: a returned error is settled once, by the status it is answered with in the end.
func TestReturnedErrors(t *testing.T) {
	teapot := func(err error, c echo.Context) {
		if !c.Response().Committed {
			_ = c.String(http.StatusTeapot, err.Error())
		}
	}
	swallow := func(status int) echo.MiddlewareFunc {
		return func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				if err := next(c); err != nil && status != 0 {
					return c.String(status, "swallowed")
				}
				return nil
			}
		}
	}
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		outside echo.MiddlewareFunc
		onError echo.HTTPErrorHandler
		handler echo.HandlerFunc
		status  int
		settled []int
	}{
		"any error":                          {nil, nil, func(echo.Context) error { return broken }, 500, []int{500}},
		"an HTTP error":                      {nil, nil, func(echo.Context) error { return echo.ErrNotFound }, 404, []int{404}},
		"a handler of one's own":             {nil, teapot, func(echo.Context) error { return broken }, 418, []int{418}},
		"answered outside":                   {swallow(200), nil, func(echo.Context) error { return broken }, 200, []int{200}},
		"swallowed outside":                  {swallow(0), nil, func(echo.Context) error { return broken }, 200, nil},
		"an error handler that does nothing": {nil, func(error, echo.Context) {}, func(echo.Context) error { return broken }, 200, nil},
		"written and returned":               {nil, nil, func(c echo.Context) error { _ = c.String(201, "x"); return broken }, 201, []int{201}},
		"handled inside":                     {nil, teapot, func(c echo.Context) error { c.Error(broken); return nil }, 418, []int{418}},
		"handled inside and returned":        {nil, teapot, func(c echo.Context) error { c.Error(broken); return broken }, 418, []int{418}},
		"none":                               {nil, nil, func(c echo.Context) error { return c.NoContent(204) }, 204, []int{204}},
		"none, nothing written":              {nil, nil, func(echo.Context) error { return nil }, 200, []int{200}},
	} {
		t.Run(name, func(t *testing.T) {
			var settled []int
			e := echo.New()
			e.Logger.SetOutput(io.Discard)
			if tc.onError != nil {
				e.HTTPErrorHandler = tc.onError
			}
			if tc.outside != nil {
				e.Use(tc.outside)
			}
			e.Use(echolimit.Middleware(settling(&settled)))
			e.GET("/x", tc.handler)
			for range 2 { // the second one with a context that was used before
				settled = nil
				require.Equal(t, tc.status, get(e, "/x").Code)
				require.Equal(t, tc.settled, settled)
			}
		})
	}
}

// A place in flight is free once the handler has returned, whenever its error is answered.
func TestErrorsFreeTheirPlace(t *testing.T) {
	e := echo.New()
	e.HTTPErrorHandler = func(error, echo.Context) {} // never answers
	e.Use(echolimit.Middleware(guardOf(spillway.Policy{InFlight: 1})))
	e.GET("/x", func(echo.Context) error { return errors.New("broken") })
	for range 3 {
		require.NotEqual(t, 503, get(e, "/x").Code)
	}
}

// tape is a recorder that notes how it ended.
type tape struct {
	http.ResponseWriter
	body  strings.Builder
	ended []bool
}

func (*tape) Degrade(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome {
	return degrade.Skip
}

func (x *tape) Record(w http.ResponseWriter, _ *keyfunc.Request, _, _ string) (http.ResponseWriter, func(bool)) {
	x.ResponseWriter = w
	x.body.Reset()
	return x, func(ok bool) { x.ended = append(x.ended, ok) }
}

func (x *tape) Write(b []byte) (int, error) {
	x.body.Write(b)
	return x.ResponseWriter.Write(b)
}

// An error is answered behind the back of a recorder: what it has is not the response.
func TestRecordersDoNotKeepWhatTheErrorHandlerWrites(t *testing.T) {
	x := new(tape)
	e := echo.New()
	e.Use(echolimit.Middleware(guardOf(spillway.Policy{Limit: limiter.PerHour(9), Degrade: x})))
	e.GET("/404", func(echo.Context) error { return echo.ErrNotFound })
	e.GET("/200", func(c echo.Context) error { return c.String(200, "all") })
	require.Equal(t, 404, get(e, "/404").Code)
	require.Empty(t, x.body.String())
	require.NotContains(t, x.ended, true)
	x.ended = nil
	require.Equal(t, "all", get(e, "/200").Body.String())
	require.Equal(t, []bool{true}, x.ended)
	require.Equal(t, "all", x.body.String())
}

func TestPanics(t *testing.T) {
	for name, build := range map[string]func(*echo.Echo, echo.MiddlewareFunc){
		"recovery outside": func(e *echo.Echo, limit echo.MiddlewareFunc) { e.Use(echomiddleware.Recover(), limit) },
		"recovery inside":  func(e *echo.Echo, limit echo.MiddlewareFunc) { e.Use(limit, echomiddleware.Recover()) },
	} {
		t.Run(name, func(t *testing.T) {
			var settled []int
			e := echo.New()
			e.Logger.SetOutput(io.Discard)
			build(e, echolimit.Middleware(settling(&settled)))
			e.GET("/x", func(echo.Context) error { panic("broken") })
			require.Equal(t, 500, get(e, "/x").Code)
			require.Equal(t, []int{500}, settled)
		})
	}
}

// With Pre the guard sees the path before or behind what rewrites it, as it is mounted.
func TestPreAndRewrittenPaths(t *testing.T) {
	deny := func(route string) echo.MiddlewareFunc {
		return echolimit.Middleware(guardOf(spillway.Policy{Match: spillway.Match{Routes: []string{route}}, Limit: limiter.DenyAll}))
	}
	rewrite := echomiddleware.Rewrite(map[string]string{"/old/*": "/new/$1"})
	for name, tc := range map[string]struct {
		pre   []echo.MiddlewareFunc
		use   []echo.MiddlewareFunc
		limit int
	}{
		"behind, the new path":   {pre: []echo.MiddlewareFunc{rewrite, deny("/new/{id}")}, limit: 429},
		"behind, the old path":   {pre: []echo.MiddlewareFunc{rewrite, deny("/old/{id}")}, limit: 200},
		"before, the old path":   {pre: []echo.MiddlewareFunc{deny("/old/{id}"), rewrite}, limit: 429},
		"with Use, the new path": {pre: []echo.MiddlewareFunc{rewrite}, use: []echo.MiddlewareFunc{deny("/new/{id}")}, limit: 429},
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.New()
			e.Pre(tc.pre...)
			e.Use(tc.use...)
			e.GET("/new/:id", func(c echo.Context) error { return c.String(200, "x") })
			require.Equal(t, tc.limit, get(e, "/old/1").Code)
		})
	}
}

// One object has one key, however its path is spelled.
func TestParametersOfRawPaths(t *testing.T) {
	e := echo.New()
	e.Use(echolimit.Middleware(guardOf(spillway.Policy{Key: keyfunc.Param("name"), Limit: limiter.PerHour(1)})))
	e.GET("/files/:name", func(c echo.Context) error { return c.NoContent(204) })
	require.Equal(t, 204, get(e, "/files/a%2Fb").Code)
	require.Equal(t, 429, get(e, "/files/%61%2Fb").Code)
	require.Equal(t, 204, get(e, "/files/a%2Fc").Code)
	require.Equal(t, 204, get(e, "/files/100%25").Code)
}

// Echo answers HEAD with 405 where there is no route for it; policies for GET hold all the same.
func TestWhatEchoHides(t *testing.T) {
	e := echo.New()
	e.Use(echolimit.Middleware(guardOf(spillway.Policy{Match: spillway.Match{Routes: []string{"GET /x"}}, Limit: limiter.PerHour(1)})))
	e.GET("/x", func(c echo.Context) error { return c.NoContent(204) })
	for _, status := range []int{405, 429} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/x", nil))
		require.Equal(t, status, w.Code)
		require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
	}
}

// Middleware of Echo that replaces the writer, on either side of the guard.
func TestEchosOwnMiddleware(t *testing.T) {
	long := strings.Repeat("x", 4096)
	var dumped []byte
	for name, m := range map[string]echo.MiddlewareFunc{
		"gzip":      echomiddleware.Gzip(),
		"body dump": echomiddleware.BodyDump(func(_ echo.Context, _, body []byte) { dumped = body }),
		//nolint:staticcheck // deprecated, and in use
		"timeout":         echomiddleware.TimeoutWithConfig(echomiddleware.TimeoutConfig{Timeout: time.Minute}),
		"context timeout": echomiddleware.ContextTimeout(time.Minute),
		"request id":      echomiddleware.RequestID(),
	} {
		for _, outside := range []bool{true, false} {
			for _, recorded := range []bool{true, false} {
				t.Run(name, func(t *testing.T) {
					var settled []int
					p := spillway.Policy{Limit: limiter.PerHour(2), Refund: func(status int) bool { settled = append(settled, status); return false }}
					if recorded {
						p.Degrade = new(tape)
					}
					limit := echolimit.Middleware(guardOf(p))
					e := echo.New()
					if outside {
						e.Use(m, limit)
					} else {
						e.Use(limit, m)
					}
					e.GET("/ok", func(c echo.Context) error { return c.String(201, long) })
					e.GET("/error", func(echo.Context) error { return echo.NewHTTPError(404, "gone") })
					read := func(path string) (int, string) {
						w := get(e, path, "Accept-Encoding", "gzip")
						var body io.Reader = w.Body
						if w.Header().Get("Content-Encoding") == "gzip" {
							zr, err := gzip.NewReader(body)
							require.NoError(t, err)
							body = zr
						}
						text, err := io.ReadAll(body)
						require.NoError(t, err)
						return w.Code, string(text)
					}
					status, body := read("/ok")
					require.Equal(t, 201, status)
					require.Equal(t, long, body)
					require.Equal(t, []int{201}, settled)
					status, body = read("/error")
					require.Equal(t, 404, status)
					require.Contains(t, body, "gone")
					require.Equal(t, []int{201, 404}, settled)
					dumped = nil
					status, body = read("/ok")
					require.Equal(t, 429, status)
					require.Contains(t, body, `"status":429`)
					if name == "body dump" && outside {
						require.Equal(t, body, string(dumped))
					}
				})
			}
		}
	}
}

// A degraded request is marked in the context of the request.
func TestDegradedRequestsAreMarked(t *testing.T) {
	flag := degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Proceed })
	e := echo.New()
	e.Use(echolimit.Middleware(guardOf(spillway.Policy{Limit: limiter.DenyAll, Degrade: flag})))
	e.GET("/x", func(c echo.Context) error {
		info, ok := degrade.FromContext(c.Request().Context())
		require.True(t, ok)
		require.Equal(t, "default", info.Policy)
		return c.NoContent(204)
	})
	require.Equal(t, 204, get(e, "/x").Code)
}
