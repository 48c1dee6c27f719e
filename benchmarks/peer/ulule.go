package peer

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ululestd "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

func ululeMem(p Profile, clean time.Duration) *limiter.Limiter {
	st := memory.NewStoreWithOptions(limiter.StoreOptions{CleanUpInterval: clean})
	return limiter.New(st, limiter.Rate{Limit: p.WindowLimit, Period: p.Window})
}

func ululeDecider(l *limiter.Limiter) (Decider, func()) {
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		c, err := l.Get(ctx, key)
		return !c.Reached, err
	}), nop
}

func ululeMems() []Mem {
	return []Mem{{
		Name:        "ulule",
		New:         func(p Profile) (Decider, func()) { return ululeDecider(ululeMem(p, time.Hour)) },
		NewCleaning: func(ttl time.Duration) (Decider, func()) { return ululeDecider(ululeMem(Expiring(ttl), ttl)) },
	}}
}

func ululeMWs() []MW {
	return []MW{
		{
			Framework: "std", Name: "ulule",
			Build: func(p Profile, n int) http.Handler {
				return stdApp(n, func() func(http.Handler) http.Handler {
					return ululestd.NewMiddleware(ululeMem(p, time.Hour)).Handler
				})
			},
		},
		{
			Framework: "gin", Name: "ulule",
			Build: func(p Profile, n int) http.Handler {
				return ginApp(n, func() gin.HandlerFunc { return ululegin.NewMiddleware(ululeMem(p, time.Hour)) })
			},
		},
	}
}

func ululeStore(rdb redis.UniversalClient, p Profile) (*limiter.Limiter, error) {
	st, err := ululeredis.NewStore(rdb)
	return limiter.New(st, limiter.Rate{Limit: p.WindowLimit, Period: p.Window}), err
}

func ululeRedises() []Redis {
	return []Redis{{
		Name: "ulule", Note: "fixed window", Scenarios: []string{spreadKeys, hotKey, deniedKeys, threePolicies, onCluster},
		New: overGoRedis(func(rdb redis.UniversalClient, p Profile, n int) (Decider, error) {
			l, err := ululeStore(rdb, p)
			d, _ := ululeDecider(l)
			return each(n, d), err
		}),
	}}
}

func ululeRedisMWs(addrs []string) []MW {
	return []MW{{
		Framework: "redis", Name: "ulule", Note: "fixed window",
		Build: func(p Profile, n int) http.Handler {
			return stdApp(n, func() func(http.Handler) http.Handler {
				l, err := ululeStore(goRedis(addrs), p)
				if err != nil {
					panic(err)
				}
				return ululestd.NewMiddleware(l).Handler
			})
		},
	}}
}
