package live_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/live"
)

// With a real server: what limiters on Redis tell is enough to measure by, what is measured is within the bound, and an outage is
// seen.
func TestOnRedis(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	server := redistest.Start(t)
	p := newPage(t, live.Config{})
	central, err := redislimit.New(redislimit.Config{Client: server.Client(), Observer: p, Name: "redis", Timeout: time.Second})
	require.NoError(t, err)
	defer func() { _ = central.Close() }()
	safe, err := fallback.New(fallback.Config{Primary: central, Observer: p, Name: "redis", Logger: quiet, SlowCall: -1})
	require.NoError(t, err)
	defer safe.Close()
	lease, err := leased.New(leased.Config{Client: server.Client(), Observer: p, Name: "leases", Logger: quiet, Timeout: 500 * time.Millisecond})
	require.NoError(t, err)
	defer func() { _ = lease.Close() }()
	var all []middleware.Policy
	for k, text := range []string{"50/s burst 5", "100/s fixed_window", "80/s sliding_log", "200/s burst 40"} {
		x := policy(fmt.Sprint("p", k), text)
		x.Match = middleware.Match{Routes: []string{fmt.Sprint("/", k)}}
		if x.Limiter = safe; k == 3 {
			x.Limiter = lease
		}
		all = append(all, x)
	}
	g := newGuard(t, p, nil, all...)
	p.Watch(g, nil)

	ctx, stop := context.WithCancel(t.Context())
	var asking, looking sync.WaitGroup
	defer looking.Wait()
	defer p.Close()
	defer asking.Wait()
	defer stop()
	for k := range all {
		for range 2 {
			asking.Go(func() {
				beat := time.NewTicker(2 * time.Millisecond)
				defer beat.Stop()
				for ctx.Err() == nil {
					send(g, fmt.Sprint("/", k), 1)
					<-beat.C
				}
			})
		}
	}
	w := newWire()
	looking.Go(func() { p.ServeHTTP(w, local("GET", "/events")) })
	until := func(what string, ok func(seen) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			all := w.events(t)
			return len(all) > 0 && ok(follow(t, all))
		}, time.Minute, 200*time.Millisecond, what)
	}
	until("refusals of all", func(s seen) bool {
		for k := range all {
			if r := s.rows[fmt.Sprint("p", k)]; len(r.S) == 0 || r.S[1] < 100 || r.K != 1 {
				return false
			}
		}
		return true
	})
	s := follow(t, w.events(t))
	for k := range all {
		r := s.rows[fmt.Sprint("p", k)]
		require.LessOrEqual(t, r.O, r.B, "p%d", k)
		t.Logf("p%d: %.2f of %.2f units, %v", k, r.O, r.B, s.about[fmt.Sprint("p", k)].Via)
	}
	require.Contains(t, s.about["p3"].Via, "lease")
	require.NotEmpty(t, s.about["p3"].Leases)
	require.Contains(t, s.about["p0"].Via, "store")
	require.Equal(t, "fallback", s.about["p0"].Limiter)
	require.Equal(t, "ok", s.state)

	server.Kill()
	until("the outage", func(s seen) bool { return s.state == "away" && s.rows["p0"].B == -2 && s.rows["p3"].B == -1 })
}
