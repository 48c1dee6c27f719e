package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
)

// command runs a command as the process would, and returns its exit code and what it has printed.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// document writes a document into a folder of the test, which becomes the working directory, and returns its name.
func document(t *testing.T, text string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("policies.yaml", []byte(text), 0o600))
	return "policies.yaml"
}

const full = `version: 1
store: {prefix: shop, redis: {url: "${env:SPILLWAY_TEST_REDIS}"}}
policies:
  - {name: login, match: {routes: ["POST /login"]}, key: [ip], limit: 5/m, algorithm: fixed_window, refund: [5xx], on_store_error: fail_closed}
  - name: api
    stage: identity
    match: {routes: ["/a/", "/b/", "/c/", "/d/"], hosts: [shop.example]}
    key: [tenant, ip]
    limit: 600/m
    burst: 100
    plans: {from: plan, limits: {gold: 6000/m, silver: 1000/m}, unknown: deny}
    overrides: {tenant: {acme: 9000/m}}
  - {name: slots, key: [ip], in_flight: 5}
  - {name: both, key: [ip], limit: 7/s, in_flight: 5, mode: local}
  - {name: watch, key: [global], limit: 100/s, shadow: true, exempt: {cidrs: [10.0.0.0/8]}}
  - {name: jobs, stage: manual, key: [tenant], limit: 10/h}
  - {name: day, stage: mine, key: [tenant], on_no_key: skip, limit: 10/day, align: {unit: day, zone: Asia/Shanghai}, algorithm: fixed_window}
`

const fullTable = `STAGE     POLICY  REQUESTS                               BY             LIMIT                                      AND
edge      login   POST /login                            ip             5/m fixed_window                           refuses while the store is away
edge      slots   all                                    ip             5 in flight
edge      both    all                                    ip             7/s, 5 in flight                           local
edge      watch   all                                    global         100/s                                      shadow: refuses nothing; not from 10.0.0.0/8
identity  api     /a/ or /b/ or 2 more, to shop.example  tenant and ip  600/m burst 100                            plans by plan (gold 6000/m, silver 1000/m, others none); overrides by tenant (acme 9000/m)
mine      day     all                                    tenant         10/day fixed_window by day in Asia/Shanghai  passes without a key
manual    jobs    all                                    tenant         10/h
`

// squeeze makes tables comparable whatever the widths of their columns are.
func squeeze(text string) string {
	lines := strings.Split(text, "\n")
	for k, line := range lines {
		for strings.Contains(line, "   ") {
			line = strings.ReplaceAll(line, "   ", "  ")
		}
		lines[k] = line
	}
	return strings.Join(lines, "\n")
}

func TestCheck(t *testing.T) {
	t.Setenv("SPILLWAY_TEST_REDIS", "redis://user:hunter2@127.0.0.1:1/0")
	names := []string{"-name", "tenant=header:X-Tenant", "-name", "plan=header:X-Plan"}
	const manual = `policies.yaml: warning: policies[5].stage: only an application asks policies of stage manual (no_effect)
    For a document of an application check with -app.
`
	const chosen = "version: 1\npolicies:\n  - {name: a, key: [\"header:X-Key\"], limit: 1/s}\n"
	for name, c := range map[string]struct {
		document string
		flags    []string
		code     int
		says     []string // in this order; the first at the beginning
	}{
		"good": {full, []string{"-app"}, exitOK, []string{squeeze(fullTable)}},
		"good for serve, but for what nobody asks": {full, names, exitOK, []string{manual + squeeze(fullTable)}},
		"strict":       {full, append([]string{"-strict"}, names...), exitError, []string{manual + squeeze(fullTable)}},
		"strict, good": {full, []string{"-strict", "-app"}, exitOK, []string{squeeze(fullTable)}},
		"names that nobody registers": {full, nil, exitError, []string{
			"policies.yaml:8:11: policies[1].key[0]: no key is registered as \"tenant\" (unknown_name)\n", "Known: ip, route, ", "-name tenant=header:X-Tenant.\n",
			"policies.yaml:11:19: policies[1].plans.from: ", "policies.yaml: warning: policies[5].stage: ",
		}},
		"a warning":         {chosen, nil, exitOK, []string{"policies.yaml:3:20: warning: policies[0].key: ", "(client_chosen)\n", "STAGE  POLICY"}},
		"a warning, strict": {chosen, []string{"-strict"}, exitError, []string{"policies.yaml:3:20: warning: ", "STAGE  POLICY"}},
		"errors": {"version: 1\npolicies:\n  - {name: a, key: [ip], limt: 5/m}\n  - {name: a, key: [ip], limit: 5/x}\n", nil, exitError, []string{
			"policies.yaml:3:26: policies[0].limt: ", "(unknown_field)", "Did you mean \"limit\"?",
		}},
		"no YAML":     {"version: [1\n", nil, exitError, []string{"policies.yaml:", "(syntax)"}},
		"nothing":     {"", nil, exitError, []string{"policies.yaml:"}},
		"no policies": {"version: 1\n", nil, exitOK, []string{"no policies: everything passes\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := document(t, c.document)
			code, out, errs := command(t, append(append([]string{"check"}, c.flags...), path)...)
			require.Equal(t, c.code, code, "%s%s", out, errs)
			require.Empty(t, errs)
			require.NotContains(t, out, "hunter2")
			out = squeeze(out)
			require.True(t, strings.HasPrefix(out, squeeze(c.says[0])), "%s\nbegins not with\n%s", out, c.says[0])
			for _, text := range c.says {
				text = squeeze(text)
				_, rest, found := strings.Cut(out, text)
				require.True(t, found, "%q in\n%s", text, out)
				out = rest
			}
		})
	}
}

