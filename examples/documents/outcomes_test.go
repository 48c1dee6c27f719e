package documents_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ingress = "192.0.2.10"
	ok      = http.StatusOK
	no      = http.StatusUnauthorized // a wrong password
	refused = http.StatusTooManyRequests
	busy    = http.StatusServiceUnavailable
)

func client(address string) string { return "X-Forwarded-For: " + address }

func TestPublicAPI(t *testing.T) {
	steps := []step{
		{about: "a client has its burst", times: 60, from: ingress, fields: client("203.0.113.1"), status: ok},
		{about: "and no more", from: ingress, fields: client("203.0.113.1"), status: refused, by: "address"},
		{about: "another ingress is no other client", from: "192.0.2.11", fields: client("203.0.113.1"), status: refused, by: "address"},
		{about: "what a client adds on the left is not read", from: ingress, fields: client("203.0.113.77, 203.0.113.1"), status: refused, by: "address"},
		{about: "probes pass", do: "GET /healthz", from: ingress, fields: client("203.0.113.1"), status: ok},
		{about: "another client passes", from: ingress, fields: client("203.0.113.2"), status: ok},
		{about: "five more a second", wait: time.Second, times: 5, from: ingress, fields: client("203.0.113.1"), status: ok},
		{about: "no six", from: ingress, fields: client("203.0.113.1"), status: refused, by: "address"},

		{about: "nobody else is believed", times: 60, from: "198.51.100.9", fields: client("203.0.113.3"), status: ok},
		{about: "whatever he says", from: "198.51.100.9", fields: client("203.0.113.4"), status: refused, by: "address"},

		{about: "searches", times: 4, do: "GET /search", from: ingress, fields: client("203.0.113.5"), status: ok},
		{about: "are fewer", do: "GET /search", from: ingress, fields: client("203.0.113.5"), status: refused, by: "search"},
		{about: "than the rest", from: ingress, fields: client("203.0.113.5"), status: ok},
		{about: "twelve a minute", wait: 5 * time.Second, do: "GET /search", from: ingress, fields: client("203.0.113.5"), status: ok},
	}
	// Ten networks of one /48 spend what it has at once. The neighbour has its own.
	for k := range 10 {
		steps = append(steps, step{about: "an IPv6 client", times: 60, from: ingress, fields: client(fmt.Sprintf("2001:db8:1:%x::1", k)), status: ok})
	}
	run(t, "public-api.yaml", append(steps,
		step{about: "another address of a /64", from: ingress, fields: client("2001:db8:1:9::2"), status: refused, by: "address, network"},
		step{about: "another /64 of a /48", from: ingress, fields: client("2001:db8:1:ffff::1"), status: refused, by: "network"},
		step{about: "another /48", from: ingress, fields: client("2001:db8:2::1"), status: ok},
	))
}

func TestPublicAPIFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, "public-api.yaml", "net/http", answers)
		x := step{do: "GET /search", from: ingress, fields: client("2001:db8::1") + "; Accept-Language: zh-CN"}
		var last http.Header
		for range 4 {
			last = s.ask(x).Header()
		}
		require.Equal(t, "0", last.Get("X-RateLimit-Remaining"))
		require.Contains(t, last.Get("RateLimit"), `"search";r=0`)
		require.Contains(t, last.Get("RateLimit"), `"network";`)
		w := s.ask(x)
		require.Contains(t, w.Body.String(), "请求过于频繁")
		require.Regexp(t, `^[5-8]$`, w.Header().Get("Retry-After")) // 5 s, and up to 3 more
		ipv4 := s.ask(step{from: ingress, fields: client("203.0.113.1")})
		require.Equal(t, `"address";r=59;t=12`, ipv4.Header().Get("RateLimit"), "of networks nothing is told")
		require.Empty(t, s.ask(step{do: "GET /healthz", from: ingress}).Header().Get("RateLimit"))
	})
}

