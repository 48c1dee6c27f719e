package config_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
)

const reference = "../docs/policy.md"

// The reference has every field of a document, as its tags describe it.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(reference)
	require.NoError(t, err)
	const begin, end = "<!-- fields, written by a test of package config -->\n", "<!-- end of fields -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)

	var parts []string
	rows := make(map[string]string)
	fields(reflect.TypeFor[config.Document](), "", func(path string, f reflect.StructField) {
		if strings.HasPrefix(path, "policies.exempt.") || strings.HasPrefix(path, "policies.match.") || strings.HasPrefix(path, "store.fallback.memory.") {
			return // as exempt and store.memory
		}
		name := path[strings.LastIndex(path, ".")+1:]
		part := strings.TrimSuffix(path[:len(path)-len(name)], ".")
		if rows[part] == "" {
			parts = append(parts, part)
		}
		rows[part] += fmt.Sprintf("| `%s` | %s | %s |\n", name, strings.ReplaceAll(kindOf(f), "|", `\|`), strings.ReplaceAll(f.Tag.Get("about"), "|", `\|`))
	})
	var b strings.Builder
	for _, part := range parts {
		title := "The document"
		if part != "" {
			title = "`" + part + "`"
		}
		fmt.Fprintf(&b, "\n### %s\n\n| field | value | |\n|---|---|---|\n%s", title, rows[part])
	}
	golden(t, reference, before+begin+b.String()+"\n"+end+after)
}

// kindOf tells what values a field takes.
func kindOf(f reflect.StructField) string {
	t := f.Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := map[reflect.Kind]string{reflect.Struct: "fields", reflect.Map: "names with values", reflect.Slice: "list", reflect.Bool: "true or false", reflect.Int: "number", reflect.String: "text"}[t.Kind()]
	switch t.Name() {
	case "Set":
		kind = "text"
	case "Duration":
		kind = "time"
	case "Count":
		kind = "number or `off`"
	case "List":
		kind = "text or list"
	case "Limit":
		kind = "limit"
	case "Number":
		kind = "number above 0, such as 1.5"
	case "Share":
		kind = "share, such as 20%"
	case "Chain":
		kind = "handler or list of handlers"
	}
	rules := f.Tag.Get("rules")
	get := func(name string) string {
		if m := regexp.MustCompile(`(?:^|,)` + name + `=([^,]+)`).FindStringSubmatch(rules); m != nil {
			return m[1]
		}
		return ""
	}
	if one := get("oneof"); one != "" {
		kind = "`" + strings.ReplaceAll(one, "|", "`, `") + "`"
	}
	if least, most := get("min"), get("max"); least != "" || most != "" {
		kind += fmt.Sprintf(", %s…%s", least, most)
	}
	if strings.Contains(","+rules+",", ",off,") {
		kind += ", or `off`"
	}
	if n := get("len"); n != "" {
		kind += ", at most " + n
	}
	if strings.Contains(rules, "required") {
		kind += ", required"
	}
	if strings.Contains(rules, "secret") {
		kind += ", secret"
	}
	return kind
}

// The reference has every finding, and the examples in it are right.
func TestReferenceOfFindings(t *testing.T) {
	text, err := os.ReadFile(reference)
	require.NoError(t, err)
	source, err := os.ReadFile("finding.go")
	require.NoError(t, err)
	var known []string
	for _, m := range regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "(\w+)" +//`).FindAllSubmatch(source, -1) {
		known = append(known, string(m[1]))
	}
	require.Len(t, known, 15)
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (error|warning)").FindAllSubmatch(text, -1) {
		told = append(told, string(m[1]))
	}
	require.ElementsMatch(t, known, told)

	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	require.NotEmpty(t, examples)
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	t.Setenv("KEY_SECRET", "0123456789abcdef")
	for _, m := range examples {
		_, found := config.Build(parsed(t, string(m[1])), deps(t))
		require.NoError(t, found.Err(), string(m[1]))
	}
}
