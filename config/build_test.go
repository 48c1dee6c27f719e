package config_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// deps are what the tests' application registers.
func deps(t testing.TB) config.Deps {
	t.Helper()
	central, err := memory.New(memory.Config{})
	require.NoError(t, err)
	local, err := memory.New(memory.Config{})
	require.NoError(t, err)
	by := func(kind, header string) keyfunc.Func {
		return func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(kind, r.Header.Get(header)), nil }
	}
	return config.Deps{
		Keys: map[string]keyfunc.Func{
			"user": by("user", "X-User"), "tenant": by("tenant", "X-Tenant"),
			"both": keyfunc.Join(by("tenant", "X-Tenant"), by("user", "X-User")), "bad": by("Bad Kind", "X"),
		},
		Plans:      map[string]func(*keyfunc.Request) string{"plan": func(r *keyfunc.Request) string { return r.Header.Get("X-Plan") }},
		Predicates: map[string]func(*keyfunc.Request) bool{"beta": func(r *keyfunc.Request) bool { return r.Header.Get("X-Beta") != "" }},
		Costs:      map[string]func(*keyfunc.Request) int{"three": func(*keyfunc.Request) int { return 3 }},
		StoreKeys:  map[string]func(limiter.Key) string{"old": func(k limiter.Key) string { return "old:" + k.ID }},
		Partitions: map[string]func(keyfunc.Key) []byte{"hash": func(keyfunc.Key) []byte { return []byte("pk") }},
		Degrade:    map[string]degrade.Handler{"a": degrade.Func(skip), "b": degrade.Func(skip)},
		Central:    func(config.Store) (limiter.Limiter, error) { return central, nil },
		Local:      func(config.Store) (limiter.Limiter, error) { return local, nil },
		Leased:     func(config.Store, time.Duration) (limiter.Limiter, error) { return central, nil },
		Logger:     slog.New(slog.DiscardHandler),
	}
}

func skip(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Skip }

// built is a document that is right.
func built(t testing.TB, d config.Deps, text string) middleware.Config {
	t.Helper()
	cfg, found := config.Build(parsed(t, text), d)
	require.NoError(t, found.Err(), text)
	return cfg
}

func asked(headers ...string) *keyfunc.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for k := 0; k < len(headers); k += 2 {
		if headers[k] == "" {
			r.RemoteAddr = headers[k+1]
			continue
		}
		r.Header.Set(headers[k], headers[k+1])
	}
	var q keyfunc.Request
	q.Reset(r, nil, nil)
	return &q
}

