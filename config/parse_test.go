package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err, "run the test with -update")
	require.Equal(t, string(want), got)
}

// shown is all that findings say.
func shown(found config.Findings) string {
	var b strings.Builder
	for _, f := range found {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

// Every finding of a form has its identifier, place, path, line and suggestion, and all of a document come at once.
func TestFindingsOfForm(t *testing.T) {
	names, err := filepath.Glob("testdata/findings/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			doc, found := config.Parse(data)
			require.NotNil(t, doc)
			require.Error(t, found.Err())
			golden(t, strings.TrimSuffix(name, ".yaml")+".txt", shown(found))
		})
	}
}

func parsed(t testing.TB, text string) *config.Document {
	t.Helper()
	doc, found := config.Parse([]byte(text))
	require.NoError(t, found.Err(), text)
	require.Empty(t, found)
	return doc
}

const inYAML = `
# Comments are free.
version: 1
store:
  prefix: shop
  redis: {url: "${env:REDIS_URL}"}
  timeout: 50ms
  deny_cache: off
  fallback: {replicas: 4}
client_ip: {strategy: xff, trusted_proxies: ["192.0.2.0/24"]}
headers: both
response:
  messages:
    zh-CN: "请求频率超过限制，请稍后重试 😀"
max_waiting: off
policies:
  - name: search
    key: [tenant, ip]
    limit: 600/m
    burst: 100
    plans:
      from: plan
      limits:
        gold: 6000/m
        "5": 5/s
    overrides: {ip: {"2001:db8::1": 9/s}}
    refund: [5xx, 404]
    degrade: cached
    shadow: true
`

const inJSON = `{
	"version": 1,
	"store": {"prefix": "shop", "redis": {"url": "${env:REDIS_URL}"}, "timeout": "50ms", "deny_cache": "off", "fallback": {"replicas": 4}},
	"client_ip": {"strategy": "xff", "trusted_proxies": ["192.0.2.0\/24"]},
	"headers": "both",
	"response": {"messages": {"zh-CN": "请求频率超过限制，请稍后重试 \ud83d\ude00"}},
	"max_waiting": "off",
	"policies": [
		{"name": "search", "key": ["tenant", "ip"], "limit": "600\u002fm", "burst": 100,
		 "plans": {"from": "plan", "limits": {"gold": "6000/m", "5": "5/s"}},
		 "overrides": {"ip": {"2001:db8::1": "9/s"}},
		 "refund": ["5xx", 404], "degrade": ["cached"], "shadow": true}
	]
}`

// What is written decides, and not how.
func TestForms(t *testing.T) {
	want := string(parsed(t, inYAML).Redacted())
	for name, text := range map[string]string{
		"JSON":       inJSON,
		"one line":   strings.NewReplacer("\n", "", "\t", "").Replace(inJSON),
		"CRLF":       strings.ReplaceAll(inYAML, "\n", "\r\n"),
		"CR":         strings.ReplaceAll(inYAML, "\n", "\r"),
		"BOM":        "\ufeff" + inYAML,
		"BOM, JSON":  "\ufeff" + inJSON,
		"header":     "%YAML 1.2\n---" + inYAML + "...\n",
		"redacted":   want,
		"no newline": strings.TrimSpace(inYAML),
	} {
		t.Run(name, func(t *testing.T) {
			doc := parsed(t, text)
			require.Equal(t, want, string(doc.Redacted()))
			require.Empty(t, config.Diff(parsed(t, inYAML), doc))
		})
	}
	require.Contains(t, want, "😀")
}

// Texts are what is written, where YAML guesses otherwise.
func TestTextsStay(t *testing.T) {
	for _, text := range []string{"010", "1_000", "0x10", "1e3", "yes", "no", "on", "true", "1.50", ".inf", "2001-01-01", "12:30:00", "0o17", "-0", "=", "1.2.3"} {
		doc := parsed(t, "version: 1\npolicies: [{name: "+text+"}]")
		require.Equal(t, text, doc.Policies[0].Name)
		again := parsed(t, string(doc.Redacted()))
		require.Equal(t, text, again.Policies[0].Name)
	}
	for _, text := range []string{"010", "1_000", "0x10", "1e3", "1.0", "+1", `"1"`, "'1'", "one", "0b1", "1 ", "9223372036854775808", "[1]", "{a: 1}"} {
		_, found := config.Parse([]byte("version: 1\npolicies: [{name: a, in_flight: " + text + "}]"))
		if text == "1 " {
			require.Empty(t, found)
			continue
		}
		require.Len(t, found, 1, text)
		require.Equal(t, config.InvalidValue, found[0].ID)
		require.Equal(t, "policies[0].in_flight", found[0].Path)
	}
}

func TestAnchors(t *testing.T) {
	doc := parsed(t, `
version: 1
x-limits: {common: &common 5/s}
x-base: &base
  key: &key [ip, route]
  limit: *common
  match: &match {methods: [GET]}
x-shadow: &shadow {<<: *base, shadow: true, limit: 7/s}
policies:
  - {<<: *base, name: a}
  - <<: *base
    name: b
    limit: 6/s
  - {<<: [*shadow, *base], name: c, match: {<<: *match, hosts: [a.example]}}
  - {name: d, key: *key, limit: *common}
`)
	limits := []config.Limit{"5/s", "6/s", "7/s", "5/s"}
	for k, p := range doc.Policies {
		require.Equal(t, limits[k], p.Limit)
		require.Equal(t, config.List{"ip", "route"}, p.Key)
		require.Equal(t, k == 2, p.Shadow)
	}
	require.Equal(t, config.Match{Methods: []string{"GET"}, Hosts: []string{"a.example"}}, *doc.Policies[2].Match)
}
