package adapters_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// blank is a writer that costs nothing, so that only the chain is measured.
type blank struct{ header http.Header }

func (b *blank) Header() http.Header            { return b.header }
func (b *blank) Write(body []byte) (int, error) { return len(body), nil }
func (b *blank) WriteHeader(int)                {}

// What a guard adds to an allowed request, beyond the framework itself: the key, and the values of the fields.
func TestAllocationsOfAnAllowedRequest(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	gin.SetMode(gin.ReleaseMode)
	for _, tc := range []struct {
		name string
		most float64
		make func(*middleware.Guard) http.Handler // nil: bare
	}{
		{"stdhttp", 3, func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
			if g == nil {
				return mux
			}
			return stdhttp.Middleware(g)(mux)
		}},
		{"gin", 3, func(g *middleware.Guard) http.Handler {
			r := gin.New()
			if g != nil {
				r.Use(ginlimit.Middleware(g))
			}
			r.GET("/users/:id", func(*gin.Context) {})
			return r
		}},
		{"echo", 4, func(g *middleware.Guard) http.Handler {
			e := echo.New()
			if g != nil {
				e.Use(echolimit.Middleware(g))
			}
			e.GET("/users/:id", func(echo.Context) error { return nil })
			return e
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store, err := memory.New(memory.Config{})
			require.NoError(t, err)
			guard, err := middleware.New(middleware.Config{
				Limiter:  store,
				Policies: []middleware.Policy{{Name: "default", Key: keyfunc.IP(), Limit: limiter.PerSecond(1_000_000)}},
			})
			require.NoError(t, err)
			measure := func(h http.Handler) float64 {
				w := &blank{header: make(http.Header, 8)}
				r := httptest.NewRequest(http.MethodGet, "/users/1", nil)
				return testing.AllocsPerRun(1000, func() {
					clear(w.header)
					h.ServeHTTP(w, r)
				})
			}
			bare, limited := measure(tc.make(nil)), measure(tc.make(guard))
			t.Logf("bare %v, limited %v", bare, limited)
			require.LessOrEqual(t, limited-bare, tc.most)
		})
	}
}