// Each field of a document arrives at its setting.
func TestFieldsArrive(t *testing.T) {
	d := deps(t)
	cfg := built(t, d, `
version: 1
headers: both
max_waiting: 7
count_preflights: true
exempt: {routes: [/healthz], hosts: [a.example], methods: [HEAD], cidrs: [198.51.100.0/24], if: beta}
client_ip: {strategy: xff_count, count: 2, trusted_proxies: [192.0.2.0/24], trust_unix: true, ipv6_prefix: 56, ipv4_prefix: 24, nat64_prefixes: ["64:ff9b::/96"], on_key_error: deny, allow_trust_all: true}
response: {reset_delta: true, retry_after_date: true, max_retry_after: 1h, jitter: 2s, max_units_per_second: 9, no_expose: true, messages: {en: no}}
policies:
  - name: a
    stage: identity
    match: {routes: [GET /x], hosts: [b.example], methods: [GET], cidrs: [10.0.0.0/8], if: beta}
    exempt: {routes: [/y]}
    key: [tenant, ip]
    on_no_key: skip
    store_key: old
    limit: 600/m
    burst: 100
    in_flight: 5
    unit: bytes
    partition: hash
    cost: three
    refund: [5xx, 404]
    degrade: [a, b]
    on_store_error: fail_closed
    headers: draft-11
    messages: {de: nein}
  - {name: b, key: ip, limit: 10/s, algorithm: leaky_bucket, burst: 5, max_delay: 300ms, mode: local, shadow: true}
  - {name: c, key: ip, limit: 10/s, algorithm: sliding_window, cells: 10}
  - {name: d, stage: x, key: ip, limit: "25", algorithm: fixed_window, align: {unit: day, zone: Asia/Shanghai}, max_delay: off}
  - {name: e, stage: manual, limit: deny_all}
`)
	central, _ := d.Central(config.Store{})
	local, _ := d.Local(config.Store{})
	require.Equal(t, keyfunc.Trust{
		Strategy: keyfunc.XForwardedForCount, Count: 2, TrustedProxies: []string{"192.0.2.0/24"}, TrustUnix: true, IPv6Prefix: 56, IPv4Prefix: 24,
		NAT64Prefixes: []string{"64:ff9b::/96"}, OnKeyError: keyfunc.DenyRequest, AllowTrustAll: true,
	}, cfg.ClientIP)
	require.Equal(t, response.Options{
		Headers: response.Both, ResetDelta: true, RetryAfterDate: true, MaxRetryAfter: time.Hour, Jitter: 2 * time.Second, MaxUnitsPerSecond: 9, NoExpose: true,
		Messages: map[string]string{"en": "no"},
	}, cfg.Response)
	require.Equal(t, 7, cfg.MaxWaiting)
	require.True(t, cfg.CountPreflights)
	require.Same(t, central, cfg.Limiter)
	require.Equal(t, []string{"/healthz"}, cfg.Exempt.Routes)
	require.Equal(t, []string{"a.example"}, cfg.Exempt.Hosts)
	require.Equal(t, []string{"HEAD"}, cfg.Exempt.Methods)
	require.Equal(t, []string{"198.51.100.0/24"}, cfg.Exempt.CIDRs)
	require.True(t, cfg.Exempt.If(asked("X-Beta", "1")))
	require.False(t, cfg.Exempt.If(asked()))

	a := cfg.Policies[0]
	require.Equal(t, "a", a.Name)
	require.Equal(t, "identity", a.Stage)
	require.Equal(t, [][]string{{"GET /x"}, {"b.example"}, {"GET"}, {"10.0.0.0/8"}, {"/y"}}, [][]string{a.Match.Routes, a.Match.Hosts, a.Match.Methods, a.Match.CIDRs, a.Exempt.Routes})
	require.True(t, a.Match.If(asked("X-Beta", "1")))
	require.Nil(t, a.Exempt.If)
	key, err := a.Key(asked("X-Tenant", "acme"))
	require.NoError(t, err)
	require.Equal(t, "tenant=acme|ip=192.0.2.1", key.String())
	require.Equal(t, middleware.SkipPolicy, a.OnNoKey)
	require.Equal(t, "old:x", a.StoreKey(limiter.Key{ID: "x"}))
	require.Equal(t, limiter.PerMinute(600).WithBurst(100), a.Limit.Current())
	require.Nil(t, a.Plan)
	require.Equal(t, 5, a.InFlight)
	require.Equal(t, "bytes", a.Unit)
	require.Equal(t, []byte("pk"), a.Partition(keyfunc.Key{}))
	require.Nil(t, a.Limiter)
	require.Equal(t, 3, a.Cost(asked()))
	for status, back := range map[int]bool{200: false, 404: true, 403: false, 500: true, 599: true, 499: false} {
		require.Equal(t, back, a.Refund(status))
	}
	require.NotNil(t, a.Degrade)
	require.Equal(t, middleware.FailClosed, a.OnStoreError)
	require.Equal(t, response.Draft11Set, a.Headers)
	require.Equal(t, map[string]string{"de": "nein"}, a.Messages)

	b, c, e := cfg.Policies[1], cfg.Policies[2], cfg.Policies[3]
	require.Equal(t, limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(5), b.Limit.Current())
	require.Equal(t, 300*time.Millisecond, b.MaxDelay)
	require.Same(t, local, b.Limiter)
	require.True(t, b.Shadow)
	require.Equal(t, limiter.Limit{Algorithm: limiter.SlidingWindow, Rate: 10, Period: time.Second, Cells: 10}, c.Limit.Current())
	require.Equal(t, limiter.Limit{Algorithm: limiter.FixedWindow, Rate: 25, Align: limiter.Align{Unit: limiter.Day, Zone: "Asia/Shanghai"}}, e.Limit.Current())
	require.Equal(t, time.Duration(-1), e.MaxDelay)
	require.Equal(t, limiter.DenyAll, cfg.Policies[4].Limit.Current())
	doc := parsed(t, `{version: 1, policies: [{name: a, stage: z}, {name: b}, {name: c, stage: manual}, {name: d, stage: identity}, {name: e, stage: y}]}`)
	require.Equal(t, []string{"edge", "identity", "z", "y"}, doc.Stages())
}

