package stores_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

var key = limiter.Key{Space: "p", ID: "ip=192.0.2.1"}

// prefix is one of the test's own.
func prefix(t *testing.T) string { return strings.ReplaceAll(redistest.Prefix(t), ":", "-") }

func duration(d time.Duration) *config.Duration {
	x := config.Duration(d)
	return &x
}

// made returns Stores that are closed with the test, and checks that nothing of them survives.
func made(t *testing.T, c stores.Config) *stores.Stores {
	t.Helper()
	before := goleak.IgnoreCurrent()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := stores.New(c)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		goleak.VerifyNone(t, before)
	})
	return s
}

func TestMemory(t *testing.T) {
	s := made(t, stores.Config{})
	central, err := s.Central(config.Store{})
	require.NoError(t, err)
	require.IsType(t, (*memory.Limiter)(nil), central)
	again, err := s.Central(config.Store{})
	require.NoError(t, err)
	require.Same(t, central, again)
	local, err := s.Local(config.Store{}) // a fleet of one
	require.NoError(t, err)
	require.Same(t, central, local)
	_, err = s.Central(config.Store{Memory: &config.Memory{MaxKeys: 5}})
	require.ErrorIs(t, err, config.ErrNeedsRestart)
	require.NoError(t, s.Close())
	_, err = s.Central(config.Store{})
	require.ErrorIs(t, err, limiter.ErrClosed)
	_, err = s.Local(config.Store{Redis: &config.Redis{}})
	require.ErrorIs(t, err, limiter.ErrClosed)
	_, err = central.Allow(t.Context(), key, limiter.PerDay(1), 1)
	require.ErrorIs(t, err, limiter.ErrClosed)

	s = made(t, stores.Config{})
	_, err = s.Central(config.Store{Memory: &config.Memory{MaxKeys: -5}})
	require.Error(t, err)
	_, err = s.Central(config.Store{Memory: &config.Memory{MaxKeys: 5, MaxLogEntries: 5}})
	require.NoError(t, err) // nothing was made before
}

func TestRedis(t *testing.T) {
	server := redistest.Shared(t)
	url := "redis://" + server.Addr() + "/0"
	t.Setenv("SPILLWAY_TEST_REDIS", url)
	store := func() config.Store {
		return config.Store{Prefix: prefix(t), Redis: &config.Redis{URL: "env:SPILLWAY_TEST_REDIS"}, Timeout: duration(time.Second), DenyCache: duration(-1), NoSharing: true}
	}
	one, two := made(t, stores.Config{}), made(t, stores.Config{})
	saved := store()
	a, err := one.Central(saved)
	require.NoError(t, err)
	require.IsType(t, (*redislimit.Limiter)(nil), a)
	b, err := two.Central(saved)
	require.NoError(t, err)
	for k, l := range []limiter.Limiter{a, b, a} {
		d, err := l.Allow(t.Context(), key, limiter.PerDay(2), 1)
		require.NoError(t, err)
		require.Equal(t, k < 2, d.Allowed)
	}
	keys, err := server.Client().Keys(t.Context(), saved.Prefix+":*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)

	local, err := one.Local(saved)
	require.NoError(t, err)
	require.IsType(t, (*memory.Limiter)(nil), local)
	again, err := one.Local(saved)
	require.NoError(t, err)
	require.Same(t, local, again)

	other := saved
	other.Prefix += "x"
	_, err = one.Central(other)
	require.ErrorIs(t, err, config.ErrNeedsRestart)
	same, err := one.Central(saved)
	require.NoError(t, err)
	require.Same(t, a, same)
}

func TestFallback(t *testing.T) {
	server := redistest.Start(t)
	seen := make(chan limiter.Event, 10_000)
	s := made(t, stores.Config{Observer: limiter.ObserverFunc(func(e limiter.Event) {
		select {
		case seen <- e:
		default:
		}
	})})
	store := config.Store{
		Prefix: prefix(t), Redis: &config.Redis{URL: "redis://" + server.Addr()}, Timeout: duration(time.Second),
		Fallback: &config.Fallback{Replicas: 2, Census: true, Failures: 1, SlowCall: duration(-1), Cooldown: duration(time.Hour), Memory: &config.Memory{MaxKeys: 100}},
	}
	l, err := s.Central(store)
	require.NoError(t, err)
	require.IsType(t, (*fallback.Limiter)(nil), l)
	d, err := l.Allow(t.Context(), key, limiter.PerDay(100), 1)
	require.NoError(t, err)
	require.Equal(t, limiter.ViaStore, d.Via)
	for e := range seen { // the census reports by itself
		if e.Kind == limiter.EventStore && e.Op == "census" {
			break
		}
	}
	server.Kill()
	for d.Via != limiter.ViaFallback {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		d, err = l.Allow(ctx, key, limiter.PerDay(100), 1)
		cancel()
		require.NoError(t, err)
	}
	require.Less(t, d.Remaining, 50) // of a half
}

// A dry run takes no part in the fleet: nobody is called.
func TestDry(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	called := make(chan bool)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_ = c.Close()
		}
		called <- err == nil
	}()
	s := made(t, stores.Config{Dry: true})
	_, err = s.Central(config.Store{
		Prefix: "p", Redis: &config.Redis{URL: "redis://" + listener.Addr().String()}, Fallback: &config.Fallback{Census: true},
	})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, listener.Close())
	require.False(t, <-called)
}

