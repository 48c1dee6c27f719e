package leased_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/leased"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer func() { _ = rdb.Close() }()
	l, err := leased.New(leased.Config{Client: rdb, Prefix: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = l.Close() }() // gives back what is held
	key := limiter.Key{Space: "search", ID: "all"}
	d, err := l.Allow(context.Background(), key, limiter.PerSecond(5000), 1)
	switch {
	case err != nil:
		fmt.Println("cannot tell:", err)
	case d.Allowed:
		fmt.Println("served")
	default:
		fmt.Println("again in", d.RetryAfter)
	}
}
