package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// Whatever is done with Passes that are kept for too long, the counts stay exact: each unit is given back once or never.
func TestKeptPasses(t *testing.T) {
	const quota = 1_000_000
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	year := limiter.Per(quota, 366*24*time.Hour).With(limiter.FixedWindow)
	g := newGuard(t, config{Limiter: store, Policies: byIP(
		policy{Name: "a", Limit: year, Key: keyfunc.Global(), Refund: failed},
		policy{Name: "b", InFlight: 40, Key: keyfunc.Global()},
		policy{Name: "c", Limit: limiter.DenyAll, Match: match{Routes: []string{"/no"}}, Degrade: degrade.Func(skips)},
		policy{Name: "d", Limit: limiter.DenyAll, Match: match{Routes: []string{"/other"}}, Degrade: degrade.Func(proceeds)},
	)})
	var charged atomic.Int64
	var now, most atomic.Int64
	var wg sync.WaitGroup
	for k := range 64 {
		wg.Go(func() {
			var kept []middleware.Pass
			var later []func(int)
			for i := range 200 {
				target := []string{"/", "/", "/no", "/", "/other"}[(k+i)%5]
				p := g.Enter(httptest.NewRecorder(), request("GET", target), middleware.Entry{})
				if !p.Proceed() {
					kept = append(kept, p)
					continue
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				copied := p
				now.Add(-1)
				switch (k + i) % 4 {
				case 0:
					p.Leave(200)
					charged.Add(1)
				case 1:
					p.Leave(500)
				case 2:
					f := p.LeaveLater(0)
					f(500)
					later = append(later, f)
				case 3:
					p.Leave(0)
					charged.Add(1)
				}
				kept = append(kept, p, copied)
				for j := range kept { // long after
					kept[j].Leave(500)
					kept[j].LeaveLater(0)(500)
					_ = kept[j].NeedsStatus()
				}
				for _, f := range later {
					f(500)
				}
				if len(kept) > 8 {
					kept, later = kept[4:], later[len(later)/2:]
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(40))
	v, err := g.Peek(request("GET", "/"), middleware.Entry{})
	require.NoError(t, err)
	require.EqualValues(t, quota-charged.Load(), v.Policies[0].Decision.Remaining)
	free(t, g, 40)
}

// A Pass of nothing proceeds nowhere.
func TestZeroPass(t *testing.T) {
	var p middleware.Pass
	require.False(t, p.Proceed())
	require.False(t, p.Settles())
	require.False(t, p.NeedsStatus())
	require.Nil(t, p.Denied())
	p.Leave(200)
	p.LeaveLater(0)(200)
}

// What a request was is not kept by the pool for the next one.
func TestNoLeftovers(t *testing.T) {
	secret := guardOf(t, policy{Name: "secret", Limit: limiter.DenyAll, Key: keyfunc.Header("X-Token")}, policy{Name: "more", InFlight: 1})
	plain := guardOf(t, policy{Name: "plain", Limit: perMinute})
	for range 50 {
		r := request("GET", "/")
		r.Header.Set("X-Token", "hush")
		require.Equal(t, 429, serve(secret, r, ok).Code)
		w := serve(plain, request("GET", "/"), ok)
		require.NotContains(t, w.Header().Get("RateLimit-Policy"), "secret")
		v, err := plain.Peek(request("GET", "/"), middleware.Entry{})
		require.NoError(t, err)
		require.Len(t, v.Policies, 1)
	}
}

func FuzzEnter(f *testing.F) {
	f.Add("GET", "/a/b?c=d", "192.0.2.7:1", "x", "app.example")
	f.Add("OPTIONS", "//..//%2F", "[::1%eth0]:2", "", "*")
	f.Add("", "*", "@", "\x00|{}", ":")
	g := guardOf(f,
		policy{Name: "a", Limit: limiter.PerSecond(limiter.MaxRate)},
		policy{Name: "b", Limit: limiter.PerSecond(5), Key: keyfunc.Join(keyfunc.Header("X-A"), keyfunc.Route()), OnNoKey: middleware.SkipPolicy, Match: match{Routes: []string{"GET /a/{x}", "/{y...}"}, Hosts: []string{"*.example"}}},
		policy{Name: "c", InFlight: 3, Match: match{CIDRs: []string{"192.0.2.0/24", "::/0"}}, Refund: failed},
		policy{Name: "d", Limit: limiter.DenyAll, Exempt: match{Methods: []string{"GET"}}, Degrade: degrade.Func(proceeds)})
	f.Fuzz(func(t *testing.T, method, path, remote, header, host string) {
		r := request("GET", "/")
		r.Method, r.URL.Path, r.RemoteAddr, r.Host = method, path, remote, host
		r.Header["X-A"] = []string{header}
		w := httptest.NewRecorder()
		served := 0
		g.Serve(w, r, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		switch w.Code {
		case 200:
			require.Equal(t, 1, served)
		case 403, 429, 503:
			require.Zero(t, served)
		default:
			t.Fatal(w.Code)
		}
		for _, v := range w.Header() {
			for _, s := range v {
				require.NotContains(t, s, "\n")
			}
		}
	})
}

// keeper is a limiter of somebody's who has never heard of Forgetful: what it embeds is, and it is not.
type keeper struct {
	*memory.Limiter
	keys map[string]int
}

func (k *keeper) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	for _, t := range takes {
		k.keys[t.Key.ID]++
	}
	return k.Limiter.AllowAll(ctx, at, takes)
}

func TestALimiterThatKeepsKeysGetsItsOwn(t *testing.T) {
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	k := &keeper{store, map[string]int{}}
	g := newGuard(t, config{Limiter: k, Policies: byIP(policy{Name: "a", Limit: limiter.PerDay(100)})})
	want := map[string]int{}
	for round := range 2 {
		for client := range 10 {
			addr := fmt.Sprintf("192.0.2.%d", client)
			want["ip="+addr] = round + 1
			require.Equal(t, 200, get(g, addr).Code)
		}
	}
	require.Equal(t, want, k.keys)
}
