package config_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// chainDeps is an application whose limiter counts.
func chainDeps(t testing.TB) config.Deps {
	d := deps(t)
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	d.Central = func(config.Store) (limiter.Limiter, error) { return store, nil }
	d.Local = d.Central
	d.Files = fstest.MapFS{"down.html": {Data: []byte("<p>later")}}
	d.Classes = map[string]func(*keyfunc.Request) degrade.Class{"tier": func(*keyfunc.Request) degrade.Class { return degrade.Sheddable }}
	return d
}

// Each handler, written in every way, is what it says.
func TestChain(t *testing.T) {
	for chain, modes := range map[string][]string{
		"cache":                          {"cache"},
		"[cache]":                        {"cache"},
		"{cache: {}}":                    {"cache"},
		"a":                              {"func"},
		"[a, b]":                         {"func", "func"},
		"{func: {name: a}}":              {"func"},
		"{func: {name: a, limit: 60/m}}": {"func", "func"},
		"queue":                          {"queue"},
		"shed":                           {"shed"},
		"[{cache: {max_stale: 60s, max_stale_if_error: off, max_bytes: 1000000, max_page: 1000, statuses: [200, 404], partition: [tenant, user], credentials: [X-Sid], ignore_cookies: [_ga], query: [q], flushed: true, limit: 600/m}}, {read_only: {limit: 60/m}}]": {"cache", "cache", "read_only", "read_only"},
		"{read_only: {limit: 60/m, latch: 20%, read_routes: [POST /search], reads: beta, writes: beta}}":                                                                      {"read_only", "read_only"},
		"{static: {contents: [{type: text/html, file: down.html}, {type: text/plain, language: de, body: später}], status: 503, headers: {X-A: b}, cache_control: no-cache}}": {"static"},
		"{queue: {per_key: 4, total: 100, max_wait: 2s, service_time: off, newest_first: true}}":                                                                              {"queue"},
		"{redirect: {to: /wait, status: 303, return: next, no_retry_after: true, limit: 5/s}}":                                                                                {"redirect", "redirect"},
		"{redirect: {to: 'https://example.com/wait'}}":                                                                                                                        {"redirect"},
		"{shed: {routes: {critical_plus: [POST /checkout], sheddable: [GET /ads]}, default: sheddable_plus, by: ip, keep: 0.3, rotate: 1h}}":                                  {"shed"},
		"{shed: {class: tier, by: [tenant, user]}}":                                                                                                                           {"shed"},
		"{flag: {limit: 5/s}}": {"flag", "flag"},
	} {
		cfg := built(t, chainDeps(t), "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, degrade: "+chain+"}]")
		var got []string
		for _, h := range degrade.Find[degrade.Handler](cfg.Policies[0].Degrade) {
			if m, ok := h.(degrade.Moded); ok {
				got = append(got, m.Mode())
			} else if _, ok := h.(degrade.Func); ok {
				got = append(got, degrade.ModeFunc)
			}
		}
		require.Equal(t, modes, got, chain)
	}
}

