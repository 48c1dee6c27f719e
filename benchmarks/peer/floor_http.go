package peer

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
)

// floorHTTP is the least a limiting middleware has to do. Its headers are limit, remaining and reset: all values are
// formatted into one buffer and all header slices share one array, which makes two allocations.
type floorHTTP struct {
	limits []*floorRWMutex
	limit  []string // constant header value
}

func newFloorHTTP(p Profile, policies int) *floorHTTP {
	f := &floorHTTP{limit: []string{strconv.FormatInt(p.Burst, 10)}}
	for range policies {
		f.limits = append(f.limits, newFloorRWMutex(p))
	}
	return f
}

func hostOf(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i >= 0 {
		return addr[:i]
	}
	return addr
}

// take decides every policy; used is the time the fullest bucket needs to be empty of what was taken.
func (f *floorHTTP) take(r *http.Request) (allowed bool, used int64) {
	key, now := hostOf(r.RemoteAddr), nowNano()
	allowed = true
	for _, l := range f.limits {
		c := l.cell(key)
		allowed = c.take(now, l.quota) && allowed
		used = max(used, c.tat.Load()-now)
	}
	return allowed, used
}

type headerValues struct{ v [2]string }

func (f *floorHTTP) threeHeaders(h http.Header, used int64) {
	q := f.limits[0].quota
	var buf [40]byte
	b := strconv.AppendInt(buf[:0], max(0, (q.burst-used)/q.emission), 10)
	n := len(b)
	b = strconv.AppendInt(b, max(0, (used+999_999_999)/1e9), 10)
	s := string(b)
	values := &headerValues{[2]string{s[:n], s[n:]}}
	h["X-Ratelimit-Limit"] = f.limit
	h["X-Ratelimit-Remaining"] = values.v[0:1:1]
	h["X-Ratelimit-Reset"] = values.v[1:2:2]
}

// oneHeader is a structured field in the style of the IETF draft.
func (f *floorHTTP) oneHeader(h http.Header, used int64) {
	q := f.limits[0].quota
	var buf [48]byte
	b := append(buf[:0], `"default";r=`...)
	b = strconv.AppendInt(b, max(0, (q.burst-used)/q.emission), 10)
	b = append(b, ";t="...)
	b = strconv.AppendInt(b, max(0, (used+999_999_999)/1e9), 10)
	h["Ratelimit"] = []string{string(b)}
}

func noHeaders(http.Header, int64) {}

func (f *floorHTTP) std(headers func(http.Header, int64)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed, used := f.take(r)
		headers(w.Header(), used)
		if !allowed {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		okHandler(w, r)
	})
}

func (f *floorHTTP) gin() gin.HandlerFunc {
	return func(c *gin.Context) {
		allowed, used := f.take(c.Request)
		f.threeHeaders(c.Writer.Header(), used)
		if !allowed {
			c.AbortWithStatus(http.StatusTooManyRequests)
		}
	}
}

func (f *floorHTTP) echo() echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			allowed, used := f.take(c.Request())
			f.threeHeaders(c.Response().Header(), used)
			if !allowed {
				return c.NoContent(http.StatusTooManyRequests)
			}
			return next(c)
		}
	}
}

func httpFloors() []MW {
	return []MW{
		{Framework: "std", Name: "none", Build: func(Profile, int) http.Handler { return stdApp(0, nil) }},
		{Framework: "gin", Name: "none", Build: func(Profile, int) http.Handler { return ginApp(0, nil) }},
		{Framework: "echo", Name: "none", Build: func(Profile, int) http.Handler { return echoApp(0, nil) }},
		{
			Framework: "std", Name: "floor-decide", Note: "no headers, no body",
			Build: func(p Profile, n int) http.Handler { return newFloorHTTP(p, n).std(noHeaders) },
		},
		{
			Framework: "std", Name: "floor-1header", Note: "one header, no body",
			Build: func(p Profile, n int) http.Handler {
				f := newFloorHTTP(p, n)
				return f.std(f.oneHeader)
			},
		},
		{
			Framework: "std", Name: "floor-headers", Note: "three headers, no body",
			Build: func(p Profile, n int) http.Handler {
				f := newFloorHTTP(p, n)
				return f.std(f.threeHeaders)
			},
		},
		{
			Framework: "gin", Name: "floor-headers", Note: "three headers, no body",
			Build: func(p Profile, n int) http.Handler { return ginApp(1, newFloorHTTP(p, n).gin) },
		},
		{
			Framework: "echo", Name: "floor-headers", Note: "three headers, no body",
			Build: func(p Profile, n int) http.Handler { return echoApp(1, newFloorHTTP(p, n).echo) },
		},
	}
}
