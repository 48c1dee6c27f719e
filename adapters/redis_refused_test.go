package adapters_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/middleware"
)

// DOWN-12: a wrong password, a missing permission and a client that leaves look like an outage, and open the gate for good.
// Mistakes in a configuration refuse, whatever OnStoreError says, whether there is a fallback or not; they come and go with
// what causes them.
func TestRefusedByRedisOpensNothing(t *testing.T) {
	type cause struct {
		options   redis.Options
		set, undo []any
	}
	for name, c := range map[string]cause{
		"WRONGPASS":                         {redis.Options{Username: "app", Password: "wrong"}, []any{"ACL", "SETUSER", "app", "reset", "on", ">right", "~*", "+@all"}, []any{"ACL", "SETUSER", "app", ">wrong"}},
		"NOAUTH":                            {redis.Options{}, []any{"CONFIG", "SET", "requirepass", "secret"}, []any{"CONFIG", "SET", "requirepass", ""}},
		"NOPERM":                            {redis.Options{Username: "app", Password: "x"}, []any{"ACL", "SETUSER", "app", "on", ">x", "~*", "+@all", "-evalsha", "-eval"}, []any{"ACL", "SETUSER", "app", "+evalsha", "+eval"}},
		"NOPERM of a command in the script": {redis.Options{Username: "app", Password: "x"}, []any{"ACL", "SETUSER", "app", "on", ">x", "~*", "+@all", "-set"}, []any{"ACL", "SETUSER", "app", "+set"}},
		"NOPERM of the keys":                {redis.Options{Username: "app", Password: "x"}, []any{"ACL", "SETUSER", "app", "on", ">x", "resetkeys", "~other:*", "+@all"}, []any{"ACL", "SETUSER", "app", "~*"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachAdapter(t, func(t *testing.T, m mount) {
				server := redistest.Start(t)
				admin := server.Client()
				conn := admin.Conn() // stays who it is
				t.Cleanup(func() { _ = conn.Close() })
				require.NoError(t, conn.Do(t.Context(), c.set...).Err())
				for _, isFallback := range []bool{false, true} {
					options := c.options
					options.Addr = server.Addr()
					rdb := redis.NewClient(&options)
					t.Cleanup(func() { _ = rdb.Close() })
					store, breaker := limiter.Limiter(onClient(t, rdb, redislimit.Config{Timeout: patient})), new(witness)
					if isFallback {
						shared, err := fallback.New(fallback.Config{Primary: store, Replicas: 2, Failures: 1, SlowCall: -1, Observer: breaker})
						require.NoError(t, err)
						t.Cleanup(shared.Close)
						store = shared
					}
					s := newSite(t, m, spillway.Config{Policies: []spillway.Policy{near(t), far("a", store, middleware.FailOpen)}})
					for range 10 {
						w := s.get(t.Context())
						require.Equal(t, http.StatusServiceUnavailable, w.Code)
						require.Equal(t, refused(nil, ""), ours(w.Header()), "waiting does not help")
						require.NotContains(t, strings.ToLower(w.Body.String()), "redis")
					}
					require.Zero(t, s.served)
					require.Len(t, s.errors(), 10)
					require.Equal(t, "a invalid", s.errors()[0])
					require.Equal(t, []string{"a 1"}, s.states())
					require.NotContains(t, s.log.String(), "wrong", "no password")
					require.Empty(t, breaker.of(limiter.EventBreaker))

					require.NoError(t, conn.Do(t.Context(), c.undo...).Err())
					require.Equal(t, http.StatusOK, s.status(t))
					require.Equal(t, limiter.ViaStore, s.vias()["a"])
					require.Equal(t, 49, s.left("near"), "the refused have taken nothing")
					require.Equal(t, []string{"a 1"}, s.states(), "that it decides again is told after a second")
					if !isFallback { // once more
						require.NoError(t, conn.Do(t.Context(), c.set...).Err())
					}
				}
			})
		})
	}
}

// A password that changes while serving: connections go on until they end, new ones are refused.
func TestPasswordThatChanges(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		server := redistest.Start(t)
		admin := server.Client().Conn()
		t.Cleanup(func() { _ = admin.Close() })
		store := onQuick(t, server.Addr())
		s := newSite(t, m, spillway.Config{Policies: []spillway.Policy{far("a", store, middleware.FailOpen)}})
		require.Equal(t, http.StatusOK, s.status(t))
		require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "new").Err())
		require.Equal(t, http.StatusOK, s.status(t))
		require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal").Err())
		until(t, "a new connection", func() bool { return s.status(t) == http.StatusServiceUnavailable })
		for range 5 {
			require.Equal(t, http.StatusServiceUnavailable, s.status(t))
		}
	})
}

// A client that leaves while Redis is being asked is neither an outage nor a mistake, and moves no breaker.
func TestClientsThatLeave(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		server := redistest.Start(t)
		proxy := redistest.StartProxy(t, server.Addr())
		for _, isFallback := range []bool{false, true} {
			breaker := new(witness)
			// What has been sent is waited for as long as the time-out says: the client cannot be interrupted.
			store := limiter.Limiter(onRedis(t, proxy.Addr(), redislimit.Config{Timeout: 150 * time.Millisecond}))
			if isFallback {
				shared, err := fallback.New(fallback.Config{Primary: store, Failures: 1, SlowCall: -1, Observer: breaker})
				require.NoError(t, err)
				t.Cleanup(shared.Close)
				store = shared
			}
			s := newSite(t, m, spillway.Config{Policies: []spillway.Policy{
				near(t), far("a", store, middleware.FailOpen), far("b", store, middleware.FailClosed),
			}})
			proxy.Silent()
			const gone = 3
			for range gone {
				ctx, leave := context.WithCancel(t.Context())
				timer := time.AfterFunc(5*time.Millisecond, leave)
				began := time.Now()
				require.Equal(t, 499, s.get(ctx).Code)
				require.Less(t, time.Since(began), longestWait)
				timer.Stop()
				leave()
			}
			ctx, leave := context.WithTimeout(t.Context(), 5*time.Millisecond) // the server's own
			require.Equal(t, http.StatusGatewayTimeout, s.get(ctx).Code)
			leave()
			require.Zero(t, s.served)
			require.Empty(t, s.states())
			require.Empty(t, s.log.String())
			require.Len(t, s.errors(), 3*(gone+1), "of three policies")
			for _, e := range s.of(limiter.EventError) {
				require.Equal(t, limiter.ReasonCanceled, e.Reason)
				require.True(t, errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded))
			}
			require.Empty(t, breaker.of(limiter.EventBreaker))
			proxy.Pass()
			until(t, "the store decides", func() bool { return s.status(t) == http.StatusOK && s.vias()["a"] == limiter.ViaStore })
			require.Equal(t, 50-s.served, s.left("near"), "those who left have taken nothing")
			require.NoError(t, server.Client().FlushAll(t.Context()).Err())
		}
	})
}