func TestSaaS(t *testing.T) {
	const from = "198.51.100.1"
	run(t, "saas.yaml", []step{
		{about: "nobody's plan", times: 10, from: from, fields: "X-Tenant: hobby", status: ok},
		{about: "has ten at once", from: from, fields: "X-Tenant: hobby", status: refused, by: "tenant"},
		{about: "from wherever", from: "203.0.113.9", fields: "X-Tenant: hobby", status: refused, by: "tenant"},
		{about: "an unknown plan is free too", times: 10, from: from, fields: "X-Tenant: odd; X-Plan: platinum", status: ok},
		{about: "an unknown plan is free too", from: from, fields: "X-Tenant: odd; X-Plan: platinum", status: refused, by: "tenant"},
		{about: "a plan", times: 100, from: from, fields: "X-Tenant: t1; X-Plan: team", status: ok},
		{about: "a plan", from: from, fields: "X-Tenant: t1; X-Plan: team", status: refused, by: "tenant"},
		{about: "a larger one", times: 1000, from: from, fields: "X-Tenant: b1; X-Plan: business", status: ok},
		{about: "a larger one", from: from, fields: "X-Tenant: b1; X-Plan: business", status: refused, by: "tenant"},
		{about: "who upgrades has what has come by the old plan", wait: time.Second, times: 10, from: from, fields: "X-Tenant: t1; X-Plan: business", status: ok},
		{about: "and not the burst of the new one", from: from, fields: "X-Tenant: t1; X-Plan: business", status: refused, by: "tenant"},
		{about: "and then its rate", wait: time.Second, times: 100, from: from, fields: "X-Tenant: t1; X-Plan: business", status: ok},
		{about: "our own failures are free", times: 30, from: from, fields: "X-Tenant: unlucky", answer: 503, status: 503},
		{about: "theirs are not", times: 10, from: from, fields: "X-Tenant: unlucky", answer: 404, status: 404},
		{about: "theirs are not", from: from, fields: "X-Tenant: unlucky", answer: 404, status: refused, by: "tenant"},
		{about: "without a tenant nothing is served", from: from, status: http.StatusForbidden, by: "tenant"},

		{about: "an override wins over the plan", times: 1500, from: "203.0.113.1", fields: "X-Tenant: acme; X-Plan: team", status: ok},
		{about: "an override wins over the plan", from: "203.0.113.1", fields: "X-Tenant: acme; X-Plan: team", status: refused, by: "tenant"},

		{about: "exports on trial", times: 2, do: "POST /exports", from: from, fields: "X-Tenant: t2; X-Plan: team", status: ok},
		{about: "refuse nobody", do: "POST /exports", from: from, fields: "X-Tenant: t2; X-Plan: team", status: ok, by: "exports (shadow)"},

		{about: "without Redis, and without a fallback, all are let through", away: true, times: 99, from: from, fields: "X-Tenant: hobby", status: ok},
	})
}

// A flood is refused before anybody is asked who it is.
func TestSaaSFlood(t *testing.T) {
	run(t, "saas.yaml", []step{
		{about: "one tenant after another", times: 200, from: "203.0.113.1", fields: "X-Tenant: a; X-Plan: business", status: ok},
		{about: "a flood of failures", times: 1800, from: "203.0.113.1", fields: "X-Tenant: a; X-Plan: business", answer: 500, status: 500},
		{about: "of one address", from: "203.0.113.1", status: refused, by: "address"},
		{about: "is not that of another", from: "203.0.113.2", fields: "X-Tenant: a; X-Plan: business", status: ok},
	})
}

// hold starts n requests that the service keeps until the returned function is called.
func hold(s *server, x step, n int) (codes map[int]int, release func()) {
	codes = make(map[int]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			w := s.ask(x)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
		})
	}
	synctest.Wait()
	return codes, wg.Wait
}

