package prove_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// soaking is the mode of a process that has all modes behind it.
const soaking = "soak"

// maxKeys is so low that tables are full after a minute: what grows after that is a leak.
const maxKeys = 5000

func shares() *memory.Limiter { return spillway.Must(memory.New(memory.Config{MaxKeys: maxKeys})) }

// soak is a handler with the three modes, each under its name and in an adapter of its own. POST /reload changes all
// policies: some are new each time, some are gone, and the limits of the others move.
func (g *guard) soak(s setup, client redis.UniversalClient) (http.Handler, func(), error) {
	var ends []func()
	end := func() {
		for _, e := range slices.Backward(ends) {
			e()
		}
	}
	mux, guards, reloads := http.NewServeMux(), map[string]*spillway.Guard{}, atomic.Int64{}
	for k, mode := range modes {
		l, endOne, err := s.limiter(mode, client, g)
		if err != nil {
			end()
			return nil, nil, err
		}
		ends = append(ends, endOne)
		guard, err := spillway.New(spillway.Config{Limiter: l, Observer: g, Logger: slog.New(slog.DiscardHandler), Policies: soaked(mode, 0)})
		if err != nil {
			end()
			return nil, nil, err
		}
		guards[mode] = guard
		mux.Handle("/"+mode, g.mount(adapters[k], guard, mode))
	}
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, _ *http.Request) {
		n := int(reloads.Add(1))
		for mode, guard := range guards {
			if err := guard.Update(soaked(mode, n)); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	})
	return mux, end, nil
}

// soaked are the policies after n reloads: one by client, of which there are ever new ones, and one of everybody.
func soaked(mode string, n int) []spillway.Policy {
	return []spillway.Policy{
		{
			Name: mode + ".client", Key: keyfunc.Header("X-Client"), Limit: limiter.PerSecond(20 + n%3),
			Refund: func(status int) bool { return status == http.StatusTeapot },
		},
		{Name: fmt.Sprintf("%s.%d", mode, n), Key: keyfunc.Global(), Limit: limiter.PerSecond(100_000)},
	}
}