// What is wrong is told where it stands, in the words of a document.
func TestChainFindings(t *testing.T) {
	for chain, want := range map[string][]string{
		"cached":     {"policies[0].degrade[0] unknown_name"},
		"[cache, x]": {"policies[0].degrade[1] unknown_name"},
		"{cache: {max_bytes: 100000, max_page: 90000}}":               {"policies[0].degrade[0].cache invalid_value"},
		"{cache: {statuses: [200, 500]}}":                             {"policies[0].degrade[0].cache invalid_value"},
		"{cache: {partition: who}}":                                   {"policies[0].degrade[0].cache.partition[0] unknown_name"},
		"{cache: {partition: [user, user]}}":                          {"policies[0].degrade[0].cache.partition invalid_value"},
		"{cache: {limit: 5}}":                                         {"policies[0].degrade[0].cache.limit invalid_value"},
		"{read_only: {limit: 0/s}}":                                   {"policies[0].degrade[0].read_only.limit invalid_value"},
		"{read_only: {limit: 1/s, read_routes: [search], reads: x}}":  {"policies[0].degrade[0].read_only invalid_value", "policies[0].degrade[0].read_only.reads unknown_name"},
		"{static: {contents: [{type: text/html}]}}":                   {"policies[0].degrade[0].static.contents[0] missing_field"},
		"{static: {contents: [{type: text/html, body: a, file: b}]}}": {"policies[0].degrade[0].static.contents[0] conflict"},
		"{static: {contents: [{type: html, body: a}]}}":               {"policies[0].degrade[0].static invalid_value"},
		"{static: {contents: [{type: text/html, file: up.html}]}}":    {"policies[0].degrade[0].static invalid_value"},
		"{redirect: {to: 'ftp://x'}}":                                 {"policies[0].degrade[0].redirect invalid_value"},
		"{redirect: {to: /wait}}":                                     {"policies[0].degrade[0].redirect.to no_effect"},
		"{shed: {class: x}}":                                          {"policies[0].degrade[0].shed.class unknown_name"},
		"{shed: {class: tier, default: critical}}":                    {"policies[0].degrade[0].shed.class conflict"},
		"{shed: {routes: {crit: [GET /x]}}}":                          {"policies[0].degrade[0].shed.routes.crit invalid_value"},
		"{shed: {routes: {critical: [get /x, GET x]}}}":               {"policies[0].degrade[0].shed.routes invalid_value", "policies[0].degrade[0].shed.routes invalid_value"},
		"{func: {name: x}}":                                           {"policies[0].degrade[0].func.name unknown_name"},
		"[{flag: {limit: 5/s}}, {flag: {limit: 6/s}}]":                {"policies[0].degrade invalid_policy"},
	} {
		_, found := config.Build(parsed(t, "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, degrade: "+chain+"}]"), chainDeps(t))
		require.ElementsMatch(t, want, ids(found), "%s: %v", chain, found)
		for _, f := range found {
			require.NotRegexp(t, `[a-z][A-Z]|degrade: |MaxPage|invalid$`, f.Message, chain)
		}
	}
	for text, want := range map[string][]string{
		"{name: a, key: global, limit: 1/d, degrade: shed}":                                                   {"policies[0].degrade[0].shed missing_field"},
		"{name: a, key: [global, route], limit: 1/d, degrade: shed}":                                          {"policies[0].degrade[0].shed missing_field"},
		"{name: a, key: global, limit: 1/d, degrade: {shed: {by: ip}}}":                                       nil,
		"{name: a, key: ip, limit: 1/d, exempt: {routes: [/wait]}, degrade: {redirect: {to: '/wait?x=1#y'}}}": nil,
		"{name: a, key: ip, limit: 1/d, match: {routes: [/shop/]}, degrade: {redirect: {to: /wait}}}":         nil,
		"{name: a, stage: identity, key: user, limit: 1/d, degrade: {redirect: {to: /wait}}}":                 {"policies[0].degrade[0].redirect.to no_effect"},
		"{name: a, key: ip, limit: 1/d, degrade: {redirect: {to: 'https://example.com/wait'}}}":               nil,
		"{name: a, key: ip, in_flight: 1, mode: local}":                                                       {"policies[0].mode no_effect"},
	} {
		_, found := config.Build(parsed(t, "version: 1\npolicies: ["+text+"]"), chainDeps(t))
		require.ElementsMatch(t, want, ids(found), "%s: %v", text, found)
	}
	for name, field := range map[string]string{"flag": "limit", "read_only": "limit", "static": "contents", "redirect": "to"} {
		_, found := config.Parse([]byte("version: 1\npolicies: [{name: a, degrade: " + name + "}]"))
		require.Equal(t, []string{"policies[0].degrade[0]." + name + " missing_field"}, ids(found))
		require.Contains(t, found[0].Message, field)
	}
	d := chainDeps(t)
	d.Files = nil
	_, found := config.Build(parsed(t, "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, degrade: {static: {contents: [{type: text/html, file: down.html}]}}}]"), d)
	require.Equal(t, []string{"policies[0].degrade[0].static.contents[0].file missing_field"}, ids(found))
}

// A document shows its chains as they can be written again, and what differs between two.
func TestChainShown(t *testing.T) {
	text := "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, degrade: [cache, {cache: {max_stale: off, query: []}}, {read_only: {limit: 5/s, latch: 0.125}}, {redirect: {to: /wait}}, b]}]"
	doc := parsed(t, text)
	require.Equal(t, "version: 1\npolicies:\n  - name: a\n    key:\n      - ip\n    limit: 1/d\n    degrade:\n      - cache\n      - cache:\n          max_stale: \"off\"\n          query: []\n"+
		"      - read_only:\n          limit: 5/s\n          latch: 12.5%\n      - redirect:\n          to: /wait\n      - b\n", string(doc.Redacted()))
	again := parsed(t, string(doc.Redacted()))
	require.Empty(t, config.Diff(doc, again))
	other := parsed(t, "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, degrade: [cache, {cache: {max_stale: 5s}}, {read_only: {limit: 6/s}}]}]")
	var changes []string
	for _, c := range config.Diff(doc, other) {
		changes = append(changes, c.String())
	}
	require.Equal(t, []string{
		"policies.a.degrade: cache, cache, read_only, redirect, b → cache, cache, read_only",
		"policies.a.degrade[1].cache.max_stale: off → 5s",
		"policies.a.degrade[2].read_only.latch: − 12.5%",
		"policies.a.degrade[2].read_only.limit: 5/s → 6/s",
		"policies.a.degrade[3].redirect.to: − /wait",
	}, changes)
}

// Recorded pages outlive a reload of the document, and go when what they depend on changes.
func TestChainReload(t *testing.T) {
	d := chainDeps(t)
	text := func(stale, limit string) string {
		return "version: 1\npolicies: [{name: a, key: ip, limit: " + limit + ", degrade: [{cache: {max_stale: " + stale + ", partition: user}}]}]"
	}
	g, err := middleware.New(built(t, d, text("1m", "1/d")))
	require.NoError(t, err)
	body := "one"
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		g.Serve(w, httptest.NewRequest("GET", "/x", nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		return w
	}
	require.Equal(t, 200, get().Code)
	body = "two"
	require.Equal(t, "one", get().Body.String())
	require.NoError(t, g.Reconfigure(built(t, d, text("1m", "1/d burst 1"))))
	w := get()
	require.Equal(t, "one", w.Body.String())
	require.Equal(t, "cache", w.Header().Get("X-RateLimit-Degraded"))
	require.NoError(t, g.Reconfigure(built(t, d, text("2m", "1/d"))))
	require.Equal(t, 429, get().Code)
}