// ids are the identifiers of findings, with where they are.
func ids(found config.Findings) (all []string) {
	for _, f := range found {
		all = append(all, f.Path+" "+f.ID)
	}
	return all
}

func TestBuildFindings(t *testing.T) {
	t.Setenv("SPILLWAY_TEST_SHORT", "short")
	for text, want := range map[string][]string{
		// What a document cannot do without.
		"policies: [{name: a}]":                                                      {"policies[0] missing_field", "policies[0] missing_field"},
		"policies: [{name: a, key: ip, burst: 5}]":                                   {"policies[0] missing_field", "policies[0].burst conflict"},
		"policies: [{name: -a, key: ip, limit: 1/s}]":                                {"policies[0].name invalid_value"},
		"policies: [{name: a, key: ip, limit: 1/s}, {name: A, key: ip, limit: 1/s}]": {"policies[1].name conflict"},
		// Names.
		"policies: [{name: a, key: usr, limit: 1/s, cost: x, store_key: x, partition: x, degrade: [a, x], match: {if: x}, plans: {from: x, limits: {a: 1/s}}}]": {
			"policies[0].key[0] unknown_name", "policies[0].cost unknown_name", "policies[0].store_key unknown_name", "policies[0].partition unknown_name",
			"policies[0].degrade[1] unknown_name", "policies[0].match.if unknown_name", "policies[0].plans.from unknown_name",
		},
		// Leases.
		"store: {prefix: x, redis: {url: 'redis://127.0.0.1:1'}}\npolicies: [{name: a, key: ip, limit: 1/s, mode: leased, sync: 20ms}]":                                     nil,
		"store: {prefix: x, redis: {url: 'redis://127.0.0.1:1'}}\npolicies: [{name: a, key: ip, limit: 1/s sliding_log, mode: leased}]":                                     {"policies[0].limit conflict"},
		"store: {prefix: x, redis: {url: 'redis://127.0.0.1:1'}}\npolicies: [{name: a, key: ip, limit: 1/s, algorithm: leaky_bucket, mode: leased}]":                        {"policies[0].limit conflict"},
		"store: {prefix: x, redis: {url: 'redis://127.0.0.1:1'}}\npolicies: [{name: a, key: ip, limit: 1/s, overrides: {ip: {192.0.2.1: 9/s fixed_window}}, mode: leased}]": {"policies[0].overrides.ip.192.0.2.1 conflict"},
		"store: {prefix: x, redis: {url: 'redis://127.0.0.1:1'}}\npolicies: [{name: a, key: ip, limit: deny_all, mode: leased}]":                                            nil,
		"policies: [{name: a, key: ip, limit: 1/s, mode: leased}]":                                                                                                          {"policies[0].mode conflict"},
		"policies: [{name: a, key: ip, limit: 1/s, sync: 20ms}]":                                                                                                            {"policies[0].sync conflict"},
		"policies: [{name: a, key: ip, in_flight: 1, sync: 20ms}]":                                                                                                          {"policies[0].sync conflict"},
		// Keys.
		"policies: [{name: a, key: [ip, 'first(user, ip)'], limit: 1/s}]":                                          {"policies[0].key[1] conflict"},
		"policies: [{name: a, key: ['header:A-B', 'cookie:a_b'], limit: 1/s}]":                                     {"policies[0].key[1] conflict"},
		"policies: [{name: a, key: 'first(header:K, query:k)', limit: 1/s}]":                                       {"policies[0].key client_chosen"},
		"policies: [{name: a, key: 'header:K', limit: 1/s, stage: identity}]":                                      nil,
		"policies: [{name: a, key: ['header:K', ip], limit: 1/s}]":                                                 nil,
		"policies: [{name: a, key: 'header:K', limit: 1/s, shadow: true}]":                                         nil,
		"policies: [{name: a, key: bad, limit: 1/s}]":                                                              {"policies[0].key[0] invalid_value"},
		"policies: [{name: a, key: 'hmac(ip)', limit: 1/s}]":                                                       {"policies[0].key[0] missing_field"},
		"key_secret: short\npolicies: [{name: a, key: 'hmac(ip)', limit: 1/s, overrides: {ip: {192.0.2.1: 1/s}}}]": {"key_secret invalid_value"},
		"key_secret: ${env:SPILLWAY_TEST_SHORT}\npolicies: [{name: a, key: 'hmac(ip)', limit: 1/s}]":               {"key_secret invalid_value"},
		"key_secret: ${env:SPILLWAY_TEST_NONE}\npolicies: [{name: a, key: 'hmac(ip)', limit: 1/s}]":                {"key_secret unreadable"},
		"key_secret: ${env:SPILLWAY_TEST_NONE}x":                                                                   {"key_secret invalid_value"},
		"key_secret_file: /nowhere":                                                                                {"key_secret_file unreadable"},
		"key_secret_file: /dev/null":                                                                               {"key_secret_file unreadable"},
		"key_secret_file: /nowhere\nkey_secret: 0123456789abcdef":                                                  {"key_secret_file conflict"},
		// Limits.
		"policies: [{name: a, key: ip, limit: 0/s}]":                                                                {"policies[0].limit invalid_value"},
		"policies: [{name: a, key: ip, limit: 5}]":                                                                  {"policies[0].limit invalid_value"},
		"policies: [{name: a, key: ip, limit: deny_all}]":                                                           nil,
		"policies: [{name: a, key: ip, limit: 5/s burst 3, burst: 3}]":                                              {"policies[0].burst conflict"},
		"policies: [{name: a, key: ip, limit: 5/s GCRA, algorithm: token_bucket}]":                                  {"policies[0].algorithm conflict"},
		"policies: [{name: a, key: ip, limit: unlimited, algorithm: token_bucket, burst: 1}]":                       {"policies[0].algorithm conflict"},
		"policies: [{name: a, key: ip, limit: unlimited, burst: 1}]":                                                {"policies[0].limit invalid_value"},
		"policies: [{name: a, key: ip, limit: 5/s sliding_window cells 2, cells: 2}]":                               {"policies[0].cells conflict"},
		"policies: [{name: a, key: ip, limit: 5 fixed_window align day, align: {unit: week}}]":                      {"policies[0].align conflict"},
		"policies: [{name: a, key: ip, limit: 5/s, cells: 5}]":                                                      {"policies[0].limit invalid_value"},
		"policies: [{name: a, key: ip, limit: '5', algorithm: fixed_window, align: {unit: day, zone: Nowhere/At}}]": {"policies[0].limit invalid_value"},
		// Plans and callers.
		"policies: [{name: a, key: ip, limit: 5/s, plans: {from: 'header:X-Plan', limits: {a: 0/s, b: 1/s}}}]":     {"policies[0].plans.from client_chosen", "policies[0].plans.limits.a invalid_value"},
		"policies: [{name: a, key: ip, limit: 5/s, plans: {from: 'header:X Y', trusted: true, limits: {b: 1/s}}}]": {"policies[0].plans.from invalid_value"},
		"policies: [{name: a, key: ip, limit: 5/s, plans: {from: plan, trusted: true, limits: {b: 1/s}}}]":         {"policies[0].plans.trusted no_effect"},
		"policies: [{name: a, key: ip, limit: 5/s, overrides: {user: {u: 1/s}}}]":                                  {"policies[0].overrides.user unknown_name"},
		"policies: [{name: a, key: ip, limit: 5/s, overrides: {ip: {u: 1/s, '2001:db8::/48': 1/s, 'fe80::1%eth0': 1/s}}}]": {
			"policies[0].overrides.ip.u invalid_value", "policies[0].overrides.ip.2001:db8::/48 invalid_value", "policies[0].overrides.ip.fe80::1%eth0 invalid_value",
		},
		"policies: [{name: a, key: ip, limit: 5/s, overrides: {ip: {'2001:db8::1': 1/s, '2001:db8::2': 1/s}}}]": {"policies[0].overrides.ip.2001:db8::2 conflict"},
		// Stores.
		"store: {}":          {"store conflict"},
		"store: {redis: {}}": {"store.redis conflict", "store no_prefix"},
		"store: {redis: {url: a, url_file: b}, prefix: x}":              {"store.redis conflict"},
		"store: {redis: {url: '${env:X}/0'}, prefix: x}":                {"store.redis.url invalid_value"},
		"store: {memory: {}, prefix: x, timeout: 1s, no_sharing: true}": {"store.prefix no_effect", "store.timeout no_effect", "store.no_sharing no_effect"},
		// Clients.
		"client_ip: {strategy: xff, count: 2, header: X, trusted_proxies: [a, 0.0.0.0/0], nat64_prefixes: [b]}": {
			"client_ip.count invalid_value", "client_ip.header invalid_value", "client_ip.trusted_proxies[0] invalid_value",
			"client_ip.trusted_proxies[1] invalid_value", "client_ip.nat64_prefixes[0] invalid_value",
		},
		"client_ip: {strategy: xff}":                                {"client_ip no_effect"},
		"client_ip: {strategy: xff_count, count: 1}":                {"client_ip client_chosen"},
		"client_ip: {strategy: xff, trusted_proxies: [10.0.0.0/4]}": {"client_ip.trusted_proxies[0] client_chosen"},
		// What the guard refuses.
		"policies: [{name: a, key: ip, limit: 5/s}, {name: b, key: ip, limit: 5/s, match: {routes: ['GET x y'], cidrs: [x]}}]": {"policies[1].match invalid_policy"},
		"exempt: {routes: ['{']}":                                        {"exempt invalid_policy"},
		"response: {messages: {'?': x}}":                                 {"response invalid_policy"},
		"policies: [{name: a, key: ip, limit: 5/s, messages: {'?': x}}]": {"policies[0].messages invalid_policy"},
	} {
		t.Run(text, func(t *testing.T) {
			cfg, found := config.Build(parsed(t, "version: 1\n"+text+"\n"), deps(t))
			slices.Sort(want)
			got := ids(found)
			slices.Sort(got)
			require.Equal(t, want, got, found)
			require.Equal(t, found.Err() != nil, cfg.Observer == nil && cfg.Logger == nil)
			for _, f := range found {
				require.Positive(t, f.Line)
				require.NotEmpty(t, f.Message)
			}
		})
	}
}

