package rediscall

import "github.com/redis/go-redis/v9"

// Open returns a client of the server that url names.
func Open(url string) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}
