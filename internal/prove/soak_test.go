package prove_test

import (
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

const soaking = "soak"
const maxKeys = 20_000

func shares() limiter.Limiter {
	return spillwayMust(memory.New(memory.Config{MaxKeys: maxKeys}))
}
func spillwayMust[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
func (g *guard) soak(s setup, client redis.UniversalClient) (http.Handler, func(), error) {
	return nil, nil, nil
}
