package config_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

const marked = "S3cr3tMarker"

// whole is everything that a document shows of itself.
func whole(t require.TestingT, data []byte) string {
	doc, found := config.Parse(data)
	store := func(config.Store) (limiter.Limiter, error) { return memory.New(memory.Config{}) }
	_, more := config.Build(doc, config.Deps{Central: store, Local: store})
	var b bytes.Buffer
	fmt.Fprintln(&b, found.Error(), more.Error(), found, more, string(doc.Redacted()))
	empty, _ := config.Parse([]byte("version: 1"))
	fmt.Fprintln(&b, config.Diff(empty, doc), config.Diff(doc, empty), config.Diff(doc, doc))
	slog.New(slog.NewTextHandler(&b, nil)).Error("x", "error", more, "findings", found)
	return b.String()
}

// A secret is shown nowhere, also where the document around it is broken.
func TestSecretsAreNotShown(t *testing.T) {
	for name, text := range map[string]string{
		"plain":             "key_secret: " + marked + "hunter2\n",
		"short":             "key_secret: " + marked + "\nkey_secret_file: x\n",
		"literal":           "key_secret: |\n  " + marked + "\n  " + marked + "b\n  c" + marked + "\nheaders: nope\n",
		"folded":            "store:\n  redis:\n    url: >-\n      redis://u:" + marked + "@h\n      " + marked + "\n  prefix: [1]\n",
		"quoted lines":      "key_secret: \"" + marked + "\n  " + marked + "\n  x\"\nheaders: nope\n",
		"escapes":           `key_secret: "` + marked + `\n\u0000\"` + marked + "\"\n",
		"quote, open":       "key_secret: \"" + marked + "\n  " + marked + "\nheaders: nope\n",
		"single, open":      "store: {redis: {url: '" + marked + "\n" + marked + "}}\nheaders: nope\n",
		"map":               "key_secret: {a: " + marked + "}\n",
		"map lines":         "key_secret:\n  a: " + marked + "\n  b: [" + marked + "]\n",
		"list":              "key_secret:\n- " + marked + "\n- " + marked + "\n",
		"list, deeper":      "key_secret:\n  - " + marked + "\n  - a: " + marked + "\n",
		"anchor":            "key_secret: &a " + marked + "hunter2\nheaders: *a\npolicies: [{name: *a}]\n",
		"other names":       "redis_auth: " + marked + "1\nstore:\n  dsn: " + marked + "2\n  redis:\n    pwd: " + marked + "3\n    auth: {user: x, cred: " + marked + "4}\n  prefix: " + marked + "3\n",
		"other names, JSON": `{"version": 1, "hmac_key": "` + marked + `", "store": {"redis": {"pwd": "` + marked + `"}, "credential": ["` + marked + `"]}, "x": 1}`,
		"at in a password":  "store: {prefix: 'redis://u:a@" + marked + "@h/0'}\nheaders: http://u:a/" + marked + "@h\nx: //u:" + marked + "@@h\n",
		"alias as name":     "x-k: &k key_secret\n*k : " + marked + "hunter2\n",
		"callers":           "key_secret: 0123456789abcdef\npolicies: [{name: a, key: 'hmac(header:X-API-Key)', limit: 1/s, overrides: {x_api_key: {" + marked + ": 9/m, " + marked + "b: 9/x}}}]\n",
		"callers, lines":    "key_secret: 0123456789abcdef\npolicies:\n- name: a\n  overrides:\n    x_api_kye:\n      " + marked + ": 9/x\n      " + marked + ": 9/x\n      " + marked + "c: []\n  key: ['first(hsah(user), ip)']\n  x: 1\n",
		"callers, broken":   "policies:\n- name: a\n  overrides:\n    user:\n      " + marked + ": 9/x\n     a: b\n      " + marked + "c: []\n  key: hmac(user)\n  x: 1\n",
		"callers, no key":   "policies:\n- name: a\n  overrides:\n    user:\n      " + marked + ": []\n  key: {hmac(user): x}\n",
		"tag":               "key_secret: !x " + marked + "hunter2\n",
		"twice":             "key_secret: " + marked + "hunter2\nkey_secret: " + marked + "hunter3\n",
		"misspelled":        "key_secert: " + marked + "\nkeysecret: " + marked + "\nKEY_SECRET: " + marked + "\nkey_secre: " + marked + "\n",
		"misspelled, deep":  "store: {redis: {ulr: " + marked + ", uri: " + marked + "}}\n",
		"password":          "store: {redis: {password: " + marked + "}}\n",
		"redis, text":       "store: {redis: \"redis://u:" + marked + "@h/0\"}\nheaders: 1\n",
		"store, text":       "store: redis://u:" + marked + "@h/0\n",
		"sentinel":          "store: {redis: \"redis+sentinel://h/m?username=u&password=" + marked + "\"}\n",
		"json":              `{"version": 1, "key_secret": "` + marked + `", "headers": 1, "store": {"redis": {"url": ["` + marked + `"]}}}`,
		"json, open":        `{"version": 1, "key_secret": "` + marked + `", "headers": 1, "store": {"redis": {"url": "` + marked,
		"json lines":        "{\n \"key_secret\":\n  \"" + marked + "hunter2\",\n \"x\": 1,\n \"store\": {\"redis\": {\n  \"url\": \"" + marked + "\"}}\n",
		"question":          "? key_secret\n: " + marked + "hunter2\n? headers\n: x\n",
		"bad indentation":   "key_secret: " + marked + "\n   more: " + marked + "\n",
		"colon in it":       "key_secret: a: " + marked + "\n",
		"tab":               "key_secret:\t" + marked + "\n\theaders: x\n",
		"reference, broken": "key_secret: ${env:" + marked + " x}\n",
		"CRLF":              "key_secret: |\r\n  " + marked + "\r\nheaders: x\r\n",
		"in its own place":  "version: 1\nkey_secret: " + marked + "hunter2\npolicies: [{name: a, key: hmac(" + marked + "hunter2), limit: 1/s}]\n",
		"file":              "key_secret_file: /nowhere/x\nkey_secret: " + marked + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			require.NotContains(t, whole(t, []byte(text)), marked)
		})
	}
}

