package peer

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/httprate"
)

// httprateMem decides inside OnLimit, which formats header values too; with empty header names it does not set them.
func httprateMem(p Profile) (Decider, func()) {
	l := httprate.NewRateLimiter(int(p.WindowLimit), p.Window, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		panic(err)
	}
	return DeciderFunc(func(_ context.Context, key string) (bool, error) { return !l.OnLimit(nil, r, key), nil }), nop
}

func httprateMems() []Mem {
	return []Mem{{
		Name: "httprate", Note: "keeps hashes, not keys",
		New:         httprateMem,
		NewCleaning: func(ttl time.Duration) (Decider, func()) { return httprateMem(Expiring(ttl)) },
	}}
}

func httprateMWs() []MW {
	return []MW{{
		Framework: "std", Name: "httprate",
		Build: func(p Profile, n int) http.Handler {
			return stdApp(n, func() func(http.Handler) http.Handler {
				return httprate.LimitBy(int(p.WindowLimit), p.Window, remoteIP)
			})
		},
	}}
}
