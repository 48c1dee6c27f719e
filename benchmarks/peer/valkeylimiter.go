package peer

import (
	"context"

	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylimiter"
)

func valkeyRedises() []Redis {
	return []Redis{{
		Name: "valkeylimiter", Note: "fixed window; its client joins concurrent calls", Scenarios: []string{spreadKeys, hotKey, deniedKeys, onCluster, warmKeys},
		New: func(addrs []string, p Profile, _ int) (Decider, func(), error) {
			var client valkey.Client
			l, err := valkeylimiter.NewRateLimiter(valkeylimiter.RateLimiterOption{
				ClientBuilder: func(o valkey.ClientOption) (c valkey.Client, err error) {
					client, err = valkey.NewClient(o)
					return client, err
				},
				ClientOption: valkey.ClientOption{InitAddress: addrs, DisableCache: true},
				Limit:        int(p.WindowLimit),
				Window:       p.Window,
			})
			if err != nil {
				return nil, nil, err
			}
			return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
				r, err := l.Allow(ctx, key)
				return r.Allowed, err
			}), client.Close, nil
		},
	}}
}