func TestLimitersOfModes(t *testing.T) {
	d := deps(t)
	d.Local = nil
	text := "version: 1\npolicies:\n- {name: a, key: ip, limit: 1/s}\n- {name: b, key: ip, limit: 1/s, mode: local}\n"
	_, found := config.Build(parsed(t, text), d)
	require.Equal(t, []string{"policies[1].mode not_available"}, ids(found))
	require.Equal(t, 4, found[0].Line)

	calls := 0
	d = deps(t)
	d.Central = func(config.Store) (limiter.Limiter, error) { calls++; return nil, config.ErrNeedsRestart }
	_, found = config.Build(parsed(t, "store: {memory: {}}\n"+text), d)
	require.Equal(t, []string{"store needs_restart"}, ids(found))
	require.Equal(t, 1, calls)
	d.Central = func(config.Store) (limiter.Limiter, error) { return nil, errors.New("no such thing") }
	_, found = config.Build(parsed(t, text), d)
	require.Equal(t, []string{"store invalid_value"}, ids(found))
	d.Central = func(config.Store) (limiter.Limiter, error) { return nil, nil }
	_, found = config.Build(parsed(t, text), d)
	require.Equal(t, []string{"store invalid_value"}, ids(found))

	var seen config.Store
	d.Central = func(s config.Store) (limiter.Limiter, error) { seen = s; return deps(t).Central(s) }
	_, found = config.Build(parsed(t, "store: {redis: {url: '${env:X}'}, prefix: p}\n"+text), d)
	require.NoError(t, found.Err())
	require.Equal(t, "env:X", seen.Redis.Location())
	require.Equal(t, "file:/x", (&config.Redis{URLFile: "/x"}).Location())
}
