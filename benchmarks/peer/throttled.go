package peer

import (
	"context"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
)

// throttledMem keeps at most maxKeys keys; 0 keeps all for ever.
func throttledMem(p Profile, maxKeys int) *throttled.GCRARateLimiterCtx {
	st, err := memstore.NewCtx(maxKeys)
	if err != nil {
		panic(err)
	}
	return throttledLimiter(st, p)
}

func throttledLimiter(st throttled.GCRAStoreCtx, p Profile) *throttled.GCRARateLimiterCtx {
	q := throttled.RateQuota{MaxBurst: int(p.Burst) - 1}
	if p.perSecond() >= 1 {
		q.MaxRate = throttled.PerSec(int(p.perSecond()))
	} else {
		q.MaxRate = throttled.PerDuration(1, time.Duration(float64(time.Second)/p.perSecond()))
	}
	l, err := throttled.NewGCRARateLimiterCtx(st, q)
	if err != nil {
		panic(err)
	}
	return l
}

func throttledDecider(l *throttled.GCRARateLimiterCtx) (Decider, func()) {
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil, err
	}), nop
}

func throttledMems() []Mem {
	return []Mem{
		{
			Name: "throttled-map", Note: "never forgets a key",
			New: func(p Profile) (Decider, func()) { return throttledDecider(throttledMem(p, 0)) },
		},
		{
			Name: "throttled-lru", Note: "pushes live keys out",
			New:        func(p Profile) (Decider, func()) { return throttledDecider(throttledMem(p, 2_000_000)) },
			NewBounded: func(p Profile, maxKeys int) (Decider, func()) { return throttledDecider(throttledMem(p, maxKeys)) },
		},
	}
}

func throttledMWs() []MW {
	return []MW{{
		Framework: "std", Name: "throttled", Note: "never forgets a key",
		Build: func(p Profile, n int) http.Handler {
			return stdApp(n, func() func(http.Handler) http.Handler {
				h := throttled.HTTPRateLimiterCtx{
					RateLimiter: throttledMem(p, 0), VaryBy: &throttled.VaryBy{RemoteAddr: true},
				}
				return h.RateLimit
			})
		},
	}}
}

func throttledRedises() []Redis {
	return []Redis{{
		Name: "throttled", Note: "two round trips, and gives up after ten lost races", Scenarios: []string{spreadKeys, hotKey, deniedKeys},
		New: overGoRedis(func(rdb redis.UniversalClient, p Profile, _ int) (Decider, error) {
			st, err := throttledredis.NewCtx(rdb, "throttled:")
			if err != nil {
				return nil, err
			}
			d, _ := throttledDecider(throttledLimiter(st, p))
			return d, nil
		}),
	}}
}
