package peer

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/spillway-go/spillway"
	echolimit "github.com/spillway-go/spillway/adapters/echo"
	ginlimit "github.com/spillway-go/spillway/adapters/gin"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/response"
)

// spillwayKeys is the bound of the stores under test: room for a million keys and the probe's own.
const spillwayKeys = 2_000_000

func tokenBucket(p Profile) limiter.Limit {
	return limiter.Limit{Rate: int(p.Rate), Period: p.Period, Burst: int(p.Burst)}
}

func slidingWindow(p Profile) limiter.Limit {
	return limiter.Limit{Algorithm: limiter.SlidingWindow, Rate: int(min(p.WindowLimit, limiter.MaxRate)), Period: p.Window}
}

func spillwayStore(maxKeys int) *memory.Limiter {
	return spillway.Must(memory.New(memory.Config{MaxKeys: maxKeys}))
}

func spillwayDecider(limit limiter.Limit, maxKeys int) (Decider, func()) {
	m := spillwayStore(maxKeys)
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		d, err := m.Allow(ctx, limiter.Key{Space: "bench", ID: key}, limit, 1)
		return d.Allowed, err
	}), m.Close
}

// spillwayGiven decides at an instant that the caller has read, with takes that the caller reuses, as a guard does for
// each request; here the instant is that of a clock of 1 ms, which leaves the decision alone.
func spillwayGiven(limit limiter.Limit) (Decider, func()) {
	m := spillwayStore(spillwayKeys)
	var now atomic.Pointer[time.Time]
	tick := func() {
		t := time.Now()
		now.Store(&t)
	}
	tick()
	stop := every(time.Millisecond, tick)
	pool := sync.Pool{New: func() any { return new([1]limiter.Take) }}
	allow := func(ctx context.Context, key string) (bool, error) {
		takes := pool.Get().(*[1]limiter.Take)
		takes[0] = limiter.Take{Key: limiter.Key{Space: "bench", ID: key}, Limit: limit, N: 1}
		ok, err := m.AllowAll(ctx, *now.Load(), takes[:])
		pool.Put(takes)
		return ok, err
	}
	return DeciderFunc(allow), func() {
		stop()
		m.Close()
	}
}

func spillwayMems() []Mem {
	return []Mem{
		{
			Name: "spillway",
			New:  func(p Profile) (Decider, func()) { return spillwayDecider(tokenBucket(p), spillwayKeys) },
			NewCleaning: func(ttl time.Duration) (Decider, func()) {
				return spillwayDecider(tokenBucket(Expiring(ttl)), spillwayKeys)
			},
			NewBounded: func(p Profile, maxKeys int) (Decider, func()) { return spillwayDecider(tokenBucket(p), maxKeys) },
		},
		{
			Name: "spillway-given-instant", Note: "the instant is the caller's, from a clock of 1 ms",
			New: func(p Profile) (Decider, func()) { return spillwayGiven(tokenBucket(p)) },
		},
		{
			Name: "spillway-sliding-window",
			New:  func(p Profile) (Decider, func()) { return spillwayDecider(slidingWindow(p), spillwayKeys) },
			NewCleaning: func(ttl time.Duration) (Decider, func()) {
				return spillwayDecider(slidingWindow(Expiring(ttl)), spillwayKeys)
			},
			NewBounded: func(p Profile, maxKeys int) (Decider, func()) { return spillwayDecider(slidingWindow(p), maxKeys) },
		},
	}
}

func spillwayConfig(p Profile, policies int, headers response.Set) spillway.Config {
	cfg := spillway.Config{Response: response.Options{Headers: headers}}
	for i := range policies {
		cfg.Policies = append(cfg.Policies, spillway.Policy{
			Name: "bench" + string(rune('a'+i)), Key: keyfunc.IP(), Limit: tokenBucket(p),
		})
	}
	return cfg
}

func spillwayGuard(p Profile, policies int, headers response.Set) *spillway.Guard {
	return spillway.Must(spillway.New(spillwayConfig(p, policies, headers)))
}

func spillwayMWs() (out []MW) {
	for _, v := range []struct {
		name, note string
		headers    response.Set
	}{
		{"spillway", "three headers", response.X},
		{"spillway-off", "sends no headers", response.Off},
		{"spillway-both", "three headers and the two fields of the draft", response.Both},
	} {
		out = append(out,
			MW{Framework: "std", Name: v.name, Note: v.note, Build: func(p Profile, n int) http.Handler {
				return stdApp(1, func() func(http.Handler) http.Handler {
					return stdhttp.Middleware(spillwayGuard(p, n, v.headers))
				})
			}},
			MW{Framework: "gin", Name: v.name, Note: v.note, Build: func(p Profile, n int) http.Handler {
				return ginApp(1, func() gin.HandlerFunc { return ginlimit.Middleware(spillwayGuard(p, n, v.headers)) })
			}},
			MW{Framework: "echo", Name: v.name, Note: v.note, Build: func(p Profile, n int) http.Handler {
				return echoApp(1, func() echo.MiddlewareFunc { return echolimit.Middleware(spillwayGuard(p, n, v.headers)) })
			}},
		)
	}
	return out
}
