package peer

import (
	"context"
	"net/http"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

func sethvargoStore(p Profile, sweep, ttl time.Duration) limiter.Store {
	s, err := memorystore.New(&memorystore.Config{
		Tokens: uint64(p.WindowLimit), Interval: p.Window, SweepInterval: sweep, SweepMinTTL: ttl,
	})
	if err != nil {
		panic(err)
	}
	return s
}

func sethvargoDecider(s limiter.Store) (Decider, func()) {
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := s.Take(ctx, key)
		return ok, err
	}), func() { _ = s.Close(context.Background()) }
}

func sethvargoMems() []Mem {
	return []Mem{{
		Name: "sethvargo",
		New:  func(p Profile) (Decider, func()) { return sethvargoDecider(sethvargoStore(p, 0, 0)) },
		NewCleaning: func(ttl time.Duration) (Decider, func()) {
			return sethvargoDecider(sethvargoStore(Expiring(ttl), ttl, ttl/2))
		},
	}}
}

func sethvargoMWs() []MW {
	return []MW{{
		Framework: "std", Name: "sethvargo",
		Build: func(p Profile, n int) http.Handler {
			return stdApp(n, func() func(http.Handler) http.Handler {
				m, err := httplimit.NewMiddleware(sethvargoStore(p, 0, 0), httplimit.IPKeyFunc())
				if err != nil {
					panic(err)
				}
				return m.Handle
			})
		},
	}}
}
