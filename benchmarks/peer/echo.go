package peer

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"golang.org/x/time/rate"
)

func echoStore(p Profile, ttl time.Duration) *middleware.RateLimiterMemoryStore {
	return middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(p.perSecond()), Burst: int(p.Burst), ExpiresIn: ttl,
	})
}

func echoDecider(s *middleware.RateLimiterMemoryStore) (Decider, func()) {
	return DeciderFunc(func(_ context.Context, key string) (bool, error) { return s.Allow(key) }), nop
}

func echoMems() []Mem {
	return []Mem{{
		Name:        "echo",
		New:         func(p Profile) (Decider, func()) { return echoDecider(echoStore(p, time.Hour)) },
		NewCleaning: func(ttl time.Duration) (Decider, func()) { return echoDecider(echoStore(Expiring(ttl), ttl)) },
	}}
}

func echoMWs() []MW {
	return []MW{{
		Framework: "echo", Name: "builtin", Note: "sends no headers",
		Build: func(p Profile, n int) http.Handler {
			return echoApp(n, func() echo.MiddlewareFunc { return middleware.RateLimiter(echoStore(p, time.Hour)) })
		},
	}}
}
