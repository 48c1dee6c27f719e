package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func TestKeyExpressions(t *testing.T) {
	six := "[2001:db8:1:2:3::9]:1"
	for text, want := range map[string]string{
		"ip": "ip=2001:db8:1:2::/64", "ip/48": "ip=2001:db8:1::/48", "ip/56/24": "ip=2001:db8:1::/56", "user": "user=u%7C1", "tenant": "tenant=acme",
		"both": "tenant=acme|user=u%7C1", "global": "all=-", "header:X-User": "x_user=u%7C1", "header: X-User ": "x_user=u%7C1", " first( none , user ) ": "",
		"first(header:X-None, user)": "user=u%7C1", "first(header:X-None,first(cookie:no,ip))": "ip=2001:db8:1:2::/64", "query:q": "", "cookie:c": "", "param:p": "",
		"first(user": "", "first(user))": "", "first()": "", "hmac(user, ip)": "", "hmac()": "", "hsah(ip)": "", "ip/0": "", "ip/x": "", "ip/64/24/8": "", "ip/": "",
		"header:": "", "haeder:X": "", "first(ip)x": "", "(ip)": "", "ip, user": "", "a)": "", strings.Repeat("first(", 9) + "ip" + strings.Repeat(")", 9): "", "global:x": "",
	} {
		doc := parsed(t, "version: 1\npolicies: [{name: a, stage: identity, key: \""+text+"\", limit: 1/s}]\n")
		cfg, found := config.Build(doc, deps(t))
		if found.Err() != nil {
			require.Empty(t, want, "%s: %v", text, found)
			require.Contains(t, []string{config.InvalidValue, config.UnknownName, config.MissingField}, found[0].ID)
			continue
		}
		key, err := asked("", six, "X-User", "u|1", "X-Tenant", "acme").Resolve(cfg.Policies[0].Key)
		if want == "" {
			require.ErrorIs(t, err, keyfunc.ErrNoKey, text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want, key.String(), text)
	}
	_, found := config.Build(parsed(t, "version: 1\npolicies: [{name: a, key: first(haeder:X), limit: 1/s}]\n"), deps(t))
	require.Equal(t, `Did you mean "header"?`, found[0].Suggestion)
	_, found = config.Build(parsed(t, "version: 1\npolicies: [{name: a, key: [tenat], limit: 1/s}]\n"), deps(t))
	require.Equal(t, `Did you mean "tenant"?`, found[0].Suggestion)
}

// limitOf is the limit of a request.
func limitOf(t *testing.T, d config.Deps, policy string, headers ...string) string {
	t.Helper()
	cfg := built(t, d, "version: 1\nkey_secret: 0123456789abcdef\n"+policy+"\n")
	p := cfg.Policies[0]
	if p.Plan != nil {
		if l, ok := p.Plan(asked(headers...)); ok {
			return l.String()
		}
	}
	return p.Limit.Current().String()
}

func TestPlans(t *testing.T) {
	d := deps(t)
	for _, unknown := range []string{"default", "deny"} {
		other := map[string]string{"default": "600/m burst 100", "deny": "deny_all"}[unknown]
		policy := "policies: [{name: a, key: ip, limit: 600/m, burst: 100, plans: {from: plan, unknown: " + unknown + ", limits: {gold: 6000/m, slow: 1/s leaky_bucket, all: unlimited}}}]"
		for plan, want := range map[string]string{"gold": "6000/m", "slow": "1/s leaky_bucket", "all": "unlimited", "": other, "tin": other} {
			require.Equal(t, want, limitOf(t, d, policy, "X-Plan", plan))
		}
	}
	header := "policies: [{name: a, key: ip, limit: 1/s, plans: {from: 'header: x-plan', trusted: true, limits: {gold: 2/s}}}]"
	require.Equal(t, "2/s", limitOf(t, d, header, "X-Plan", "gold"))
	require.Equal(t, "1/s", limitOf(t, d, header, "X-Plan", "Gold"))
	require.Equal(t, "1/s", limitOf(t, d, header))
}

// Plans and callers are counted like the policy, wherever it says how; burst is its own alone.
func TestInheritance(t *testing.T) {
	d := deps(t)
	for own, want := range map[string]string{
		"limit: 6/s, algorithm: sliding_window, cells: 10": "9/s sliding_window cells 10",
		"limit: 6/s sliding_window cells 10":               "9/s sliding_window cells 10",
		"limit: 6/s leaky_bucket burst 7":                  "9/s leaky_bucket",
		"limit: 6/s, burst: 7":                             "9/s",
		"limit: 6/s sliding_log":                           "9/s sliding_log",
		"limit: deny_all":                                  "9/s",
		"limit: unlimited":                                 "9/s",
	} {
		require.Equal(t, want, limitOf(t, d, "policies: [{name: a, key: ip, "+own+", overrides: {ip: {192.0.2.1: 9/s}}}]"), own)
		require.Equal(t, want, limitOf(t, d, "policies: [{name: a, key: ip, "+own+", plans: {from: plan, limits: {x: 9/s}}}]", "X-Plan", "x"), own)
	}
	day := "policies: [{name: a, key: ip, limit: '25', algorithm: fixed_window, align: {unit: day, zone: Asia/Shanghai}, overrides: {ip: {192.0.2.1: '%s'}}}]"
	for text, want := range map[string]string{
		"50": "50/day fixed_window align day Asia/Shanghai", "50/day": "50/day fixed_window align day Asia/Shanghai", "50/s token_bucket": "50/s",
		"50/week align week": "50/week fixed_window align week", "50/s gcra burst 3": "50/s burst 3",
	} {
		l, err := limiter.ParseLimit(want)
		require.NoError(t, err)
		require.Equal(t, l.String(), limitOf(t, d, strings.Replace(day, "%s", text, 1)), text)
	}
}

func TestOverrides(t *testing.T) {
	d := deps(t)
	d.Keys["by48"] = keyfunc.IP(keyfunc.IPv6Prefix(48))
	d.Keys["userOrIP"] = keyfunc.First(keyfunc.Header("X-Other"), keyfunc.IP())
	for _, c := range []struct{ key, client, caller, value string }{
		{"ip", "", "ip", "192.0.2.1"},
		{"ip", "", "ip", "::ffff:192.0.2.1"},
		{"ip/64/24", "192.0.2.77:1", "ip", "192.0.2.1"},
		{"ip/64/24", "192.0.2.77:1", "ip", "192.0.2.0/24"},
		{"ip", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1:2::1"},
		{"ip", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1:2::/64"},
		{"ip/48", "[2001:db8:1:2:3::9]:1", "ip", "2001:DB8:1:9::"},
		{"ip/48", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1::/48"},
		{"hmac(ip)", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1:2::1"},
		{"user", "", "user", "u 1|x=é"},
		{"hmac(user)", "", "user", "u 1|x=é"},
		{"first(user, ip)", "", "user", "u 1|x=é"},
		{"first(hmac(user), ip)", "", "user", "u 1|x=é"},
		{"first(header:X-None, ip)", "", "ip", "192.0.2.1"},
		{"first(hmac(header:X-None), ip)", "", "ip", "192.0.2.1"},
		{"hmac('first(header:X-None, ip)')", "", "ip", "192.0.2.1"},
		{"both", "", "user", "u 1|x=é"},
		{"both", "", "tenant", "acme"},
		{"[ip, user]", "", "user", "u 1|x=é"},
		{"global", "", "all", "-"},
		{"by48", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1:9::1"},
		{"by48", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1::/48"},
		{"hmac(by48)", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1:9::1"},
		{"userOrIP", "", "ip", "192.0.2.1"},
		{"first(ip/56, ip/48)", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1:3::1"},
		{"first(ip/56, ip/48)", "[2001:db8:1:2:3::9]:1", "ip", "2001:db8:1::/56"},
		{"first(ip/56, ip/48)", "", "ip", "192.0.2.1"},
		{"header:X-User", "", "x_user", "u 1|x=é"},
	} {
		key := strings.ReplaceAll(c.key, "'", "")
		if !strings.HasPrefix(key, "[") {
			key = `"` + key + `"`
		}
		policy := "policies: [{name: a, key: " + key + ", limit: 1/s, overrides: {" + c.caller + ": {\"" + c.value + "\": 9/s, nobody: 2/s}}}]"
		if c.caller == "ip" {
			policy = strings.Replace(policy, ", nobody: 2/s", "", 1)
		}
		from := c.client
		if from == "" {
			from = "192.0.2.1:1"
		}
		require.Equal(t, "9/s", limitOf(t, d, policy, "", from, "X-User", "u 1|x=é", "X-Tenant", "acme"), policy)
		if c.key == "global" {
			continue
		}
		require.Equal(t, "1/s", limitOf(t, d, policy, "", "203.0.113.9:1", "X-User", "v", "X-Tenant", "w", "X-None", "y"), policy+": another")
	}
}

// Callers win over plans, and the earlier elements of a key over the later ones.
func TestPrecedence(t *testing.T) {
	policy := "policies: [{name: a, key: [tenant, user, ip], limit: 1/s, plans: {from: plan, limits: {gold: 2/s}}, overrides: {user: {u: 3/s}, tenant: {acme: 4/s}, ip: {192.0.2.1: 5/s}}}]"
	d := deps(t)
	require.Equal(t, "1/s", limitOf(t, d, policy, "", "203.0.113.9:1"))
	require.Equal(t, "2/s", limitOf(t, d, policy, "", "203.0.113.9:1", "X-Plan", "gold"))
	require.Equal(t, "5/s", limitOf(t, d, policy, "X-Plan", "gold"))
	require.Equal(t, "3/s", limitOf(t, d, policy, "X-Plan", "gold", "X-User", "u"))
	require.Equal(t, "4/s", limitOf(t, d, policy, "X-Plan", "gold", "X-User", "u", "X-Tenant", "acme"))
}

// The document's own way of counting addresses holds for callers, too.
func TestOverridesByNetwork(t *testing.T) {
	cfg := built(t, deps(t), "version: 1\nclient_ip: {ipv6_prefix: 48}\npolicies: [{name: a, key: ip, limit: 1/s, overrides: {ip: {'2001:db8:1:2::1': 9/s}}}]\n")
	trust, err := keyfunc.NewClientIP(cfg.ClientIP)
	require.NoError(t, err)
	r := asked("", "[2001:db8:1:9::9]:1")
	r.Reset(r.Request, nil, trust)
	l, ok := cfg.Policies[0].Plan(r)
	require.True(t, ok)
	require.Equal(t, limiter.PerSecond(9), l)
}

func TestOverridesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, key := range []string{"first(user, ip)", "hmac(first(user, ip))"} {
		cfg := built(t, deps(t), "version: 1\nkey_secret: 0123456789abcdef\npolicies: [{name: a, key: \""+key+"\", limit: 1/s, overrides: {user: {u: 9/s}, ip: {192.0.2.1: 8/s}}, plans: {from: 'header:X-Plan', trusted: true, limits: {gold: 2/s}}}]\n")
		p := cfg.Policies[0]
		request := asked("X-User", "u").Request
		var r keyfunc.Request
		require.Zero(t, testing.AllocsPerRun(100, func() {
			r.Reset(request, nil, nil)
			if l, ok := p.Plan(&r); !ok || l.Rate != 9 {
				panic(errors.New("another limit"))
			}
		}))
	}
}

// Of two lines of a plan's header one is somebody else's.
func TestPlanHeaderStandsOnce(t *testing.T) {
	cfg := built(t, deps(t), "version: 1\npolicies: [{name: a, key: ip, limit: 1/s, plans: {from: 'header:X-Plan', trusted: true, unknown: deny, limits: {gold: 2/s}}}]\n")
	r := asked("X-Plan", "gold")
	l, ok := cfg.Policies[0].Plan(r)
	require.True(t, ok)
	require.Equal(t, limiter.PerSecond(2), l)
	r.Header.Add("X-Plan", "free")
	l, ok = cfg.Policies[0].Plan(r)
	require.True(t, ok)
	require.Equal(t, limiter.DenyAll, l)
}

// A zone is one word, and no part of a limit.
func TestZones(t *testing.T) {
	for _, zone := range []string{"UTC burst 1000", "burst", "gcra", "' UTC'", "UTC\tcells 3", "align", "deny_all"} {
		doc := parsed(t, "version: 1\npolicies:\n- name: a\n  key: ip\n  limit: '25'\n  algorithm: fixed_window\n  align:\n    unit: day\n    zone: "+zone+"\n")
		_, found := config.Build(doc, deps(t))
		if zone == "' UTC'" {
			require.NoError(t, found.Err())
			continue
		}
		require.Equal(t, []string{"policies[0].align.zone invalid_value"}, ids(found), zone)
	}
}

// Findings speak of fields of the document, and say nothing twice.
func TestFindingsNameFields(t *testing.T) {
	for text, want := range map[string]string{
		"exempt: {hosts: ['a:1']}": `exempt: host "a:1" is no host name without a port, and no *.name`,
		"policies: [{name: a, key: ip, limit: 1/s, match: {methods: [get]}}]": `policies[0].match: method "get" is no method in upper case`,
		"policies: [{name: a, key: ip, limit: 1/s, max_delay: 1s}]":           `policies[0].max_delay: max_delay belongs to a leaky_bucket, not to token_bucket`,
		"policies: [{name: a, key: ip, limit: 1/s, stage: Identity}]":         `policies[0].stage: "Identity" is a stage of your own: it has no effect unless the application mounts it`,
		"client_ip: {strategy: xff_count}":                                    `client_ip.count: strategy xff_count needs a count`,
		"client_ip: {strategy: header}":                                       `client_ip.header: strategy header needs a header`,
		"client_ip: {count: 3}":                                               `client_ip.count: the strategy has no count`,
		"client_ip: {strategy: forwarded}":                                    `client_ip: trusted_proxies is empty: headers are never read, and clients behind a proxy share its key`,
		"client_ip: {strategy: xff, trusted_proxies: ['::/0']}":               `client_ip.trusted_proxies[0]: "::/0": lets every sender pass for anybody; name the proxies, or set allow_trust_all`,
	} {
		_, found := config.Build(parsed(t, "version: 1\n"+text+"\n"), deps(t))
		require.Len(t, found, 1, text)
		require.Equal(t, want, found[0].Path+": "+found[0].Message)
	}
	for _, stage := range []string{"edge", "manual", "late", "after-login"} {
		_, found := config.Build(parsed(t, "version: 1\npolicies: [{name: a, key: ip, limit: 1/s, stage: "+stage+"}]\n"), deps(t))
		require.Empty(t, found, stage)
	}
}
