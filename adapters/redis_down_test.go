package adapters_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/middleware"
)

// Outages reported in the field, through every adapter.

// near is a policy in memory beside one that cannot decide.
func near(t *testing.T) spillway.Policy {
	t.Helper()
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return spillway.Policy{Name: "near", Key: keyfunc.IP(), Limit: limiter.PerDay(50), Limiter: store}
}

// far is a policy on a Redis.
func far(name string, store limiter.Limiter, rule middleware.OnError) spillway.Policy {
	return spillway.Policy{Name: name, Key: keyfunc.IP(), Limit: limiter.PerDay(10), Limiter: store, OnStoreError: rule}
}

// DOWN-01: a policy without a decision breaks what comes after it, as 500. It passes, its fields are left out, it is counted.
// DOWN-03: it passes unseen, as the error is taken for a decision before anybody counts it. Every request is counted, the
// log has a line at each change, and so has the state.
// DOWN-16: on a read it fails open and leaves a mark, in the request's context and never in the response.
func TestFailingOpenIsSeenInside(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		server := redistest.Start(t)
		store := onQuick(t, server.Addr())
		s := newSite(t, m, spillway.Config{Policies: []spillway.Policy{
			far("read", store, middleware.FailOpen),
			{Name: "near", Key: keyfunc.IP(), Limit: limiter.PerDay(5000)},
		}})
		healthy := s.get(t.Context())
		require.Equal(t, "9", healthy.Header().Get("X-RateLimit-Remaining"))
		require.Empty(t, s.undecided)

		server.Kill()
		const requests = 1000
		for k := range requests {
			w := s.get(t.Context())
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, "/users/1", w.Body.String())
			require.Equal(t, []string{"read"}, s.undecided)
			if k > 0 {
				continue
			}
			require.Equal(t, "4998", w.Header().Get("X-RateLimit-Remaining"), "of the policy that decides")
			for name := range w.Header() {
				require.Contains(t, healthy.Header(), name, "a field that only an outage has")
			}
		}
		require.Len(t, s.errors(), requests)
		require.Equal(t, "read unavailable", s.errors()[0])
		require.Equal(t, []string{"read 1"}, s.states())
		require.Equal(t, 1, strings.Count(s.log.String(), "\n"), s.log.String())
		require.Equal(t, 1+requests, s.served)

		server.Restart()
		until(t, "the store decides", func() bool { return s.status(t) == http.StatusOK && s.undecided == nil })
		began := time.Now()
		until(t, "that is told, a second later", func() bool { return time.Since(began) > time.Second })
		s.status(t)
		require.Equal(t, []string{"read 1", "read 0"}, s.states())
		require.Equal(t, 2, strings.Count(s.log.String(), "\n"), s.log.String())
		server.Kill()
		s.get(t.Context())
		require.Equal(t, []string{"read 1", "read 0", "read 1"}, s.states())
	})
}

// Without another policy nothing at all is told.
func TestFailingOpenTellsNothing(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		s := newSite(t, m, spillway.Config{Policies: []spillway.Policy{far("read", onRedis(t, refusing, redislimit.Config{}), middleware.FailOpen)}})
		w := s.get(t.Context())
		require.Equal(t, http.StatusOK, w.Code)
		require.Empty(t, ours(w.Header()))
		require.Equal(t, []string{"read"}, s.undecided)
	})
}

// refusing is an address at which nothing listens: the port of a service that nobody runs, without privileges.
const refusing = "127.0.0.1:1"

// DOWN-16: one switch for all lifts the protection of logins. A policy that fails closed answers 503 with Retry-After, by
// itself and beside those that fail open, in any order, and gives back what others have booked.
func TestOneThatFailsClosedIsEnough(t *testing.T) {
	const open, closed = middleware.FailOpen, middleware.FailClosed
	for name, rules := range map[string][]middleware.OnError{
		"alone": {closed}, "last": {open, open, closed}, "first": {closed, open},
	} {
		t.Run(name, func(t *testing.T) {
			eachAdapter(t, func(t *testing.T, m mount) {
				server := redistest.Start(t)
				store := onQuick(t, server.Addr())
				policies := []spillway.Policy{near(t)}
				for k, rule := range rules {
					policies = append(policies, far(fmt.Sprintf("far%d", k), store, rule))
				}
				s := newSite(t, m, spillway.Config{Policies: policies})
				require.Equal(t, http.StatusOK, s.status(t))
				server.Kill()
				for range 10 {
					w := s.get(t.Context())
					require.Equal(t, http.StatusServiceUnavailable, w.Code)
					require.Equal(t, refused(nil, "2"), ours(w.Header()))
					require.Equal(t, `{"type":"about:blank","title":"Service Unavailable","status":503,"retry_after":2}`, w.Body.String())
				}
				require.Equal(t, 1, s.served)
				require.Len(t, s.errors(), 10*len(rules))
				require.Len(t, s.states(), len(rules))
				rejected := s.of(limiter.EventRejected)
				require.Len(t, rejected, 10, "on account of the one that fails closed")
				require.Equal(t, limiter.ReasonUnavailable, rejected[0].Reason)
				server.Restart()
				until(t, "the store decides", func() bool { return s.status(t) == http.StatusOK })
				require.Equal(t, 48, s.left("near"), "two have passed")
			})
		})
	}
}

// left is what a policy had left at its last decision.
func (w *witness) left(policy string) (n int) {
	for _, e := range w.of(limiter.EventDecision) {
		if e.Policy == policy {
			n = e.Decision.Remaining
		}
	}
	return n
}

