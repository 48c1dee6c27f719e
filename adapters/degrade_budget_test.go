package adapters_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// An attack gets what the budgets allow, each by its mode, and is refused for the rest.
func TestDegradeBudgets(t *testing.T) {
	cached := func() degrade.Handler { return degrade.Cached(degrade.NewPages(degrade.PagesConfig{})) }
	fixed := func() degrade.Handler { return degrade.Static(degrade.StaticConfig{Status: http.StatusOK}) }
	for name, tc := range map[string]struct {
		h    func() degrade.Handler
		want map[string]int // by mode; "": plainly refused
	}{
		"by default": {
			func() degrade.Handler { return degrade.First(cached(), fixed()) }, map[string]int{"cache": 10, "static": 10, "": 9980},
		},
		"of one's own": {
			func() degrade.Handler {
				return degrade.First(
					degrade.Within(limiter.PerHour(7), cached()),
					degrade.Within(limiter.PerHour(6), degrade.ReadOnly()),
					degrade.Within(limiter.PerHour(5), degrade.Flag()),
					degrade.Within(limiter.PerHour(4), fixed()),
				)
			},
			map[string]int{"cache": 7, "read_only": 6, "flag": 5, "static": 4, "": 9978},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inPlaces(t, func(t *testing.T, p place) {
				if !strings.HasSuffix(p.name, "/mux") && !strings.HasSuffix(p.name, "/use") {
					t.Skip("the same guard, 10,000 times")
				}
				row := degradeRow{policies: degraded(tc.h)}
				guard, err := spillway.New(spillway.Config{Policies: row.policies()})
				require.NoError(t, err)
				served := new(atomic.Int64)
				h := p.build(row.service(guard, served))
				send(h, "/x")
				got, statuses := map[string]int{}, map[int]int{}
				for range 10_000 {
					w := send(h, "/x")
					got[w.Header().Get("X-RateLimit-Degraded")]++
					statuses[w.Code]++
				}
				require.Equal(t, tc.want, got)
				require.Equal(t, got[""], statuses[http.StatusTooManyRequests])
				require.Equal(t, int64(1+got["read_only"]+got["flag"]), served.Load())
				// Another caller has budgets of its own.
				for _, mode := range []string{"", "cache"} {
					r := httptest.NewRequest(http.MethodGet, "/x", nil)
					r.RemoteAddr = "192.0.2.9:1"
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					require.Equal(t, "GET /x", w.Body.String())
					require.Equal(t, mode, w.Header().Get("X-RateLimit-Degraded"))
				}
			})
		})
	}
}

// REF-03 REF-04: units given back while others take them are counted once each, whatever is pooled.
func TestDegradeRefunds(t *testing.T) {
	gone := native{
		func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		func(c *gin.Context) { c.Status(http.StatusNotFound) },
		func(echo.Context) error { return echo.ErrNotFound },
	}
	for _, algorithm := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingWindow, limiter.FixedWindow} {
		t.Run(algorithm.String(), func(t *testing.T) {
			inPlaces(t, func(t *testing.T, p place) {
				guard, err := spillway.New(spillway.Config{Policies: []spillway.Policy{{
					Name: "default", Key: keyfunc.IP(), Limit: limiter.PerHour(1000).With(algorithm),
					Refund:  func(status int) bool { return status == http.StatusNotFound },
					Degrade: degrade.Cached(degrade.NewPages(degrade.PagesConfig{})),
				}}})
				require.NoError(t, err)
				h := p.build((&degradeRow{routes: map[string]native{"GET /gone": gone}}).service(guard, new(atomic.Int64)))
				var wg sync.WaitGroup
				for k := range 64 {
					wg.Go(func() {
						if k%4 == 0 {
							send(h, "/x")
						} else {
							send(h, "/gone")
						}
					})
				}
				wg.Wait()
				require.Equal(t, "983", send(h, "/x").Header().Get("X-RateLimit-Remaining"), "of 1000 less 16 less this one")
			})
		})
	}
}
