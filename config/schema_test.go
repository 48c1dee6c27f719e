package config_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
)

// The file is what editors are pointed to.
func TestSchemaFile(t *testing.T) {
	golden(t, "schema.json", string(config.Schema()))
}

// fits checks a value against the part of JSON Schema that the schema uses, and tells of keywords that it does not know.
func fits(t *testing.T, schema map[string]any, value any) bool {
	t.Helper()
	number := func(k string) float64 { return schema[k].(float64) }
	for k, rule := range schema {
		text, isText := value.(string)
		list, isList := value.([]any)
		object, isObject := value.(map[string]any)
		n, isNumber := value.(float64)
		ok := true
		switch k {
		case "type":
			switch rule {
			case "string":
				ok = isText
			case "integer":
				ok = isNumber && n == float64(int(n))
			case "number":
				ok = isNumber
			case "boolean":
				_, ok = value.(bool)
			case "array":
				ok = isList
			case "object":
				ok = isObject
			default:
				t.Fatalf("type %v", rule)
			}
		case "not":
			ok = !fits(t, rule.(map[string]any), value)
		case "enum":
			ok = slices.ContainsFunc(rule.([]any), func(x any) bool { return reflect.DeepEqual(x, value) })
		case "const":
			ok = reflect.DeepEqual(rule, value)
		case "anyOf":
			ok = slices.ContainsFunc(rule.([]any), func(x any) bool { return fits(t, x.(map[string]any), value) })
		case "minLength":
			ok = !isText || len(text) >= int(number(k))
		case "maxLength":
			ok = !isText || len(text) <= int(number(k))
		case "pattern":
			ok = !isText || regexp.MustCompile(rule.(string)).MatchString(text)
		case "minimum":
			ok = !isNumber || n >= number(k)
		case "exclusiveMinimum":
			ok = !isNumber || n > number(k)
		case "maximum":
			ok = !isNumber || n <= number(k)
		case "maxItems":
			ok = !isList || len(list) <= int(number(k))
		case "minItems":
			ok = !isList || len(list) >= int(number(k))
		case "minProperties":
			ok = !isObject || len(object) >= int(number(k))
		case "maxProperties":
			ok = !isObject || len(object) <= int(number(k))
		case "items":
			ok = !slices.ContainsFunc(list, func(x any) bool { return !fits(t, rule.(map[string]any), x) })
		case "required":
			ok = !isObject || !slices.ContainsFunc(rule.([]any), func(x any) bool { _, ok := object[x.(string)]; return !ok })
		case "properties":
			for name, x := range object {
				if p, known := rule.(map[string]any)[name]; known {
					ok = ok && fits(t, p.(map[string]any), x)
				}
			}
		case "additionalProperties":
			properties, _ := schema["properties"].(map[string]any)
			for name, x := range object {
				if _, known := properties[name]; known || schema["patternProperties"] != nil && strings.HasPrefix(name, "x-") {
					continue
				}
				more, isSchema := rule.(map[string]any)
				ok = ok && isSchema && fits(t, more, x)
			}
		case "propertyNames":
			for name := range object {
				ok = ok && fits(t, rule.(map[string]any), name)
			}
		case "patternProperties", "description", "title", "$schema":
		default:
			t.Fatalf("keyword %s", k)
		}
		if !ok {
			return false
		}
	}
	return true
}

