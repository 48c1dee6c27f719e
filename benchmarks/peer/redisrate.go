package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func (p Profile) redisRate() redis_rate.Limit {
	return redis_rate.Limit{Rate: int(p.Rate), Burst: int(p.Burst), Period: p.Period}
}

func redisRateDecider(l *redis_rate.Limiter, p Profile) Decider {
	limit := p.redisRate()
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, key, limit)
		return err == nil && res.Allowed > 0, err
	})
}

// redisRatePipeline sends the library's script for all policies in one pipeline. The library itself cannot: it reads the
// reply at once.
func redisRatePipeline(rdb redis.UniversalClient, p Profile, policies int) (Decider, error) {
	var seen evalHook
	probe := goRedis([]string{rdb.(*redis.Client).Options().Addr})
	defer probe.Close() //nolint:errcheck // used once
	probe.AddHook(&seen)
	ctx := context.Background()
	if _, err := redis_rate.NewLimiter(probe).Allow(ctx, "probe", p.redisRate()); err != nil {
		return nil, err
	}
	call := seen.args.Load()
	if call == nil {
		return nil, errors.New("redis_rate has sent no script")
	}
	sha, args := fmt.Sprint((*call)[1]), (*call)[4:] // evalsha, sha, number of keys, key, arguments
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		pipe := rdb.Pipeline()
		for i := range policies {
			pipe.EvalSha(ctx, sha, []string{"rate:" + policyKey(key, i)}, args...)
		}
		cmds, err := pipe.Exec(ctx)
		all := err == nil
		for _, c := range cmds {
			reply, err := c.(*redis.Cmd).Slice()
			all = all && err == nil && reply[0] != int64(0)
		}
		return all, err
	}), nil
}

// evalHook notes the arguments of the first EVALSHA.
type evalHook struct{ args atomic.Pointer[[]any] }

func (h *evalHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *evalHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *evalHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" {
			h.args.CompareAndSwap(nil, &args)
		}
		return next(ctx, cmd)
	}
}

func redisRateRedises() []Redis {
	return []Redis{
		{
			Name: "redis_rate", Scenarios: []string{spreadKeys, hotKey, deniedKeys, threePolicies, onCluster, warmKeys},
			New: overGoRedis(func(rdb redis.UniversalClient, p Profile, n int) (Decider, error) {
				return each(n, redisRateDecider(redis_rate.NewLimiter(rdb), p)), nil
			}),
		},
		{
			Name: "redis_rate+autopipeline", Note: "joined by go-redis, which calls that experimental",
			Scenarios: []string{spreadKeys, hotKey, deniedKeys, threePolicies, onCluster},
			New: overGoRedis(func(rdb redis.UniversalClient, p Profile, n int) (Decider, error) {
				ap, err := autoPipelined(rdb)
				if err != nil {
					return nil, err
				}
				return each(n, redisRateDecider(redis_rate.NewLimiter(ap), p)), nil
			}),
		},
		{
			Name: "redis_rate+pipeline", Note: "its script sent by hand: the library cannot be pipelined", Scenarios: []string{threePolicies},
			New: overGoRedis(redisRatePipeline),
		},
	}
}

// redisRateMiddleware is what users write by hand, for the library has none.
func redisRateMiddleware(addrs []string, p Profile) func(http.Handler) http.Handler {
	l, limit := redis_rate.NewLimiter(goRedis(addrs)), p.redisRate()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ip, err := remoteIP(r)
			if err != nil {
				http.Error(w, "no client address", http.StatusBadRequest)
				return
			}
			res, err := l.Allow(r.Context(), ip, limit)
			if err != nil {
				http.Error(w, "limiter unavailable", http.StatusInternalServerError)
				return
			}
			h := w.Header()
			h.Set("X-RateLimit-Limit", strconv.Itoa(limit.Burst))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(res.Remaining))
			h.Set("X-RateLimit-Reset", strconv.Itoa(int(res.ResetAfter/time.Second)))
			if res.Allowed == 0 {
				h.Set("Retry-After", strconv.Itoa(int(res.RetryAfter/time.Second)))
				http.Error(w, "too many requests", http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func redisRateRedisMWs(addrs []string) []MW {
	return []MW{{
		Framework: "redis", Name: "redis_rate", Note: "middleware written by hand",
		Build: func(p Profile, n int) http.Handler {
			return stdApp(n, func() func(http.Handler) http.Handler { return redisRateMiddleware(addrs, p) })
		},
	}}
}