// Whatever happens to a document, its secrets stay out of sight.
func TestSecretsOfBrokenDocuments(t *testing.T) {
	text := "version: 1\nkey_secret: " + marked + "hunter2\nstore:\n  prefix: shop\n  redis:\n    url: \"rediss://user:" + marked + "@host/0\"\npolicies:\n  - {name: a, key: hmac(ip), limit: 5/s}\n"
	rapid.Check(t, func(t *rapid.T) {
		broken := []byte(text)
		breaks := rapid.IntRange(1, 4).Draw(t, "breaks")
		for range breaks {
			at := rapid.IntRange(0, len(broken)-1).Draw(t, "at")
			kept := []string{marked}
			if breaks > 1 {
				kept = append(kept, "key_secret", "url") // of a name nobody recognises, nobody can know
			}
			if slices.ContainsFunc(kept, func(s string) bool {
				k := bytes.Index(broken, []byte(s))
				return k >= 0 && k <= at && at < k+len(s)
			}) {
				continue
			}
			what := rapid.SampledFrom([]string{"", "\"", "'", ":", ": ", "\n", "{", "}", "[", "]", ",", "#", " ", "- ", "|", "&a ", "*", "!", "\t", "?", "%", "x"}).Draw(t, "what")
			broken = append(broken[:at:at], append([]byte(what), broken[at+rapid.IntRange(0, 1).Draw(t, "cut"):]...)...)
		}
		require.NotContains(t, whole(t, broken), marked, string(broken))
	})
}

// Secrets that are elsewhere are no more shown.
func TestSecretsElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(marked+"\n"), 0o600))
	t.Setenv("SPILLWAY_TEST_SECRET", marked)
	for _, text := range []string{"key_secret_file: " + file, "key_secret: ${env:SPILLWAY_TEST_SECRET}", "store: {redis: {url: \"${env:SPILLWAY_TEST_SECRET}\"}}"} {
		shown := whole(t, []byte("version: 1\n"+text+"\npolicies: [{name: a, key: ip, limit: 1/s}]\n"))
		require.NotContains(t, shown, marked)
	}
	doc := parsed(t, "version: 1\nkey_secret: ${env:SPILLWAY_TEST_SECRET}\n")
	require.Contains(t, string(doc.Redacted()), "${env:SPILLWAY_TEST_SECRET}")
	doc = parsed(t, "version: 1\nkey_secret: "+strings.Repeat("x", 20)+"\n")
	require.Contains(t, string(doc.Redacted()), "key_secret: (redacted)")
	other := parsed(t, "version: 1\nkey_secret: "+strings.Repeat("y", 20)+"\n")
	require.Equal(t, []config.Change{{Path: "key_secret", Old: "(redacted)", New: "(redacted)"}}, config.Diff(doc, other))
}

// Callers of a policy with hmac(…) are numbered where they are shown, and so can be told apart.
func TestCallersAreNumbered(t *testing.T) {
	text := "version: 1\nkey_secret: 0123456789abcdef\npolicies: [{name: a, key: [tenant, 'hmac(header:X-API-Key)'], limit: 1/s, overrides: {tenant: {acme: 2/s}, x_api_key: {sk-2: 3/s, sk-3: 4/s}}}]\n"
	doc := parsed(t, text)
	require.Contains(t, string(doc.Redacted()), "acme: 2/s\n      x_api_key:\n        (redacted 1): 3/s\n        (redacted 2): 4/s\n")
	other := parsed(t, strings.Replace(text, "sk-2: 3/s", "sk-1: 5/s", 1))
	require.Equal(t, []config.Change{
		{Path: "policies.a.overrides.x_api_key.(redacted 1)", New: "5/s"},
		{Path: "policies.a.overrides.x_api_key.(redacted 2)", Old: "3/s"},
	}, config.Diff(doc, other))
	require.Equal(t, config.Limit("3/s"), doc.Policies[0].Overrides["x_api_key"]["sk-2"])
	_, found := config.Build(parsed(t, strings.Replace(text, "4/s", "4/x", 1)), deps(t))
	require.Contains(t, ids(found), "policies[0].overrides.x_api_key.(redacted 2) invalid_value")
}