// DOWN-06: the adapter stops the chain though the handler of errors wants to let the request through. Whether it goes on is
// the policy's to say, and then nothing is stopped and nobody asked for an envelope; a refusal's envelope is the last word.
func TestWhatIsDecidedIsHonoured(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		for rule, status := range map[middleware.OnError]int{middleware.FailOpen: 200, middleware.FailClosed: 503} {
			guard, err := spillway.New(spillway.Config{Policies: []spillway.Policy{far("a", away{}, rule)}})
			require.NoError(t, err)
			h := m.build(&app{guard: guard, denied: true, routes: map[string]http.HandlerFunc{
				"GET /users/{id}": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("served")) },
			}})
			w := (&site{Handler: h}).get(t.Context())
			require.Equal(t, status, w.Code)
			require.Equal(t, map[int]string{200: "served", 503: deniedBody}[status], w.Body.String())
		}
	})
}

// DOWN-09: the first connection blocks for half a minute, as no time-out is for dialing. DOWN-11: or the retries of a
// client with its defaults add up. Whatever the network does, a guard asks no longer than its time-out, to the nanosecond.
func TestColdStart(t *testing.T) {
	networks := map[string]func(context.Context) (net.Conn, error){
		"no answer to the SYN": func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		},
		"refused": func(context.Context) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		},
		"silent": func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				buf := make([]byte, 1<<10)
				for {
					if _, err := server.Read(buf); err != nil {
						return
					}
				}
			}()
			return client, nil
		},
	}
	eachAdapter(t, func(t *testing.T, m mount) {
		for name, dial := range networks {
			for rule, status := range map[middleware.OnError]int{middleware.FailOpen: 200, middleware.FailClosed: 503} {
				t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						rdb := redis.NewClient(&redis.Options{Addr: refusing, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }})
						s := newSite(t, m, spillway.Config{Policies: []spillway.Policy{far("a", onClient(t, rdb, redislimit.Config{}), rule)}})
						for range 5 {
							began := time.Now()
							require.Equal(t, status, s.status(t))
							require.LessOrEqual(t, time.Since(began), 50*time.Millisecond)
						}
						require.Len(t, s.errors(), 5)
						require.NoError(t, rdb.Close())
						time.Sleep(time.Hour) // dials that nobody waits for end by themselves
					})
				})
			}
		}
	})
}

// DOWN-13: a rate of 0 by mistake is taken for an outage, and everything passes. It is refused when the guard is made or
// changed; what comes up while serving is refused with 503, also while the store is away.
func TestInvalidLimitsOpenNothing(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		server := redistest.Start(t)
		store := onQuick(t, server.Addr())
		shared, err := fallback.New(fallback.Config{Primary: store, Replicas: 2})
		require.NoError(t, err)
		t.Cleanup(shared.Close)
		bad := limiter.PerDay(0)
		policy := far("a", store, middleware.FailOpen)
		policy.Limit = bad
		_, err = spillway.New(spillway.Config{Policies: []spillway.Policy{policy}})
		require.ErrorIs(t, err, limiter.ErrInvalid)
		for name, l := range map[string]limiter.Limiter{"store": store, "fallback": shared} {
			limit := new(spelled)
			limit.is = limiter.PerDay(10)
			policy := far("a", l, middleware.FailOpen)
			policy.Limit = limit
			s := newSite(t, m, spillway.Config{Policies: []spillway.Policy{policy}})
			until(t, "the store decides", func() bool { return s.status(t) == http.StatusOK && s.undecided == nil })
			s.forget()
			policy.Limit = bad
			require.ErrorIs(t, s.guard.Update([]spillway.Policy{policy}), limiter.ErrInvalid)
			require.Equal(t, http.StatusOK, s.status(t), "what applied applies")
			limit.is = bad
			for _, isAway := range []bool{false, true} {
				if isAway {
					server.Kill()
				}
				w := s.get(t.Context())
				require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s, away: %v", name, isAway)
				require.Empty(t, w.Header().Get("Retry-After"), "waiting does not help")
			}
			for _, e := range s.errors() {
				require.Equal(t, "a invalid", e)
			}
			server.Restart()
		}
	})
}

// spelled is a source of limits that somebody else spells.
type spelled struct{ is limiter.Limit }

func (s *spelled) Current() limiter.Limit { return s.is }

// DOWN-15: what was decided here while Redis was away is queued for it, and counts once more when it is back. Nothing
// reaches it late: of forty requests in an outage it never hears.
func TestRedisIsToldNothingLate(t *testing.T) {
	eachAdapter(t, func(t *testing.T, m mount) {
		server := redistest.Start(t)
		proxy := redistest.StartProxy(t, server.Addr())
		store := onQuick(t, proxy.Addr())
		shared, err := fallback.New(fallback.Config{Primary: store, Replicas: 2, Failures: 1, Cooldown: 50 * time.Millisecond, SlowCall: -1})
		require.NoError(t, err)
		t.Cleanup(shared.Close)
		policy := far("a", shared, middleware.FailClosed)
		policy.Limit = limiter.PerDay(200)
		s := newSite(t, m, spillway.Config{Policies: []spillway.Policy{policy}})
		require.Equal(t, http.StatusOK, s.status(t))
		proxy.Refuse()
		for range 40 {
			require.Equal(t, http.StatusOK, s.status(t))
			require.Equal(t, limiter.ViaFallback, s.vias()["a"])
		}
		proxy.Pass()
		until(t, "the store decides", func() bool { return s.status(t) == 200 && s.vias()["a"] == limiter.ViaStore })
		require.Equal(t, 198, s.left("a"), "the first and the last")
		require.Empty(t, s.errors())
	})
}
