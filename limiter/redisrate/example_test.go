package redisrate_test

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redisrate"
)

// A guard that goes on with the counters of limiter.Allow(ctx, "user:"+name, redis_rate.PerMinute(60)).
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	store := spillway.Must(redisrate.New(redisrate.Config{Client: rdb, Prefix: "shop"}))
	defer func() { _ = store.Close() }()
	guard := spillway.Must(spillway.New(spillway.Config{
		Limiter: store,
		Policies: []spillway.Policy{{
			Name: "user", Limit: limiter.PerMinute(60),
			Key:      keyfunc.User(func(r *keyfunc.Request) string { return r.Header.Get("X-User") }),
			StoreKey: func(k limiter.Key) string { return "user:" + strings.TrimPrefix(k.ID, "user=") },
		}},
	}))
	_ = guard // stdhttp.Middleware(guard)(mux)
}