func TestSaaSInFlight(t *testing.T) {
	for mount := range mounts {
		t.Run(mount, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				s := serve(t, "saas.yaml", mount, func(http.ResponseWriter, *http.Request) { <-goOn })
				slow, other := step{fields: "X-Tenant: slow; X-Plan: business"}, step{fields: "X-Tenant: other"}
				codes, first := hold(s, slow, 15)
				require.Equal(t, map[int]int{busy: 3}, codes, "twelve are in service")
				require.Equal(t, "tenant", s.who())
				others, second := hold(s, other, 1)
				require.Empty(t, others, "another tenant is in service")
				close(goOn)
				first()
				second()
				require.Equal(t, map[int]int{busy: 3, ok: 12}, codes)
				require.Equal(t, ok, s.ask(slow).Code, "places are free again")
			})
		})
	}
}

func TestLogin(t *testing.T) {
	const home, away = "203.0.113.1", "198.51.100.66"
	alice, login := "X-Name: alice", "POST /login"
	steps := []step{
		{about: "who knows the password is never counted", times: 100, do: login, from: home, fields: alice, status: ok},
		{about: "nor one who is redirected", times: 100, do: login, from: home, fields: alice, answer: 303, status: 303},
		{about: "nor are failures of ours", times: 100, do: login, from: home, fields: alice, answer: 500, status: 500},
		{about: "five wrong passwords", times: 5, do: login, from: home, fields: alice, answer: no, status: no},
		{about: "and then none, nor the right one", do: login, from: home, fields: alice, status: refused, by: "pair"},
		{about: "in whatever spelling", do: login, from: home, fields: "X-Name: ALICE", status: refused, by: "pair"},
		{about: "other names may be tried", do: login, from: home, fields: "X-Name: bob", answer: no, status: no},
		{about: "other pages are not meant", from: home, status: ok},
		{about: "three minutes later", wait: 3 * time.Minute, do: login, from: home, fields: alice, status: ok},
		{about: "a login without a name is none", do: login, from: home, status: http.StatusForbidden, by: "pair"},
	}
	// One password at many accounts: the address has 30.
	for k := range 30 {
		steps = append(steps, step{about: "spraying", do: login, from: away, fields: fmt.Sprintf("X-Name: user%d", k), answer: no, status: no})
	}
	steps = append(steps, step{about: "spraying", do: login, from: away, fields: "X-Name: user30", answer: no, status: refused, by: "address"})
	// One account from many addresses: the eleventh is asked for more, and nobody is refused.
	for k := range 10 {
		steps = append(steps, step{about: "a botnet", do: login, from: fmt.Sprintf("192.0.2.%d", k), fields: "X-Name: carol", answer: no, status: no})
	}
	run(t, "login.yaml", append(steps,
		step{about: "a botnet", do: login, from: "192.0.2.99", fields: "X-Name: carol", answer: no, status: no, by: "account, account (degraded)"},
		step{about: "the owner", do: login, from: home, fields: "X-Name: carol", status: ok, by: "account, account (degraded)"},
		step{about: "the botnet goes on", times: 4, do: login, from: "192.0.2.99", fields: "X-Name: carol", answer: no, status: no, by: "account, account (degraded)"},
		step{about: "each address is still counted", do: login, from: "192.0.2.99", fields: "X-Name: carol", answer: no, status: refused, by: "pair"},
		step{about: "and the owner gets in", do: login, from: home, fields: "X-Name: carol", status: ok, by: "account, account (degraded)"},
		step{about: "nobody gets in while the store is away", away: true, do: login, from: home, fields: "X-Name: dora", status: busy, by: "address, pair"},
		step{about: "other pages do without it", away: true, from: home, status: ok},
	))
}

// Who is refused learns nothing, and who is let through neither.
func TestLoginIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, "login.yaml", "net/http", answers)
		for k := range 7 {
			w := s.ask(step{do: "POST /login", fields: "X-Name: alice", answer: no})
			require.Equal(t, k >= 5, w.Code == refused)
			for _, name := range []string{"X-RateLimit-Limit", "RateLimit", "RateLimit-Policy", "Retry-After"} {
				require.Empty(t, w.Header().Values(name), name)
			}
			require.NotContains(t, w.Body.String(), "pair")
		}
	})
}