func TestCheckJSON(t *testing.T) {
	type result struct {
		OK       bool
		Findings config.Findings
	}
	for name, c := range map[string]struct {
		document, flag string
		code           int
		ids            []string
	}{
		"good":            {"version: 1\npolicies: [{name: a, key: [ip], limit: 1/s}]\n", "-json", exitOK, nil},
		"bad":             {"version: 1\npolicies: [{name: a, key: [ip], limt: 1/s}]\n", "-json", exitError, []string{"unknown_field"}},
		"warning":         {"version: 1\npolicies: [{name: a, key: [\"query:k\"], limit: 1/s}]\n", "-json", exitOK, []string{"client_chosen"}},
		"warning, strict": {"version: 1\npolicies: [{name: a, key: [\"query:k\"], limit: 1/s}]\n", "-strict", exitError, []string{"client_chosen"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := command(t, "check", "-json", c.flag, document(t, c.document))
			require.Equal(t, c.code, code)
			require.Empty(t, errs)
			require.Contains(t, out, `"findings": [`, "a list, even of nothing")
			var r result
			require.NoError(t, json.Unmarshal([]byte(out), &r))
			require.Equal(t, c.code == exitOK, r.OK)
			var ids []string
			for _, f := range r.Findings {
				ids = append(ids, f.ID)
				require.NotEmpty(t, f.Message)
			}
			require.Subset(t, ids, c.ids)
			require.Equal(t, len(c.ids) == 0, len(ids) == 0)
		})
	}
}

func TestCheckOfManyPolicies(t *testing.T) {
	text := "version: 1\npolicies:\n"
	for k := range 200 {
		text += fmt.Sprintf("  - {name: p%d, match: {routes: [\"/r%d/\"]}, key: [ip], limit: %d/m}\n", k, k, k+1)
	}
	code, out, _ := command(t, "check", document(t, text))
	require.Equal(t, exitOK, code)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	require.Len(t, lines, 201)
	for _, line := range lines {
		require.Less(t, len(line), 60)
	}
}

func TestUsageIsExit2(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"nonsense"},
		{"check"},
		{"check", "a", "b"},
		{"check", "-config", "a", "b"},
		{"check", "-config", "gopher://a"},
		{"check", "gopher://a"},
		{"check", "-nonsense", "a"},
		{"check", "-name", "x", "a"},
		{"inspect"},
		{"inspect", "ip=1.2.3.4"},
		{"inspect", "-config", "a"},
		{"inspect", "-config", "a", "ip=1.2.3.4", "more"},
		{"inspect", "-config", "a", "1.2.3.4"},
		{"inspect", "-config", "a", "ip="},
		{"inspect", "-config", "gopher://a", "ip=1.2.3.4"},
		{"reset"},
		{"reset", "-config", "a", "|"},
		{"schema", "more"},
		{"schema", "-nonsense"},
		{"serve"},
		{"demo", "more"},
	} {
		code, out, errs := command(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, out, args)
		require.NotEmpty(t, errs, args)
	}
	for _, name := range []string{"demo", "serve", "check", "inspect", "reset", "schema"} {
		code, out, errs := command(t, name, "-h")
		require.Equal(t, exitOK, code, name)
		require.Empty(t, out)
		require.Contains(t, strings.ToLower(errs), "usage", name)
	}
	code, out, _ := command(t, "help")
	require.Equal(t, exitOK, code)
	require.Equal(t, usage, out)
	code, _, errs := command(t, "check", filepath.Join(t.TempDir(), "nothing.yaml"))
	require.Equal(t, exitError, code)
	require.Contains(t, errs, "no such file")
	code, out, _ = command(t, "schema")
	require.Equal(t, exitOK, code)
	require.True(t, json.Valid([]byte(out)))
	require.ErrorIs(t, check(t.Context(), []string{"-h"}, new(bytes.Buffer), new(bytes.Buffer)), flag.ErrHelp)
}

// A document is a file, or what comes in; what has no end is not waited for.
func TestWhereCheckReads(t *testing.T) {
	const text = "version: 1\npolicies: [{name: a, key: [ip], limt: 1/s}]\n"
	path := document(t, text)
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	_, want, _ := command(t, "check", path)
	require.Contains(t, want, "(unknown_field)")
	for _, args := range [][]string{{"-config", path}, {"-config", "file://" + abs}} {
		code, out, errs := command(t, append([]string{"check"}, args...)...)
		require.Equal(t, exitError, code)
		require.Empty(t, errs)
		require.Contains(t, out, strings.TrimPrefix(want, path))
	}

	stdin := os.Stdin
	t.Cleanup(func() { os.Stdin = stdin })
	os.Stdin, err = os.Open(path)
	require.NoError(t, err)
	code, out, _ := command(t, "check", "-")
	require.Equal(t, exitError, code)
	require.Equal(t, "stdin"+strings.TrimPrefix(want, path), out)
	require.NoError(t, os.Stdin.Close())

	large := filepath.Join(t.TempDir(), "large.yaml")
	require.NoError(t, os.WriteFile(large, bytes.Repeat([]byte("#"), config.MaxDocument+1), 0o600))
	for where, says := range map[string]string{
		os.DevNull: "is no regular file; - is the standard input", t.TempDir(): "is a directory", large: "is larger than the ",
	} {
		for _, args := range [][]string{{"check", where}, {"check", "-config", where}, {"inspect", "-config", where, "ip=1.2.3.4"}} {
			code, out, errs := command(t, args...)
			require.Equal(t, exitError, code, args)
			require.Empty(t, out)
			require.Contains(t, errs, says)
			require.Contains(t, errs, where)
		}
	}
}
