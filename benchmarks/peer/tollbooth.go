package peer

import (
	"context"
	"net/http"
	"time"

	tollbooth7limiter "github.com/didip/tollbooth/v7/limiter"
	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
	"github.com/didip/tollbooth_gin"
	"github.com/gin-gonic/gin"

	tollbooth7 "github.com/didip/tollbooth/v7"
)

func tollboothMem(p Profile, ttl time.Duration) *limiter.Limiter {
	return tollbooth.NewLimiter(p.perSecond(), &limiter.ExpirableOptions{DefaultExpirationTTL: ttl}).
		SetBurst(int(p.Burst)).SetIPLookup(limiter.IPLookup{Name: "RemoteAddr"})
}

func tollboothDecider(l *limiter.Limiter) (Decider, func()) {
	return DeciderFunc(func(_ context.Context, key string) (bool, error) { return !l.LimitReached(key), nil }), nop
}

func tollboothMems() []Mem {
	return []Mem{{
		Name: "tollbooth",
		New:  func(p Profile) (Decider, func()) { return tollboothDecider(tollboothMem(p, time.Hour)) },
		NewCleaning: func(ttl time.Duration) (Decider, func()) {
			return tollboothDecider(tollboothMem(Expiring(ttl), ttl))
		},
	}}
}

func tollboothMWs() []MW {
	return []MW{
		{
			Framework: "std", Name: "tollbooth",
			Build: func(p Profile, n int) http.Handler {
				return stdApp(n, func() func(http.Handler) http.Handler {
					return func(next http.Handler) http.Handler {
						return tollbooth.HTTPMiddleware(tollboothMem(p, time.Hour))(next)
					}
				})
			},
		},
		{
			Framework: "gin", Name: "tollbooth", Note: "built on tollbooth 7",
			Build: func(p Profile, n int) http.Handler {
				return ginApp(n, func() gin.HandlerFunc {
					l := tollbooth7.NewLimiter(p.perSecond(), &tollbooth7limiter.ExpirableOptions{DefaultExpirationTTL: time.Hour}).
						SetBurst(int(p.Burst)).SetIPLookups([]string{"RemoteAddr"})
					return tollbooth_gin.LimitHandler(l)
				})
			},
		},
	}
}
