package live_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/observe/live"
)

// The mounts of the package comment: outside of the guard, with HEAD, and with the slash that is left out.
func TestMounts(t *testing.T) {
	page := newPage(t, live.Config{})
	g := newGuard(t, page, nil, policy("none", "deny_all"))
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

	service := http.NewServeMux()
	service.HandleFunc("/", ok)
	plain := http.NewServeMux()
	plain.Handle("/live/", page)
	plain.Handle("/", stdhttp.Middleware(g)(service))

	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Match([]string{"GET", "HEAD"}, "/live/*any", gin.WrapH(page))
	engine.Use(ginlimit.Middleware(g))
	engine.GET("/", gin.WrapF(ok))

	e := echo.New()
	e.Use(echolimit.Middleware(g, echolimit.WithSkipper(func(c echo.Context) bool { return strings.HasPrefix(c.Path(), "/live") })))
	e.Match([]string{"GET", "HEAD"}, "/live/*", echo.WrapHandler(page))
	e.GET("/live", func(c echo.Context) error { return c.Redirect(http.StatusPermanentRedirect, "live/") })
	e.GET("/", echo.WrapHandler(http.HandlerFunc(ok)))

	for name, h := range map[string]http.Handler{"net/http": plain, "gin": engine, "echo": e} {
		status := func(method, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, local(method, path))
			return w
		}
		require.Equal(t, http.StatusTooManyRequests, status("GET", "/").Code, name)
		for _, path := range []string{"/live/", "/live/app.js"} {
			require.Equal(t, http.StatusOK, status("GET", path).Code, name)
			require.Equal(t, http.StatusOK, status("HEAD", path).Code, name)
		}
		require.Equal(t, http.StatusOK, status("HEAD", "/live/events").Code, name)
		w := status("GET", "/live")
		require.Contains(t, []int{301, 307, 308}, w.Code, name)
		require.Contains(t, []string{"/live/", "live/"}, w.Header().Get("Location"), name)
	}
}

// A browser asks for a password only where it is told to: by a middleware before the page.
func TestPasswordBeforeThePage(t *testing.T) {
	page := newPage(t, live.Config{Authorize: func(*http.Request) bool { return true }})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ops" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="limits"`)
			http.Error(w, "Who are you?", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	})
	r := httptest.NewRequest("GET", "/live/", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
	r.SetBasicAuth("ops", "secret")
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
}
