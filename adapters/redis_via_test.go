package adapters_test

import (
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/redisrate"
	"github.com/spillway-go/spillway/middleware"
)

// stores are the limiters of one test.
type stores struct{ redis, rate, fallback, memory limiter.Limiter }

// viaRows say where a decision is made, as its event tells: of a policy with a limit of 2 a day, for its first request and
// for its third and fourth, which are refused; and when the Redis behind it is gone.
var viaRows = []struct {
	name    string
	limiter func(stores) limiter.Limiter
	change  func(*spillway.Policy)

	first, third, fourth limiter.Via
	away                 limiter.Via
	undecided            bool // there is no decision while Redis is away
}{
	// The state is in this process.
	{name: "memory", limiter: func(s stores) limiter.Limiter { return s.memory }},

	// Redis decides; its denials are remembered and decide without it, also while it is away.
	{
		name: "redislimit", limiter: func(s stores) limiter.Limiter { return s.redis },
		first: limiter.ViaStore, third: limiter.ViaStore, fourth: limiter.ViaDenyCache, undecided: true,
	},
	// No denial answers for units that may come back, nor for a trial.
	{
		name: "redislimit, with refunds", limiter: func(s stores) limiter.Limiter { return s.redis },
		change: func(p *spillway.Policy) { p.Refund = func(int) bool { return false } },
		first:  limiter.ViaStore, third: limiter.ViaStore, fourth: limiter.ViaStore, undecided: true,
	},
	{
		name: "redislimit, shadow", limiter: func(s stores) limiter.Limiter { return s.redis },
		change: func(p *spillway.Policy) { p.Shadow = true },
		first:  limiter.ViaStore, third: limiter.ViaStore, fourth: limiter.ViaStore, undecided: true,
	},
	// redis_rate remembers nothing.
	{
		name: "redisrate", limiter: func(s stores) limiter.Limiter { return s.rate },
		first: limiter.ViaStore, third: limiter.ViaStore, fourth: limiter.ViaStore, undecided: true,
	},

	// Behind a fallback all is as without it, until Redis is gone.
	{
		name: "fallback", limiter: func(s stores) limiter.Limiter { return s.fallback },
		first: limiter.ViaStore, third: limiter.ViaStore, fourth: limiter.ViaDenyCache, away: limiter.ViaFallback,
	},

	// What needs no state asks no store.
	{
		name: "redislimit, unlimited", limiter: func(s stores) limiter.Limiter { return s.redis },
		change: func(p *spillway.Policy) { p.Limit = limiter.Unlimited },
	},
	{
		name: "fallback, nothing", limiter: func(s stores) limiter.Limiter { return s.fallback },
		change: func(p *spillway.Policy) { p.Limit = limiter.DenyAll },
	},
	{
		name: "in flight", limiter: func(s stores) limiter.Limiter { return s.redis },
		change: func(p *spillway.Policy) { p.Limit, p.InFlight = nil, 5 },
	},
}

func TestVia(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		for _, row := range viaRows {
			t.Run(row.name, func(t *testing.T) {
				server := redistest.Start(t)
				var s stores
				s.redis, s.memory = onQuick(t, server.Addr()), near(t).Limiter
				rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1, MaxRetries: -1})
				t.Cleanup(func() { _ = rdb.Close() })
				rate, err := redisrate.New(redisrate.Config{Client: rdb, Timeout: patient})
				require.NoError(t, err)
				t.Cleanup(func() { _ = rate.Close() })
				shared, err := fallback.New(fallback.Config{Primary: s.redis, SlowCall: -1})
				require.NoError(t, err)
				t.Cleanup(shared.Close)
				s.rate, s.fallback = rate, shared

				policy := spillway.Policy{Name: "a", Key: keyfunc.IP(), Limit: limiter.PerDay(2), Limiter: row.limiter(s)}
				if row.change != nil {
					row.change(&policy)
				}
				x := newSite(t, m, spillway.Config{Policies: []spillway.Policy{policy}})
				via := func() limiter.Via {
					x.forget()
					x.status(t)
					require.Len(t, x.of(limiter.EventDecision), 1)
					require.Empty(t, x.errors())
					return x.vias()["a"]
				}
				require.Equal(t, row.first, via())
				via()
				require.Equal(t, row.third, via())
				if row.fourth == limiter.ViaDenyCache { // the fourth or, on a machine that took a second for it, a later one
					until(t, "the denial is remembered", func() bool { return via() == limiter.ViaDenyCache })
				} else {
					require.Equal(t, row.fourth, via())
				}

				server.Kill()
				require.NoError(t, x.guard.Update([]spillway.Policy{renamed(policy)}))
				x.forget()
				status := x.status(t)
				if row.undecided {
					require.Equal(t, http.StatusOK, status)
					require.Empty(t, x.of(limiter.EventDecision))
					require.Equal(t, []string{"b unavailable"}, x.errors())
					return
				}
				require.Len(t, x.of(limiter.EventDecision), 1)
				require.Empty(t, x.errors())
				require.Equal(t, row.away, x.vias()["b"])
			})
		}
	})
}

// renamed is the policy with counters that nobody remembers.
func renamed(p spillway.Policy) spillway.Policy {
	p.Name, p.OnStoreError = "b", middleware.FailOpen
	return p
}