func TestPartner(t *testing.T) {
	const key, other, from = "X-Api-Key: k-1", "X-Api-Key: k-2", "203.0.113.1"
	// Bubbles begin at midnight UTC, which is 8 o'clock in Shanghai.
	steps := []step{
		{about: "a batch", times: 40, from: from, fields: key, status: ok},
		{about: "a batch", from: from, fields: key, status: refused, by: "pace"},
		{about: "another partner of the same address", times: 39, from: from, fields: other, status: ok},
		{about: "the address has 80, the refused one included", from: from, fields: "X-Api-Key: guess", status: refused, by: "address"},
		{about: "twenty a second", wait: time.Second, times: 20, from: from, fields: key, status: ok},
		{about: "twenty a second", from: from, fields: key, status: refused, by: "pace"},
		{about: "without a key", wait: time.Second, from: from, status: http.StatusForbidden, by: "contract, pace"},
	}
	left := 10000 - 60
	for left > 40 {
		steps = append(steps, step{about: "all day", wait: 2 * time.Second, times: 40, from: from, fields: key, status: ok})
		left -= 40
	}
	run(t, "partner.yaml", append(steps,
		step{about: "failures of ours are given back", wait: 2 * time.Second, times: 40, from: from, fields: key, answer: 502, status: 502},
		step{about: "the last of the day", wait: 2 * time.Second, times: left, from: from, fields: key, status: ok},
		step{about: "the day is used up", wait: 2 * time.Second, from: from, fields: key, status: refused, by: "contract"},
		step{about: "theirs alone", from: from, fields: other, status: ok},
		step{about: "before midnight in Shanghai", wait: 15*time.Hour + 50*time.Minute - time.Duration(len(steps))*2*time.Second, from: from, fields: key, status: refused, by: "contract"},
		step{about: "after it", wait: 11 * time.Minute, from: from, fields: key, status: ok},
	))
}

// A burst is served at the pace of the service instead of being refused.
func TestInternal(t *testing.T) {
	for mount := range mounts {
		t.Run(mount, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var mu sync.Mutex
				var at []time.Duration
				s := serve(t, "internal.yaml", mount, func(http.ResponseWriter, *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Since(begin))
				})
				codes, over := hold(s, step{fields: "X-Caller: orders"}, 30)
				require.Equal(t, map[int]int{ok: 1, refused: 4}, codes, "one is served, 25 wait")
				require.Equal(t, "caller", s.who())
				require.Equal(t, ok, s.ask(step{fields: "X-Caller: stock"}).Code, "another caller has its own queue")
				over()
				require.Equal(t, map[int]int{ok: 26, refused: 4}, codes)
				require.Len(t, at, 27)
				for k, d := range at[1:] { // the other caller was served at 0 as well
					require.Equal(t, time.Duration(k)*20*time.Millisecond, d)
				}
				require.Equal(t, http.StatusForbidden, s.ask(step{}).Code, "whoever is no caller")
			})
		})
	}
}

// More callers than anybody knew: each by its own limit, all together by the backstop.
func TestInternalBackstop(t *testing.T) {
	var steps []step
	for k := range 40 {
		steps = append(steps, step{about: "one of many", fields: fmt.Sprintf("X-Caller: c%d", k), status: ok})
	}
	run(t, "internal.yaml", append(steps,
		step{about: "one too many", fields: "X-Caller: c40", status: refused, by: "backstop"},
		step{about: "5 ms later", wait: 5 * time.Millisecond, fields: "X-Caller: c41", status: ok},
		step{about: "5 ms later", fields: "X-Caller: c42", status: refused, by: "backstop"},
	))
}

func TestInternalInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		s := serve(t, "internal.yaml", "net/http", func(http.ResponseWriter, *http.Request) { <-goOn })
		var releases []func()
		for k := range 64 {
			codes, release := hold(s, step{fields: fmt.Sprintf("X-Caller: c%d", k)}, 1)
			require.Empty(t, codes, "in service")
			releases = append(releases, release)
			time.Sleep(5 * time.Millisecond)
		}
		require.Equal(t, busy, s.ask(step{fields: "X-Caller: c64"}).Code)
		require.Equal(t, "backstop", s.who())
		close(goOn)
		for _, release := range releases {
			release()
		}
	})
}
