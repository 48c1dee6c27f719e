package peer

import (
	"context"
	"net/http"

	ratelimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/gin-gonic/gin"
)

func ginRateLimitStore(p Profile) ratelimit.Store {
	return ratelimit.InMemoryStore(&ratelimit.InMemoryOptions{Rate: p.Window, Limit: uint(p.WindowLimit)})
}

func ginRateLimitMems() []Mem {
	return []Mem{{
		Name: "gin-rate-limit",
		New: func(p Profile) (Decider, func()) {
			s := ginRateLimitStore(p)
			return DeciderFunc(func(_ context.Context, key string) (bool, error) {
				return !s.Limit(key, nil).RateLimited, nil
			}), nop
		},
	}}
}

func ginRateLimitMWs() []MW {
	return []MW{{
		Framework: "gin", Name: "gin-rate-limit",
		Build: func(p Profile, n int) http.Handler {
			return ginApp(n, func() gin.HandlerFunc {
				return ratelimit.RateLimiter(ginRateLimitStore(p), &ratelimit.Options{
					KeyFunc: func(c *gin.Context) string { return c.ClientIP() },
				})
			})
		},
	}}
}