// What has been made before something fails is closed, and no part of the URL is told.
func TestFailures(t *testing.T) {
	for _, store := range []config.Store{
		{Redis: &config.Redis{URL: "http://user:hunter2hunter2@host"}},
		{Redis: &config.Redis{URL: "redis://user:hunter2hunter2@host/0?x=hunter2hunter2"}},
		{Redis: &config.Redis{URL: "env:SPILLWAY_TEST_NOTHING"}},
		{Redis: &config.Redis{URLFile: "/nowhere/hunter2hunter2"[:9]}},
		{Redis: &config.Redis{URL: "redis://192.0.2.1:1"}, Prefix: "{}"},
		{Redis: &config.Redis{URL: "redis://192.0.2.1:1"}, Fallback: &config.Fallback{Replicas: -5, Census: true}},
		{Redis: &config.Redis{URL: "redis://192.0.2.1:1"}, Fallback: &config.Fallback{Memory: &config.Memory{MaxKeys: -5}}},
	} {
		s := made(t, stores.Config{})
		_, err := s.Central(store)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
		l, err := s.Central(config.Store{Redis: &config.Redis{URL: "redis://192.0.2.1:1"}})
		require.NoError(t, err) // the next one may be right
		require.NotNil(t, l)
	}
}

// A document that is refused leaves nothing behind: what is wrong with its store can be repaired without a restart.
func TestRefusedDocumentsPinNothing(t *testing.T) {
	s := stores.New(stores.Config{})
	defer func() { require.NoError(t, s.Close()) }()
	build := func(text string) config.Findings {
		doc, findings := config.Parse([]byte(text))
		require.NoError(t, findings.Err())
		_, findings = config.Build(doc, config.Deps{Central: s.Central, Local: s.Local})
		return findings
	}
	store := func(addr string) string {
		return "version: 1\nstore: {prefix: a, redis: {url: 'redis://" + addr + "'}, fallback: {replicas: 2}}\n"
	}
	const policies = "policies: [{name: a, key: ip, limit: 1/s}, {name: b, key: ip, limit: 1/m, on_store_error: fail_closed}]\n"
	require.NoError(t, build("version: 1\n").Err())
	require.Error(t, build(store("127.0.0.1:1")+"policies: [{name: a, key: ip, limit: 1/s, match: {routes: [GET]}}]\n").Err())
	require.NoError(t, build(store("127.0.0.1:2")+policies).Err())
	require.NoError(t, build(store("127.0.0.1:2")+policies).Err())
	findings := build(store("127.0.0.1:1") + policies)
	require.Error(t, findings.Err())
	require.Equal(t, config.NeedsRestart, findings.Err().(config.Findings)[0].ID)
}
