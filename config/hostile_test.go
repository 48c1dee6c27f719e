package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
)

// fill repeats unit up to a size.
func fill(unit string, size int) string { return strings.Repeat(unit, size/len(unit)) }

// numbered makes units with the number of each up to a size.
func numbered(format string, size int) string {
	var b strings.Builder
	for k := 0; b.Len()+len(format)+8 < size; k++ {
		fmt.Fprintf(&b, format, k)
	}
	return b.String()
}

// hostile are documents of about a size that cost a parser without bounds seconds to hours, or its stack.
func hostile(n int) map[string]string {
	shapes := map[string]string{
		"mapping":         numbered("k%d: 1\n", n),
		"mapping, empty":  numbered("k%d:\n", n),
		"mapping, lists":  numbered("k%d:\n- a\n", n),
		"flow mapping":    "a: {\n" + numbered("k%d: 1,\n", n-10) + "}\n",
		"flow list":       "a: [\n" + fill("a,\n", n-10) + "]\n",
		"flow, open":      "a: [\n" + fill("a,\n", n-10),
		"brackets":        "a: " + fill("[", n-10),
		"braces":          "a: " + fill("{a: ", n-10),
		"bracket lines":   "a: [\n" + fill("[\n", n-10),
		"dashes":          fill("- ", n),
		"questions":       fill("? ", n),
		"colons":          fill("a: ", n),
		"block":           "a: |\n" + fill("  abc def\n", n-10),
		"folded":          "a: >\n" + fill("  a\n\n", n-10),
		"quoted":          `a: "` + fill("abc def\n ", n-10) + `"`,
		"quote, open":     `a: "` + fill("abc def\n ", n-10),
		"escapes":         `a: "` + fill(`\u0041\n`, n-10) + `"`,
		"blank quote":     "a: '" + fill("\n", n-10) + "'",
		"policies":        "version: 1\npolicies:\n" + numbered("- {nmae: p%d, key: ip, limit: 5/s}\n", n-100),
		"policies, JSON":  `{"version": 1, "policies": [` + numbered(`{"name": "p%d", "kye": "ip", "limit": "5/s"}, `, n-100) + `{}]}`,
		"merge chain":     "x-a0: &a0 {k: v}\n" + mergeChain(n-100),
		"laughs":          laughs(),
		"merged laughs":   mergedLaughs(),
		"merged often":    "x-a: &a\n" + numbered("  k%d: 1\n", min(n/2, 100_000)) + "policies:\n" + fill("- <<: *a\n", min(n/2, 50_000)),
		"itself":          "x-a: &a [*a, *a]\npolicies: *a\n",
		"alone":           "policies: &a *a\n",
		"merges itself":   "policies:\n- &a {name: x, <<: [*a, *a]}\n",
		"unknown anchors": numbered("x-k%d: &abcdefghijklmnopqrstuvwxyz%[1]d a\n", n/2) + "policies:\n" + fill("- *abcdefghijklmnopqrstuvwxy\n", n/4),
		"secrets":         "store: {" + numbered("url%d: abcdefgh%[1]d, ", n-100) + "}\n",
		"secrets within":  fill("url: {", n),
		"stores within":   fill("store: {", n),
		"store lines":     fill("store:\n", n),
		"callers within":  "x-a: hmac\n" + fill("overrides: {", n-20),
		"callers lines":   "x-a: hmac\n" + fill("overrides:\n  a: b\n", n-20),
		"top lines":       fill("auth: {}\n", n),
		"secret lines":    numbered("url%d: \"abcdefgh\"\n", n),
	}
	for _, before := range []string{"version: 1\n", "a: ", "a: [", "---\n", "---\n%a ", ""} {
		for _, unit := range []string{`"a" `, `"a"`, "'a' ", "%YAML 1.2 ", "%a ", "&a ", "&a b ", "*a ", "{} ", "{}", "[] ", "[]", "!a ", "x *a ", "<< ", "a: {} "} {
			shapes[fmt.Sprintf("one line %q %q", before, unit)] = before + fill(unit, n-20)
		}
	}
	shapes["headers"] = fill("# c\n", n/2) + "%a\n" + fill("---\n", n/3)
	var deep strings.Builder
	for k := 0; deep.Len()+k+4 < n; k++ {
		deep.WriteString(strings.Repeat(" ", k) + "a:\n")
	}
	shapes["indentation"] = deep.String()
	for _, line := range []string{
		"- a", "-", "", "# a", "---", "--- a", "...", ":", ": ", "? a", "?", "&a", "- &a b", "- *a", "- !t a", "!t", "!", "<<: *a", "- |\n  a", "a", "- [a]",
		"- {a: b}", "- []", "- a: b\n  c: d", "\t", "%YAML 1.2", ",", "]", "}", "'", `"`, `\`, "|", "@", "*", "<<: {a: b}", "a: b: c", "- " + strings.Repeat("!t ", 999),
		"- " + strings.Repeat("&a ", 999), strings.Repeat(": ", 999), "- [" + strings.Repeat("? a,", 999) + "]", "- {" + strings.Repeat("a: b,", 999) + "}",
		"- " + strings.Repeat("- ", 60) + "a", "- " + strings.Repeat("'a' ", 999), "\u2028", "\u00a0", strings.Repeat(" ", 999),
	} {
		shapes[fmt.Sprintf("lines %.20q", line)] = fill(line+"\n", n)
	}
	return shapes
}

func mergeChain(n int) string {
	var b strings.Builder
	k := 1
	for ; b.Len()+40 < n; k++ {
		fmt.Fprintf(&b, "x-a%d: &a%d\n  <<: *a%d\n", k, k, k-1)
	}
	return b.String() + fmt.Sprintf("policies: [*a%d]\n", k-1)
}

// laughs are lists of ten aliases of lists of ten aliases.
func laughs() string {
	var b strings.Builder
	b.WriteString("x-a0: &a0 {name: x}\n")
	for k := 1; k < 12; k++ {
		fmt.Fprintf(&b, "x-a%d: &a%d [%s]\n", k, k, fill(fmt.Sprintf("*a%d, ", k-1), 60))
	}
	return b.String() + "policies: *a11\nexempt: *a11\n"
}

func mergedLaughs() string {
	var b strings.Builder
	b.WriteString("x-a0: &a0 {name: x}\n")
	for k := 1; k < 40; k++ {
		fmt.Fprintf(&b, "x-a%d: &a%d {<<: [%s]}\n", k, k, fill(fmt.Sprintf("*a%d, ", k-1), 60))
	}
	return b.String() + "policies: [*a39, *a39]\n"
}

// Documents that are made to be expensive are refused, or read, in time: a parser without bounds does not come back from
// most of them.
func TestHostile(t *testing.T) {
	size := config.MaxDocument
	if testing.Short() || raceEnabled {
		size /= 32
	}
	for name, text := range hostile(size) {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(text), config.MaxDocument)
			_, found := config.Parse([]byte(text))
			require.Error(t, found.Err())
			require.LessOrEqual(t, len(found), 101)
		})
	}
}

// The bounds leave room for every document that people write.
func TestRoom(t *testing.T) {
	n := 10_000
	if raceEnabled {
		n = 1000
	}
	var b strings.Builder
	b.WriteString("version: 1\npolicies:\n")
	for k := range n {
		fmt.Fprintf(&b, "- name: p%d\n  key: [tenant, ip]\n  limit: 600/m\n  match: {routes: [/r%d]}\n", k, k)
	}
	require.Less(t, b.Len(), config.MaxDocument)
	doc := parsed(t, b.String())
	require.Len(t, doc.Policies, n)

	big := "version: 1\npolicies: []\n" + fill("# a comment with some words in it\n", config.MaxDocument-100)
	parsed(t, big)
	_, found := config.Parse([]byte(big + strings.Repeat("#", 100)))
	require.Equal(t, config.TooLarge, found[0].ID)
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		inYAML, inJSON, laughs(), mergedLaughs(), "a: &a [*a]", "<<: *a", "? a\n: b", "!!str a", "a: |\n  b", "key_secret: \"a", "{",
		"version: 1\npolicies: [{name: a, key: ip, limit: 9/s, mode: local, schedule: [{when: Mon-Fri 09:00-18:00, zone: UTC, scale: 1.5}, {when: holiday, limit: 5/s}], calendar: {holidays: [2026-10-01..2026-10-07]}, adaptive: {target: rate, min: 1/s, rtt: off, errors: off, cpu: 0.7, runnable: 2.5}}]",
	} {
		f.Add([]byte(text))
	}
	for _, name := range []string{"unknown_fields", "values", "twice", "anchors", "secret_places"} {
		text, err := os.ReadFile("testdata/findings/" + name + ".yaml")
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			t.Skip()
		}
		doc, found := config.Parse(data)
		_ = found.Error()
		text := doc.Redacted()
		_, more := config.Build(doc, config.Deps{})
		_ = more.Error()
		if found.Err() != nil {
			return
		}
		again, found := config.Parse(text)
		if strings.Contains(string(text), "(redacted") {
			return
		}
		require.Empty(t, found, string(text))
		require.Equal(t, string(text), string(again.Redacted()))
		require.Empty(t, config.Diff(doc, again))
	})
}
