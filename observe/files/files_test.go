package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/promtest"
)

func promtool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := promtest.Promtool(t, nil, args...)
	require.NoError(t, err, out)
	return out
}

func TestScrapeConfig(t *testing.T) {
	require.Contains(t, promtool(t, "check", "config", "prometheus.yml"), "1 rule files found")

	// What is commented out is valid as well. Debian's Prometheus is built without Kubernetes, and so not asked about the
	// two lines that say where targets come from.
	text := read(t, "prometheus.yml")
	_, after, found := strings.Cut(text, "  # - job_name: kubernetes-pods\n")
	require.True(t, found)
	var pods strings.Builder
	pods.WriteString("scrape_configs:\n  - job_name: kubernetes-pods\n")
	for line := range strings.Lines(after) {
		pods.WriteString("  " + strings.TrimPrefix(line, "  # "))
	}
	config := strings.Replace(pods.String(), "kubernetes_sd_configs:\n      - role: pod\n", "static_configs:\n      - targets: [a]\n", 1)
	require.NotEqual(t, pods.String(), config)
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	promtool(t, "check", "config", file)
}

func TestAlerts(t *testing.T) {
	require.Contains(t, promtool(t, "check", "rules", "alerts.yml"), "SUCCESS")
	require.Contains(t, promtool(t, "test", "rules", "alerts_test.yml", "outages_test.yml"), "SUCCESS")
}

var (
	alertName  = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	firing     = regexp.MustCompile(`alertname="(\w+)", alertstate="firing"`)
	annotation = regexp.MustCompile(`(?m)^      - alertname: (\w+)$`)
	metricName = regexp.MustCompile(`\brate_limit_\w+\b`)
)

// Every alert says what it means and where to read on, fires in one unit test at least, and its texts are looked at.
func TestEveryAlertIsDescribedAndTested(t *testing.T) {
	text, tests := read(t, "alerts.yml"), read(t, "alerts_test.yml")+read(t, "outages_test.yml")
	fires, worded := found(firing, tests), found(annotation, tests)
	guide := headings(t)
	at := alertName.FindAllStringSubmatchIndex(text, -1)
	require.NotEmpty(t, at)
	for i, m := range at {
		name, end := text[m[2]:m[3]], len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		rule := text[m[0]:end]
		require.Regexp(t, `^Spillway[A-Z]`, name)
		require.Regexp(t, `(?m)^        for: \d+m$`, rule, name)
		require.Regexp(t, `(?m)^        labels: \{severity: (critical|warning|info)\}$`, rule, name)
		require.Regexp(t, `(?m)^          summary: "\{\{ \$labels.job \}\}: .+"$`, rule, name)
		require.Regexp(t, `(?m)^          description: >-\n +\w`, rule, name)
		anchor := kebab(strings.TrimPrefix(name, "Spillway"))
		require.Contains(t, rule, "\n          runbook: docs/operations.md#"+anchor+"\n", name)
		if guide != nil {
			require.Contains(t, guide, anchor, "docs/operations.md has no heading for %s", name)
		}
		require.Contains(t, worded, name, "a unit test looks at its texts")
		require.Contains(t, fires, name, "a unit test has it fire")
	}
}

func found(re *regexp.Regexp, text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names
}

func kebab(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "$1-$2"))
}

// headings returns the anchors of the guide for operators, nil if there is none.
func headings(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors[strings.ReplaceAll(kept, " ", "-")] = true
	}
	return anchors
}

// A metric that is misspelt gives no error and no alert, for ever.
func TestFilesNameMetricsThatExist(t *testing.T) {
	doc, alerts := read(t, "../prom/prom.go")+read(t, "../prom/leases.go"), read(t, "alerts.yml")
	series := regexp.MustCompile(`_(bucket|count|sum)$`)
	for _, file := range []string{"alerts.yml", "alerts_test.yml", "outages_test.yml", "dashboard.json"} {
		names := metricName.FindAllString(read(t, file), -1)
		require.NotEmpty(t, names, file)
		for _, name := range names {
			if strings.Contains(alerts, ":"+name+":") {
				continue // a part of the name of a recorded series
			}
			known := strings.Contains(doc, `"`+name+`"`) || strings.Contains(doc, `"`+series.ReplaceAllString(name, "")+`"`)
			require.True(t, known, "%s has %s", file, name)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}