// The schema accepts what Parse accepts, and refuses what it refuses, as far as forms go.
func TestSchemaAgrees(t *testing.T) {
	var schema map[string]any
	require.NoError(t, json.Unmarshal(config.Schema(), &schema))
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", schema["$schema"])
	for _, text := range []string{
		inYAML, inJSON, "version: 1", "version: 2", "policies: []", `version: "1"`, "version: 1\nx-a: [1]", "version: 1\ny-a: [1]", "version: 1\nheaders: next", "version: 1\nheaders: none",
		"version: 1\nmax_waiting: off", "version: 1\nmax_waiting: 0", "version: 1\nmax_waiting: 5", "version: 1\nmax_waiting: x",
		"version: 1\nstore: {timeout: 50ms}", "version: 1\nstore: {timeout: 50}", "version: 1\nstore: {deny_cache: off}", "version: 1\nstore: {timeout: off}",
		"version: 1\nstore: {memory: {max_keys: 0}}", "version: 1\nstore: {memory: {max_keys: 5}}", "version: 1\nstore: {redis: [a]}", "version: 1\nstore: {prefix: ''}",
		"version: 1\npolicies: [{name: a}]", "version: 1\npolicies: [{key: a}]", "version: 1\npolicies: [{name: a, key: [a, b]}]", "version: 1\npolicies: [{name: a, key: {a: b}}]",
		"version: 1\npolicies: [{name: a, key: [a, a, a, a, a, a, a, a, a]}]", "version: 1\npolicies: [{name: a, refund: [5xx, 404, '404']}]", "version: 1\npolicies: [{name: a, refund: [6xx]}]",
		"version: 1\npolicies: [{name: a, refund: [99]}]", "version: 1\npolicies: [{name: a, mode: lease}]", "version: 1\npolicies: [{name: a, shadow: yes please}]",
		"version: 1\npolicies: [{name: a, plans: {from: x, limits: {a: 1/s}}}]", "version: 1\npolicies: [{name: a, plans: {from: x}}]", "version: 1\npolicies: [{name: a, burst: 0}]",
		"version: 1\npolicies: [{name: a, overrides: {ip: {192.0.2.1: 1/s}}}]", "version: 1\npolicies: [{name: a, overrides: {ip: [x]}}]", "version: 1\npolicies: [{name: a, align: {unit: year}}]",
		"version: 1\npolicies: [{name: " + strings.Repeat("a", 65) + "}]", "version: 1\npolicies: [{name: a, messages: {'': x}}]", "version: 1\nresponse: {jitter: 1h30m}",
		"version: 1\npolicies: [{name: a, degrade: cache}]", "version: 1\npolicies: [{name: a, degrade: [cache, flag]}]", "version: 1\npolicies: [{name: a, degrade: {cache: {}}}]", "version: 1\npolicies: [{name: a, degrade: []}]",
		"version: 1\npolicies: [{name: a, degrade: [x, {queue: {max_wait: 2s}}]}]", "version: 1\npolicies: [{name: a, degrade: {cache: {}, queue: {}}}]",
		"version: 1\npolicies: [{name: a, degrade: [{}]}]", "version: 1\npolicies: [{name: a, degrade: [{cached: {}}]}]", "version: 1\npolicies: [{name: a, degrade: [[x]]}]",
		"version: 1\npolicies: [{name: a, degrade: {read_only: {limit: 1/s, latch: 20%}}}]", "version: 1\npolicies: [{name: a, degrade: {read_only: {limit: 1/s, latch: 0.2}}}]",
		"version: 1\npolicies: [{name: a, degrade: {read_only: {limit: 1/s, latch: 2}}}]", "version: 1\npolicies: [{name: a, degrade: {read_only: {latch: 20%}}}]",
		"version: 1\npolicies: [{name: a, degrade: {cache: {statuses: [200, 404], max_stale: off, query: []}}}]", "version: 1\npolicies: [{name: a, degrade: {cache: {statuses: []}}}]",
		"version: 1\n$schema: x", "version: 1\nexempt: {$schema: x}", "version: 1\nexempt: {cidrs: []}", "version: 1\nexempt: {cidrs: [x]}", "version: 1\npolicies: [{name: a, match: {hosts: []}}]", "version: 1\npolicies: [{name: a, match: {}}]",
	} {
		data, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		var value any
		require.NoError(t, json.Unmarshal(data, &value))
		_, found := config.Parse([]byte(text))
		require.Equal(t, found.Err() == nil, fits(t, schema, value), "%s\n%v", text, found)
	}
	// Every field is described, and all objects but those of names are closed.
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		if properties, ok := s["properties"].(map[string]any); ok {
			require.Equal(t, false, s["additionalProperties"], path)
			for name, p := range properties {
				require.NotEmpty(t, p.(map[string]any)["description"], path+"."+name)
				walk(path+"."+name, p.(map[string]any))
			}
		}
		if items, ok := s["items"].(map[string]any); ok {
			walk(path+"[]", items)
		}
	}
	walk("", schema)
}
